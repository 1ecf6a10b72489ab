//! The recordings of real Redisson in `tests/golden`.

use std::time::Duration;

use serde_json::Value;

use super::deployment::Deployment;
use super::facts::Expiries;
use super::left_out::is_left_out;
use super::recorded_step::Step;
use crate::kinds::{self, Kind};

pub(super) struct Scenario {
    /// The recorded name, after the name of the object unless that is the plain lock on one server. The
    /// variant follows if the recording is replayed in several.
    pub(super) name: String,
    /// The same without the variant.
    pub(super) recorded: String,
    pub(super) deployment: Deployment,
    /// The object that `lock` means in its calls.
    pub(super) kind: &'static Kind,
    pub(super) shows: String,
    pub(super) steps: Vec<Step>,
}

/// The steps that are replayed.
pub(super) fn scenario(name: &str) -> Scenario {
    let recordings = recordings();
    let mut all = recordings.iter().flat_map(Recording::scenarios);
    let (name, recording, scenario) = all
        .find(|(recorded, ..)| recorded == name)
        .unwrap_or_else(|| panic!("{name} is recorded"));
    recording.read(name, scenario)
}

/// The name of each scenario, and the numbers of its steps.
pub(super) fn contents() -> Vec<(String, Vec<usize>)> {
    let recordings = recordings();
    let all = recordings.iter().flat_map(Recording::scenarios);
    all.map(|(name, _, scenario)| {
        let steps = list(&scenario["steps"]).iter();
        (name, steps.filter_map(step_number).collect())
    })
    .collect()
}

/// One file.
struct Recording {
    file: Value,
    kind: &'static Kind,
    deployment: Deployment,
    /// The suffix of the names of its scenarios.
    variant: &'static str,
}

fn recordings() -> Vec<Recording> {
    let files = [
        include_str!("../../../golden/rlock.json"),
        include_str!("../../../golden/rlock_edges.json"),
        include_str!("../../../golden/spin_lock.json"),
        include_str!("../../../golden/non_reentrant_lock.json"),
        include_str!("../../../golden/multi_lock.json"),
        include_str!("../../../golden/cluster.json"),
        include_str!("../../../golden/replication.json"),
        include_str!("../../../golden/fenced_lock.json"),
        include_str!("../../../golden/fair_lock.json"),
        include_str!("../../../golden/fair_lock_edges.json"),
    ];
    let parse = |file| serde_json::from_str::<Value>(file).expect("a recording is JSON");
    let files = files.into_iter().map(parse);
    files.flat_map(Recording::variants).collect()
}

impl Recording {
    /// A recording of Redisson's fenced lock is replayed with both of our kinds of it.
    fn variants(file: Value) -> Vec<Self> {
        let by_clock = Self::new(file);
        if !std::ptr::eq(by_clock.kind, &kinds::FENCED) {
            return vec![by_clock];
        }
        let from_one = Self {
            file: by_clock.file.clone(),
            kind: &kinds::FENCED_FROM_ONE,
            variant: "_from_one",
            ..by_clock
        };
        let variant = "_by_clock";
        vec![
            from_one,
            Self {
                variant,
                ..by_clock
            },
        ]
    }

    fn new(file: Value) -> Self {
        let object = text(&file["object"]);
        let deployment = match object.as_str() {
            "multi_lock" => Deployment::Three,
            "cluster" => Deployment::Cluster,
            "replication" => Deployment::Replicated,
            _ => Deployment::One,
        };
        let kind = match deployment {
            Deployment::One => Kind::find(object.trim_end_matches("_edges")),
            Deployment::Three | Deployment::Cluster | Deployment::Replicated => Some(&kinds::PLAIN),
        };
        Self {
            file,
            kind: kind.expect("it is one of ours"),
            deployment,
            variant: "",
        }
    }

    /// With the names that they have here.
    fn scenarios(&self) -> impl Iterator<Item = (String, &Self, &Value)> {
        list(&self.file["scenarios"]).iter().map(move |scenario| {
            let name = text(&scenario["scenario"]);
            let object = text(&self.file["object"]);
            let name = match object.trim_end_matches("_edges") {
                "rlock" => name,
                object => format!("{object}_{name}{}", self.variant),
            };
            (name, self, scenario)
        })
    }

    fn read(&self, name: String, scenario: &Value) -> Scenario {
        let recorded = name
            .strip_suffix(self.variant)
            .expect("it is at the end")
            .to_owned();
        let mut expiries = Expiries::slowed(slower(&recorded));
        let mut steps = Vec::new();
        let mut note = String::new();
        for step in list(&scenario["steps"]) {
            match step_number(step) {
                None => note = text(&step["note"]),
                Some(number) if is_left_out(&recorded, number) => {}
                Some(number) => {
                    let note = std::mem::take(&mut note);
                    let mut step = Step::read(number, step, note, self.deployment, &mut expiries);
                    if recorded == "fair_lock_reentry_with_waiter" {
                        // `lock` means the lock of its first call.
                        let call = step.call.strip_prefix("lock.");
                        let call = call.map(|call| format!("getFairLock(\"{{a}}:b\").{call}"));
                        step.call = call.unwrap_or(step.call);
                    }
                    steps.push(step);
                }
            }
        }
        Scenario {
            name,
            recorded,
            deployment: self.deployment,
            kind: match recorded_kind(&text(&scenario["shows"])) {
                Some(kind) => kind,
                None => self.kind,
            },
            shows: text(&scenario["shows"]),
            steps,
        }
    }
}

/// The kind of a scenario that differs from that of its file.
fn recorded_kind(shows: &str) -> Option<&'static Kind> {
    let getter = shows.split(':').next()?;
    Kind::find(getter).filter(|kind| std::ptr::eq(*kind, &kinds::NON_REENTRANT_FAIR))
}

/// A step without a number is a note.
fn step_number(step: &Value) -> Option<usize> {
    step["step"].as_u64().map(|number| number as usize)
}

impl Scenario {
    /// The factor by which its times, and the recorded ones, are longer here.
    pub(super) fn slower(&self) -> u32 {
        slower(&self.recorded)
    }

    /// `lockWatchdogTimeout=3000` and the like.
    pub(super) fn watchdog_lease(&self) -> Duration {
        self.setting("lockWatchdogTimeout=", 30_000) * self.slower()
    }

    pub(super) fn fair_wait(&self) -> Duration {
        self.setting("fairLockWaitTimeout=", 300_000)
    }

    /// How long our waiters send nothing, so that no timer of ours ends a quiet step of the recording.
    /// Java's fair waiters wait for longer.
    pub(super) fn poll_cap(&self) -> Duration {
        let is_fair = self.kind.java.contains("Fair");
        // The quiet step of this one has to outlast the poll, and the subscription, which stays for a second more.
        Duration::from_millis(match &*self.name {
            "no_ttl" => 1_500,
            _ if is_fair => 8_000,
            _ => 2_500,
        })
    }

    fn setting(&self, name: &str, default: u64) -> Duration {
        let number = |rest: &str| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        let millis = self.shows.split(name).nth(1).and_then(number);
        Duration::from_millis(millis.unwrap_or(default))
    }
}

/// Leases that a busy machine could not observe in time are longer here than in the recording, and so are
/// all other times of their scenario.
fn slower(scenario: &str) -> u32 {
    match scenario {
        "expired_hold" => 5,
        "spin_lock_constant_back_off" | "spin_lock_force_unlock" => 5,
        "holder_expires" | "non_reentrant_lock_waiter_woken" => 3,
        "no_ttl" => 2,
        "fenced_lock_expired_holder" => 5,
        "fair_lock_lost_holder" | "fair_lock_mixed_with_rlock" | "fair_lock_dead_head" => 5,
        "fair_lock_reentry_with_waiter" => 5,
        "fair_lock_wait_without_lease" | "fair_lock_giving_up_without_lease" => 3,
        "fair_lock_middle_times_out" => 3,
        "fenced_lock_leases" | "fenced_lock_waiters" => 3,
        "multi_lock_one_held_by_other" => 5,
        "multi_lock_leases" | "cluster_other_objects" => 3,
        // Each acquire has one second for its replicas.
        replicated if replicated.starts_with("replication_") => 5,
        _ => 1,
    }
}

/// A list; empty if it is missing.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
