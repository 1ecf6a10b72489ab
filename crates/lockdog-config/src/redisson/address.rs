//! Addresses, as Redisson's `RedisURI` reads them.

use std::net::Ipv6Addr;

/// The address of a server. It has no `Debug`, because it may have a password.
pub(super) struct ServerAddress {
    place: Place,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    /// Redisson ignores what follows the port.
    pub(super) has_path: bool,
}

#[derive(Eq, PartialEq)]
enum Place {
    Tcp {
        host: String,
        port: u16,
        by_tls: bool,
    },
    Unix(String),
}

impl ServerAddress {
    /// Reads an address. The error says what to do and quotes nothing.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let schemes =
            "it must begin with redis:// or rediss://, valkey:// or valkeys://, or redis+uds://";
        let (scheme, rest) = text.split_once("://").ok_or(schemes)?;
        let by_tls = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            "redis+uds" | "valkey+uds" => {
                if !rest.starts_with('/') {
                    return Err(
                        "the path of a socket must be absolute, as in redis+uds:///run/redis.sock"
                            .to_owned(),
                    );
                }
                return Ok(Self::at(Place::Unix(rest.to_owned())));
            }
            _ => return Err(schemes.to_owned()),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (login, server) = match authority.split_once('@') {
            None => (None, authority),
            Some((_, server)) if server.contains('@') => {
                return Err(
                    "write @ in a user or password as %40, and # and / as %23 and %2F".to_owned(),
                );
            }
            Some((login, server)) => (Some(login), server),
        };
        let no_port = "the address needs a port, as in redis://host:6379; in a password write / and # as %2F and %23";
        let (host, port) = server.rsplit_once(':').ok_or(no_port)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(no_port)?;
        // Redisson takes an IPv6 address with or without brackets.
        let host = host
            .strip_prefix('[')
            .map_or(Some(host), |it| it.strip_suffix(']'));
        let is_host = |it: &&str| {
            let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
            it.parse::<Ipv6Addr>().is_ok() || (!it.is_empty() && it.bytes().all(is_plain))
        };
        let host = host
            .filter(is_host)
            .ok_or("the address has no valid host name")?;
        let mut address = Self::at(Place::Tcp {
            host: host.to_owned(),
            port,
            by_tls,
        });
        address.has_path = !matches!(path, "" | "/");
        if let Some(login) = login {
            // One part alone is the password.
            let (user, password) = login.split_once(':').unwrap_or(("", login));
            address.username = decoded(user)?;
            address.password = decoded(password)?;
        }
        Ok(address)
    }

    fn at(place: Place) -> Self {
        Self {
            place,
            username: None,
            password: None,
            has_path: false,
        }
    }

    pub(super) fn is_by_tls(&self) -> bool {
        matches!(self.place, Place::Tcp { by_tls: true, .. })
    }

    pub(super) fn is_socket(&self) -> bool {
        matches!(self.place, Place::Unix(_))
    }

    pub(super) fn is_at_the_same_place(&self, other: &Self) -> bool {
        self.place == other.place
    }

    /// The address as text for people, without user and password.
    pub(super) fn shown(&self) -> String {
        match &self.place {
            Place::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Place::Tcp { host, port, .. } => format!("{host}:{port}"),
            Place::Unix(path) => path.clone(),
        }
    }

    /// The URL that lockdog takes, without user and password.
    pub(super) fn url(&self) -> String {
        self.url_with(None, None)
    }

    /// The URL with this user and password, if there is a password.
    pub(super) fn url_with(&self, username: Option<&str>, password: Option<&str>) -> String {
        let login = password.map_or_else(String::new, |password| {
            let user = username.unwrap_or_default();
            format!("{}:{}@", encoded(user), encoded(password))
        });
        match &self.place {
            Place::Tcp { by_tls, .. } => {
                let scheme = if *by_tls { "rediss" } else { "redis" };
                format!("{scheme}://{login}{}", self.shown())
            }
            Place::Unix(path) => format!("unix://{path}"),
        }
    }
}

/// A form-encoded text, as Java's `URLDecoder` decodes it; `None` if it is empty.
fn decoded(text: &str) -> Result<Option<String>, String> {
    let wrong = || {
        "the address has a `%` that is not followed by two hexadecimal digits of UTF-8".to_owned()
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || {
                    let digit = rest.next().and_then(|it| char::from(it).to_digit(16));
                    digit.and_then(|it| u8::try_from(it).ok())
                };
                let (high, low) = (digit(), digit());
                high.zip(low)
                    .map(|(high, low)| 16 * high + low)
                    .ok_or_else(wrong)?
            }
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    Ok((!text.is_empty()).then_some(text))
}

/// A text as a part of a URL.
fn encoded(text: &str) -> String {
    let bytes = text.bytes().map(|byte| {
        if byte.is_ascii_alphanumeric() {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, Option<String>, Option<String>) {
        let address = ServerAddress::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        (address.url(), address.username, address.password)
    }

    #[test]
    fn an_address_becomes_a_url_and_a_login() {
        for (text, url, user, password) in [
            ("redis://a:6379", "redis://a:6379", "", ""),
            ("rediss://a:6379/3?x=1", "rediss://a:6379", "", ""),
            ("valkey://a.b-c:1", "redis://a.b-c:1", "", ""),
            ("valkeys://1.2.3.4:1", "rediss://1.2.3.4:1", "", ""),
            ("redis://secret@a:1", "redis://a:1", "", "secret"),
            ("redis://:s:t@a:1", "redis://a:1", "", "s:t"),
            (
                "redis://ann:p%40+w%C3%A4@a:1",
                "redis://a:1",
                "ann",
                "p@ wä",
            ),
            ("redis://::1:6379", "redis://[::1]:6379", "", ""),
            (
                "redis://ann:pw@[fe80::2]:1",
                "redis://[fe80::2]:1",
                "ann",
                "pw",
            ),
            (
                "redis+uds:///run/redis.sock",
                "unix:///run/redis.sock",
                "",
                "",
            ),
        ] {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let expected = (url.to_owned(), some(user), some(password));
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_address_is_refused_without_its_text() {
        for text in [
            "",
            "hunter2",
            "http://hunter2:1",
            "redis://hunter2",
            "redis://:hunter2@a",
            "redis://hunter2:0",
            "redis://hunter2:65536",
            "redis://hunter2:x",
            "redis://:hunter2",
            "redis://:hunter2@:1",
            "redis://:hunter2@a b:1",
            "redis://:hunter2@[::1:1",
            "redis://ann:hunter2127.0.0.1:1",
            "redis://:hunter2@x@a:1",
            "redis://:hunter2#@a:1",
            "redis://:hunter2/@a:1",
            "redis://:hunter2%4@a:1",
            "redis://:hunter2%ff@a:1",
            "redis+uds://hunter2",
        ] {
            let why = ServerAddress::parse(text).err().expect(text);
            assert!(!why.contains("hunter2"), "{text}: {why}");
        }
    }

    #[test]
    fn a_login_survives_in_a_url() {
        let address = ServerAddress::parse("redis://a:1").unwrap_or_else(|why| panic!("{why}"));
        let url = address.url_with(Some("ann"), Some("p@:/ä "));
        assert_eq!(url, "redis://ann:p%40%3A%2F%C3%A4%20@a:1");
        assert_eq!(address.url_with(Some("ann"), None), "redis://a:1");
        assert_eq!(address.url_with(None, Some("x")), "redis://:x@a:1");
    }
}
