//! SnapshotPolicy: what is backed up, where to, and how long it is kept.

use crate::mover::MoverSpec;
use crate::shared::{AdoptionMode, DeletionPolicy, LocalRef, NotYet, ProjectionUse, RepositoryRef};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A recipe for backups.
#[derive(Debug, Clone, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kopiur.home-operations.com",
    version = "v1alpha1",
    kind = "SnapshotPolicy",
    plural = "snapshotpolicies",
    shortname = "kopiasp",
    namespaced,
    status = "SnapshotPolicyStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Repository","type":"string","jsonPath":".spec.repository.name"}"#,
    printcolumn = r#"{"name":"Last-Snapshot","type":"date","jsonPath":".status.lastSuccessfulSnapshot"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Suspended","type":"boolean","jsonPath":".spec.suspend"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotPolicySpec {
    /// Where the snapshots go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryRef>,
    /// What is backed up. Exactly one for now.
    #[schemars(length(min = 1, max = 100))]
    pub sources: Vec<PolicySource>,
    /// How the source is read. Direct: the live volume, mounted read-only.
    #[serde(default)]
    pub copy_method: CopyMethod,
    /// How many successful snapshots are kept. Absent: nothing is ever pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// What deleting a produced Snapshot object does to its data.
    #[serde(default)]
    pub default_deletion_policy: DeletionPolicy,
    /// What deleting the policy does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<PolicyDeletion>,
    /// No backups and no pruning.
    #[serde(default)]
    pub suspend: bool,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repositories: Option<NotYet>,
    /// Under which identity the repository records its snapshots, where it is not what the repository's
    /// `identityDefaults` say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<PolicyIdentity>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_by: Option<NotYet>,
    /// Whether snapshots that belong to no object, and were taken of exactly what this policy backs up, become its
    /// Snapshots. Absent: what the repository says (`spec.catalog.adoption`), else Adopt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption: Option<AdoptionMode>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_handling: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<NotYet>,
    /// What its movers are beside what the repository's `moverDefaults` say; each field that is set here counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mover: Option<MoverSpec>,
    /// Whether the Secrets of its ClusterRepository are copied to this namespace while a mover needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_projection: Option<ProjectionUse>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<NotYet>,
}

/// The identity of a policy's snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyIdentity {
    /// User name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub username: Option<String>,
    /// Host name. In a ClusterRepository the namespace, or `<namespace>.<cluster>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub hostname: Option<String>,
}

/// One thing to back up. Exactly one of the first four.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySource {
    /// A claim of the policy's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<LocalRef>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc_selector: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_path_override: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_path_strategy: Option<NotYet>,
    /// Mount read-only (only `true` is supported yet).
    #[serde(default = "yes")]
    pub read_only: bool,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledge_live_mutation: Option<NotYet>,
}

fn yes() -> bool {
    true
}

/// How a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum CopyMethod {
    /// The live volume.
    #[default]
    Direct,
    /// Not supported yet.
    Snapshot,
    /// Not supported yet.
    Clone,
    /// Written by a newer version.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// How many successful snapshots are kept: what any of the counts keeps. Hours, days, weeks, months and years are
/// UTC, and only those in which a snapshot ended count. What is pinned is kept besides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// The newest N are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub keep_latest: Option<u32>,
    /// The newest of each of the newest N hours that have one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub keep_hourly: Option<u32>,
    /// The newest of each of the newest N days that have one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub keep_daily: Option<u32>,
    /// The newest of each of the newest N ISO weeks that have one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub keep_weekly: Option<u32>,
    /// The newest of each of the newest N months that have one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub keep_monthly: Option<u32>,
    /// The newest of each of the newest N years that have one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub keep_annual: Option<u32>,
}

impl Retention {
    /// Each count with its name, whether it is set or not.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, Option<u32>); 6] {
        let Self {
            keep_latest,
            keep_hourly,
            keep_daily,
            keep_weekly,
            keep_monthly,
            keep_annual,
        } = self;
        [
            ("keepLatest", *keep_latest),
            ("keepHourly", *keep_hourly),
            ("keepDaily", *keep_daily),
            ("keepWeekly", *keep_weekly),
            ("keepMonthly", *keep_monthly),
            ("keepAnnual", *keep_annual),
        ]
    }
}

/// What deleting the policy does to the data of its Snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDeletion {
    /// Retain: the Snapshots go and their data stays. Delete: their data goes too, and the breaker applies.
    #[serde(default)]
    pub on_policy_delete: crate::shared::CascadePolicy,
}

/// State of a policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotPolicyStatus {
    /// What was resolved, and stays so when what it was resolved from is edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<PolicyResolved>,
    /// What retention saw and did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionStatus>,
    /// What adoption saw and did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption: Option<AdoptionStatus>,
    /// End of the newest successful run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_snapshot: Option<Timestamp>,
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// kstatus conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What was resolved of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyResolved {
    /// The identity that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<ResolvedIdentity>,
    /// Unique id of the repository in which it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_id: Option<String>,
    /// The path that is recorded with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_path: Option<String>,
    /// The value of the annotation `allow-identity-change` that was used up: only another one allows another change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_identity_change: Option<String>,
    /// The same of the annotation on the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_identity_change_of_repository: Option<String>,
}

/// Under which identity the repository records a policy's snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedIdentity {
    /// User name.
    pub username: String,
    /// Host name.
    pub hostname: String,
}

/// What adoption saw and did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionStatus {
    /// Since when snapshots are being taken over: while it is there, retention prunes nothing of this policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<Timestamp>,
    /// Not all of what was last taken over could be made: whatever retention would prune then waits for a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// When something was last taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_adopted_at: Option<Timestamp>,
    /// The identity and the repository for which a scan was asked for, or was not needed: it is asked for once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_for: Option<String>,
    /// Snapshots that the last scan left alone because retention would let them go at once, and their data would stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_by_retention: Option<i64>,
}

/// What retention saw and did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionStatus {
    /// Successful Snapshots that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_snapshot_count: Option<i64>,
    /// When something was pruned last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_prune_at: Option<Timestamp>,
    /// Generation of the policy that retention was last carried out for to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_generation: Option<i64>,
    /// How many that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_prune_deleted: Option<i64>,
    /// Snapshots made by hand or by a tool that were pruned during the last day: one that is made again under such a
    /// name is not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pruned_names: Vec<PrunedName>,
}

/// A Snapshot that was pruned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrunedName {
    /// Its name.
    pub name: String,
    /// When.
    pub at: Timestamp,
}
