//! `lockdog watch`: each change of locks.

use std::time::{Duration, Instant, SystemTime};

use lockdog::report::{HolderInfo, LockInfo, Ttl};
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
    let client = settings.connect().await?.remove(0);
    let began = Instant::now();
    let mut locks: Vec<Watched> = args.name.iter().map(|_| Watched::default()).collect();
    loop {
        for (name, lock) in args.name.iter().zip(&mut locks) {
            let info = match client.inspect(name).await {
                Ok(info) => info,
                // It may come back.
                Err(error) if lock.seen.is_some() && error.is_retriable() => {
                    if !lock.has_failed {
                        let name = clean(name);
                        output.note(format_args!("the state of {name} is not known: {error}"));
                    }
                    lock.has_failed = true;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let now = Seen::new(&info);
            for event in changes(lock.seen.as_ref(), &now) {
                tell(event, &info, output);
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
            (Some(Until::Free), Some(seen)) => seen.field.is_none(),
            (Some(Until::Held), Some(seen)) => seen.field.is_some(),
            _ => false,
        }
    }
}

/// What one query found.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    at: Instant,
    field: Option<String>,
    holders: usize,
    count: u32,
    ttl: Option<Ttl>,
    listeners: Option<u64>,
}

impl Seen {
    pub(crate) fn new(info: &LockInfo) -> Self {
        let first = info.holders.first();
        Self {
            at: Instant::now(),
            field: first.map(|holder| holder.field().to_owned()),
            holders: info.holders.len(),
            count: first.map_or(0, |holder| holder.count),
            ttl: info.ttl,
            listeners: info.listeners,
        }
    }

    /// Whether the lease is longer than it would be without a renewal in between.
    pub(crate) fn is_renewed_since(&self, before: &Self) -> bool {
        let (Some(Ttl::Expires(now)), Some(Ttl::Expires(then))) = (self.ttl, before.ttl) else {
            return false;
        };
        now > then.saturating_sub(self.at - before.at) + TOLERANCE
    }
}

/// The changes between two queries, in words that do not change.
fn changes(before: Option<&Seen>, now: &Seen) -> Vec<&'static str> {
    let state = |seen: &Seen| if seen.field.is_some() { "held" } else { "free" };
    let Some(before) = before else {
        return vec![state(now)];
    };
    let mut changes = Vec::new();
    match (&before.field, &now.field) {
        (Some(old), Some(new)) if old != new => changes.push("handed_on"),
        (Some(_), Some(_)) => {
            if before.count != now.count {
                changes.push("count");
            }
            if before.holders != now.holders {
                changes.push("holders");
            }
            if now.ttl == Some(Ttl::Persistent) && before.ttl != now.ttl {
                changes.push("ttl_gone");
            }
            if now.is_renewed_since(before) {
                changes.push("renewed");
            }
        }
        (None, None) => {}
        _ => changes.push(state(now)),
    }
    if before.listeners != now.listeners {
        changes.push("listeners");
    }
    changes
}

fn tell(event: &str, info: &LockInfo, output: Output) {
    let holder = info.holders.first();
    if output.json {
        output.object(json!({
            "at_ms": unix_ms(),
            "key": info.key,
            "event": event,
            "holder": holder.map(HolderInfo::field),
            "by": holder.map(describe::by),
            "holders": info.holders.len(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(field: Option<&str>, ttl: u64, after: u64) -> Seen {
        Seen {
            at: *BEGAN.get_or_init(Instant::now) + Duration::from_millis(after),
            field: field.map(str::to_owned),
            holders: usize::from(field.is_some()),
            count: u32::from(field.is_some()),
            ttl: field.map(|_| Ttl::Expires(Duration::from_millis(ttl))),
            listeners: Some(0),
        }
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
            count: 2,
            ..seen(Some("a"), 0, 1)
        };
        assert_eq!(
            changes(Some(&a), &changed),
            ["count", "ttl_gone", "listeners"]
        );
    }
}
