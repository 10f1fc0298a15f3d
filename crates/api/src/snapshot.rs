//! Snapshot: the record of one backup in a repository.

use crate::shared::{CascadePolicy, DeletionPolicy, Identity, NotYet, Origin, PolicyRef, RepositoryRef};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One backup.
#[derive(Debug, Clone, PartialEq, Default, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kopiur.home-operations.com",
    version = "v1alpha1",
    kind = "Snapshot",
    plural = "snapshots",
    shortname = "kopiasnap",
    namespaced,
    status = "SnapshotStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Origin","type":"string","jsonPath":".status.origin"}"#,
    printcolumn = r#"{"name":"Snapshot","type":"string","jsonPath":".status.snapshot.kopiaSnapshotID"}"#,
    printcolumn = r#"{"name":"Size","type":"integer","priority":1,"jsonPath":".status.stats.sizeBytes"}"#,
    printcolumn = r#"{"name":"Held","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type=='DeletionHeld')].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSpec {
    /// The policy that says what to back up; absent on discovered rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_ref: Option<PolicyRef>,
    /// Tags to write into the repository: at most 10.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// How a failing run is treated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// What deleting this object does to its data. Absent: Delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Stamped by the schedule: what its disappearance does. Absent: Retain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_schedule_delete: Option<CascadePolicy>,
    /// Retention never prunes it, and its record in the repository says that it is to be kept. Deleting the object still
    /// deletes its data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pin: bool,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<NotYet>,
}

/// How a failing run is treated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicy {
    /// Retries of the mover. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 20))]
    pub backoff_limit: Option<i32>,
    /// The run is ended after this many seconds. Default 48 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_startup_deadline_seconds: Option<NotYet>,
}

/// State of a backup.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// Phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SnapshotPhase>,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What the repository holds for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<RecordedSnapshot>,
    /// When it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// How much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
    /// The mover Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobStatus>,
    /// What the run was pinned to when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Resolved>,
    /// Why the run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RunFailure>,
    /// Its record in the repository says that it is to be kept, whoever said so there. Retention never prunes it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// How it is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<PinStatus>,
    /// How its deletion goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DeletionStatus>,
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// kstatus conditions and ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Phase of a Snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SnapshotPhase {
    /// Not begun.
    Pending,
    /// Its mover runs.
    Running,
    /// In the repository.
    Succeeded,
    /// The run ended without a snapshot.
    Failed,
    /// Being deleted.
    Deleting,
    /// Found in the repository.
    Discovered,
    /// The source had not changed: no new snapshot.
    Unchanged,
    /// Written by a newer version: hold, do nothing.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What the repository holds for a Snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedSnapshot {
    /// Id in the repository, whatever the engine.
    #[serde(rename = "kopiaSnapshotID")]
    pub kopia_snapshot_id: String,
    /// What it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// When a run was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timing {
    /// Begin, as recorded in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    /// Seconds between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<i64>,
}

/// How much a run read and wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Logical bytes of the source.
    #[serde(default)]
    pub size_bytes: i64,
    /// Bytes the repository grew by, when the engine can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_new: Option<i64>,
    /// Files not in the parent; with Kopia those changed too.
    #[serde(default)]
    pub files_new: i64,
    /// Files changed; with Kopia they count as not in the parent.
    #[serde(default)]
    pub files_modified: i64,
    /// Files unchanged.
    #[serde(default)]
    pub files_unchanged: i64,
}

/// The mover Job of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    /// Its name, in the Snapshot's namespace.
    pub name: String,
}

/// What a run was pinned to when it began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resolved {
    /// The repository object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryRef>,
    /// Unique id of the physical repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_id: Option<String>,
    /// The sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ResolvedSource>,
    /// Under which identity it is recorded; once it is, `status.snapshot.identity` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// One source of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedSource {
    /// The claim.
    pub pvc: String,
    /// Its path in the repository.
    pub source_path: String,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunFailure {
    /// Class of the failure, the word in conditions and metrics.
    #[serde(rename = "kopiaErrorClass")]
    pub class: String,
    /// What happened, why, what to do next.
    pub message: String,
}

/// How a Snapshot is pinned in its repository (`docs/design.md` 3.6).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinStatus {
    /// We pinned it, whoever else did. Only then is it unpinned when `spec.pin` is taken back.
    #[serde(default)]
    pub ours: bool,
    /// When the repository's record was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
    /// The Job that pins or unpins it, until its result is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Failed attempts.
    #[serde(default)]
    pub attempts: u32,
    /// What the last one said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When the next one may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
}

/// How the deletion of a Snapshot's data goes (`docs/design.md` 3.5, 3.6).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionStatus {
    /// The batch Job that claimed this member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// What that Job reported for this member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Failed attempts.
    #[serde(default)]
    pub attempts: u32,
    /// What the last one said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When the next one may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    /// The time of a stamp that was written to the already deleting Snapshot, after an upgrade: equal to the annotation
    /// `pruned-at`, that stamp counts however old the deletion is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restamped_at: Option<Timestamp>,
}
