//! A master's report on its replicas.

use redis::{Cmd, Value};

use super::wire::text;

/// The replicas of a master, from its own `INFO replication`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Followers {
    /// The connected replicas in any state.
    pub(super) connected: u32,
    /// The connected replicas that follow the master and reported within the last seconds.
    pub(super) following: u32,
}

pub(super) fn question() -> Cmd {
    let mut question = redis::cmd("INFO");
    question.arg("replication");
    question
}

impl Followers {
    /// `None` if the answer is not an INFO section.
    pub(super) fn read(info: &Value) -> Option<Self> {
        let text = text(info)?;
        let connected = text
            .lines()
            .find_map(|line| line.strip_prefix("connected_slaves:"));
        let follows = |line: &&str| {
            let Some((name, fields)) = line.split_once(':') else {
                return false;
            };
            let field = |name: &str| {
                let mut pairs = fields.split(',').filter_map(|field| field.split_once('='));
                pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
            };
            let lag = field("lag").and_then(|lag| lag.parse::<u64>().ok());
            name.starts_with("slave")
                && field("state") == Some("online")
                && lag.is_some_and(|lag| lag <= FRESH)
        };
        let following = text.lines().filter(follows).count();
        Some(Self {
            connected: connected?.trim().parse().ok()?,
            following: u32::try_from(following).unwrap_or(u32::MAX),
        })
    }
}

/// Replicas report their offset to the master every second.
const FRESH: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_are_distinguished_from_connected_replicas() {
        let text = "# Replication\r\nrole:master\r\nconnected_slaves:4\r\n\
             slave0:ip=127.0.0.1,port=1,state=online,offset=14,lag=0,type=replica\r\n\
             slave1:ip=127.0.0.1,port=2,state=online,offset=14,lag=9\r\n\
             slave2:ip=127.0.0.1,port=3,state=wait_bgsave,offset=0,lag=0\r\n\
             slave3:ip=::1,port=4,state=online,offset=14,lag=1\r\n\
             slave_read_only:1\r\nmaster_replid:abc\r\n";
        let read = Followers::read(&Value::BulkString(text.into()));
        let expected = Followers {
            connected: 4,
            following: 2,
        };
        assert_eq!(read, Some(expected));
        assert_eq!(Followers::read(&Value::Okay), None);
        assert_eq!(Followers::read(&Value::SimpleString("x:1".into())), None);
    }
}
