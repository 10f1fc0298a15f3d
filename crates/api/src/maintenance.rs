//! Maintenance: when a repository is maintained, and for whom.

use crate::shared::{NotYet, RepositoryRef};
use crate::snapshot::FailurePolicy;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When quick maintenance runs, where `spec.schedule.quick` is absent.
pub const QUICK_CRON: &str = "H */6 * * *";
/// When full maintenance runs, where `spec.schedule.full` is absent.
pub const FULL_CRON: &str = "H H * * 0";

/// Maintains a repository: frees what no snapshot needs.
#[derive(Debug, Clone, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kopiur.home-operations.com",
    version = "v1alpha1",
    kind = "Maintenance",
    plural = "maintenances",
    shortname = "kopiamaint",
    namespaced,
    status = "MaintenanceStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Repository","type":"string","jsonPath":".spec.repository.name"}"#,
    printcolumn = r#"{"name":"Owner","type":"string","jsonPath":".status.ownership.owner"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Last-Full","type":"date","jsonPath":".status.full.lastRunAt"}"#,
    printcolumn = r#"{"name":"Freed","type":"integer","priority":1,"jsonPath":".status.full.lastContentReclaimedBytes"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceSpec {
    /// The repository. It never changes.
    pub repository: RepositoryRef,
    /// When. Absent: quick every six hours, full once a week, at times that differ from object to object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<MaintenanceSchedule>,
    /// For whom, with engine Kopia: its repositories record who maintains them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ownership: Option<Ownership>,
    /// How a failing run is treated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mover: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_projection: Option<NotYet>,
}

/// When a repository is maintained.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceSchedule {
    /// What is cheap. Absent: `H */6 * * *`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<CronSpec>,
    /// Everything. Absent: `H H * * 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<CronSpec>,
    /// IANA time zone of both. Default UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub timezone: Option<String>,
}

/// Moments at which something runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronSpec {
    /// Five fields; `H` stands for a value derived from the object's UID.
    #[schemars(length(min = 1, max = 128))]
    pub cron: String,
    /// A delay of at most this, fixed per slot (`90s`, `5m`, `2h`; at most 24h).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub jitter: Option<String>,
}

/// For whom a repository is maintained.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ownership {
    /// The name to record in the repository. Absent: one with the UID of the cluster, so that of two clusters over one
    /// repository only the first maintains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub owner: Option<String>,
    /// What is done where another name is recorded.
    #[serde(default)]
    pub takeover_policy: TakeoverPolicy,
}

/// What is done where another maintains the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum TakeoverPolicy {
    /// It is left to them.
    #[default]
    Never,
    /// It is left to them, and a person is asked.
    PromptCondition,
    /// It is taken over.
    Force,
    /// Written by a newer version: leave it to them.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// State of a Maintenance.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceStatus {
    /// Who maintains the repository, as it says itself; absent where its format has no record of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ownership: Option<OwnershipStatus>,
    /// Quick runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<RunStatus>,
    /// Full runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<RunStatus>,
    /// The run that a person asked for last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual_run: Option<ManualRun>,
    /// Bytes that the repository took in storage after the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<i64>,
    /// UID of the Job whose result was recorded last, so that none is counted twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_job: Option<String>,
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// kstatus conditions and ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Who maintains a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnershipStatus {
    /// The name in the repository.
    pub owner: String,
    /// Since when it is ours; absent while it is another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<Timestamp>,
}

/// Runs of one effort.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// When the last run that was made ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_at: Option<Timestamp>,
    /// The slot that is due next, or is due and waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_scheduled_at: Option<Timestamp>,
    /// The last slot that is done with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_at: Option<Timestamp>,
    /// Failed runs in a row.
    #[serde(default)]
    pub consecutive_failures: u32,
    /// Why the last run failed; absent: it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// A failed run is not tried again before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    /// Bytes of storage that the last run freed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_content_reclaimed_bytes: Option<i64>,
    /// Bytes that the last run found without need, and that a later one frees when the engine's safety period is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_content_marked_bytes: Option<i64>,
    /// Cron, jitter and time zone that the next slot was computed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_with: Option<String>,
}

/// A run that a person asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManualRun {
    /// The annotation's value, to the letter.
    pub requested_at: String,
    /// `quick` or `full`.
    pub mode: String,
    /// Whether it was made; otherwise the message says why not.
    pub succeeded: bool,
    /// How it ended.
    pub message: String,
}
