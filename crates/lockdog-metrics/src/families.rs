//! The metrics of events, without the label `group`.

use lockdog::observe::{ClientEvent, CommandKind, ConnectionChange, End, Role, WokenBy};
use metrics::{Counter, Gauge, Histogram, Label, Recorder};

use crate::names;
use crate::recorder::{counter, gauge, histogram};

/// The series of one metric, each with the value of the event that it is for. There are few, so they are scanned.
type Family<K, M> = Vec<(K, M)>;

pub(crate) struct Families {
    renewed: Counter,
    not_ours: Counter,
    renewal_failed: Counter,
    renewal_duration: Histogram,
    renewal_delay: Histogram,
    watchdog_delay: Histogram,
    releases: Family<(End, bool), Counter>,
    wake_ups: Family<WokenBy, Counter>,
    commands: Family<(CommandKind, bool), Histogram>,
    connects: Family<(Role, bool), Counter>,
    switches: Counter,
    reborn: Counter,
    rounds_won: Counter,
    rounds_lost: Counter,
    /// Set once, and kept.
    _build: Gauge,
}

impl Families {
    pub(crate) fn new(recorder: &dyn Recorder) -> Self {
        let label = Label::from_static_parts;
        let renewals = |result| counter(recorder, names::RENEWALS, vec![label("result", result)]);
        let rounds = |result| counter(recorder, names::ROUNDS, vec![label("result", result)]);
        let seconds = |name| histogram(recorder, name, Vec::new());
        let build = gauge(
            recorder,
            names::BUILD,
            vec![label("version", env!("CARGO_PKG_VERSION"))],
        );
        build.set(1.0);
        let (mut releases, mut commands, mut connects) = (Vec::new(), Vec::new(), Vec::new());
        for (end, word) in ENDS {
            for (confirmed, value) in [(true, "true"), (false, "false")] {
                let labels = vec![label("how", word), label("confirmed", value)];
                releases.push(((end, confirmed), counter(recorder, names::RELEASES, labels)));
            }
        }
        for (kind, word) in COMMANDS {
            for (failed, result) in RESULTS {
                let labels = vec![label("command", word), label("result", result)];
                commands.push(((kind, failed), histogram(recorder, names::COMMANDS, labels)));
            }
        }
        for (role, word) in ROLES {
            for (failed, result) in RESULTS {
                let labels = vec![label("role", word), label("result", result)];
                connects.push(((role, failed), counter(recorder, names::CONNECTS, labels)));
            }
        }
        let wake_ups = WAKE_UPS.iter().map(|(by, word)| {
            let labels = vec![label("by", word)];
            (*by, counter(recorder, names::WAKE_UPS, labels))
        });
        Self {
            renewed: renewals("ok"),
            not_ours: renewals("not_ours"),
            renewal_failed: renewals("failed"),
            renewal_duration: seconds(names::RENEWAL_DURATION),
            renewal_delay: seconds(names::RENEWAL_DELAY),
            watchdog_delay: seconds(names::WATCHDOG_DELAY),
            releases,
            wake_ups: wake_ups.collect(),
            commands,
            connects,
            switches: counter(recorder, names::SWITCHES, Vec::new()),
            reborn: counter(recorder, names::REBORN, Vec::new()),
            rounds_won: rounds("won"),
            rounds_lost: rounds("lost"),
            _build: build,
        }
    }

    pub(crate) fn event(&self, event: &ClientEvent<'_>) {
        match event {
            ClientEvent::Released { how, confirmed, .. } => {
                increment(&self.releases, &(*how, *confirmed));
            }
            ClientEvent::Renewed {
                holds,
                gone,
                took,
                late,
                ..
            } => {
                self.renewed.increment(u64::from(*holds));
                self.not_ours.increment(u64::from(*gone));
                self.renewal_duration.record(took.as_secs_f64());
                self.renewal_delay.record(late.as_secs_f64());
            }
            ClientEvent::RenewalFailed { holds, .. } => {
                self.renewal_failed.increment(u64::from(*holds))
            }
            ClientEvent::Late { by, .. } => self.watchdog_delay.record(by.as_secs_f64()),
            ClientEvent::Woken { by, .. } => increment(&self.wake_ups, by),
            ClientEvent::Command {
                kind, took, failed, ..
            } => {
                if let Some(histogram) = of(&self.commands, &(*kind, *failed)) {
                    histogram.record(took.as_secs_f64());
                }
            }
            ClientEvent::Connection { role, change, .. } => match change {
                ConnectionChange::Opened => increment(&self.connects, &(*role, false)),
                ConnectionChange::Failed => increment(&self.connects, &(*role, true)),
                _ => {}
            },
            ClientEvent::MasterSwitched { .. } => self.switches.increment(1),
            ClientEvent::ServerReborn { .. } => self.reborn.increment(1),
            ClientEvent::Round { won: true, .. } => self.rounds_won.increment(1),
            ClientEvent::Round { won: false, .. } => self.rounds_lost.increment(1),
            _ => {}
        }
    }
}

fn increment<K: PartialEq>(family: &Family<K, Counter>, key: &K) {
    if let Some(counter) = of(family, key) {
        counter.increment(1);
    }
}

fn of<'a, K: PartialEq, M>(family: &'a Family<K, M>, key: &K) -> Option<&'a M> {
    let found = family.iter().find(|(it, _)| it == key);
    found.map(|(_, metric)| metric)
}

const RESULTS: [(bool, &str); 2] = [(false, "ok"), (true, "failed")];

const ENDS: [(End, &str); 5] = [
    (End::Unlocked, "unlocked"),
    (End::Dropped, "dropped"),
    (End::HandedOn, "handed_on"),
    (End::ShutDown, "shut_down"),
    (End::Expired, "expired"),
];

const WAKE_UPS: [(WokenBy, &str); 5] = [
    (WokenBy::Message, "message"),
    (WokenBy::Timer, "timer"),
    (WokenBy::HandOver, "hand_over"),
    (WokenBy::Release, "release"),
    (WokenBy::Pause, "pause"),
];

const COMMANDS: [(CommandKind, &str); 8] = [
    (CommandKind::Acquire, "acquire"),
    (CommandKind::Unlock, "unlock"),
    (CommandKind::Transfer, "transfer"),
    (CommandKind::Settle, "settle"),
    (CommandKind::Renew, "renew"),
    (CommandKind::Touch, "touch"),
    (CommandKind::Query, "query"),
    (CommandKind::Force, "force"),
];

pub(crate) const ROLES: [(Role, &str); 4] = [
    (Role::Commands, "commands"),
    (Role::Watchdog, "watchdog"),
    (Role::Messages, "messages"),
    (Role::Replicas, "replicas"),
];
