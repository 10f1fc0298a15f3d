//! The examples are what this release accepts.
//!
//! Promise: each object of ours in `examples/` passes the validators, and none of its fields is unknown.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use holdfast_api::written;
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
            if written::is_ours(&object) {
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
    let refusals = written::refusals(object)?;
    if !refusals.is_empty() {
        let sentences: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        bail!("it would be refused: {}", sentences.join("; "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_api::names;

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
