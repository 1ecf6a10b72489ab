//! The queue of a fair lock, as Redis shows it.

use std::collections::HashMap;

use redis::Value;
use uuid::Uuid;

use super::holder::{self, text};
use super::{HolderInfo, Lock, Ttl};
use crate::error::Result;

/// A waiter in the queue of a fair lock, from [`Lock::waiters`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaiterInfo {
    field: String,
    /// Whether the waiter is an owner of this client.
    pub ours: bool,
    /// Whether the waiter is active. Clients drop an inactive waiter when it is first in the queue: its client
    /// crashed, its future is not polled, or it is one of Redisson's whose time has passed.
    pub present: bool,
}

impl WaiterInfo {
    /// The waiter's entry in the queue, as Redis has it: the field that its hold will have. See
    /// [`HolderInfo::field`].
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The client of the waiter. See [`HolderInfo::client_id`].
    pub fn client_id(&self) -> Option<Uuid> {
        self.as_holder().client_id()
    }

    /// Whether the waiter is a client of lockdog. See [`HolderInfo::is_lockdog`].
    pub fn is_lockdog(&self) -> bool {
        self.as_holder().is_lockdog()
    }

    fn as_holder(&self) -> HolderInfo {
        HolderInfo::new(self.field.clone(), 0, Ttl::Persistent, self.ours)
    }
}

impl Lock {
    /// The waiters in the queue of a fair lock, of all clients, the first one first. Empty for locks of
    /// other kinds, which have no queue on the server. Redisson has no such call.
    ///
    /// The client sends several commands. If the queue changes between them, the result may mix the states
    /// before and after the change.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn waiters(&self) -> Result<Vec<WaiterInfo>> {
        let key = self.key()?;
        let Some([queue, places, presence]) = key.server_queue() else {
            return Ok(Vec::new());
        };
        let mut list = redis::cmd("LRANGE");
        list.arg(queue).arg(0).arg(-1);
        let fields = match self.send(key, list).await? {
            Value::Array(fields) => fields,
            _ => Vec::new(),
        };
        let mut until: HashMap<String, f64> = HashMap::new();
        // A waiter of lockdog has a score in both, and its presence counts.
        for scores in [places, presence] {
            let mut range = redis::cmd("ZRANGE");
            range.arg(scores).arg(0).arg(-1).arg("WITHSCORES");
            until.extend(scored(self.send(key, range).await?));
        }
        let time = self.send(key, redis::cmd("TIME")).await?;
        // An answer that cannot be read is zero, so each waiter is shown as present.
        let now = holder::server_millis(&time).unwrap_or_default() as f64;
        let core = self.session().core();
        let fields = fields.iter().filter_map(text);
        Ok(fields
            .map(|field| WaiterInfo {
                ours: core.number_of(&field).is_some(),
                present: until.get(&field).is_some_and(|until| *until > now),
                field,
            })
            .collect())
    }
}

/// The members of a sorted set and their scores, as either protocol answers them.
fn scored(answer: Value) -> Vec<(String, f64)> {
    let Value::Array(parts) = answer else {
        return Vec::new();
    };
    let score = |value: &Value| match value {
        Value::Double(score) => Some(*score),
        other => holder::number(other),
    };
    let pair = |pair: &[Value]| Some((text(&pair[0])?, score(&pair[1])?));
    match parts.first() {
        // RESP3 answers pairs.
        Some(Value::Array(_)) => parts
            .iter()
            .filter_map(|part| match part {
                Value::Array(two) if two.len() == 2 => pair(two),
                _ => None,
            })
            .collect(),
        _ => parts.chunks_exact(2).filter_map(pair).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scores_of_both_protocols_are_read() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let flat = Value::Array(vec![bulk("a"), bulk("17"), bulk("b"), bulk("2.5")]);
        let pairs = Value::Array(vec![
            Value::Array(vec![bulk("a"), Value::Double(17.0)]),
            Value::Array(vec![bulk("b"), Value::Double(2.5)]),
        ]);
        for answer in [flat, pairs] {
            let expected = [("a".to_owned(), 17.0), ("b".to_owned(), 2.5)];
            assert_eq!(scored(answer), expected);
        }
        assert!(scored(Value::Nil).is_empty());
    }
}
