//! The fields that a spec may have: each is refused by name, or has a test that fails when it is ignored.
//!
//! Promise: a field of the definitions that is in neither list is named; so is an entry whose field is gone or refused,
//! and one whose test is not there. `dev/fields.json` says which test it is, reviewed by people: that the test would fail
//! is what they vouch for. Kinds that share a part of their spec, in one type, share the entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use holdfast_api::unsupported::{self, Unsupported};
use serde_json::Value;

/// What the fields are shown by: kinds, field, `file::function`.
const LIST: &str = "dev/fields.json";
/// The definitions.
const DEFINITIONS: &str = "charts/holdfast/templates/crds";

/// The kinds and what is refused of them.
const KINDS: &[(&str, &str, &[&[Unsupported]])] = &[
    ("Repository", "repositories", &[unsupported::REPOSITORY]),
    (
        "ClusterRepository",
        "clusterrepositories",
        &[unsupported::REPOSITORY, unsupported::CLUSTER_REPOSITORY],
    ),
    ("SnapshotPolicy", "snapshotpolicies", &[unsupported::POLICY]),
    ("SnapshotSchedule", "snapshotschedules", &[unsupported::SCHEDULE]),
    ("Snapshot", "snapshots", &[unsupported::SNAPSHOT]),
    ("Restore", "restores", &[unsupported::RESTORE]),
    ("Maintenance", "maintenances", &[unsupported::MAINTENANCE]),
];

/// A kind and a path in it.
type Field = (String, String);

/// Every field of the kinds of Protect is refused, or has a test that exists.
pub fn every_field_has_a_test(workspace: &Path) -> Result<()> {
    let text = fs::read_to_string(workspace.join(LIST)).with_context(|| format!("{LIST} cannot be read"))?;
    let listed = entries(&text)?;
    let mut accepted = BTreeSet::new();
    for (kind, plural, refused) in KINDS {
        let path = workspace.join(DEFINITIONS).join(format!("{plural}.yaml"));
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        // The lines of Helm carry no field.
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("{{")).collect();
        let definition: Value = serde_saphyr::from_str(&lines.join("\n"))
            .with_context(|| format!("{} is not YAML", path.display()))?;
        let refused: BTreeSet<String> = refused.iter().copied().flatten().map(Unsupported::path).collect();
        accepted.extend(leaves(&definition, &refused).map(|path| ((*kind).to_owned(), path)));
    }
    compare(&accepted, &listed.keys().cloned().collect())?;
    for ((kind, path), test) in &listed {
        exists(workspace, test).with_context(|| format!("{LIST}: {kind} {path}"))?;
    }
    Ok(())
}

/// The entries of the list: what stands for several kinds is one of each.
fn entries(text: &str) -> Result<BTreeMap<Field, String>> {
    let list: BTreeMap<String, BTreeMap<String, String>> =
        serde_json::from_str(text).with_context(|| format!("{LIST} is not what it should be"))?;
    let mut entries = BTreeMap::new();
    for (kinds, fields) in list {
        for kind in kinds.split(", ") {
            for (path, test) in &fields {
                let field = (kind.to_owned(), path.clone());
                if entries.insert(field, test.clone()).is_some() {
                    bail!("{LIST} has {path} of {kind} twice");
                }
            }
        }
    }
    Ok(entries)
}

/// The paths below `spec` that have nothing below them and are not refused, in every version.
fn leaves(definition: &Value, refused: &BTreeSet<String>) -> impl Iterator<Item = String> {
    let mut found = BTreeSet::new();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        collect(spec, "spec", refused, &mut found);
    }
    found.into_iter()
}

fn collect(schema: &Value, path: &str, refused: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    if refused.contains(path) {
        return;
    }
    if let Some(properties) = schema["properties"].as_object() {
        for (name, schema) in properties {
            collect(schema, &format!("{path}.{name}"), refused, found);
        }
    } else if schema["items"].is_object() {
        collect(&schema["items"], &format!("{path}[]"), refused, found);
    } else {
        found.insert(path.to_owned());
    }
}

fn compare(accepted: &BTreeSet<Field>, listed: &BTreeSet<Field>) -> Result<()> {
    let names = |fields: Vec<&Field>| {
        let names: Vec<String> = fields
            .iter()
            .map(|(kind, path)| format!("{kind} {path}"))
            .collect();
        names.join(", ")
    };
    let untested: Vec<&Field> = accepted.difference(listed).collect();
    if !untested.is_empty() {
        bail!(
            "accepted and without a test: {}. Refuse them, or name in {LIST} the test that fails when they are ignored",
            names(untested)
        );
    }
    let gone: Vec<&Field> = listed.difference(accepted).collect();
    if !gone.is_empty() {
        bail!(
            "{LIST} has {}, which no definition accepts: remove them",
            names(gone)
        );
    }
    Ok(())
}

/// Whether there is a test of that name in that file: `crates/…/file.rs::function`.
pub fn exists(workspace: &Path, test: &str) -> Result<()> {
    let (file, function) = test
        .split_once("::")
        .with_context(|| format!("{test} is not file::function"))?;
    let text = fs::read_to_string(workspace.join(file)).with_context(|| format!("{file} cannot be read"))?;
    if !is_test(&text, function) {
        bail!("{file} has no test {function}");
    }
    Ok(())
}

/// Whether `text` has a function of this name with the attribute of a test above it.
fn is_test(text: &str, function: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        let is_it = name
            .and_then(|name| name.strip_prefix(function))
            .is_some_and(|rest| rest.starts_with('('));
        let above = lines.iter().take(at).rev();
        is_it
            && above
                .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
                .any(|line| line.starts_with("#[test") || line.starts_with("#[tokio::test"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(path: &str) -> Field {
        ("Snapshot".to_owned(), path.to_owned())
    }

    #[test]
    fn what_has_nothing_below_it_is_a_field_and_what_is_refused_is_none() {
        let definition = json!({ "spec": { "versions": [{ "schema": { "openAPIV3Schema": { "properties": {
            "status": { "properties": { "phase": { "type": "string" } } },
            "spec": { "properties": {
                "suspend": { "type": "boolean" },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                "groups": { "items": { "type": "integer" } },
                "sources": { "items": { "properties": { "pvc": { "type": "string" }, "nfs": {} } } },
                "server": { "properties": { "port": { "type": "integer" } } },
            } },
        } } } }] } });
        let refused = ["spec.sources[].nfs", "spec.server"].map(str::to_owned).into();
        let found: Vec<String> = leaves(&definition, &refused).collect();
        assert_eq!(
            found,
            [
                "spec.groups[]",
                "spec.labels",
                "spec.sources[].pvc",
                "spec.suspend"
            ]
        );
    }

    #[test]
    fn a_field_without_a_test_and_an_entry_without_a_field_are_named() {
        let both: BTreeSet<Field> = [field("spec.a"), field("spec.b")].into();
        let one: BTreeSet<Field> = [field("spec.a")].into();
        compare(&both, &both).expect("all are there");
        let error = compare(&both, &one).expect_err("b has no test").to_string();
        assert!(error.contains("Snapshot spec.b"), "{error}");
        let error = compare(&one, &both).expect_err("b is gone").to_string();
        assert!(error.contains("Snapshot spec.b"), "{error}");
    }

    #[test]
    fn entries_of_several_kinds_are_of_each_and_none_is_said_twice() {
        let one = entries(r#"{ "A, B": { "spec.x": "f::t" } }"#).expect("a list");
        let kinds: Vec<&str> = one.keys().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["A", "B"]);
        assert!(entries(r#"{ "A, B": { "spec.x": "f::t" }, "B": { "spec.x": "f::u" } }"#).is_err());
    }

    #[test]
    fn only_a_function_that_is_a_test_counts() {
        let text = "#[test]\nfn one() {}\n#[tokio::test]\n/// Why.\nasync fn two() {}\nfn helper() {}\n// fn three()\n";
        assert!(is_test(text, "one") && is_test(text, "two"));
        for none in ["helper", "three", "on", "one_more"] {
            assert!(!is_test(text, none), "{none}");
        }
        let workspace = crate::paths::workspace().expect("a checkout");
        assert!(exists(&workspace, "crates/xtask/src/none.rs::one").is_err());
        assert!(exists(&workspace, "one").is_err());
    }
}
