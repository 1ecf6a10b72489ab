//! Inspects one key.

use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;

use super::ask::{ask, ask_if_permitted, command, page, read, whole};
use super::fields::{self, HashForm};
use super::{LockInfo, LockKind};
use crate::error::Result;
use crate::key::{LockKey, WRITER, counted_by, kind};
use crate::lock::{HolderInfo, Ttl, server_millis};
use crate::server::Failure;
use crate::session::Core;
use crate::slot::slot;

/// Reads the lock of this key.
pub(crate) async fn inspect(core: &Core, key: &str) -> Result<LockInfo> {
    let (found, ttl) = tokio::join!(content(core, key), ttl(core, key));
    let (kind, holders) = found?;
    // It ended or began between the two commands.
    let (kind, holders, ttl) = match (kind, ttl?) {
        (LockKind::Free, _) | (_, None) => (LockKind::Free, Vec::new(), None),
        (kind, ttl) => (kind, holders, ttl),
    };
    let mut info = LockInfo {
        key: key.to_owned(),
        kind,
        server: core.server.address_of(key),
        slot: core.server.is_cluster().then(|| slot(key)),
        holders: Vec::new(),
        ttl,
        listeners: None,
        queued: 0,
        token: None,
        permits: None,
    };
    if let Some(ttl) = info.ttl {
        let holders = holders.into_iter().map(|(field, count)| {
            let is_ours = core.number_of(&field).is_some();
            HolderInfo::new(field, count, ttl, is_ours)
        });
        info.holders = holders.collect();
    }
    beside(core, &mut info).await?;
    Ok(info)
}

type Found = (LockKind, Vec<(String, u32)>);

/// What the key itself shows.
async fn content(core: &Core, key: &str) -> Result<Found, Failure> {
    let fields = match hash(core, key).await {
        Ok(fields) => fields,
        Err(Failure::Refused { code, .. }) if code == "WRONGTYPE" => {
            let kind = ask_if_permitted(core, key, command(&["TYPE", key])).await?;
            let kind = kind.and_then(|answer| read(&answer));
            let kind = kind.unwrap_or_else(|| "unknown".to_owned());
            return Ok((LockKind::Foreign(kind), Vec::new()));
        }
        Err(failure) => return Err(failure),
    };
    Ok(match fields::classify(&fields) {
        Some((HashForm::OneOwner, holders)) => (LockKind::Reentrant, holders),
        Some((HashForm::ReadWrite, holders)) => {
            let holders = without_expired_readers(core, key, holders).await?;
            (LockKind::ReadWrite, holders)
        }
        Some((HashForm::Group, _)) => {
            let now = server_time(core, key).await?;
            (LockKind::Group, fields::owners_of_values(&fields, now))
        }
        // An empty hash is none.
        None if fields.is_empty() => (LockKind::Free, Vec::new()),
        None => (LockKind::Foreign("hash".to_owned()), Vec::new()),
    })
}

/// The holders without the readers whose leases are over. Their fields stay in the hash for as long as others read.
/// A reader whose timeout keys the user may not read is not left out.
async fn without_expired_readers(
    core: &Core,
    key: &str,
    holders: Vec<(String, u32)>,
) -> Result<Vec<(String, u32)>, Failure> {
    let Ok(lock) = LockKey::new(&kind::READ, key, None) else {
        return Ok(holders);
    };
    let mut living = Vec::new();
    for some in holders.chunks(AT_ONCE) {
        let checks = some.iter().map(|holder| may_hold(core, &lock, holder));
        for (holder, may_hold) in some.iter().zip(join_all(checks).await) {
            if may_hold? {
                living.push(holder.clone());
            }
        }
    }
    Ok(living)
}

/// Whether a holder of a read/write lock is a writer, or a reader with a timeout key, as far as the user may check it.
async fn may_hold(
    core: &Core,
    lock: &LockKey,
    (field, count): &(String, u32),
) -> Result<bool, Failure> {
    if field.ends_with(WRITER) {
        return Ok(true);
    }
    // Redisson has a timeout key for each acquire of a hold, lockdog only the first one.
    let mut query = command(&["EXISTS"]);
    for acquire in 1..=(*count).min(MOST_TIMEOUTS) {
        query.arg(lock.timeout_of_acquire(field, acquire));
    }
    let found = ask_if_permitted(core, lock.key(), query).await?;
    Ok(found.and_then(|answer| read::<u64>(&answer)) != Some(0))
}

/// The server's time in milliseconds, if the user may ask.
async fn server_time(core: &Core, key: &str) -> Result<Option<u64>, Failure> {
    let answer = ask_if_permitted(core, key, command(&["TIME"])).await?;
    Ok(answer.as_ref().and_then(server_millis))
}

/// The fields of a hash. It is read in pages, so that a large hash which is no lock does not block the
/// server; the first page shows that it is none.
async fn hash(core: &Core, key: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut all = Vec::new();
    let mut cursor = 0_u64;
    let mut is_foreign = false;
    for _ in 0..MOST_PAGES {
        let query = command(&["HSCAN", key, &cursor.to_string(), "COUNT", PAGE]);
        let answer = match ask(core, key, query).await {
            // The documented permissions have no HSCAN.
            Err(Failure::Refused { code, .. }) if code == "NOPERM" && cursor == 0 => {
                let answer = ask(core, key, command(&["HGETALL", key])).await?;
                // No fields would mean that the lock is free.
                return whole(&answer).ok_or_else(|| Failure::Refused {
                    code: "ERR".to_owned(),
                    message: "the answer to HGETALL cannot be read".to_owned(),
                });
            }
            answer => answer?,
        };
        let Some((next, items)) = page(&answer) else {
            break;
        };
        let page = pairs(&items);
        is_foreign = page
            .iter()
            .any(|(field, value)| !fields::may_be_of_lock(field, value));
        for (field, value) in page {
            // A page may repeat fields of an earlier one.
            if cursor == 0 || !all.iter().any(|(known, _)| *known == field) {
                all.push((field, value));
            }
        }
        cursor = next;
        if cursor == 0 || is_foreign {
            break;
        }
    }
    // The field by which the lock of very many readers is known may be in a page that is not read.
    if cursor != 0 && !is_foreign && all.iter().all(|(field, _)| field != MODE) {
        let answer = ask_if_permitted(core, key, command(&["HGET", key, MODE])).await?;
        let mode = answer.and_then(|answer| read(&answer));
        all.extend(mode.map(|mode: String| (MODE.to_owned(), mode)));
    }
    Ok(all)
}

fn pairs(items: &[String]) -> Vec<(String, String)> {
    let pairs = items.chunks_exact(2);
    pairs
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}

async fn ttl(core: &Core, key: &str) -> Result<Option<Ttl>, Failure> {
    Ok(match ask(core, key, command(&["PTTL", key])).await? {
        Value::Int(ttl @ 0..) => Some(Ttl::Expires(Duration::from_millis(ttl as u64))),
        Value::Int(-1) => Some(Ttl::Persistent),
        _ => None,
    })
}

/// Adds the facts from other keys and from the channels.
async fn beside(core: &Core, info: &mut LockInfo) -> Result<()> {
    let key = info.key.clone();
    // A key that is too long for a lock's name is not a lock.
    let of = |kind| LockKey::new(kind, &key, None).ok();
    let Some(plain) = of(&kind::PLAIN) else {
        return Ok(());
    };
    let channel = |kind| of(kind).and_then(|key| key.channel());
    match &info.kind {
        LockKind::Reentrant | LockKind::Free => {
            let [queue, ..] = of(&kind::FAIR)
                .and_then(|key| key.server_queue())
                .unwrap_or_default();
            let counter = of(&kind::FENCED)
                .and_then(|key| key.counter())
                .unwrap_or_default();
            let proclaimed = of(&kind::ELECTION)
                .and_then(|key| key.proclaimed())
                .unwrap_or_default();
            let (queued, token, proclaimed) = tokio::join!(
                number(core, &queue, "LLEN"),
                number(core, &counter, "GET"),
                number(core, &proclaimed, "EXISTS"),
            );
            info.queued = queued?.map_or(0, count);
            info.token = token?.filter(|token| *token > 0);
            if info.is_held() {
                info.kind = match (proclaimed? == Some(1), info.queued > 0, info.token) {
                    (true, _, _) => LockKind::Election,
                    (_, true, _) => LockKind::Fair,
                    (_, _, Some(_)) => LockKind::Fenced,
                    _ => LockKind::Reentrant,
                };
            }
        }
        LockKind::Foreign(kind) if kind == "string" => {
            let locks = counted_by(&key);
            if !locks.is_empty() {
                info.token = unused_counter(core, &key, &locks).await?;
                if info.token.is_some() {
                    info.kind = LockKind::UnusedCounter;
                }
                return Ok(());
            }
            let leased = of(&kind::PERMIT)
                .and_then(|key| key.permits())
                .unwrap_or_default();
            let ledger = of(&kind::SEMAPHORE)
                .and_then(|key| key.permits())
                .unwrap_or_default();
            let (leased, ledger, free) = tokio::join!(
                number(core, &leased, "ZCARD"),
                number(core, &ledger, "ZCARD"),
                ask_if_permitted(core, &key, command(&["GET", &key])),
            );
            let free = free?.and_then(|answer| read::<i64>(&answer));
            let kind = match (leased?, ledger?) {
                (Some(1..), _) => Some(LockKind::PermitSemaphore),
                (_, Some(1..)) => Some(LockKind::Semaphore),
                _ => None,
            };
            if let (Some(kind), Some(free)) = (kind, free) {
                info.kind = kind;
                info.permits = Some(free);
            }
        }
        _ => {}
    }
    let channels = match &info.kind {
        LockKind::Free => vec![plain.channel(), channel(&kind::READ)],
        LockKind::ReadWrite => vec![channel(&kind::READ)],
        LockKind::Semaphore | LockKind::PermitSemaphore => vec![channel(&kind::SEMAPHORE)],
        LockKind::UnusedCounter | LockKind::Foreign(_) => return Ok(()),
        _ => vec![plain.channel()],
    };
    let channels: Vec<String> = channels.into_iter().flatten().collect();
    info.listeners = listeners(core, &key, &channels).await?;
    Ok(())
}

/// The value of a counter of tokens, if all locks that it counts for are free, as far as the user may check that.
async fn unused_counter(
    core: &Core,
    counter: &str,
    locks: &[&str],
) -> Result<Option<u64>, Failure> {
    let held = command(&[&["EXISTS"], locks].concat());
    let (held, token) = tokio::join!(
        ask_if_permitted(core, counter, held),
        number(core, counter, "GET"),
    );
    let held = held?.and_then(|answer| read::<u64>(&answer));
    Ok(token?.filter(|_| held == Some(0)))
}

/// How many connections listen to these channels, if the user may ask.
async fn listeners(core: &Core, key: &str, channels: &[String]) -> Result<Option<u32>, Failure> {
    let words = |word| {
        let channels = channels.iter().map(String::as_str);
        command(
            &["PUBSUB", word]
                .into_iter()
                .chain(channels)
                .collect::<Vec<_>>(),
        )
    };
    // On a cluster, Redisson clients may use either kind of channel.
    let sharded = async {
        match core.server.publishes() {
            "spublish" => ask_if_permitted(core, key, words("SHARDNUMSUB")).await,
            _ => Ok(None),
        }
    };
    let (plain, sharded) = tokio::join!(ask_if_permitted(core, key, words("NUMSUB")), sharded);
    let sum = |answer: &Value| {
        let items: Vec<String> = read(answer).unwrap_or_default();
        let numbers = items
            .chunks_exact(2)
            .filter_map(|pair| pair[1].parse::<u64>().ok());
        numbers.sum::<u64>()
    };
    Ok(match (plain?, sharded?) {
        (None, None) => None,
        (plain, sharded) => Some(count(plain.iter().chain(&sharded).map(sum).sum())),
    })
}

/// Counts of what exists at one moment are `u32`.
fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A number, if there is one and the user may ask.
async fn number(core: &Core, key: &str, word: &str) -> Result<Option<u64>, Failure> {
    let answer = ask_if_permitted(core, key, command(&[word, key])).await?;
    Ok(answer.and_then(|answer| read(&answer)))
}

/// The field with the mode of a read/write lock.
const MODE: &str = "mode";
/// As many fields as one command reads.
const PAGE: &str = "100";
/// Further pages are not read, so their holders are missing.
const MOST_PAGES: usize = 100;
/// As many timeout keys of one reader as the scripts read.
const MOST_TIMEOUTS: u32 = 1000;
/// The readers that are checked together.
const AT_ONCE: usize = 50;
