//! The metrics that have the label `group`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockdog::Error;
use lockdog::error::LostReason;
use lockdog::observe::{ClientEvent, How, LockRef};
use metrics::{Counter, Histogram, Label, Recorder};
use parking_lot::RwLock;

use crate::names::{ACQUIRE_DURATION, ACQUIRES, HOLDS, LOST};
use crate::recorder::{Target, counter, histogram};

/// The groups so far.
pub(crate) struct Groups {
    most: usize,
    known: RwLock<HashMap<Box<str>, Arc<Group>>>,
}

/// The metrics of one group. All of its series exist from its first event on: an increase from a series that was
/// not there before is none for Prometheus.
struct Group {
    acquires: [(Outcome, Counter); OUTCOMES.len()],
    acquired: Histogram,
    busy: Histogram,
    failed: Histogram,
    held: Histogram,
    lost: [(LostReason, Counter); REASONS.len()],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    Acquired,
    Reentered,
    HandedOver,
    Busy,
    Timeout,
    Unavailable,
    Refused,
    NoQuorum,
    Cancelled,
    Other,
}

impl Groups {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            known: RwLock::default(),
        }
    }

    pub(crate) fn event(&self, target: &Target, event: &ClientEvent<'_>) {
        match event {
            ClientEvent::Acquired {
                lock, how, waited, ..
            } => {
                let group = self.of(target, lock);
                let outcome = match how {
                    How::Reentered => return group.count(Outcome::Reentered),
                    How::HandedOver => Outcome::HandedOver,
                    _ => Outcome::Acquired,
                };
                group.count(outcome);
                record(&group.acquired, *waited);
            }
            ClientEvent::Busy { lock, waited, .. } => {
                let group = self.of(target, lock);
                group.count(Outcome::Busy);
                record(&group.busy, *waited);
            }
            ClientEvent::Failed {
                lock,
                waited,
                error,
                ..
            } => {
                let group = self.of(target, lock);
                group.count(match error {
                    Error::Timeout { .. } => Outcome::Timeout,
                    Error::Unavailable { .. } => Outcome::Unavailable,
                    Error::Refused { .. } => Outcome::Refused,
                    Error::NoQuorum(_) => Outcome::NoQuorum,
                    _ => Outcome::Other,
                });
                record(&group.failed, *waited);
            }
            ClientEvent::Cancelled { lock, .. } => self.of(target, lock).count(Outcome::Cancelled),
            ClientEvent::Released { lock, held, .. } => record(&self.of(target, lock).held, *held),
            ClientEvent::Lost {
                lock, reason, held, ..
            } => {
                let group = self.of(target, lock);
                if let Some((_, lost)) = group.lost.iter().find(|(it, _)| it == reason) {
                    lost.increment(1);
                }
                record(&group.held, *held);
            }
            _ => {}
        }
    }

    /// The metrics of this lock's group, or of all the groups for which there is no room.
    fn of(&self, target: &Target, lock: &LockRef<'_>) -> Arc<Group> {
        let name = lock.group();
        if let Some(group) = self.known.read().get(name) {
            return group.clone();
        }
        let mut known = self.known.write();
        let groups = known.keys().filter(|name| !matches!(&***name, "" | OTHER));
        let name = match groups.count() {
            full if full >= self.most && !name.is_empty() => OTHER,
            _ => name,
        };
        let group = known.entry(name.into()).or_insert_with(|| {
            let label = (!name.is_empty()).then(|| Label::new("group", name.to_owned()));
            Arc::new(target.with(|recorder| Group::new(recorder, label)))
        });
        group.clone()
    }
}

impl Group {
    fn new(recorder: &dyn Recorder, group: Option<Label>) -> Self {
        let labels = |name: &'static str, value: &'static str| {
            let own = Label::from_static_parts(name, value);
            group.iter().cloned().chain([own]).collect::<Vec<_>>()
        };
        let duration = |outcome| histogram(recorder, ACQUIRE_DURATION, labels("outcome", outcome));
        Self {
            acquires: OUTCOMES.map(|(outcome, word)| {
                (
                    outcome,
                    counter(recorder, ACQUIRES, labels("outcome", word)),
                )
            }),
            acquired: duration("acquired"),
            busy: duration("busy"),
            failed: duration("failed"),
            held: histogram(recorder, HOLDS, group.iter().cloned().collect()),
            lost: REASONS.map(|reason| {
                let labels = labels("reason", reason.as_str());
                (reason, counter(recorder, LOST, labels))
            }),
        }
    }

    fn count(&self, outcome: Outcome) {
        if let Some((_, counter)) = self.acquires.iter().find(|(it, _)| *it == outcome) {
            counter.increment(1);
        }
    }
}

fn record(histogram: &Histogram, duration: Duration) {
    histogram.record(duration.as_secs_f64());
}

/// The value of the label for the groups for which there is no room.
const OTHER: &str = "other";

const OUTCOMES: [(Outcome, &str); 10] = [
    (Outcome::Acquired, "acquired"),
    (Outcome::Reentered, "reentered"),
    (Outcome::HandedOver, "handed_over"),
    (Outcome::Busy, "busy"),
    (Outcome::Timeout, "timeout"),
    (Outcome::Unavailable, "unavailable"),
    (Outcome::Refused, "refused"),
    (Outcome::NoQuorum, "no_quorum"),
    (Outcome::Cancelled, "cancelled"),
    (Outcome::Other, "other"),
];

const REASONS: [LostReason; 6] = [
    LostReason::Deadline,
    LostReason::NotOurs,
    LostReason::Forced,
    LostReason::MaxHold,
    LostReason::ShutDown,
    LostReason::Watchdog,
];
