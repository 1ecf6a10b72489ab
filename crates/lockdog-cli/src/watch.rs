//! `lockdog watch`: each change of locks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use lockdog::report::{HolderInfo, LockInfo, LockKind, Ttl};
use serde_json::json;

use crate::args::{Until, Watch};
use crate::connect::Settings;
use crate::describe;
use crate::failed::{Failed, NO, YES};
use crate::output::{Output, clean};

pub(crate) async fn watch(args: &Watch, settings: &Settings, output: Output) -> Result<u8, Failed> {
    if settings.is_quorum() {
        return Err(Failed::new("it watches one server; give one --url"));
    }
    let rounds = rounds(args, settings, output);
    let Some(timeout) = args.timeout else {
        return rounds.await;
    };
    // A server that does not answer must not make it longer.
    match tokio::time::timeout(timeout.saturating_add(LAST_ROUND), rounds).await {
        Ok(ended) => ended,
        Err(_) => Ok(NO),
    }
}

/// Queries the locks until they are in the wanted state. The last round begins at the time limit at the latest.
async fn rounds(args: &Watch, settings: &Settings, output: Output) -> Result<u8, Failed> {
    let began = Instant::now();
    let client = settings.connect().await?.remove(0);
    let mut locks: Vec<Watched> = args.name.iter().map(|_| Watched::default()).collect();
    loop {
        for (name, lock) in args.name.iter().zip(&mut locks) {
            let asked = Instant::now();
            let info = match client.inspect(name).await {
                Ok(info) => info,
                // The server may come back.
                Err(error) if error.is_retriable() => {
                    if !lock.has_failed {
                        let name = clean(name);
                        output.note(format_args!("the state of {name} is not known: {error}"));
                    }
                    lock.has_failed = true;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            check_kind(&info)?;
            let now = Seen::new(&info, asked);
            for event in changes(lock.seen.as_ref(), &now) {
                print(event, &info, output);
            }
            *lock = Watched {
                seen: Some(now),
                has_failed: false,
            };
        }
        if locks.iter().all(|lock| lock.is(args.until)) {
            return Ok(YES);
        }
        let mut pause = args.interval.max(SHORTEST);
        if let Some(timeout) = args.timeout {
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(NO);
            }
            pause = pause.min(left);
        }
        tokio::time::sleep(pause).await;
    }
}

/// A key that never has a holder is not free.
fn check_kind(info: &LockInfo) -> Result<(), Failed> {
    match info.kind {
        LockKind::Foreign(_)
        | LockKind::Semaphore
        | LockKind::PermitSemaphore
        | LockKind::UnusedCounter => {
            let (key, kind) = (clean(&info.key), describe::kind(info));
            Err(Failed::new(format_args!(
                "{key} is {kind}, which has no holder to watch"
            )))
        }
        _ => Ok(()),
    }
}

/// One of the locks.
#[derive(Default)]
struct Watched {
    /// What the last query that was answered found.
    seen: Option<Seen>,
    /// The last query was not answered, so the lock may have changed since then.
    has_failed: bool,
}

impl Watched {
    /// Whether the last query found the wanted state.
    fn is(&self, wanted: Option<Until>) -> bool {
        let seen = self.seen.as_ref().filter(|_| !self.has_failed);
        match (wanted, seen) {
            (Some(Until::Free), Some(seen)) => !seen.is_held(),
            (Some(Until::Held), Some(seen)) => seen.is_held(),
            _ => false,
        }
    }
}

/// What one query found.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// When the query began and ended. It read the TTL between the two.
    asked: Instant,
    answered: Instant,
    /// The count of each holder's field.
    holders: BTreeMap<String, u32>,
    ttl: Option<Ttl>,
    listeners: Option<u32>,
}

impl Seen {
    /// The result of a query that began at `asked`.
    pub(crate) fn new(info: &LockInfo, asked: Instant) -> Self {
        let holders = info.holders.iter();
        Self {
            asked,
            answered: Instant::now(),
            holders: holders
                .map(|holder| (holder.field().to_owned(), holder.count))
                .collect(),
            ttl: info.ttl,
            listeners: info.listeners,
        }
    }

    fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Whether the lease is longer than it would be without a renewal in between, however long the queries took.
    pub(crate) fn is_renewed_since(&self, before: &Self) -> bool {
        let (Some(Ttl::Expires(now)), Some(Ttl::Expires(then))) = (self.ttl, before.ttl) else {
            return false;
        };
        let between = self.asked.saturating_duration_since(before.answered);
        now > then.saturating_sub(between) + TOLERANCE
    }
}

/// The changes between two queries, in words that do not change.
fn changes(before: Option<&Seen>, now: &Seen) -> Vec<&'static str> {
    let state = |seen: &Seen| if seen.is_held() { "held" } else { "free" };
    let Some(before) = before else {
        return vec![state(now)];
    };
    let mut changes = Vec::new();
    // Several owners may read, or have values of a group.
    let mut stayed = now
        .holders
        .iter()
        .filter_map(|(field, count)| Some((before.holders.get(field)?, count)))
        .peekable();
    match (before.is_held(), now.is_held()) {
        (true, true) if stayed.peek().is_none() => changes.push("handed_on"),
        (true, true) => {
            if stayed.any(|(old, new)| old != new) {
                changes.push("count");
            }
            if !before.holders.keys().eq(now.holders.keys()) {
                changes.push("holders");
            }
            if now.ttl == Some(Ttl::Persistent) && before.ttl != now.ttl {
                changes.push("ttl_gone");
            }
            if now.is_renewed_since(before) {
                changes.push("renewed");
            }
        }
        (false, false) => {}
        _ => changes.push(state(now)),
    }
    if before.listeners != now.listeners {
        changes.push("listeners");
    }
    changes
}

fn print(event: &str, info: &LockInfo, output: Output) {
    let holder = info.holders.first();
    if output.json {
        output.object(json!({
            "at_ms": unix_ms(),
            "key": info.key,
            "event": event,
            "holder": holder.map(HolderInfo::field),
            "by": holder.map(describe::by),
            "holder_count": info.holders.len(),
            "count": holder.map(|holder| holder.count),
            "ttl_ms": describe::ttl_ms(info.ttl),
            "listeners": info.listeners,
        }));
        return;
    }
    let listeners = info
        .listeners
        .map_or_else(|| "?".to_owned(), |count| count.to_string());
    let holder = holder.map_or_else(String::new, |holder| {
        let (short, ttl) = (describe::short(holder), describe::ttl(info.ttl));
        format!("  {short}, count {}, ttl {ttl}", holder.count)
    });
    let event = event.replace('_', " ");
    output.line(format_args!(
        "{}  {event}{holder}, {listeners} listeners",
        clean(&info.key)
    ));
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.ok()
        .and_then(|now| u64::try_from(now.as_millis()).ok())
        .unwrap_or(0)
}

/// Two readings of a TTL differ by at most this, beside the measured time.
const TOLERANCE: Duration = Duration::from_millis(200);
const SHORTEST: Duration = Duration::from_millis(10);
/// The round at the time limit may take this long. With a limit of zero it is the first one, which also connects.
const LAST_ROUND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(field: Option<&str>, ttl: u64, after: u64) -> Seen {
        let at = moment(after);
        Seen {
            asked: at,
            answered: at,
            holders: field
                .map(|field| (field.to_owned(), 1))
                .into_iter()
                .collect(),
            ttl: field.map(|_| Ttl::Expires(Duration::from_millis(ttl))),
            listeners: Some(0),
        }
    }

    fn moment(after: u64) -> Instant {
        *BEGAN.get_or_init(Instant::now) + Duration::from_millis(after)
    }

    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

    #[test]
    fn a_ttl_that_only_runs_down_is_no_change() {
        let before = seen(Some("a"), 10_000, 0);
        assert!(changes(Some(&before), &seen(Some("a"), 9_750, 250)).is_empty());
        assert_eq!(
            changes(Some(&before), &seen(Some("a"), 10_000, 3_000)),
            ["renewed"]
        );
    }

    /// The TTL is read at the beginning of a query that takes a second.
    #[test]
    fn a_slow_query_is_no_renewal() {
        let before = seen(Some("a"), 10_000, 0);
        let slow = Seen {
            answered: moment(1_250),
            ..seen(Some("a"), 9_750, 250)
        };
        assert!(changes(Some(&before), &slow).is_empty());
        // At its end, nearly.
        let last = Seen {
            answered: moment(1_250),
            ..seen(Some("a"), 8_800, 250)
        };
        let next = seen(Some("a"), 8_500, 1_500);
        assert!(changes(Some(&last), &next).is_empty());
    }

    #[test]
    fn a_holder_of_several_that_joins_or_leaves_hands_nothing_on() {
        let seen = |fields: &[(&str, u32)]| Seen {
            holders: fields
                .iter()
                .map(|(field, count)| ((*field).to_owned(), *count))
                .collect(),
            ..seen(Some("a"), 10_000, 0)
        };
        for (before, now, expected) in [
            (&[("a", 1), ("b", 1)][..], &[("b", 1)][..], &["holders"][..]),
            (&[("b", 1)], &[("a", 1), ("b", 1)], &["holders"]),
            (&[("a", 1), ("b", 1)], &[("b", 1), ("c", 1)], &["holders"]),
            (&[("a", 1), ("b", 1)], &[("a", 1), ("b", 2)], &["count"]),
            (&[("a", 1), ("b", 1)], &[("c", 1)], &["handed_on"]),
        ] {
            assert_eq!(changes(Some(&seen(before)), &seen(now)), expected);
        }
    }

    #[test]
    fn a_change_of_the_holder_is_reported_in_one_word() {
        let (free, a) = (seen(None, 0, 0), seen(Some("a"), 10_000, 1));
        assert_eq!(changes(None, &free), ["free"]);
        assert_eq!(changes(Some(&free), &a), ["held"]);
        assert_eq!(
            changes(Some(&a), &seen(Some("b"), 10_000, 2)),
            ["handed_on"]
        );
        assert_eq!(changes(Some(&a), &free), ["free"]);
        assert!(changes(Some(&free), &free).is_empty());
    }

    #[test]
    fn a_ttl_that_is_gone_and_a_listener_are_reported() {
        let a = seen(Some("a"), 10_000, 0);
        let changed = Seen {
            ttl: Some(Ttl::Persistent),
            listeners: Some(1),
            holders: BTreeMap::from([("a".to_owned(), 2)]),
            ..seen(Some("a"), 0, 1)
        };
        assert_eq!(
            changes(Some(&a), &changed),
            ["count", "ttl_gone", "listeners"]
        );
    }
}
