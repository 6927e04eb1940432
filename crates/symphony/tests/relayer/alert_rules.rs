//! The files of the alert rules and of the Grafana dashboard. promtool accepts them, each alert has tests for firing
//! and for silence, each has a runbook, and the dashboard's panels are complete.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use symphony_testkit::prometheus::{Tool, find};

use crate::prometheus::{dashboard, expressions, read, root, rules};

/// Runs promtool, which must succeed.
fn promtool(arguments: &[&str]) {
    let ran = Command::new(find(Tool::Promtool).unwrap()).args(arguments).current_dir(root()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "promtool {}:\n{out}{err}", arguments.join(" "));
}

fn tests() -> Vec<String> {
    let folder = "ops/prometheus/tests";
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.map(|name| format!("{folder}/{name}")).collect()
}

/// Each alert with its runbook.
fn alerts() -> Vec<(String, String)> {
    let (mut alerts, mut name) = (Vec::new(), None);
    for line in rules().lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            assert_eq!(name.replace(alert.to_owned()), None, "an alert before {alert} has no runbook");
        }
        if let Some(runbook) = line.trim().strip_prefix("runbook: ") {
            alerts.push((name.take().unwrap(), runbook.to_owned()));
        }
    }
    assert_eq!(name, None, "an alert has no runbook");
    assert!(!alerts.is_empty());
    alerts
}

#[test]
fn every_rule_holds_in_its_tests() {
    promtool(&["check", "rules", "ops/prometheus/symphony.rules.yml"]);
    let tests = tests();
    let mut arguments = vec!["test", "rules"];
    arguments.extend(tests.iter().map(String::as_str));
    promtool(&arguments);
}

#[test]
fn every_alert_is_shown_to_fire_and_not_to_fire() {
    let tests: String = tests().iter().map(|path| read(path)).collect();
    let tested: BTreeSet<&str> =
        tests.split("alertname: ").skip(1).filter_map(|rest| rest.split([',', '\n']).next()).collect();
    let known: Vec<String> = alerts().into_iter().map(|(name, _)| name).collect();
    assert_eq!(tested, known.iter().map(String::as_str).collect());
    for alert in known {
        assert!(tests.contains(&format!("alertname: {alert}, exp_alerts: []")), "{alert} is never silent");
        assert!(
            tests.contains(&format!("alertname: {alert}\n        exp_alerts:\n          - exp_labels:")),
            "{alert} never fires"
        );
    }
}

#[test]
fn every_alert_has_a_runbook_that_says_what_it_means_how_to_look_and_what_to_do() {
    let text = read("docs/operations.md");
    let sections: Vec<&str> = text.split("\n### ").skip(1).collect();
    for (alert, runbook) in alerts() {
        let anchor = runbook.strip_prefix("docs/operations.md#").unwrap_or_else(|| panic!("{alert}: {runbook}"));
        let heading = |section: &&&str| section.lines().next().unwrap().to_lowercase().replace(' ', "-") == anchor;
        let section = sections.iter().find(heading).unwrap_or_else(|| panic!("{alert}: no heading {anchor}"));
        let section = section.split("\n## ").next().unwrap();
        for part in ["**Means**: ", "**Look**: ", "**Do**: "] {
            assert!(section.contains(part), "{anchor} has no {part}");
        }
    }
}

#[test]
fn the_dashboard_is_complete() {
    let dashboard = dashboard();
    for field in ["title", "uid", "schemaVersion", "time", "templating", "annotations"] {
        assert!(!dashboard[field].is_null(), "{field}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "ids are unique");
    let mut occupied = BTreeSet::new();
    for panel in panels {
        let of = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for (x, y) in (of("x")..of("x") + of("w")).flat_map(|x| (of("y")..of("y") + of("h")).map(move |y| (x, y)))
        {
            assert!(x < 24 && occupied.insert((x, y)), "{} overlaps", panel["title"]);
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            assert!(!panel["description"].as_str().unwrap().is_empty(), "{}", panel["title"]);
            assert!(panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{}", panel["title"]);
        }
    }
    let variables: Vec<_> =
        dashboard["templating"]["list"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(variables, ["datasource", "job", "lane"].map(Value::from).iter().collect::<Vec<_>>());
}

/// Older versions of promtool cannot check a query alone, so each becomes a recording rule.
#[test]
fn every_query_of_the_dashboard_can_be_parsed() {
    let record = |(number, query): (usize, String)| {
        format!("  - record: query{number}\n    expr: {}\n", Value::from(query))
    };
    let records: String = expressions().into_iter().enumerate().map(record).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("groups:\n- name: dashboard\n  rules:\n{records}")).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()]);
}
