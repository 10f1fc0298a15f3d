//! SnapshotSchedule: when a policy's snapshots are taken.

use crate::shared::{CascadePolicy, LabelSelector, LocalRef, PolicyRef};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Takes snapshots of a policy, or of several, at times.
#[derive(Debug, Clone, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kopiur.home-operations.com",
    version = "v1alpha1",
    kind = "SnapshotSchedule",
    plural = "snapshotschedules",
    shortname = "kopiasched",
    namespaced,
    status = "SnapshotScheduleStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Config","type":"string","jsonPath":".spec.policyRef.name"}"#,
    printcolumn = r#"{"name":"Schedule","type":"string","jsonPath":".spec.schedule.cron"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Next","type":"string","jsonPath":".status.nextSchedule.at"}"#,
    printcolumn = r#"{"name":"Suspended","type":"boolean","jsonPath":".spec.schedule.suspend"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotScheduleSpec {
    /// The policy. Exactly one of this and `policySelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_ref: Option<PolicyRef>,
    /// Every policy of this namespace with these labels; suspended ones are left out. At most 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_selector: Option<LabelSelector>,
    /// When.
    pub schedule: ScheduleTimes,
    /// How many failed runs are kept; the oldest go first. Absent: 10. 0 keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_jobs_history_limit: Option<u32>,
    /// What deleting the schedule does to the data of its Snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<ScheduleDeletion>,
}

/// When snapshots are taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleTimes {
    /// Five fields; `H` stands for a value derived from the schedule's UID.
    #[schemars(length(min = 1, max = 128))]
    pub cron: String,
    /// A delay of at most this, fixed per slot (`90s`, `5m`, `2h`; at most 24h). Default: the repository's
    /// `scheduleDefaults.jitter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub jitter: Option<String>,
    /// IANA time zone. Default: the repository's `scheduleDefaults.timezone`, else UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub timezone: Option<String>,
    /// One run as soon as the schedule is created.
    #[serde(default)]
    pub run_on_create: bool,
    /// No new runs.
    #[serde(default)]
    pub suspend: bool,
    /// What happens when a run is due while another is under way.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// A slot older than this many seconds is skipped. Absent: a missed slot runs once, late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
}

/// What happens when a run is due while another is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// Wait for it.
    #[default]
    Forbid,
    /// Run beside it.
    Allow,
    /// End it and take its place; whatever it has put into the repository stays there.
    Replace,
    /// Written by a newer version: wait.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What deleting the schedule does to the data of its Snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleDeletion {
    /// Retain: the data is kept. Delete: it may be deleted, through the breaker.
    #[serde(default)]
    pub on_schedule_delete: CascadePolicy,
}

/// State of a schedule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotScheduleStatus {
    /// The slot that ran last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule: Option<Slot>,
    /// The slot that is due next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_schedule: Option<Slot>,
    /// The slot that succeeded last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_schedule: Option<Slot>,
    /// Failed runs in a row.
    #[serde(default)]
    pub consecutive_failures: u32,
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// kstatus conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One moment at which a snapshot is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// When, jitter included.
    #[serde(alias = "scheduledAt")]
    pub at: Timestamp,
    /// Cron pattern that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Time zone that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Jitter window that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
    /// The Snapshot made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_ref: Option<LocalRef>,
}
