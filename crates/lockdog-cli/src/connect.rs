//! The way to the servers: the one place where a client's settings come from.

use std::env;
use std::fs;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use lockdog::config::TlsSettings;
use lockdog::{Client, ClientBuilder};
use redis::{ConnectionAddr, IntoConnectionInfo};

use crate::args::Common;
use crate::failed::Failed;
use crate::output::Output;

/// Where the servers are, and how to log in.
///
/// It has no `Debug`: it knows the password.
pub(crate) struct Settings {
    servers: Servers,
    flag: Option<Flag>,
    user: Option<String>,
    password: Option<String>,
    pub(crate) certificates: Certificates,
    command_timeout: Option<Duration>,
}

enum Servers {
    /// One, or those of a RedLock.
    Urls(Vec<String>),
    /// What a configuration file says, with all its other settings.
    File(Box<ClientBuilder>),
}

/// The flag that names the servers. A command does not get it, so a lockdog below it needs a variable.
pub(crate) enum Flag {
    Urls(Vec<String>),
    /// Absolute, because the command may change its folder.
    File(PathBuf),
}

impl Flag {
    fn of(common: &Common) -> Option<Self> {
        match (&common.url[..], &common.config) {
            ([], None) => None,
            ([], Some(file)) => {
                let absolute = path::absolute(file);
                Some(Self::File(absolute.unwrap_or_else(|_| file.clone())))
            }
            (urls, _) => Some(Self::Urls(urls.to_vec())),
        }
    }
}

/// Files in PEM, read.
#[derive(Default)]
pub(crate) struct Certificates {
    pub(crate) roots: Option<Vec<u8>>,
    /// The client's certificate and its key.
    pub(crate) own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Settings {
    /// Flags come before the environment. Reads the files that the flags name.
    pub(crate) fn new(common: &Common, output: Output) -> Result<Self, Failed> {
        let password = match &common.password_file {
            Some(file) => Some(first_line(file)?),
            None => variable("LOCKDOG_PASSWORD")?,
        };
        let read = |file: &Option<PathBuf>| file.as_deref().map(read).transpose();
        let own = match (read(&common.cert)?, read(&common.key)?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => None,
        };
        Ok(Self {
            servers: Servers::new(common, output)?,
            flag: Flag::of(common),
            user: match &common.user {
                Some(user) => Some(user.clone()),
                None => variable("LOCKDOG_USER")?,
            },
            password,
            certificates: Certificates {
                roots: read(&common.cacert)?,
                own,
            },
            command_timeout: common.command_timeout,
        })
    }

    /// One for each server of a RedLock, or one alone.
    pub(crate) fn builders(&self) -> Vec<ClientBuilder> {
        let is_quorum = self.is_quorum();
        match &self.servers {
            // An instance of a RedLock may be down.
            Servers::Urls(urls) => urls
                .iter()
                .map(|url| self.complete(Client::builder().url(url)).lazy(is_quorum))
                .collect(),
            Servers::File(builder) => vec![self.complete((**builder).clone()).lazy(false)],
        }
    }

    /// Adds what the flags and the environment say, without the settings of a single command.
    fn complete(&self, builder: ClientBuilder) -> ClientBuilder {
        let mut builder = builder.client_name("lockdog-cli/{id}");
        if let Some(timeout) = self.command_timeout {
            builder = builder.command_timeout(timeout);
        }
        if let Some(user) = &self.user {
            builder = builder.username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password);
        }
        let Certificates { roots, own } = &self.certificates;
        if roots.is_some() || own.is_some() {
            let mut tls = TlsSettings::new();
            if let Some(roots) = roots {
                tls = tls.root_certificates(roots.clone());
            }
            if let Some((certificate, key)) = own {
                tls = tls.client_certificate(certificate.clone(), key.clone());
            }
            builder = builder.tls(tls);
        }
        builder
    }

    /// Connects to the servers; those of a RedLock at their first command.
    pub(crate) async fn connect(&self) -> Result<Vec<Client>, Failed> {
        let mut clients = Vec::new();
        for builder in self.builders() {
            clients.push(builder.build().await?);
        }
        Ok(clients)
    }

    /// For the step-by-step check, which makes connections of its own. None with a configuration file.
    pub(crate) fn urls(&self) -> &[String] {
        match &self.servers {
            Servers::Urls(urls) => urls,
            Servers::File(_) => &[],
        }
    }

    /// `None` if the environment names the servers, or nothing does.
    pub(crate) fn flag(&self) -> Option<&Flag> {
        self.flag.as_ref()
    }

    /// The time limit of each step of that check.
    pub(crate) fn limit(&self) -> Duration {
        self.command_timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    /// The user and the password that replace those in the URL. No output may show them.
    pub(crate) fn login(&self) -> (Option<&str>, Option<&str>) {
        (self.user.as_deref(), self.password.as_deref())
    }

    /// Whether the servers are those of a RedLock.
    pub(crate) fn is_quorum(&self) -> bool {
        self.urls().len() > 1
    }

    /// Whether each URL names a server on this machine. Sentinels, clusters and files may lead to others.
    pub(crate) fn is_local(&self) -> bool {
        match &self.servers {
            Servers::Urls(urls) => urls.iter().all(|url| is_local(url)),
            Servers::File(_) => false,
        }
    }
}

impl Servers {
    /// Flags come before the environment. Two answers of the environment are an error, because a lock on the
    /// wrong servers excludes no other program.
    fn new(common: &Common, output: Output) -> Result<Self, Failed> {
        let urls = match (&common.url[..], &common.config) {
            ([], Some(file)) => return Self::of_file(file),
            ([], None) => match (variable("LOCKDOG_CONFIG")?, variable("LOCKDOG_URL")?) {
                (Some(file), None) => return Self::of_file(Path::new(&file)),
                (Some(_), Some(_)) => {
                    let text = "LOCKDOG_CONFIG and LOCKDOG_URL are both set; keep one, or name one by --config or --url";
                    return Err(Failed::usage(text));
                }
                (None, urls) => several(&urls.unwrap_or_default()),
            },
            (urls, _) => {
                if urls.iter().any(|url| has_password(url)) && io::stderr().is_terminal() {
                    output.note(
                        "the password in --url is in the list of processes; set LOCKDOG_URL or LOCKDOG_PASSWORD",
                    );
                }
                urls.to_vec()
            }
        };
        if urls.len() == 2 {
            return Err(Failed::usage(
                "two servers have no majority; name one with --url, or three or more",
            ));
        }
        Ok(Self::Urls(urls))
    }

    fn of_file(file: &Path) -> Result<Self, Failed> {
        // Its errors quote no value.
        let config = lockdog_config::from_file(file).map_err(Failed::usage)?;
        Ok(Self::File(Box::new(config.builder)))
    }
}

/// Checks the bounds of the settings, and whether certificates belong together. Connects to no server.
pub(crate) async fn try_out(builder: ClientBuilder) -> lockdog::Result<()> {
    builder.lazy(true).build().await?.shutdown().await;
    Ok(())
}

/// The servers that LOCKDOG_URL names, or the default.
fn several(urls: &str) -> Vec<String> {
    let urls: Vec<String> = urls.split_whitespace().map(str::to_owned).collect();
    match urls.is_empty() {
        true => vec!["redis://127.0.0.1:6379".to_owned()],
        false => urls,
    }
}

/// A variable of the environment; an empty one counts as none.
fn variable(name: &str) -> Result<Option<String>, Failed> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        // Its text is not shown: it may be a password.
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failed::usage(format_args!("{name} is not valid UTF-8")))
        }
    }
}

fn first_line(file: &Path) -> Result<String, Failed> {
    let text = String::from_utf8(read(file)?);
    // The error would have the text.
    let text = text.map_err(|_| refused(file, "it is not valid UTF-8"))?;
    let line = text.lines().next().unwrap_or_default();
    match line.is_empty() {
        true => Err(refused(file, "its first line is empty")),
        false => Ok(line.to_owned()),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failed> {
    fs::read(file).map_err(|error| refused(file, &error.to_string()))
}

fn refused(file: &Path, why: &str) -> Failed {
    Failed::usage(format_args!("cannot read {}: {why}", file.display()))
}

/// Whether a URL may have a password. A user alone is none.
pub(crate) fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // A password may contain a slash.
    let login = rest.rsplit_once('@').map(|(login, _)| login);
    // The URL of a socket has it in its query.
    login.is_some_and(|login| login.contains(':'))
        || url
            .into_connection_info()
            .is_ok_and(|info| info.redis_settings().password().is_some())
}

/// The URLs without their passwords. A URL whose password cannot be distinguished from the rest is replaced by one that leads
/// to no server, because without any URL a client would use the default server.
pub(crate) fn without_passwords<'a>(urls: impl Iterator<Item = &'a str>) -> String {
    let urls = urls.map(|url| match has_password(url) {
        true => without_password(url).unwrap_or_else(|| NO_SERVER.to_owned()),
        false => url.to_owned(),
    });
    urls.collect::<Vec<_>>().join(" ")
}

fn without_password(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let at = match scheme.ends_with("+sentinel") || scheme.ends_with("+cluster") {
        // A password may contain a slash, and no `@`.
        true if rest.matches('@').count() > 1 => return None,
        true => rest.rfind('@'),
        false => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            rest[..end].rfind('@')
        }
    };
    let (login, place) = at.map_or(("", rest), |at| (&rest[..at], &rest[at + 1..]));
    // What comes before it may be a part of the password.
    if place.contains('@') {
        return None;
    }
    let (user, _) = login.split_once(':').unwrap_or((login, ""));
    let at = if user.is_empty() { "" } else { "@" };
    let (place, query) = place.split_once('?').unwrap_or((place, ""));
    let is_known = |pair: &&str| {
        let (key, _) = pair.split_once('=').unwrap_or((pair, ""));
        ["db", "protocol", "user"].contains(&key)
    };
    let query: Vec<&str> = query.split('&').filter(is_known).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    Some(format!(
        "{scheme}://{user}{at}{place}{mark}{}",
        query.join("&")
    ))
}

/// Whether a URL of one server names a loopback address or a socket.
fn is_local(url: &str) -> bool {
    let Ok(info) = url.into_connection_info() else {
        return false;
    };
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
            let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
            address.map_or(host == "localhost", |address| address.is_loopback())
        }
        ConnectionAddr::Unix(_) => true,
        _ => false,
    }
}

/// The hosts that a URL of sentinels or of a cluster names, with their ports; `None` for other URLs.
pub(crate) fn hosts_of(url: &str) -> Option<Vec<(String, u16)>> {
    let (scheme, rest) = url.split_once("://")?;
    let default = match scheme {
        "redis+sentinel" | "rediss+sentinel" => 26_379,
        "redis+cluster" | "rediss+cluster" => 6_379,
        _ => return None,
    };
    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    let hosts = hosts.split(['/', '?']).next()?;
    let parse = |host: &str| match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => Some((name.to_owned(), port.parse().ok()?)),
        _ => Some((host.to_owned(), default)),
    };
    hosts.split(',').map(parse).collect()
}

/// No client takes it for the URL of a server.
const NO_SERVER: &str = "without-its-password:";
/// The library's default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_found() {
        for (url, is_there) in [
            ("redis://127.0.0.1:6379", false),
            ("redis://orders@host:6379/1", false),
            ("redis://orders:pw@host", true),
            ("redis://:p/w@host:6379", true),
            ("redis+sentinel://:pw@a:1,b:2/master", true),
            ("unix:///tmp/socket?db=1", false),
            ("unix:///tmp/socket?db=1&pass=pw", true),
            ("unix:///tmp/socket?p%61ss=pw", true),
            (":pw@host", true),
            ("nonsense", false),
        ] {
            assert_eq!(has_password(url), is_there, "{url}");
        }
    }

    #[test]
    fn a_url_without_its_password_names_the_same_server() {
        for (url, without) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://orders:pw@host", "redis://orders@host"),
            (
                "rediss://:pw@host:6379/1?protocol=resp3",
                "rediss://host:6379/1?protocol=resp3",
            ),
            ("redis://:p@w@host", "redis://host"),
            ("redis://:p/w@host", NO_SERVER),
            ("redis://:p#w@host", NO_SERVER),
            ("redis://:p?w@host", NO_SERVER),
            ("redis://:p@w/@host", NO_SERVER),
            (":pw@host", NO_SERVER),
            (
                "redis+sentinel://:p/w@a:1,b:2/master",
                "redis+sentinel://a:1,b:2/master",
            ),
            (
                "rediss+cluster://me:pw@a,b?protocol=resp3",
                "rediss+cluster://me@a,b?protocol=resp3",
            ),
            ("redis+cluster://:p@w@a", NO_SERVER),
            ("unix:///s?user=me&pass=pw&db=1", "unix:///s?user=me&db=1"),
            ("unix:///s?p%61ss=pw", "unix:///s"),
            ("redis://a redis://:pw@b", "redis://a redis://b"),
        ] {
            let urls = url.split_whitespace();
            assert_eq!(without_passwords(urls), without, "{url}");
            assert!(!without.split(' ').any(has_password), "{url}");
        }
        assert!(NO_SERVER.into_connection_info().is_err());
    }

    #[test]
    fn a_server_on_this_machine_is_distinguished_from_others() {
        for (url, is) in [
            ("redis://127.0.0.1:6379", true),
            ("redis://:pw@127.1.2.3/1", true),
            ("rediss://localhost", true),
            ("redis://[::1]:6379", true),
            ("unix:///tmp/socket", true),
            ("redis://0.0.0.0", false),
            ("redis://10.0.0.7:6379", false),
            ("redis://localhost.example", false),
            ("redis://127.0.0.1@example", false),
            ("redis+sentinel://127.0.0.1/orders", false),
            ("redis+cluster://127.0.0.1", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_local(url), is, "{url}");
        }
    }

    #[test]
    fn the_hosts_of_several_servers_are_found() {
        let hosts = |url| {
            hosts_of(url).map(|it| {
                it.into_iter()
                    .map(|(h, p)| format!("{h} {p}"))
                    .collect::<Vec<_>>()
            })
        };
        let sentinels = hosts("redis+sentinel://:p/w@a:1,b,[::1]:3/orders/0").unwrap();
        assert_eq!(sentinels, ["a 1", "b 26379", "[::1] 3"]);
        assert_eq!(
            hosts("rediss+cluster://a?protocol=resp3").unwrap(),
            ["a 6379"]
        );
        assert_eq!(hosts("redis+cluster://a:x"), None);
        assert_eq!(hosts("redis://a"), None);
    }
}
