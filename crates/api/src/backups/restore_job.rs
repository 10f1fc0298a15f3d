//! RestoreJob: never refused by Account (`docs/design.md` section 4).

use super::{FreeForm, JobPhase, NameRef, TypedRef, empty_is_absent};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request to bring one Backup back.
#[derive(Debug, Clone, PartialEq, Default, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "backups.cozystack.io",
    version = "v1alpha1",
    kind = "RestoreJob",
    plural = "restorejobs",
    namespaced,
    status = "RestoreJobStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RestoreJobSpec {
    /// Which Backup.
    pub backup_ref: NameRef,
    /// Where to; absent: in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_application_ref: Option<TypedRef>,
    /// The driver's own options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<FreeForm>,
}

/// State of a RestoreJob.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreJobStatus {
    /// Absent and empty are the same.
    #[serde(
        default,
        deserialize_with = "empty_is_absent",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub phase: Option<JobPhase>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
