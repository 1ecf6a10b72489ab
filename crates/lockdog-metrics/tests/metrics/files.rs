//! The rules and the documents name the metrics that there are.

use std::collections::BTreeSet;

use crate::support::{file, named, names};

#[test]
fn the_alert_rules_name_only_metrics_that_there_are() {
    let names = names();
    for path in [
        "deploy/prometheus/lockdog.rules.yaml",
        "deploy/prometheus/lockdog.rules.test.yaml",
    ] {
        let unknown: Vec<_> = named(&file(path)).difference(&names).cloned().collect();
        assert!(unknown.is_empty(), "{path} names {unknown:?}");
    }
}

#[test]
fn each_metric_is_in_the_documents_and_no_other_is() {
    let documented = named(&file("docs/observability.md"));
    let documented: BTreeSet<_> = documented
        .into_iter()
        // The names of crates.
        .filter(|name| !["lockdog_metrics", "lockdog_test"].contains(&&**name))
        .collect();
    assert_eq!(documented, names());
}

#[test]
fn each_alert_says_in_the_documents_what_to_do_now() {
    let rules = file("deploy/prometheus/lockdog.rules.yaml");
    let tests = file("deploy/prometheus/lockdog.rules.test.yaml");
    let document = file("docs/observability.md");
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: Vec<&str> = alerts.collect();
    assert!(alerts.len() >= 10, "{alerts:?}");
    for alert in alerts {
        let row = format!("| `{alert}` |");
        assert!(document.contains(&row), "no row for {alert}");
        // One case in which it fires, and one in which it does not.
        let cases: Vec<&str> = tests
            .split(&format!("alertname: {alert}\n"))
            .skip(1)
            .collect();
        let silent = cases
            .iter()
            .filter(|case| case.trim_start().starts_with("exp_alerts: []"));
        assert!(silent.clone().count() >= 1, "{alert} is never silent");
        assert!(cases.len() > silent.count(), "{alert} never fires");
    }
}
