//! The connections of all clients.

use std::time::Duration;

use super::ask::{command, read};
use crate::error::{Error, Result};
use crate::session::Core;

/// A connection to a server, of any client, from [`Client::connections`](crate::Client::connections).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The server: see [`LockInfo::server`](super::LockInfo::server).
    pub server: String,
    /// The server's number for the connection.
    pub id: u64,
    /// The client's name for it; empty if it has none. lockdog's connections have the client's id in it, unless
    /// [`ClientBuilder::client_name`](crate::ClientBuilder::client_name) says otherwise.
    pub name: String,
    /// The address of the client: host and port, or the path of a socket.
    pub address: String,
    /// The library of the client, if the client reports it and the server is Redis 7.2 or later, or Valkey.
    pub library: String,
    /// The time since the client connected.
    pub age: Duration,
    /// The time since its last command.
    pub idle: Duration,
    /// The number of channels to which it listens.
    pub subscriptions: u32,
}

/// The connections to all servers.
pub(crate) async fn connections(core: &Core) -> Result<Vec<ConnectionInfo>> {
    let limit = core.server.command_timeout();
    let of = |place: String| move |failure| Error::from(failure).of_server(&place);
    // After this the servers of a cluster are known.
    core.server
        .connect()
        .await
        .map_err(of(core.server.address()))?;
    let mut all = Vec::new();
    for node in core.server.nodes() {
        let server = node.address();
        let listed = async {
            let connection = node.connection(limit).await?;
            let answer = connection.send(&command(&["CLIENT", "LIST"]), limit).await;
            node.abandon_unanswered(&answer, &connection);
            answer
        };
        let listed = listed.await.map_err(of(server.clone()))?;
        let list: String = read(&listed).unwrap_or_default();
        all.extend(list.lines().filter_map(|line| parse(line, &server)));
    }
    Ok(all)
}

/// One line of CLIENT LIST: `id=3 addr=127.0.0.1:1 name= age=2 idle=0 ..`.
fn parse(line: &str, server: &str) -> Option<ConnectionInfo> {
    let get = |name: &str| {
        let mut parts = line.split(' ').filter_map(|part| part.split_once('='));
        parts.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let number = |name: &str| get(name).and_then(|value| value.parse::<u64>().ok());
    let text = |name: &str| get(name).unwrap_or_default().to_owned();
    let channels = number("sub").unwrap_or(0) + number("ssub").unwrap_or(0);
    Some(ConnectionInfo {
        server: server.to_owned(),
        id: number("id")?,
        name: text("name"),
        address: text("addr"),
        library: text("lib-name"),
        age: Duration::from_secs(number("age").unwrap_or(0)),
        idle: Duration::from_secs(number("idle").unwrap_or(0)),
        subscriptions: u32::try_from(channels).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_is_read() {
        let line = "id=7 addr=10.0.0.7:4711 laddr=1:2 name=lockdog/x age=90 idle=3 sub=2 ssub=1 lib-name=redis-rs";
        let seen = parse(line, "s:1").expect("it has an id");
        assert_eq!(
            (seen.id, &*seen.name, &*seen.address),
            (7, "lockdog/x", "10.0.0.7:4711")
        );
        assert_eq!(
            (seen.age.as_secs(), seen.idle.as_secs(), seen.subscriptions),
            (90, 3, 3)
        );
        assert_eq!((&*seen.library, &*seen.server), ("redis-rs", "s:1"));
        let old = parse("id=7 addr=a name= age=1", "s").expect("it has an id");
        assert_eq!((&*old.name, &*old.library, old.subscriptions), ("", "", 0));
        assert!(parse("", "s").is_none());
    }
}
