//! The examples are what this release accepts.
//!
//! Promise: each object of ours in `examples/` passes the validators, and none of its fields is unknown.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use holdfast_api::{
    ClusterRepository, Repository, Restore, Snapshot, SnapshotPolicy, SnapshotSchedule, names, validate,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Fails with a sentence unless every object of ours in `examples/` is what this release accepts; returns how many.
pub fn examples_are_accepted(workspace: &Path) -> Result<usize> {
    let folder = workspace.join("examples");
    let mut number = 0;
    for entry in fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        for document in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document)
                .with_context(|| format!("{} is not YAML", path.display()))?;
            if object["apiVersion"] == names::API_VERSION {
                accepted(&object).with_context(|| path.display().to_string())?;
                number += 1;
            }
        }
    }
    if number == 0 {
        bail!("{} has no object of ours", folder.display());
    }
    Ok(number)
}

fn accepted(object: &Value) -> Result<()> {
    let refusals = match object["kind"].as_str().unwrap_or_default() {
        "Repository" => validate::repository(&read::<Repository>(object)?.spec),
        "ClusterRepository" => validate::cluster_repository(&read::<ClusterRepository>(object)?.spec),
        "SnapshotPolicy" => validate::policy(&read::<SnapshotPolicy>(object)?.spec),
        "SnapshotSchedule" => validate::schedule(&read::<SnapshotSchedule>(object)?.spec),
        "Snapshot" => validate::snapshot(&read::<Snapshot>(object)?.spec),
        "Restore" => validate::restore(&read::<Restore>(object)?.spec),
        other => bail!("there is no kind {other}"),
    };
    if !refusals.is_empty() {
        let sentences: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        bail!("it would be refused: {}", sentences.join("; "));
    }
    Ok(())
}

/// `object` as its type, if no field of its spec is lost on the way: a misspelt one would be.
fn read<K: DeserializeOwned + serde::Serialize>(object: &Value) -> Result<K> {
    let typed: K = serde_json::from_value(object.clone())?;
    let again = serde_json::to_value(&typed)?;
    if let Some(path) = lost(&object["spec"], &again["spec"], "spec") {
        bail!("{path} is not a field of {}", object["kind"]);
    }
    Ok(typed)
}

/// The first path that `wanted` has and `there` has not.
fn lost(wanted: &Value, there: &Value, path: &str) -> Option<String> {
    match wanted {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match there.get(key) {
                Some(child) => lost(value, child, &path),
                None => Some(path),
            }
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(n, value)| lost(value, &there[n], &format!("{path}[{n}]"))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            (wanted != there).then(|| path.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_and_a_misspelt_field_are_found() {
        let policy = |spec: Value| {
            accepted(
                &serde_json::json!({ "apiVersion": names::API_VERSION, "kind": "SnapshotPolicy",
                "metadata": { "name": "x" }, "spec": spec }),
            )
        };
        let good =
            serde_json::json!({ "repository": { "name": "r" }, "sources": [{ "pvc": { "name": "p" } }] });
        policy(good.clone()).expect("accepted");
        let mut bad = good.clone();
        bad["hooks"] = serde_json::json!([]);
        let error = policy(bad).expect_err("refused").to_string();
        assert!(error.contains("spec.hooks is not supported"), "{error}");
        let mut bad = good;
        bad["sources"][0]["pvx"] = serde_json::json!({});
        let error = policy(bad).expect_err("misspelt").to_string();
        assert!(error.contains("spec.sources[0].pvx is not a field"), "{error}");
    }
}
