//! The page that says of manifests as people write them what becomes of each.
//!
//! Promise: the sentences are those of the validators, which the API server is asked for too (the end-to-end tests).
//! Values of a chart are compared with the schema of ours; the metrics of a rule with the metrics of the operator.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use holdfast_api::written;
use serde_json::Value;

use super::{Generated, MARKDOWN_HEAD, cell, monitoring};

/// The manifests.
const FOLDER: &str = "crates/api/tests/fixtures/kopia";
/// The page.
const PAGE: &str = "docs/reference/manifests.md";
/// What the names of our metrics begin with.
const METRICS: &str = "kopiur_";

/// `docs/reference/manifests.md`.
pub fn page(workspace: &Path) -> Result<Generated> {
    let mut text = format!(
        "{MARKDOWN_HEAD}# Manifests as people write them

What this release does with manifests that were written for the interface it is compatible with. *Accepted* means
that the operator acts on every field. *Refused* means that the API server refuses the object, in these words, and
that nothing is lost: the object that is there already stays as it is. The files are in `{FOLDER}`.

| file | object | this release |
|---|---|---|
"
    );
    for path in files(workspace)? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let written =
            fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        for document in written.split("\n---\n") {
            let object: Value =
                serde_saphyr::from_str(document).with_context(|| format!("{name} is not YAML"))?;
            let row = row(workspace, &object).with_context(|| name.clone())?;
            text.push_str(&format!("| `{name}` | {} | {} |\n", row.what, row.verdict));
        }
    }
    Ok(Generated {
        path: PathBuf::from(PAGE),
        content: text,
    })
}

/// The manifests in `workspace`, in the order of their names.
pub fn files(workspace: &Path) -> Result<Vec<PathBuf>> {
    let folder = workspace.join(FOLDER);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        files.push(entry?.path());
    }
    files.sort();
    if files.is_empty() {
        bail!("{} is empty", folder.display());
    }
    Ok(files)
}

struct Row {
    what: String,
    verdict: String,
}

fn row(workspace: &Path, object: &Value) -> Result<Row> {
    let kind = object["kind"].as_str();
    let Some(kind) = kind else {
        let unknown = unknown_values(workspace, object)?;
        return Ok(Row {
            what: "values of a chart".to_owned(),
            verdict: verdict("Accepted by our chart.", "Refused by our chart", &unknown),
        });
    };
    let what = format!(
        "{kind} `{}`",
        object["metadata"]["name"].as_str().unwrap_or_default()
    );
    if written::is_ours(object) {
        let sentences = match written::refusals(object) {
            Ok(refusals) => refusals.iter().map(ToString::to_string).collect(),
            Err(unreadable) => vec![unreadable.to_string()],
        };
        let verdict = verdict("Accepted.", "Refused", &sentences);
        return Ok(Row { what, verdict });
    }
    let foreign = foreign_metrics(object)?;
    let verdict = match (kind, foreign.is_empty()) {
        ("PrometheusRule", true) => "Each metric it names is one of Holdfast's.".to_owned(),
        ("PrometheusRule", false) => format!(
            "Accepted by the monitoring stack. Under our prefix Holdfast has no metric {}.",
            foreign
                .iter()
                .map(|name| format!("`{}`", name.trim_start_matches(METRICS)))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        (_, _) => "Not a kind of Holdfast's: it is Kubernetes that reads it.".to_owned(),
    };
    Ok(Row { what, verdict })
}

fn verdict(good: &str, bad: &str, sentences: &[String]) -> String {
    if sentences.is_empty() {
        return good.to_owned();
    }
    let sentences: Vec<String> = sentences.iter().map(|one| cell(one)).collect();
    format!("{bad}: {}", sentences.join("<br>"))
}

/// Values that the schema of our chart does not have.
fn unknown_values(workspace: &Path, values: &Value) -> Result<Vec<String>> {
    let path = workspace.join("charts/holdfast/values.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let mut unknown = Vec::new();
    beyond(&schema, values, "", &mut unknown);
    Ok(unknown
        .iter()
        .map(|path| format!("`{path}` is not a value of it"))
        .collect())
}

fn beyond(schema: &Value, values: &Value, path: &str, unknown: &mut Vec<String>) {
    let (Some(properties), Some(values)) = (schema["properties"].as_object(), values.as_object()) else {
        return;
    };
    for (name, value) in values {
        let path = format!("{path}{name}");
        match properties.get(name) {
            Some(schema) => beyond(schema, value, &format!("{path}."), unknown),
            None => unknown.push(path),
        }
    }
}

/// Metrics that a rule names by our prefix and that none of our own rules and dashboards does, whose metrics are
/// compared with the operator's beside it.
fn foreign_metrics(object: &Value) -> Result<BTreeSet<String>> {
    let ours: String = monitoring::files()?
        .into_iter()
        .map(|file| file.content)
        .collect();
    let ours: BTreeSet<&str> = metrics(&ours).collect();
    let rule = serde_json::to_string(object)?;
    Ok(metrics(&rule)
        .filter(|name| !ours.contains(name))
        .map(str::to_owned)
        .collect())
}

fn metrics(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with(METRICS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;
    use serde_json::json;

    #[test]
    fn each_kind_of_document_has_its_verdict() {
        let workspace = paths::workspace().expect("a checkout");
        let said = |object: Value| row(&workspace, &object).expect("a verdict").verdict;
        assert_eq!(
            said(
                json!({ "replicaCount": 2, "monitoring": { "dashboards": { "enabled": true, "grafana": {} } } })
            ),
            "Refused by our chart: `monitoring.dashboards.grafana` is not a value of it"
        );
        assert_eq!(said(json!({ "replicaCount": 2 })), "Accepted by our chart.");
        let rule = |expr: &str| {
            said(
                json!({ "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
                "spec": { "groups": [{ "rules": [{ "expr": expr }] }] } }),
            )
        };
        assert!(rule("kopiur_snapshot_deletions_held > 0").starts_with("Each metric"));
        assert!(rule("kopiur_unheard_of > 0").contains("no metric `unheard_of`"));
        let schedule = |spec: Value| {
            said(
                json!({ "apiVersion": holdfast_api::names::API_VERSION, "kind": "SnapshotSchedule",
                "metadata": { "name": "s" }, "spec": spec }),
            )
        };
        let good = json!({ "policyRef": { "name": "p" }, "schedule": { "cron": "0 3 * * *" } });
        assert_eq!(schedule(good.clone()), "Accepted.");
        let mut bad = good;
        bad["paused"] = json!(true);
        assert_eq!(
            schedule(bad),
            "Refused: spec.paused is not a field of SnapshotSchedule"
        );
    }
}
