//! Parts that several kinds share.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::core::{Selector, SelectorExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A field of the interface that this release refuses by name.
///
/// It is in the schema, so that the API server does not prune it unseen, and a CEL rule beside it refuses it
/// (see [`crate::unsupported`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NotYet(pub serde_json::Value);

impl JsonSchema for NotYet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NotYet".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
    }
}

/// What happens to the data when the object that records it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The snapshot is deleted from the repository, through the guards.
    #[default]
    Delete,
    /// The snapshot stays in the repository.
    Retain,
    /// The snapshot stays, and the repository is not contacted.
    Orphan,
    /// Written by a newer version: hold, touch nothing.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What happens to a schedule's Snapshots when the schedule goes (`docs/design.md` 3.3, rule 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum CascadePolicy {
    /// The data is kept, loudly.
    #[default]
    Retain,
    /// The data may be deleted, through the breaker.
    Delete,
    /// Written by a newer version: keep.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What happens to the data of a namespace that is torn down (`docs/design.md` 3.3, rule 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum NamespaceDeletePolicy {
    /// The data is kept.
    #[default]
    Orphan,
    /// The data may be deleted, through the breaker.
    Delete,
    /// Written by a newer version: keep.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What becomes of snapshots that belong to no object and were taken of exactly what a policy backs up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdoptionMode {
    /// They become Snapshots of the policy.
    Adopt,
    /// They stay as they are.
    Ignore,
    /// Written by a newer version: they stay as they are.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// Where a Snapshot comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Made by a SnapshotSchedule.
    Scheduled,
    /// Made by a person.
    Manual,
    /// Found in the repository by the catalog.
    Discovered,
    /// A discovered one that a policy took over.
    Adopted,
    /// A copy made by a replication.
    Replicated,
    /// Written by a newer version: forces Retain.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl Origin {
    /// The word used in the label and in status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Scheduled => "scheduled",
            Origin::Manual => "manual",
            Origin::Discovered => "discovered",
            Origin::Adopted => "adopted",
            Origin::Replicated => "replicated",
            Origin::Unknown => "unknown",
        }
    }

    /// Reads a label's value; anything else is [`Origin::Unknown`].
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "scheduled" => Origin::Scheduled,
            "manual" => Origin::Manual,
            "discovered" => Origin::Discovered,
            "adopted" => Origin::Adopted,
            "replicated" => Origin::Replicated,
            _ => Origin::Unknown,
        }
    }
}

/// Which of the two repository kinds a reference names.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
pub enum RepositoryKind {
    /// Namespaced.
    #[default]
    Repository,
    /// Cluster-scoped.
    ClusterRepository,
    /// Written by a newer version.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl RepositoryKind {
    /// The kind as written in manifests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RepositoryKind::Repository => "Repository",
            RepositoryKind::ClusterRepository => "ClusterRepository",
            RepositoryKind::Unknown => "Unknown",
        }
    }
}

/// Reference to a repository object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryRef {
    /// Repository (default) or ClusterRepository.
    #[serde(default)]
    pub kind: RepositoryKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; default: the referring object's. Not allowed for a ClusterRepository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// Whether the Secrets of a ClusterRepository are copied to where a mover needs them: one of the three consents
/// (`docs/movers.md`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectionUse {
    /// Whoever uses the repository consents.
    #[serde(default)]
    pub enabled: bool,
}

/// Reference to an object of the same namespace by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Reference to a SnapshotPolicy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Another namespace: not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NotYet>,
}

/// The key that holds certificates where none is named.
pub(crate) fn ca_key() -> String {
    "ca.crt".to_owned()
}

/// Reference to one key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace: required (the operator's) for a ClusterRepository; otherwise the repository's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The key that holds the password.
    #[serde(default = "password_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn password_key() -> String {
    crate::names::PASSWORD_KEY.to_owned()
}

/// Labels to select objects by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must be there with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// What must hold of labels beside that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// What must hold of one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// The label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How it is compared.
    pub operator: LabelOperator,
    /// With what: for In and NotIn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// It has one of the values.
    In,
    /// It has none of the values, or is not there.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
    /// Written by a newer version: selects nothing.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl LabelOperator {
    fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Unknown => "Unknown",
        }
    }
}

impl LabelSelector {
    /// Whether an object of these labels is selected. An empty selector selects every object, one that cannot be read
    /// none.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let requirement = |r: &LabelRequirement| meta::LabelSelectorRequirement {
            key: r.key.clone(),
            operator: r.operator.as_str().to_owned(),
            values: Some(r.values.clone()),
        };
        let selector = meta::LabelSelector {
            match_labels: Some(self.match_labels.clone()),
            match_expressions: Some(self.match_expressions.iter().map(requirement).collect()),
        };
        Selector::try_from(selector).is_ok_and(|selector| selector.matches(labels))
    }
}

/// Identity of a snapshot's source as the repository records it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Default: the policy's name.
    pub username: String,
    /// Default: the namespace.
    pub hostname: String,
    /// `/pvc/<claim>`.
    pub source_path: String,
}

/// `90s`, `5m`, `1h30m`.
#[must_use]
pub fn duration(text: &str) -> Option<SignedDuration> {
    let mut total = 0i64;
    let mut number = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return None,
        };
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    (number.is_empty() && !text.is_empty()).then(|| SignedDuration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_selected_as_kubernetes_does() {
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let selects = |selector: serde_json::Value, pairs: &[(&str, &str)]| {
            let selector: LabelSelector = serde_json::from_value(selector).expect("decodes");
            selector.selects(&labels(pairs))
        };
        let expression = |operator: &str, values: serde_json::Value| json!({ "matchExpressions": [{ "key": "tier", "operator": operator, "values": values }] });
        assert!(selects(json!({}), &[]));
        assert!(selects(
            json!({ "matchLabels": { "a": "b" } }),
            &[("a", "b"), ("c", "d")]
        ));
        assert!(!selects(json!({ "matchLabels": { "a": "b" } }), &[("a", "c")]));
        for (operator, values, gold, iron, none) in [
            ("In", json!(["gold", "silver"]), true, false, false),
            ("NotIn", json!(["gold"]), false, true, true),
            ("Exists", json!([]), true, true, false),
            ("DoesNotExist", json!([]), false, false, true),
            ("Near", json!(["gold"]), false, false, false),
        ] {
            let of = |pairs: &[(&str, &str)]| selects(expression(operator, values.clone()), pairs);
            assert_eq!(
                (of(&[("tier", "gold")]), of(&[("tier", "iron")]), of(&[])),
                (gold, iron, none),
                "{operator}"
            );
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("90s"), Some(SignedDuration::from_secs(90)));
        assert_eq!(duration("1h30m"), Some(SignedDuration::from_secs(5400)));
        assert_eq!(duration("5"), None);
        assert_eq!(duration(""), None);
        assert_eq!(duration("5d"), None);
    }
}
