//! `backups.cozystack.io/v1alpha1`: the platform's backup kinds, as it has them (`docs/design.md` section 4).
//!
//! **Promises.** Whatever the API server stores of these kinds decodes: absent status, an empty phase, fields and
//! phases we do not know. What is absent is `None`, never a default that looks like knowledge.
//!
//! **Assumes.** The platform owns these definitions. Ours ([`crate::crd::platform`]) are for development and for
//! clusters without the platform.

mod backup;
mod backup_class;
mod backup_job;
mod plan;
mod restore_job;

pub use backup::{Backup, BackupArtifact, BackupPhase, BackupSpec, BackupStatus};
pub use backup_class::{
    ApplicationSelector, BackupClass, BackupClassSpec, BackupClassStatus, BackupClassStrategy,
};
pub use backup_job::{BackupJob, BackupJobSpec, BackupJobStatus, JobPhase};
pub use plan::{Plan, PlanSchedule, PlanSpec, PlanStatus};
pub use restore_job::{RestoreJob, RestoreJobSpec, RestoreJobStatus};

use crate::names;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// Reference to an object of a group, by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypedRef {
    /// API group. Of an application, absent means `apps.cozystack.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl TypedRef {
    /// The group of an application: absent and empty mean `apps.cozystack.io`, as the platform reads it.
    #[must_use]
    pub fn application_group(&self) -> &str {
        match self.api_group.as_deref() {
            None | Some("") => names::APPLICATION_GROUP,
            Some(group) => group,
        }
    }
}

impl From<&TypedRef> for holdfast_core::quota::Application {
    fn from(reference: &TypedRef) -> Self {
        Self {
            group: reference.application_group().to_owned(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
        }
    }
}

/// Reference to an object of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NameRef {
    /// Name; the platform allows an empty one.
    #[serde(default)]
    pub name: String,
}

/// A value that is the platform's business: kept as it is, never looked into.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FreeForm(pub serde_json::Value);

impl JsonSchema for FreeForm {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FreeForm".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}

/// Reads `""` as absent: the platform's statuses start with an empty phase.
pub(crate) fn empty_is_absent<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let text: Option<String> = Option::deserialize(deserializer)?;
    match text.as_deref() {
        None | Some("") => Ok(None),
        Some(word) => T::deserialize(serde::de::value::StrDeserializer::<D::Error>::new(word)).map(Some),
    }
}
