//! BackupJob: the request for one backup. The gate looks at it (`docs/design.md` 4.4).

use super::{NameRef, TypedRef, empty_is_absent};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A request for one backup of one application.
#[derive(Debug, Clone, PartialEq, Default, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "backups.cozystack.io",
    version = "v1alpha1",
    kind = "BackupJob",
    plural = "backupjobs",
    namespaced,
    status = "BackupJobStatus",
    derive = "PartialEq",
    selectable = ".spec.applicationRef.apiGroup",
    selectable = ".spec.applicationRef.kind",
    selectable = ".spec.applicationRef.name",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BackupJobSpec {
    /// The Plan that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_ref: Option<NameRef>,
    /// What is backed up. Mutable: the gate looks at changes too.
    pub application_ref: TypedRef,
    /// Which BackupClass says how. Immutable.
    #[schemars(length(min = 1))]
    pub backup_class_name: String,
}

/// State of a BackupJob.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupJobStatus {
    /// Absent and empty are the same: no controller has taken it up, and maybe none ever will.
    #[serde(
        default,
        deserialize_with = "empty_is_absent",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub phase: Option<JobPhase>,
    /// The Backup that records its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_ref: Option<NameRef>,
    /// When the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `Ready`, with reasons such as `BackupClassNotFound`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Phase of a BackupJob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum JobPhase {
    /// Taken up, not begun.
    Pending,
    /// Under way.
    Running,
    /// A Backup records the result.
    Succeeded,
    /// Failed; the driver's own run may go on all the same.
    Failed,
    /// A word we do not know: as if it were under way.
    #[serde(other)]
    Unknown,
}

impl JobPhase {
    /// Whether the platform has done with the job.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed => true,
            Self::Pending | Self::Running | Self::Unknown => false,
        }
    }
}
