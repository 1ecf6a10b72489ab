//! The names of a lock's list of waiting clients: see `lua/lock/contend.lua`.

use uuid::Uuid;

use super::kind::PLAIN;
use super::{LockKey, prefixed};

impl LockKey {
    /// The list of the clients that wait for it, if a release wakes only one of them: a sorted set, and a channel of
    /// the same name. It has the hash tag of the lock.
    pub(crate) fn waiting_list(&self) -> Option<String> {
        let wakes_one = self.kind.scripts.contend.is_some() && self.kind.channel == PLAIN.channel;
        wakes_one.then(|| prefixed(WAITING, self.key()))
    }

    /// The name of a client in that list. Locks of two kinds under one key have two queues in a client.
    pub(crate) fn listed_as(&self, client: Uuid) -> String {
        match self.kind == &PLAIN {
            true => client.to_string(),
            false => format!("{client}/{}", self.kind.name),
        }
    }
}

const WAITING: &str = "lockdog_waiters";

/// Whether the channel with this name wakes one client of a waiting list.
pub(crate) fn is_of_waiting_list(channel: &str) -> bool {
    channel.starts_with(WAITING)
}
