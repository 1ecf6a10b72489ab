//! The address of a deployment, as the caller configures it.

use std::sync::Arc;

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::connector::Connector;
use crate::error::Error;

/// The address of a deployment, and its users and passwords.
#[derive(Clone)]
pub(crate) enum Address {
    /// One server.
    Server(ConnectionInfo),
    /// The master that these sentinels know under this name.
    Sentinel {
        name: String,
        sentinels: Vec<ConnectionInfo>,
        /// The settings for connecting to the master. Its host is not one of them.
        master: ConnectionInfo,
    },
    /// One server, to which a user's connector opens connections.
    Connector {
        connector: Arc<dyn Connector>,
        /// The settings for the connections. The address in it is a placeholder.
        info: ConnectionInfo,
    },
    /// The cluster of these nodes. The settings of the first seed apply to all nodes.
    Cluster { seeds: Vec<ConnectionInfo> },
}

impl Address {
    /// Parses `redis://`, `rediss://` and `unix://`; for sentinels
    /// `redis+sentinel://[user:password@]host[:port],host[:port].../master[/db]`; for a cluster
    /// `redis+cluster://[user:password@]host[:port],host[:port]...`. All of them may end in
    /// `?protocol=resp3`. `rediss+sentinel://` and `rediss+cluster://` use TLS everywhere. User and
    /// password in a sentinel URL are those of the master.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        for (scheme, inner) in [
            ("redis+sentinel://", "redis"),
            ("rediss+sentinel://", "rediss"),
        ] {
            if let Some(rest) = url.strip_prefix(scheme) {
                return Self::parse_sentinel(inner, rest);
            }
        }
        for (scheme, inner) in [
            ("redis+cluster://", "redis"),
            ("rediss+cluster://", "rediss"),
        ] {
            if let Some(rest) = url.strip_prefix(scheme) {
                return Self::parse_cluster(inner, rest);
            }
        }
        server(url).map(Self::Server)
    }

    /// The server to which this connector opens connections.
    pub(crate) fn behind(connector: Arc<dyn Connector>) -> Result<Self, Error> {
        let info = server("redis://connector")?;
        Ok(Self::Connector { connector, info })
    }

    /// The user's connector, if one opens the connections.
    pub(super) fn connector(&self) -> Option<Arc<dyn Connector>> {
        match self {
            Self::Connector { connector, .. } => Some(connector.clone()),
            Self::Server(_) | Self::Sentinel { .. } | Self::Cluster { .. } => None,
        }
    }

    fn parse_cluster(scheme: &str, rest: &str) -> Result<Self, Error> {
        let refuse = |why: &str| Error::invalid("url", why.to_owned());
        let (login, hosts) = split_login(rest)?;
        let (hosts, query) = split_protocol(hosts);
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains(['/', '?']) {
            return Err(refuse(
                "a cluster has only database 0: only ?protocol=resp3 may follow the nodes",
            ));
        }
        let at = if login.is_empty() { "" } else { "@" };
        Self::cluster(hosts.split(',').map(|host| {
            let port = if has_port(host) { "" } else { ":6379" };
            format!("{scheme}://{login}{at}{host}{port}{query}")
        }))
    }

    /// The cluster to which the nodes at these URLs belong.
    pub(crate) fn cluster(urls: impl IntoIterator<Item = String>) -> Result<Self, Error> {
        let seeds = several("cluster", "node", urls)?;
        if seeds.iter().any(|it| it.redis_settings().db() != 0) {
            let why = "a cluster has only database 0".to_owned();
            return Err(Error::invalid("cluster", why));
        }
        Ok(Self::Cluster { seeds })
    }

    fn parse_sentinel(scheme: &str, rest: &str) -> Result<Self, Error> {
        let refuse = |why: &str| Error::invalid("url", why.to_owned());
        let (login, rest) = split_login(rest)?;
        let (rest, query) = split_protocol(rest);
        let mut parts = rest.split('/');
        let hosts = parts.next().unwrap_or_default();
        let name = parts.next().filter(|name| !name.is_empty());
        let name =
            name.ok_or_else(|| refuse("the URL names no master: end it with /<master name>"))?;
        let database = parts.next().unwrap_or_default();
        if parts.next().is_some() || rest.contains('?') {
            let why = "only ?protocol=resp3 may follow the database number";
            return Err(refuse(why));
        }
        let urls = hosts.split(',').map(|host| {
            let port = if has_port(host) { "" } else { ":26379" };
            format!("{scheme}://{host}{port}")
        });
        let at = if login.is_empty() { "" } else { "@" };
        // The host is a placeholder: only the rest of the URL is used.
        let master = server(&format!("{scheme}://{login}{at}master/{database}{query}"))?;
        Self::sentinel(name, urls, Some(master))
    }

    /// The master with this name, monitored by the sentinels at these URLs. Without `master` the
    /// client connects to it with the sentinels' TLS setting, and without a user and password.
    pub(crate) fn sentinel(
        name: &str,
        urls: impl IntoIterator<Item = String>,
        master: Option<ConnectionInfo>,
    ) -> Result<Self, Error> {
        let refuse = |why: &str| Error::invalid("sentinel", why.to_owned());
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(refuse("the master's name must have 1 to 512 bytes"));
        }
        let sentinels = several("sentinel", "sentinel", urls)?;
        let first = &sentinels[0];
        let plain = || {
            let tcp = TcpSettings::default().set_nodelay(true);
            let info = first
                .clone()
                .set_redis_settings(RedisConnectionInfo::default());
            info.set_tcp_settings(tcp)
        };
        Ok(Self::Sentinel {
            name: name.to_owned(),
            master: master.unwrap_or_else(plain),
            sentinels,
        })
    }

    /// The kind of deployment, in a word that does not change.
    pub(crate) fn deployment(&self) -> &'static str {
        match self {
            Self::Server(_) => "server",
            Self::Sentinel { .. } => "sentinel",
            Self::Connector { .. } => "connector",
            Self::Cluster { .. } => "cluster",
        }
    }

    /// Host and port, the path of a unix socket, or the master's name. Never a user or password.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Server(info) => info.addr().to_string(),
            Self::Connector { connector, .. } => connector.address(),
            Self::Sentinel { name, .. } => format!("sentinel master {name}"),
            Self::Cluster { seeds } => {
                let seeds = seeds.iter().map(|seed| seed.addr().to_string());
                format!("cluster {}", seeds.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Splits a URL into user and password, and the rest.
fn split_login(rest: &str) -> Result<(&str, &str), Error> {
    if rest.contains('#') || rest.matches('@').count() > 1 {
        let why = "write '#' as %23, and '@' in user or password as %40";
        return Err(Error::invalid("url", why.to_owned()));
    }
    Ok(rest.rsplit_once('@').unwrap_or(("", rest)))
}

/// Splits the protocol off the end of a URL.
fn split_protocol(rest: &str) -> (&str, &str) {
    let at = rest.find("?protocol=").unwrap_or(rest.len());
    rest.split_at(at)
}

/// The servers at these URLs. At least one is required, and duplicates are refused.
fn several(
    setting: &'static str,
    what: &str,
    urls: impl IntoIterator<Item = String>,
) -> Result<Vec<ConnectionInfo>, Error> {
    let servers: Vec<_> = urls
        .into_iter()
        .map(|url| server(&url))
        .collect::<Result<_, _>>()?;
    let refuse = |why: String| Err(Error::invalid(setting, why));
    if servers.is_empty() {
        return refuse(format!("at least one {what} URL is required"));
    }
    for (index, one) in servers.iter().enumerate() {
        if matches!(one.addr(), ConnectionAddr::Unix(_)) {
            return refuse(format!("a {what} needs a host and port"));
        }
        if servers[..index]
            .iter()
            .any(|other| other.addr() == one.addr())
        {
            return refuse(format!("one {what} is given twice"));
        }
    }
    Ok(servers)
}

fn has_port(host: &str) -> bool {
    // The colons of an IPv6 address are inside brackets.
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    after.contains(':')
}

fn server(url: &str) -> Result<ConnectionInfo, Error> {
    // The URL may contain a password, so no part of it may appear in the message. redis-rs appends
    // its input to its own text.
    let refuse = |error: redis::RedisError| {
        let text = error.to_string();
        let words = text.split(" - ").next().unwrap_or_default();
        let schemes =
            "redis://, rediss://, unix://, or redis+sentinel:// or redis+cluster:// (or rediss+..)";
        Error::invalid("url", format!("{words}; it must begin with {schemes}"))
    };
    let info: ConnectionInfo = url.into_connection_info().map_err(refuse)?;
    if let ConnectionAddr::TcpTls { insecure, .. } = info.addr() {
        if *insecure {
            let why = "certificates are always verified; #insecure is not supported";
            return Err(Error::invalid("url", why.to_owned()));
        }
        choose_crypto();
    }
    Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

/// rustls panics at the first connection if the process chose no crypto provider. A process that
/// chose one keeps it.
#[cfg(feature = "tls")]
pub(super) fn choose_crypto() {
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
}

/// Without the feature redis-rs refuses the URL with its own error.
#[cfg(not(feature = "tls"))]
pub(super) fn choose_crypto() {}

const LONGEST_NAME: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinel(url: &str) -> (String, Vec<String>, ConnectionInfo) {
        match Address::parse(url).unwrap() {
            Address::Sentinel {
                name,
                sentinels,
                master,
            } => {
                let hosts = sentinels.iter().map(|it| it.addr().to_string()).collect();
                (name, hosts, master)
            }
            _ => panic!("it is no sentinel"),
        }
    }

    #[test]
    fn a_sentinel_url_has_sentinels_master_login_and_database() {
        let (name, hosts, master) = sentinel("redis+sentinel://ann:p%40w@a,b:5,[::1]:7/orders/3");
        assert_eq!(name, "orders");
        assert_eq!(hosts, ["a:26379", "b:5", "::1:7"]);
        let settings = master.redis_settings();
        assert_eq!(settings.username(), Some("ann"));
        assert_eq!(settings.password(), Some("p@w"));
        assert_eq!(settings.db(), 3);
    }

    #[test]
    fn a_sentinel_url_needs_hosts_and_a_master() {
        for (url, why) in [
            ("redis+sentinel://a,b", "names no master"),
            ("redis+sentinel://a,b/", "names no master"),
            ("redis+sentinel:///orders", "URL"),
            ("redis+sentinel://a/orders/x", "database"),
            ("redis+sentinel://a/orders/1/2", "may follow"),
            ("redis+sentinel://a/orders?x=1", "may follow"),
            ("redis+sentinel://a/orders?protocol=resp4", "protocol"),
            ("redis+sentinel://u:p@a,u:p@b/orders", "%40"),
            ("redis+sentinel://a/orders#insecure", "%23"),
            ("redis+sentinel://a,b,a/orders", "twice"),
        ] {
            let error = Address::parse(url).err().expect(url).to_string();
            assert!(
                error.to_lowercase().contains(&why.to_lowercase()),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn no_error_shows_a_password() {
        for url in [
            "redis+sentinel://:hunter2@a,b",
            "redis+sentinel://:hunter2@a:x/orders",
            "redis+sentinel://:hunter2@a/orders/x",
        ] {
            let error = Address::parse(url).err().expect(url);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
