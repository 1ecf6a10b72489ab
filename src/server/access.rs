//! Users, passwords, protocol versions and TLS of servers and sentinels.

use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::address::{Address, choose_crypto};
use super::tls::TlsSettings;
use crate::error::Error;

/// The version of the protocol with which the client talks to a server. It makes no difference to a
/// lock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Protocol {
    /// Every server supports it.
    #[default]
    Resp2,
    /// Servers since Redis 6 support it; the client requests it with `HELLO`. Some proxies do not.
    Resp3,
}

impl Protocol {
    /// Applies it to the connection settings.
    pub(crate) fn of(self, settings: RedisConnectionInfo) -> RedisConnectionInfo {
        settings.set_protocol(match self {
            Self::Resp2 => ProtocolVersion::RESP2,
            Self::Resp3 => ProtocolVersion::RESP3,
        })
    }
}

impl Address {
    /// Changes user, password or database of the servers that keep the data.
    pub(crate) fn change(&mut self, change: impl Fn(RedisConnectionInfo) -> RedisConnectionInfo) {
        change_all(self.servers_mut(), change);
    }

    /// The user that logs in at the servers that keep the data; `None` for the default user. Without a
    /// password of the settings or of the caller's credentials no user logs in.
    pub(crate) fn user(&self, has_credentials: bool) -> Option<String> {
        let settings = self.servers().first()?.redis_settings();
        let logs_in = has_credentials || settings.password().is_some();
        let user = settings.username().filter(|_| logs_in);
        user.map(str::to_owned)
    }

    /// Changes user or password of the sentinels. False if there are none.
    pub(crate) fn change_sentinels(
        &mut self,
        change: impl Fn(RedisConnectionInfo) -> RedisConnectionInfo,
    ) -> bool {
        let Self::Sentinel { sentinels, .. } = self else {
            return false;
        };
        change_all(sentinels, change);
        true
    }

    /// Sets whether the client uses TLS for the master that the sentinels name, independent of the
    /// sentinels' own TLS. False if there are no sentinels.
    pub(crate) fn change_master_tls(&mut self, by_tls: bool) -> bool {
        let Self::Sentinel { master, .. } = self else {
            return false;
        };
        // Placeholder host and port: the sentinels name the real ones.
        let (host, port) = match master.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (host.clone(), *port)
            }
            _ => return false,
        };
        let address = if by_tls {
            choose_crypto();
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        *master = master.clone().set_addr(address);
        true
    }

    /// Sets the certificates for all connections that use TLS.
    pub(crate) fn use_certificates(&mut self, tls: &TlsSettings) -> Result<(), Error> {
        let sentinels = match self {
            Self::Sentinel { sentinels, .. } => sentinels.clone(),
            Self::Server(_) | Self::Connector { .. } | Self::Cluster { .. } => Vec::new(),
        };
        let mut all = sentinels.iter().chain(self.servers());
        if !all.any(speaks_tls) {
            let why = "`tls` is set but no URL uses TLS; use rediss://";
            return Err(Error::invalid("tls", why.to_owned()));
        }
        if let Self::Sentinel { sentinels, .. } = self {
            sentinels.iter_mut().try_for_each(|info| tls.apply(info))?;
        }
        let mut servers = self.servers_mut().iter_mut();
        servers.try_for_each(|info| tls.apply(info))
    }

    /// All addresses, for debug output. Never a user or password.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::Sentinel { sentinels, .. } => {
                let hosts: Vec<_> = sentinels.iter().map(|it| it.addr().to_string()).collect();
                format!("{} at {}", self.shown(), hosts.join(","))
            }
            Self::Server(_) | Self::Connector { .. } | Self::Cluster { .. } => self.shown(),
        }
    }

    /// The connection settings of the servers that keep the data.
    fn servers(&self) -> &[ConnectionInfo] {
        match self {
            Self::Server(info)
            | Self::Connector { info, .. }
            | Self::Sentinel { master: info, .. } => std::slice::from_ref(info),
            Self::Cluster { seeds } => seeds,
        }
    }

    fn servers_mut(&mut self) -> &mut [ConnectionInfo] {
        match self {
            Self::Server(info)
            | Self::Connector { info, .. }
            | Self::Sentinel { master: info, .. } => std::slice::from_mut(info),
            Self::Cluster { seeds } => seeds,
        }
    }
}

fn change_all(
    infos: &mut [ConnectionInfo],
    change: impl Fn(RedisConnectionInfo) -> RedisConnectionInfo,
) {
    for info in infos {
        let settings = change(info.redis_settings().clone());
        *info = info.clone().set_redis_settings(settings);
    }
}

fn speaks_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_in_the_url_applies_with_and_without_a_database() {
        for (url, wanted) in [
            ("redis+sentinel://a/orders", ProtocolVersion::RESP2),
            (
                "redis+sentinel://a/orders?protocol=resp3",
                ProtocolVersion::RESP3,
            ),
            (
                "redis+sentinel://a/orders/1?protocol=3",
                ProtocolVersion::RESP3,
            ),
            ("redis+cluster://a,b", ProtocolVersion::RESP2),
            ("redis+cluster://a,b?protocol=resp3", ProtocolVersion::RESP3),
            (
                "redis+cluster://a,b/?protocol=resp3",
                ProtocolVersion::RESP3,
            ),
        ] {
            let address = Address::parse(url).unwrap();
            for server in address.servers() {
                assert_eq!(server.redis_settings().protocol(), wanted, "{url}");
            }
        }
    }

    #[test]
    fn a_user_without_a_password_does_not_log_in() {
        for (url, has_credentials, wanted) in [
            ("redis://ann:pw@a", false, Some("ann")),
            ("redis://ann@a", false, None),
            ("redis://ann@a", true, Some("ann")),
            ("redis://:pw@a", false, None),
            ("redis+sentinel://ann:pw@a/orders", false, Some("ann")),
            ("redis+cluster://ann@a,b", false, None),
        ] {
            let user = Address::parse(url).unwrap().user(has_credentials);
            assert_eq!(user.as_deref(), wanted, "{url}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn the_master_and_the_sentinels_choose_tls_independently() {
        for (url, by_tls) in [
            ("redis+sentinel://a/orders", true),
            ("rediss+sentinel://a/orders", false),
        ] {
            let mut address = Address::parse(url).unwrap();
            assert!(address.change_master_tls(by_tls));
            let Address::Sentinel {
                sentinels, master, ..
            } = address
            else {
                panic!("it is another deployment");
            };
            let speak = (speaks_tls(&sentinels[0]), speaks_tls(&master));
            assert_eq!(speak, (!by_tls, by_tls));
        }
        let mut one = Address::parse("redis://a").unwrap();
        assert!(!one.change_master_tls(true));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificates_are_always_verified() {
        let error = Address::parse("rediss://a/#insecure").err();
        assert!(error.unwrap().to_string().contains("always verified"));
    }
}
