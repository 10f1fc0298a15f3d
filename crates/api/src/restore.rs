//! Restore: one way back from a repository into a claim.

use crate::mover::MoverSpec;
use crate::shared::{Identity, LocalRef, NotYet, RepositoryRef};
use crate::snapshot::{FailurePolicy, JobStatus, RunFailure, Timing};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One restore. It runs once; with the target `populator` once for each claim that names it.
#[derive(Debug, Clone, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kopiur.home-operations.com",
    version = "v1alpha1",
    kind = "Restore",
    plural = "restores",
    shortname = "kopiarestore",
    namespaced,
    status = "RestoreStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Source","type":"string","jsonPath":".status.sourceKind"}"#,
    printcolumn = r#"{"name":"Target","type":"string","priority":1,"jsonPath":".status.target.pvcRef.name"}"#,
    printcolumn = r#"{"name":"Bytes","type":"integer","priority":1,"jsonPath":".status.progress.bytesRestored"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSpec {
    /// Where the data comes from: exactly one key.
    pub source: RestoreSource,
    /// Where it goes: exactly one key.
    pub target: RestoreTarget,
    /// The repository: required with `source.identity`; with `source.fromPolicy` instead of the policy's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryRef>,
    /// How files are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<RestoreOptions>,
    /// What happens when there is no snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<RestorePolicy>,
    /// How a failing run is treated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// What its movers are beside what the repository's `moverDefaults` say; each field that is set here counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mover: Option<MoverSpec>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_projection: Option<NotYet>,
}

/// Where the data comes from: exactly one key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSource {
    /// A Snapshot of this namespace, whatever its origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_ref: Option<SnapshotRef>,
    /// What a SnapshotPolicy of this namespace backed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_policy: Option<FromPolicy>,
    /// An identity as the repository records it, without any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<FromIdentity>,
}

/// A Snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Another namespace: not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NotYet>,
}

/// Snapshots of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FromPolicy {
    /// The policy's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// How many to go back from the newest one.
    #[serde(default)]
    pub offset: u32,
    /// Only snapshots that were begun at this time or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
    /// Another namespace: not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NotYet>,
}

/// Snapshots of an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FromIdentity {
    /// User name in the repository; by default the policy's name.
    #[schemars(length(min = 1, max = 253))]
    pub username: String,
    /// Host name in the repository; by default the namespace. In a ClusterRepository it has to be this namespace.
    #[schemars(length(min = 1, max = 253))]
    pub hostname: String,
    /// Path in the repository, such as `/pvc/data`; may be left out when there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub source_path: Option<String>,
    /// This very snapshot of the identity.
    #[serde(default, rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub snapshot_id: Option<String>,
    /// Only snapshots that were begun at this time or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
    /// How many to go back from the newest one.
    #[serde(default)]
    pub offset: u32,
}

/// Where the data goes: exactly one key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreTarget {
    /// A claim to be made. It belongs to nobody: deleting the Restore leaves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<NewClaim>,
    /// A claim of this namespace that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc_ref: Option<ClaimRef>,
    /// Claims whose `dataSourceRef` names this Restore are filled before they are bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub populator: Option<Populator>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<NotYet>,
}

/// A claim to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewClaim {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its class; default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// How large it is to be, such as `5Gi`. Default: what the snapshot holds and a quarter more, at least 1Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub capacity: Option<String>,
    /// Its access modes. Default: ReadWriteOnce.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub access_modes: Vec<String>,
}

/// A claim that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Another namespace: not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NotYet>,
}

/// Fills claims that name this Restore.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Populator {}

/// How files are written. Without any of them a target that holds files already is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreOptions {
    /// Files in the target that the snapshot does not have are deleted.
    #[serde(default)]
    pub enable_file_deletion: bool,
    /// Files in the target that the snapshot has too are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwrite_files: Option<bool>,
    /// Files in the target that the snapshot has too are left as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_existing: Option<bool>,
    /// What cannot be set (owners, modes, extended attributes) is listed and is no failure. Default: true.
    #[serde(default = "yes")]
    pub ignore_permission_errors: bool,
    /// Owners are not restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_owners: Option<bool>,
    /// Runs of zeros take no room. Default: true where nothing is overwritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_sparse_files: Option<bool>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_files_atomically: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_permissions: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_times: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwrite_directories: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwrite_symlinks: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_errors: Option<NotYet>,
}

fn yes() -> bool {
    true
}

/// What happens when there is no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestorePolicy {
    /// Default: Continue with `source.fromPolicy`, else Fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_missing_snapshot: Option<OnMissingSnapshot>,
    /// How long after its creation the Restore looks for a snapshot, such as `5m`. Default: once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub wait_timeout: Option<String>,
}

/// What happens when there is no snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnMissingSnapshot {
    /// The Restore fails.
    Fail,
    /// The target is left empty, and the Restore is complete.
    Continue,
    /// Written by a newer version: fail.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// State of a restore.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreStatus {
    /// Phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RestorePhase>,
    /// Which key of `spec.source` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_kind: Option<String>,
    /// What is restored; pinned once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<ResolvedRestore>,
    /// Where it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetStatus>,
    /// UIDs of the claims that this generation is done with, well or not, as long as they exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_claims: Vec<String>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RestoreProgress>,
    /// What could not be set as the snapshot has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_restored: Option<NotRestored>,
    /// When it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// The mover Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobStatus>,
    /// Runs that ended because the repository could not be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// When the next one may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RunFailure>,
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// kstatus conditions and ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Phase of a Restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RestorePhase {
    /// Something is missing, see the conditions; or no claim asks for it.
    Pending,
    /// It is looked up which snapshot it is.
    Resolving,
    /// Files are written.
    Restoring,
    /// Done.
    Completed,
    /// It ended without the data.
    Failed,
    /// Written by a newer version: hold, do nothing.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What is restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedRestore {
    /// Whether there is a snapshot.
    pub resolution: Resolution,
    /// Id in the repository, whatever the engine.
    #[serde(default, rename = "kopiaSnapshotID", skip_serializing_if = "Option::is_none")]
    pub kopia_snapshot_id: Option<String>,
    /// The Snapshot object, when one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_ref: Option<LocalRef>,
    /// The repository object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryRef>,
    /// Unique id of the physical repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_id: Option<String>,
    /// What the snapshot is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// When it was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// Logical bytes of it, when the repository records them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// When this was decided.
    pub pinned_at: Timestamp,
}

/// Whether there is a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Resolution {
    /// This one.
    Snapshot,
    /// None, and the target is left empty.
    NoSnapshot,
    /// Written by a newer version.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// Where the data goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// The claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc_ref: Option<BoundClaim>,
    /// The claim that is filled in its place, until the volume is handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc_prime: Option<String>,
    /// The volume that was filled; recorded before it is handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
}

/// A claim and which one of that name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoundClaim {
    /// Its name.
    pub name: String,
    /// Its UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// How far a restore is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreProgress {
    /// Bytes that are in the target.
    #[serde(default)]
    pub bytes_restored: i64,
    /// Bytes there will be, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<i64>,
    /// Files that are in the target; told at the end.
    #[serde(default)]
    pub files_restored: i64,
}

/// What could not be set as the snapshot has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotRestored {
    /// Files with another owner or group.
    #[serde(default)]
    pub owners: i64,
    /// Files with another mode.
    #[serde(default)]
    pub modes: i64,
    /// Files with another time of change.
    #[serde(default)]
    pub times: i64,
    /// Files without one of their extended attributes.
    #[serde(default)]
    pub xattrs: i64,
    /// Devices, sockets and the like that are not there.
    #[serde(default)]
    pub special_files: i64,
    /// The first of them: a path, and what it lacks. The first 10,000 are in the mover's log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}
