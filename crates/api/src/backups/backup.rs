//! Backup: the record of one result. The ledger looks at it (`docs/design.md` 4.1).

use super::{FreeForm, NameRef, TypedRef, empty_is_absent};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of one run.
///
/// **It has no status subresource**: a plain create or update stores the status, whoever may write Backups may write
/// sizes, and a patch of `/status` is answered 404.
#[derive(Debug, Clone, PartialEq, Default, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "backups.cozystack.io",
    version = "v1alpha1",
    kind = "Backup",
    plural = "backups",
    namespaced,
    status = "BackupStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct BackupSpec {
    /// What was backed up.
    pub application_ref: TypedRef,
    /// The Plan behind the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_ref: Option<NameRef>,
    /// What ran.
    pub strategy_ref: TypedRef,
    /// When. Required by the platform; a decision does not need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Timestamp>,
    /// What the driver notes for its own restores.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub driver_metadata: BTreeMap<String, String>,
}

/// State of a Backup, written by whoever created it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// In practice `Ready` from the start. Whatever it says, bytes may exist.
    #[serde(
        default,
        deserialize_with = "empty_is_absent",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub phase: Option<BackupPhase>,
    /// What lies in storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<BackupArtifact>,
    /// What the driver needs for a restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlying_resources: Option<FreeForm>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What lies in storage, as the driver says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupArtifact {
    /// Where; some drivers make one up.
    pub uri: String,
    /// A claim: anyone who may write Backups may write it. Zero and absent both mean unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// Phase of a Backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BackupPhase {
    /// Not finished.
    Pending,
    /// Usable.
    Ready,
    /// Not usable.
    Failed,
    /// A word we do not know.
    #[serde(other)]
    Unknown,
}
