//! Dashboards and alerts: files of the chart, and the page about the alerts.
//!
//! Promise: one table for the rules that the chart installs and for the page that explains them; each alert has a
//! runbook. That every metric and label in them is one that the operator exports, and that every expression can be
//! read, is tested beside the operator (`crates/operator/tests/monitoring.rs`).

mod alerts;
mod dashboards;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use self::alerts::Alert;
use super::{Generated, MARKDOWN_HEAD, cell};

/// Where the chart's templates read the rules. Nothing else is in there.
pub const ALERTS: &str = "charts/holdfast/alerts";
/// Where the chart's templates read the dashboards. Nothing else is in there.
pub const DASHBOARDS: &str = "charts/holdfast/dashboards";
/// Where the runbooks are.
const RUNBOOKS: &str = "docs/runbooks";

/// Every file.
pub fn files() -> Result<Vec<Generated>> {
    let mut files = Vec::new();
    for group in alerts::GROUPS {
        let rules = json!([{ "name": format!("holdfast-{}", group.name), "rules": rules(group.alerts) }]);
        files.push(Generated {
            path: Path::new(ALERTS).join(format!("{}.yaml", group.name)),
            content: format!(
                "# Made by `cargo xtask generate`. Do not edit.\n{}",
                serde_saphyr::to_string(&rules)?
            ),
        });
    }
    for (name, dashboard) in dashboards::all() {
        files.push(Generated {
            path: Path::new(DASHBOARDS).join(format!("{name}.json")),
            content: format!("{}\n", serde_json::to_string_pretty(&dashboard)?),
        });
    }
    files.push(page());
    Ok(files)
}

fn rules(alerts: &[Alert]) -> Vec<Value> {
    let rule = |alert: &Alert| {
        json!({
            "alert": alert.name,
            "expr": alert.expr.trim(),
            "for": alert.lasting,
            "labels": { "severity": alert.severity },
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                "runbook_url": format!("{RUNBOOKS}/{}.md", alert.runbook),
            },
        })
    };
    alerts.iter().map(rule).collect()
}

/// `docs/reference/alerts.md`.
fn page() -> Generated {
    let mut text = format!(
        "{MARKDOWN_HEAD}# Alerts

What the chart's PrometheusRule has (`monitoring.prometheusRule.enabled`), and what to do about each. The rules of
Account are there only if the accounting is on. They need the metrics of every replica: the leader alone tells figures.
"
    );
    for group in alerts::GROUPS {
        text.push_str(&format!(
            "\n## {}\n\n| alert | severity | when | lasting |\n|---|---|---|---|\n",
            group.title
        ));
        for alert in group.alerts {
            text.push_str(&format!(
                "| [{}](../runbooks/{}.md) | {} | {} | {} |\n",
                alert.name,
                alert.runbook,
                alert.severity,
                cell(alert.when),
                alert.lasting
            ));
        }
    }
    Generated {
        path: PathBuf::from("docs/reference/alerts.md"),
        content: text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_alert_has_a_runbook_that_names_it_and_every_runbook_an_alert() {
        let workspace = crate::paths::workspace().expect("a checkout");
        let mut told = BTreeSet::new();
        for alert in alerts::GROUPS.iter().flat_map(|group| group.alerts) {
            let path = workspace.join(RUNBOOKS).join(format!("{}.md", alert.runbook));
            let text = std::fs::read_to_string(&path).expect(alert.runbook);
            assert!(
                text.contains(&format!("`{}`", alert.name)),
                "{} does not name {}",
                path.display(),
                alert.name
            );
            told.insert(format!("{}.md", alert.runbook));
        }
        for entry in std::fs::read_dir(workspace.join(RUNBOOKS)).expect("runbooks") {
            let name = entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name");
            assert!(told.contains(&name), "no alert leads to {name}");
        }
    }

    #[test]
    fn names_are_unique_within_a_dimension_and_severities_are_known() {
        let mut seen = BTreeSet::new();
        for alert in alerts::GROUPS.iter().flat_map(|group| group.alerts) {
            assert!(seen.insert(alert.expr), "{} is there twice", alert.name);
            assert!(
                ["info", "warning", "critical"].contains(&alert.severity),
                "{}",
                alert.name
            );
        }
    }
}
