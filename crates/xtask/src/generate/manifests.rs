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

/// The stored objects that manifests lead to: made by `crates/operator/tests/wave/manifests.rs`, reviewed by people.
pub const STORED: &str = "crates/operator/tests/wave/snapshots";

/// What shows that a manifest does what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// It works on a real cluster: this test, as `file::function`.
    OnCluster(&'static str),
    /// It names what a test machine has not, such as a server or a storage class: the stored object that it leads to is
    /// this file of [`STORED`].
    Stored(&'static str),
}

/// The beginning of a file's name, and what shows it. What is refused of a file is taken out for it. That these are
/// there is checked in the stage `source`.
pub const SHOWN: &[(&str, Shown)] = &[
    (
        "01",
        Shown::Stored("wave__manifests__01-clusterrepo-nfs-adopt.snap"),
    ),
    (
        "02",
        Shown::Stored("wave__manifests__02-clusterrepo-nfs-create-moverdefaults.snap"),
    ),
    (
        "03",
        Shown::Stored("wave__manifests__03-clusterrepo-schedule-defaults-maintenance.snap"),
    ),
    (
        "05",
        Shown::Stored("wave__manifests__05-clusterrepo-s3-ca-deletion-guards.snap"),
    ),
    (
        "11",
        Shown::OnCluster("crates/e2e/tests/manifests_of_people.rs::schedule_with_jitter_runs"),
    ),
    (
        "12",
        Shown::OnCluster("crates/e2e/tests/manifests_of_people.rs::selector_fans_out"),
    ),
    (
        "14",
        Shown::Stored("wave__manifests__14-restore-populator-and-pvc.job.snap"),
    ),
    (
        "14",
        Shown::Stored("wave__manifests__14-restore-populator-and-pvc.claim.snap"),
    ),
    (
        "15",
        Shown::OnCluster("crates/e2e/tests/manifests_of_people.rs::external_maintenance_runs"),
    ),
];

/// What to do instead of a value that our chart does not have.
const INSTEAD: &[(&str, &str)] = &[
    (
        "maxConcurrentJobs",
        "leave it out. To spread backups, set `jitter` in `spec.schedule` or in the repository's `spec.scheduleDefaults`; for a hard limit, a ResourceQuota on `pods` where movers run: a Job waits until its pod is admitted. `maxConcurrentDeleteJobs` limits deletions",
    ),
    (
        "monitoring.dashboards.grafanaOperator",
        "leave it out, and make a GrafanaDashboard for each dashboard that names its ConfigMap in `spec.configMapRef`. A Grafana that looks for ConfigMaps by label finds them by `monitoring.dashboards.labels`",
    ),
];

/// `docs/reference/manifests.md`.
pub fn page(workspace: &Path) -> Result<Generated> {
    let mut text = format!(
        "{MARKDOWN_HEAD}# Manifests as people write them

What this release does with manifests that were written for the interface it is compatible with. The files are in
`{FOLDER}`.

- *Works*: the operator acts on every field, and the test that is named shows it on a real cluster.
- *Accepted*: the operator acts on every field. The file names what a test machine has not, such as a server or a
  storage class; what it leads to is stored, and reviewed whenever it changes.
- *Refused*: the API server refuses the object, in these words, and nothing is lost: the object that is there already
  stays as it is. Where something is stored, it is what the file leads to when it is changed as the words say. That a
  real API server says these words is a test of `crates/e2e/tests/refuses_bad_input.rs`.

What is stored is in `{STORED}`, written by the tests of `crates/operator/tests/wave/manifests.rs`: the
Job of a backup to a repository, or of a restore, with the operator in the namespace that the file has its Secrets in.

| file | object | this release | shown by |
|---|---|---|---|
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
            let shown = shown_by(&name);
            let row = row(workspace, &object, &shown).with_context(|| name.clone())?;
            let by: Vec<String> = shown.iter().filter(|_| row.is_shown).map(named).collect();
            text.push_str(&format!(
                "| `{name}` | {} | {} | {} |\n",
                row.what,
                row.verdict,
                by.join("<br>")
            ));
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

/// What shows a file.
fn shown_by(name: &str) -> Vec<Shown> {
    let of_it = SHOWN.iter().filter(|(file, _)| name.starts_with(file));
    of_it.map(|(_, shown)| *shown).collect()
}

fn named(shown: &Shown) -> String {
    match shown {
        Shown::OnCluster(what) | Shown::Stored(what) => format!("`{what}`"),
    }
}

struct Row {
    what: String,
    verdict: String,
    /// What shows the file is of this object.
    is_shown: bool,
}

fn row(workspace: &Path, object: &Value, shown: &[Shown]) -> Result<Row> {
    let kind = object["kind"].as_str();
    let Some(kind) = kind else {
        let unknown = unknown_values(workspace, object)?;
        return Ok(Row {
            what: "values of a chart".to_owned(),
            verdict: verdict("Accepted by our chart.", "Refused by our chart", &unknown),
            is_shown: false,
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
        let works = shown.iter().any(|shown| matches!(shown, Shown::OnCluster(_)));
        let good = if works { "Works." } else { "Accepted." };
        if sentences.is_empty() && shown.is_empty() {
            bail!("{what} is accepted, and nothing shows it: name a test or a stored object in SHOWN");
        }
        return Ok(Row {
            what,
            verdict: verdict(good, "Refused", &sentences),
            is_shown: true,
        });
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
    Ok(Row {
        what,
        verdict,
        is_shown: false,
    })
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
        .map(|path| format!("`{path}` is not a value of it: {}", instead(path)))
        .collect())
}

fn instead(path: &str) -> &'static str {
    let known = INSTEAD.iter().find(|(value, _)| *value == path);
    known.map_or("leave it out", |(_, instead)| instead)
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
        let shown = shown_by("11-schedule-hourly-jitter-deletion.yaml");
        let said = |object: Value| row(&workspace, &object, &shown).expect("a verdict").verdict;
        assert_eq!(
            said(
                json!({ "replicaCount": 2, "monitoring": { "dashboards": { "enabled": true, "grafana": {} } } })
            ),
            "Refused by our chart: `monitoring.dashboards.grafana` is not a value of it: leave it out"
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
        assert_eq!(schedule(good.clone()), "Works.");
        let stored = shown_by("14-restore-populator-and-pvc.yaml");
        let object = json!({ "apiVersion": holdfast_api::names::API_VERSION, "kind": "SnapshotSchedule",
            "metadata": { "name": "s" }, "spec": good });
        let of = |shown: &[Shown]| row(&workspace, &object, shown).map(|row| row.verdict);
        assert_eq!(of(&stored).expect("a verdict"), "Accepted.");
        assert!(of(&[]).is_err(), "accepted by the word of nobody");
        let jobs = said(json!({ "maxConcurrentJobs": 6 }));
        assert!(jobs.contains("ResourceQuota on `pods`"), "{jobs}");
        let mut bad = good;
        bad["paused"] = json!(true);
        assert_eq!(
            schedule(bad),
            "Refused: spec.paused is not a field of SnapshotSchedule"
        );
    }
}
