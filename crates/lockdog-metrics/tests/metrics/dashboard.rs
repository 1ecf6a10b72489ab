//! The dashboard is consistent.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{file, named, names};

/// One panel of the dashboard.
pub(crate) struct Panel {
    pub(crate) title: String,
    id: i64,
    unit: Option<String>,
    /// x, y, width, height.
    place: [i64; 4],
    pub(crate) queries: Vec<String>,
}

/// The panels that show something.
pub(crate) fn panels() -> Vec<Panel> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let panels = panels.iter().filter(|panel| panel["type"] != "row");
    panels.map(panel).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&file("deploy/grafana/lockdog.json")).expect("it is JSON")
}

fn panel(panel: &Value) -> Panel {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let place = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_i64().expect("a number"));
    let targets = panel["targets"].as_array().into_iter().flatten();
    Panel {
        title: text(&panel["title"]).expect("it has a title"),
        id: panel["id"].as_i64().expect("it has an id"),
        unit: text(&panel["fieldConfig"]["defaults"]["unit"]),
        place,
        queries: targets
            .map(|target| text(&target["expr"]).expect("it has a query"))
            .collect(),
    }
}

#[test]
fn panels_have_ids_units_and_places_of_their_own() {
    let dashboard = dashboard();
    assert_eq!(dashboard["schemaVersion"], 39);
    let all: Vec<Panel> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(panel)
        .collect();
    let ids: BTreeSet<_> = all.iter().map(|panel| panel.id).collect();
    assert_eq!(ids.len(), all.len());
    let panels = panels();
    assert!(panels.len() > 15);
    for (at, panel) in panels.iter().enumerate() {
        assert!(panel.unit.is_some(), "{} has no unit", panel.title);
        assert!(!panel.queries.is_empty(), "{} shows nothing", panel.title);
        let [x, y, w, h] = panel.place;
        assert!(x >= 0 && x + w <= 24, "{} is too wide", panel.title);
        for other in &panels[at + 1..] {
            let [ox, oy, ow, oh] = other.place;
            let apart = x + w <= ox || ox + ow <= x || y + h <= oy || oy + oh <= y;
            assert!(apart, "{} is on {}", panel.title, other.title);
        }
    }
}

#[test]
fn the_dashboard_names_only_metrics_that_there_are_and_each_of_them() {
    let names = names();
    let queries: String = panels()
        .into_iter()
        .flat_map(|panel| panel.queries)
        .collect();
    let shown = named(&queries);
    let unknown: Vec<_> = shown.difference(&names).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let hidden: Vec<_> = names.difference(&shown).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}

#[test]
fn every_query_asks_the_chosen_source_and_instances() {
    let text = file("deploy/grafana/lockdog.json");
    assert!(text.contains("${datasource}"));
    let variables = &dashboard()["templating"]["list"];
    let variables = variables.as_array().unwrap().iter();
    let variables: Vec<_> = variables.filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(variables, ["datasource", "job", "instance", "group"]);
    for panel in panels() {
        for query in panel.queries {
            let wanted = r#"job=~"$job",instance=~"$instance""#;
            let all = query.matches("lockdog_").count();
            assert_eq!(
                query.matches(wanted).count(),
                all,
                "{}: {query}",
                panel.title
            );
        }
    }
}
