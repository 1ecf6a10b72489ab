//! The server of a key, for the span of a call.

use super::Server;
use super::endpoint::{Endpoint, Locator};
use super::node::Node;

/// Where the commands of a call go.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Peer {
    /// The host, the path of a unix socket, or the name that a user's connector gives it.
    pub(crate) address: String,
    /// None for a socket.
    pub(crate) port: Option<u16>,
}

impl Peer {
    fn of(address: String) -> Self {
        // In an IPv6 address too, the port is the part after the last colon.
        let parts = address.rsplit_once(':');
        let parts = parts.filter(|(host, _)| !host.is_empty() && !host.starts_with('/'));
        match parts.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
            Some((host, port)) => Self {
                address: host.to_owned(),
                port: Some(port),
            },
            None => Self {
                address,
                port: None,
            },
        }
    }
}

impl Server {
    /// The server that has this key now. None if only a pool knows it, or while sentinels or a cluster have
    /// not named it yet.
    pub(crate) fn peer(&self, key: &str) -> Option<Peer> {
        self.node(key).ok()?.peer()
    }
}

impl Node {
    fn peer(&self) -> Option<Peer> {
        let elected = || Some(self.any_connection()?.server()?.to_string());
        let address = self.endpoint().fixed_address().or_else(elected);
        address.map(Peer::of)
    }
}

impl Endpoint {
    /// The server's address, if it is always the same.
    fn fixed_address(&self) -> Option<String> {
        match &self.route {
            Locator::Unknown | Locator::Sentinel(_) => None,
            #[cfg(test)]
            Locator::Simulated(_) => None,
            Locator::Fixed(_) | Locator::Member(_) => Some(self.address()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_port_has_it_apart() {
        for (address, host, port) in [
            ("redis.example:6379", "redis.example", Some(6379)),
            ("::1:6379", "::1", Some(6379)),
            ("/run/redis:1", "/run/redis:1", None),
            ("the test server", "the test server", None),
            ("pipe:west", "pipe:west", None),
            (":6379", ":6379", None),
        ] {
            let found = Peer::of(address.to_owned());
            assert_eq!((found.address.as_str(), found.port), (host, port));
        }
    }
}
