//! The metrics that have the label `group`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockdog::Error;
use lockdog::error::LostReason;
use lockdog::observe::{ClientEvent, How};
use metrics::{Counter, Histogram, Label, Recorder};
use parking_lot::RwLock;

use crate::names::{ACQUIRE_DURATION, ACQUIRES, HOLDS, LOST};
use crate::recorder::{Target, counter, histogram};

/// The groups so far.
pub(crate) struct Groups {
    most: u32,
    known: RwLock<Known>,
}

type Known = HashMap<Box<str>, Arc<Group>>;

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
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
            known: RwLock::default(),
        }
    }

    pub(crate) fn event(&self, target: &Target, event: &ClientEvent<'_>) {
        match event {
            ClientEvent::Acquired { lock, .. }
            | ClientEvent::Busy { lock, .. }
            | ClientEvent::Failed { lock, .. }
            | ClientEvent::Cancelled { lock, .. }
            | ClientEvent::Released { lock, .. }
            | ClientEvent::Lost { lock, .. } => {
                // Not cloned out of the map: threads would contend for one more counter.
                if let Some(group) = self.find(&self.known.read(), lock.group()) {
                    return group.event(event);
                }
                self.add(target, lock.group()).event(event);
            }
            _ => {}
        }
    }

    /// The metrics of this group, or of all the groups for which there is no room.
    fn find<'a>(&self, known: &'a Known, name: &str) -> Option<&'a Arc<Group>> {
        let own = known.get(name);
        own.or_else(|| known.get(self.place(known, name)))
    }

    /// The name under which this group is, or will be.
    fn place<'a>(&self, known: &Known, name: &'a str) -> &'a str {
        let own = known.keys().filter(|it| !matches!(&***it, "" | OTHER));
        match own.count() >= self.most as usize && !name.is_empty() {
            true => OTHER,
            false => name,
        }
    }

    fn add(&self, target: &Target, name: &str) -> Arc<Group> {
        let mut known = self.known.write();
        // Another thread may have added it meanwhile.
        if let Some(group) = self.find(&known, name) {
            return group.clone();
        }
        let name = self.place(&known, name);
        let label = (!name.is_empty()).then(|| Label::new("group", name.to_owned()));
        let group = Arc::new(target.with(|recorder| Group::new(recorder, label)));
        known.insert(name.into(), group.clone());
        group
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

    fn event(&self, event: &ClientEvent<'_>) {
        match event {
            ClientEvent::Acquired { how, waited, .. } => {
                let outcome = match how {
                    How::Reentered => return self.count(Outcome::Reentered),
                    How::HandedOver => Outcome::HandedOver,
                    _ => Outcome::Acquired,
                };
                self.count(outcome);
                record(&self.acquired, *waited);
            }
            ClientEvent::Busy { waited, .. } => {
                self.count(Outcome::Busy);
                record(&self.busy, *waited);
            }
            ClientEvent::Failed { waited, error, .. } => {
                self.count(match error {
                    Error::Timeout { .. } => Outcome::Timeout,
                    Error::Unavailable { .. } => Outcome::Unavailable,
                    Error::Refused { .. } => Outcome::Refused,
                    Error::NoQuorum(_) => Outcome::NoQuorum,
                    _ => Outcome::Other,
                });
                record(&self.failed, *waited);
            }
            ClientEvent::Cancelled { .. } => self.count(Outcome::Cancelled),
            ClientEvent::Released { held, .. } => record(&self.held, *held),
            ClientEvent::Lost { reason, held, .. } => {
                if let Some((_, lost)) = self.lost.iter().find(|(it, _)| it == reason) {
                    lost.increment(1);
                }
                record(&self.held, *held);
            }
            _ => {}
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
