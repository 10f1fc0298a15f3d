//! A manifest as a person wrote it: what this release says of it before it is sent.
//!
//! **Promises.** The sentences are those of the API server ([`crate::validate`]); a field that the schema does not
//! know is named, not dropped. **Assumes.** One document, read into JSON; of its metadata only the kind is looked at.

use crate::validate::{self, Refusal};
use crate::{
    ClusterRepository, Maintenance, Repository, Restore, Snapshot, SnapshotPolicy, SnapshotSchedule, names,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why nothing can be said of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// It is of another API group or version.
    NotOurs,
    /// Its kind is not one of this release.
    NoSuchKind(String),
    /// A field has another type than the schema's.
    Shape(String),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotOurs => write!(f, "it is not of {}", names::API_VERSION),
            Self::NoSuchKind(kind) => write!(f, "this release has no kind {kind}"),
            Self::Shape(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Unreadable {}

/// Whether a document is of our group and version.
#[must_use]
pub fn is_ours(object: &Value) -> bool {
    object["apiVersion"] == names::API_VERSION
}

/// Why this release refuses `object`; nothing when it acts on every field.
///
/// # Errors
/// When the object is not one of a kind of this release, or a field has the wrong type.
pub fn refusals(object: &Value) -> Result<Vec<Refusal>, Unreadable> {
    if !is_ours(object) {
        return Err(Unreadable::NotOurs);
    }
    match object["kind"].as_str().unwrap_or_default() {
        "Repository" => read::<Repository>(object, |o| validate::repository(&o.spec)),
        "ClusterRepository" => read::<ClusterRepository>(object, |o| validate::cluster_repository(&o.spec)),
        "SnapshotPolicy" => read::<SnapshotPolicy>(object, |o| validate::policy(&o.spec)),
        "SnapshotSchedule" => read::<SnapshotSchedule>(object, |o| validate::schedule(&o.spec)),
        "Snapshot" => read::<Snapshot>(object, |o| validate::snapshot(&o.spec)),
        "Maintenance" => read::<Maintenance>(object, |o| validate::maintenance(&o.spec)),
        "Restore" => read::<Restore>(object, |o| validate::restore(&o.spec)),
        other => Err(Unreadable::NoSuchKind(other.to_owned())),
    }
}

/// The refusals of `object` as its type, and of each field of its spec that is lost on the way there.
fn read<K: DeserializeOwned + serde::Serialize>(
    object: &Value,
    validate: impl Fn(&K) -> Vec<Refusal>,
) -> Result<Vec<Refusal>, Unreadable> {
    let shape = |error: serde_json::Error| Unreadable::Shape(error.to_string());
    let typed: K = serde_json::from_value(object.clone()).map_err(shape)?;
    let again = serde_json::to_value(&typed).map_err(shape)?;
    let mut refusals = validate(&typed);
    if let Some(path) = lost(&object["spec"], &again["spec"], "spec") {
        let kind = object["kind"].as_str().unwrap_or_default();
        refusals.push(Refusal(format!("{path} is not a field of {kind}")));
    }
    Ok(refusals)
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
    use serde_json::json;

    fn policy(spec: Value) -> Vec<String> {
        let object = json!({ "apiVersion": names::API_VERSION, "kind": "SnapshotPolicy",
            "metadata": { "name": "x" }, "spec": spec });
        let refusals = refusals(&object).unwrap();
        refusals.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_refused_and_a_misspelt_field_are_named() {
        let good = json!({ "repository": { "name": "r" }, "sources": [{ "pvc": { "name": "p" } }] });
        assert_eq!(policy(good.clone()), [""; 0]);
        let mut bad = good.clone();
        bad["hooks"] = json!([]);
        assert!(policy(bad)[0].contains("spec.hooks is not supported"));
        let mut bad = good;
        bad["sources"][0]["pvx"] = json!({});
        assert_eq!(
            policy(bad),
            ["spec.sources[0].pvx is not a field of SnapshotPolicy"]
        );
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let of = |api: &str, kind: &str, spec: Value| {
            refusals(&json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "x" }, "spec": spec }))
        };
        assert_eq!(of("v1", "Pod", json!({})), Err(Unreadable::NotOurs));
        assert_eq!(
            of(names::API_VERSION, "Replication", json!({})),
            Err(Unreadable::NoSuchKind("Replication".into()))
        );
        let said = of(names::API_VERSION, "SnapshotPolicy", json!({ "sources": 3 }));
        assert!(matches!(said, Err(Unreadable::Shape(_))), "{said:?}");
    }
}
