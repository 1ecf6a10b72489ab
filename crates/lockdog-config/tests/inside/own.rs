//! lockdog's own form.

use super::note;
use crate::error::ConfigErrorKind;
use crate::{Format, NoteKind, from_str};

fn shown(text: &str) -> String {
    let config = from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(config.format, Format::Lockdog);
    format!("{:?}", config.builder)
}

#[test]
fn each_key_is_a_setting() {
    let shown = shown(
        "
url: redis://10.0.0.7:6379/2
watchdog_lease: 12s
command_timeout: 1500ms
poll_cap: 500ms
max_lease: 1h30m
max_waiters: 77
wake: poll
max_hand_overs: 3
max_hand_over_time: 7ms
fair_wait: 1m
fair_absence: 4s
prefer: readers
reentry: local
replica_ack: {require: 2, timeout: 300ms}
quarantine_on_server: true
client_name: orders
lazy: true
log_names: true
expect_finding: [eviction, no_min_replicas]
protocol: resp3
database: 4
username: ann
password: hunter2
",
    );
    for part in [
        "10.0.0.7:6379",
        "watchdog_lease: 12s",
        "command_timeout: 1.5s",
        "poll_cap: 500ms",
        "max_lease: 5400s",
        "max_waiters: 77",
        "wake: Poll",
        "max_hand_overs: 3",
        "max_hand_over_time: 7ms",
        "fair_wait: 60s",
        "fair_absence: Some(4s)",
        "preference: Readers",
        "reentry: Local",
        "Require { replicas: Count(2), timeout: 300ms }",
        "quarantine_on_server: true",
        "client_name: Some(\"orders\")",
        "lazy: true",
        "log_names: true",
        "expected_findings: [Eviction, NoMinReplicas]",
        "protocol: Some(Resp3)",
    ] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn sentinels_and_clusters_are_lists() {
    let sentinel = shown(
        "sentinel: {master: orders, urls: ['redis://s1:26379', 'redis://s2:26379']}\n\
         sentinel_username: cleo\nsentinel_password: hunter2\nmaster_tls: true\n",
    );
    assert!(
        sentinel.contains("sentinel master orders at s1:26379,s2:26379"),
        "{sentinel}"
    );
    let cluster = shown("cluster: ['redis://a:1', 'redis://b:2']\nreplica_ack: best_effort\n");
    assert!(cluster.contains("cluster a:1,b:2"), "{cluster}");
    assert!(cluster.contains("BestEffort { timeout: 1s }"), "{cluster}");
    let one = shown("{\"url\": \"redis://a:1\", \"replica_ack\": \"off\"}");
    assert!(one.contains("Some(Off)"), "{one}");
    let majority = shown("url: redis://a:1\nreplica_ack: {require: majority}\n");
    assert!(
        majority.contains("Require { replicas: Majority, timeout: 1s }"),
        "{majority}"
    );
}

#[test]
fn what_is_wrong_is_named() {
    let (value, unknown) = (ConfigErrorKind::Value, ConfigErrorKind::Unknown);
    for (key, kind, word) in [
        ("watchdog_lease: 30", value, "say 10s or 10ms"),
        ("watchdog_lease: 30 s", value, "such as 250ms"),
        ("watchdog_lease: [30s]", value, "a duration"),
        (
            "watchdog_lese: 30s",
            unknown,
            "did you mean watchdog_lease?",
        ),
        ("timeout: 3s", unknown, "the keys are url"),
        ("sentinel: {master: orders}", value, "it needs urls"),
        (
            "sentinel: {urls: ['redis://a:1']}",
            value,
            "it needs master",
        ),
        (
            "sentinel: {master: orders, urls: [], user: x}",
            unknown,
            "the keys are master, urls",
        ),
        ("sentinel: redis://a:1", value, "a map of master, urls"),
        ("tls: {certificate: /none}", value, "cannot be read"),
        (
            "replica_ack: {require: some}",
            value,
            "a number, all or majority",
        ),
        ("replica_ack: {timeout: 1s}", value, "it needs require"),
        ("replica_ack: on", value, "one of off, best_effort"),
        ("max_waiters: -1", value, "whole number"),
        ("lazy: 3", value, "true or false"),
        (
            "expect_finding: [no_replicas]",
            value,
            "the findings are clock_difference",
        ),
        ("protocol: RESP3", value, "one of resp2, resp3"),
        (
            "protocol: ${UNSET_WORD}",
            ConfigErrorKind::Variable,
            "UNSET_WORD",
        ),
        (
            "replica_ack: {require: '${UNSET:-}'}",
            value,
            "it needs require",
        ),
    ] {
        let error = from_str(&format!("url: redis://a:1\n{key}\n")).expect_err(key);
        assert_eq!(
            (error.kind(), error.line()),
            (kind, Some(2)),
            "{key}: {error}"
        );
        assert!(error.to_string().contains(word), "{key}: {error}");
    }
}

/// As for every key, an empty value is no value. It does not turn the acknowledgements off.
#[test]
fn an_empty_acknowledgement_leaves_the_default() {
    let with = |ack: &str| shown(&format!("url: redis://a:1\n{ack}"));
    assert_eq!(with("replica_ack: ${UNSET:-}\n"), with(""));
    assert_ne!(with("replica_ack: best_effort\n"), with(""));
}

/// The client does not log in, and the note says so.
#[test]
fn an_empty_value_is_no_setting() {
    let text = "url: redis://a:1\npassword: ${UNSET:-}\nwake: ''\ncommand_timeout: 2s\n";
    let notes = from_str(text).unwrap().notes;
    for (key, expected) in [
        ("url", NoteKind::Mapped),
        ("password", NoteKind::Ignored),
        ("wake", NoteKind::Ignored),
        ("command_timeout", NoteKind::Mapped),
    ] {
        assert_eq!(note(&notes, key).0, expected, "{key}");
    }
}
