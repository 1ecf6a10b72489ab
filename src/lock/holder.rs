//! The holder of a lock, as the lock's hash in Redis shows it.

use std::str::FromStr;
use std::time::Duration;

use redis::{FromRedisValue, Value};
use uuid::Uuid;

use crate::key::{Mode, WRITER};

/// How long Redis keeps a key, from [`Lock::remaining_ttl`](crate::Lock::remaining_ttl) and
/// [`HolderInfo::ttl`]. Corresponds to the number of Redisson's `remainTimeToLive()`, in milliseconds.
///
/// Redis has no other answer about a key that exists, so this enum gets no further variant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ttl {
    /// Redis deletes it after this time.
    Expires(Duration),
    /// It has no TTL: it stays until a client deletes it. No lock writes such a key. Redisson's -1.
    Persistent,
}

/// The holder of a lock, from [`Lock::holder`](crate::Lock::holder).
///
/// # Examples
///
/// ```no_run
/// # async fn example(lock: lockdog::Lock) -> lockdog::Result<()> {
/// if let Some(holder) = lock.holder().await? {
///     let program = if holder.is_lockdog() { "lockdog" } else { "Redisson" };
///     println!("held by {program}, client={:?} owner={}", holder.client_id(), holder.owner());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HolderInfo {
    field: String,
    /// The number of the holder's acquires that are not unlocked yet. It does not include those of
    /// [`Reentry::Local`](crate::config::Reentry::Local).
    pub count: u32,
    /// How long Redis keeps the lock unless the holder renews it.
    pub ttl: Ttl,
    /// Whether the holder is an owner of this client.
    pub ours: bool,
}

impl HolderInfo {
    pub(crate) fn new(field: String, count: u32, ttl: Ttl, ours: bool) -> Self {
        Self {
            field,
            count,
            ttl,
            ours,
        }
    }

    /// The holder's field in the lock's hash, as Redis has it. lockdog writes
    /// `<client uuid>:<owner>.<hold's number>`, Redisson `<client uuid>:<thread>`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The client of the holder: [`Client::id`](crate::Client::id), in Redisson `getId()`. `None` if the
    /// field does not begin with a UUID, so another program wrote it.
    pub fn client_id(&self) -> Option<Uuid> {
        let (client, _) = self.field.split_once(':')?;
        Uuid::try_parse(client).ok()
    }

    /// The owner, without its client. For lockdog this is [`Owner`](crate::Owner) as
    /// text, for Redisson the id of the thread. If another program wrote the field, it is the whole
    /// field.
    pub fn owner(&self) -> &str {
        match (self.client_id(), self.field.split_once(':')) {
            (Some(_), Some((_, rest))) => {
                let rest = rest.strip_suffix(WRITER).unwrap_or(rest);
                numbered(rest).unwrap_or(rest)
            }
            _ => &self.field,
        }
    }

    /// Whether the holder is a client of lockdog, in this process or another. Redisson's fields have no
    /// number after the owner.
    pub fn is_lockdog(&self) -> bool {
        let rest = self.field.split_once(':').map_or("", |(_, rest)| rest);
        let rest = rest.strip_suffix(WRITER).unwrap_or(rest);
        self.client_id().is_some() && numbered(rest).is_some()
    }

    /// Whether the holder has the write lock of Redisson's `getReadWriteLock(name)`.
    pub fn is_write(&self) -> bool {
        self.field.ends_with(WRITER)
    }
}

/// The owner in `<owner>.<number>`.
fn numbered(text: &str) -> Option<&str> {
    let (owner, number) = text.rsplit_once('.')?;
    number.parse::<u64>().is_ok().then_some(owner)
}

/// Returns the holders and their counts from a lock's hash. A read/write lock has a field for each holder,
/// and the field `mode`. With a mode, only its holders; without one, the writer comes first, because it excludes
/// the others.
pub(super) fn of_hash(fields: Value, mode: Option<Mode>) -> Vec<(String, u32)> {
    let pairs: Vec<(Value, Value)> = match fields {
        Value::Map(pairs) => pairs,
        Value::Array(fields) => {
            let mut fields = fields.into_iter();
            std::iter::from_fn(|| Some((fields.next()?, fields.next()?))).collect()
        }
        _ => return Vec::new(),
    };
    let mut holders: Vec<(String, u32)> = pairs
        .iter()
        .filter_map(|(field, count)| Some((text(field)?, number(count).unwrap_or(0))))
        .collect();
    let all = holders.len();
    holders.retain(|(field, _)| field != MODE);
    let is_write = |(field, _): &(String, u32)| field.ends_with(WRITER);
    match mode {
        None => holders.sort_by_key(|holder| !is_write(holder)),
        // A hash without the field is that of another kind of lock.
        Some(_) if holders.len() == all => holders.clear(),
        Some(mode) => holders.retain(|holder| is_write(holder) == (mode == Mode::Write)),
    }
    holders
}

pub(super) fn number<T: FromStr>(value: &Value) -> Option<T> {
    text(value)?.parse().ok()
}

/// The server's time in milliseconds since 1970, from its answer to `TIME`. Scripts round it down as this function does.
pub(crate) fn server_millis(answer: &Value) -> Option<u64> {
    let (seconds, micros) = <(u64, u64)>::from_redis_value_ref(answer).ok()?;
    Some(seconds * 1000 + micros / 1000)
}

pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Redisson's field for the mode of a read/write lock: `read` or `write`.
const MODE: &str = "mode";

#[cfg(test)]
mod tests {
    use super::*;

    /// A waiter whose presence ended in this second is not present any more.
    #[test]
    fn the_time_of_the_server_has_milliseconds() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let time = Value::Array(vec![bulk("1700000000"), bulk("999999")]);
        assert_eq!(server_millis(&time), Some(1_700_000_000_999));
        assert_eq!(server_millis(&Value::Nil), None);
    }

    const CLIENT: &str = "5f6b8a3e-26a7-4f6b-9c1e-0d2f3a4b5c6d";

    fn holder(field: &str) -> HolderInfo {
        HolderInfo::new(field.to_owned(), 1, Ttl::Persistent, false)
    }

    #[test]
    fn a_field_names_its_client_and_owner() {
        for (rest, owner, is_lockdog, is_write) in [
            ("47", "47", false, false),
            ("47:write", "47", false, true),
            ("t47.3", "t47", true, false),
            ("t47.3:write", "t47", true, true),
            ("47.3", "47", true, false),
        ] {
            let seen = holder(&format!("{CLIENT}:{rest}"));
            assert_eq!(seen.client_id(), Uuid::try_parse(CLIENT).ok());
            assert_eq!(
                (seen.owner(), seen.is_lockdog(), seen.is_write()),
                (owner, is_lockdog, is_write)
            );
        }
        for foreign in ["", ":", "somebody", "some:body.1", "mode"] {
            let seen = holder(foreign);
            assert_eq!((seen.owner(), seen.field()), (foreign, foreign));
            assert!(seen.client_id().is_none() && !seen.is_lockdog());
        }
    }

    #[test]
    fn the_mode_field_of_a_read_write_lock_is_no_holder() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let pairs = |fields: &[(&str, &str)]| {
            let pairs = fields
                .iter()
                .map(|(field, value)| (bulk(field), bulk(value)));
            pairs.collect::<Vec<_>>()
        };
        let written = pairs(&[("u:1", "1"), ("mode", "write"), ("u:1:write", "2")]);
        let flat = written
            .iter()
            .flat_map(|(field, value)| [field.clone(), value.clone()]);
        for hash in [Value::Array(flat.collect()), Value::Map(written)] {
            let writer = ("u:1:write".to_owned(), 2);
            let reader = ("u:1".to_owned(), 1);
            let both = [writer.clone(), reader.clone()];
            assert_eq!(of_hash(hash.clone(), None), both);
            assert_eq!(of_hash(hash.clone(), Some(Mode::Read)), [reader]);
            assert_eq!(of_hash(hash, Some(Mode::Write)), [writer]);
        }
        let read = Value::Map(pairs(&[("mode", "read"), ("u:1", "3")]));
        assert_eq!(of_hash(read, None), [("u:1".to_owned(), 3)]);
        let alone = Value::Map(pairs(&[("mode", "read")]));
        assert_eq!(of_hash(alone, None), []);
        let plain = Value::Map(pairs(&[("u:1", "3")]));
        assert_eq!(of_hash(plain, Some(Mode::Read)), []);
        assert_eq!(of_hash(Value::Array(Vec::new()), None), []);
    }
}
