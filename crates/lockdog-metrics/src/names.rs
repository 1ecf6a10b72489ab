//! Every metric: its name, its unit, and what it means.

use metrics::{Recorder, Unit};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    unit: Unit,
    help: &'static str,
}

/// Describes each metric to a recorder.
pub(crate) fn describe(recorder: &dyn Recorder) {
    for metric in METRICS {
        let (name, unit, help) = (metric.name.into(), Some(metric.unit), metric.help.into());
        match metric.kind {
            MetricKind::Counter => recorder.describe_counter(name, unit, help),
            MetricKind::Gauge => recorder.describe_gauge(name, unit, help),
            MetricKind::Histogram => recorder.describe_histogram(name, unit, help),
        }
    }
}

macro_rules! metrics {
    ($($constant:ident $name:literal $kind:ident $unit:ident $help:literal)*) => {
        $(pub(crate) const $constant: &str = $name;)*

        /// All of them.
        pub(crate) const METRICS: &[Metric] = &[
            $(Metric { name: $name, kind: MetricKind::$kind, unit: Unit::$unit, help: $help },)*
        ];
    };
}

metrics! {
    ACQUIRES "lockdog_acquires_total" Counter Count
        "Calls that acquire, by their outcome."
    ACQUIRE_DURATION "lockdog_acquire_duration_seconds" Histogram Seconds
        "How long calls that acquire took, re-entries and cancelled calls left out."
    HOLDS "lockdog_hold_duration_seconds" Histogram Seconds
        "How long locks were held, lost ones too."
    LOST "lockdog_lost_total" Counter Count
        "Locks that ended against their owners' will, by the reason."
    HELD "lockdog_locks_held" Gauge Count
        "Locks and permits that are held now."
    JEOPARDY "lockdog_locks_in_jeopardy" Gauge Count
        "Locks whose last renewal failed, and whose deadline has not passed."
    WAITERS "lockdog_waiters" Gauge Count
        "Calls that wait now."
    SETTLING "lockdog_settling" Gauge Count
        "Releases that the server has not confirmed yet."
    SUBSCRIPTIONS "lockdog_subscriptions" Gauge Count
        "Channels to which the clients are subscribed."
    REMAINING "lockdog_hold_remaining_min_seconds" Gauge Seconds
        "The shortest time until the deadline of a lock that is renewed; NaN if none is."
    OLDEST "lockdog_oldest_hold_seconds" Gauge Seconds
        "The time since the oldest lock was acquired; 0 if none is held."
    LEASE "lockdog_watchdog_lease_seconds" Gauge Seconds
        "The setting watchdog_lease."
    MAX_WAITERS "lockdog_max_waiters" Gauge Count
        "The setting max_waiters."
    RENEWALS "lockdog_renewals_total" Counter Count
        "Renewals of locks, by their result."
    RENEWAL_DURATION "lockdog_renewal_duration_seconds" Histogram Seconds
        "How long the server took to answer a renewal."
    RENEWAL_DELAY "lockdog_renewal_delay_seconds" Histogram Seconds
        "How much later than planned a renewal was sent."
    WATCHDOG_DELAY "lockdog_watchdog_delay_seconds" Histogram Seconds
        "How much later than planned the client's own thread woke up."
    RELEASES "lockdog_releases_total" Counter Count
        "Locks that their owners released, by the way and by whether the server confirmed it."
    WAKE_UPS "lockdog_wakeups_total" Counter Count
        "Calls that had waited and then acquired, by what ended the wait."
    COMMANDS "lockdog_command_duration_seconds" Histogram Seconds
        "How long a script took until its answer, repetitions included."
    CONNECTIONS "lockdog_connections" Gauge Count
        "1 if a connection for this role is open, else 0."
    CONNECTS "lockdog_connects_total" Counter Count
        "Attempts to connect, by role and result."
    SWITCHES "lockdog_master_switches_total" Counter Count
        "Failovers that the clients saw."
    REBORN "lockdog_server_reborn_total" Counter Count
        "Servers that are others than before, or were restarted."
    ROUNDS "lockdog_quorum_rounds_total" Counter Count
        "Rounds in which a RedLock asked all instances, by their result."
    MARGIN "lockdog_quorum_margin_min" Gauge Count
        "The fewest instances that a RedLock could lose after a round that it won. It stays while no round is won."
    FINDINGS "lockdog_findings" Gauge Count
        "Problems of the servers' set-up that the last diagnosis found, by kind."
    BUILD "lockdog_build_info" Gauge Count
        "1, with the version of the library."
}
