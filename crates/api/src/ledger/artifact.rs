//! Artifact: the record of one thing that occupies storage, or of a run that may come to.

use crate::backups::TypedRef;
use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The record of one thing that occupies storage.
///
/// The spec never changes and says what the record is for: with [`ArtifactSpec::job`] alone, a run that was
/// admitted; with [`ArtifactSpec::key`] or [`ArtifactSpec::backup_uid`], something in storage. Everything that
/// changes is in the status, which is written by a second request: a record without one is read as just admitted,
/// or as attributed with an unknown size.
#[derive(Debug, Clone, PartialEq, Eq, Default, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ledger.backups.cozystack.io",
    version = "v1alpha1",
    kind = "Artifact",
    plural = "artifacts",
    status = "ArtifactStatus",
    derive = "PartialEq",
    selectable = ".spec.namespace",
    printcolumn = r#"{"name":"Namespace","type":"string","jsonPath":".spec.namespace"}"#,
    printcolumn = r#"{"name":"Kind","type":"string","priority":1,"jsonPath":".spec.applicationRef.kind"}"#,
    printcolumn = r#"{"name":"Application","type":"string","jsonPath":".spec.applicationRef.name"}"#,
    printcolumn = r#"{"name":"Strategy","type":"string","priority":1,"jsonPath":".spec.strategy.kind"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Size","type":"string","jsonPath":".status.size"}"#,
    printcolumn = r#"{"name":"Source","type":"string","jsonPath":".status.sizeSource"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason"}"#,
    printcolumn = r#"{"name":"Place","type":"string","priority":1,"jsonPath":".spec.place"}"#,
    printcolumn = r#"{"name":"Key","type":"string","priority":1,"jsonPath":".spec.key"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactSpec {
    /// The namespace that is charged. One that is made again under the same name inherits its records.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Who wrote the bytes. Absent only while a run's strategy is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<ArtifactStrategy>,
    /// Where the bytes are: a bucket, a server, an operator's namespace. Goes with a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub place: Option<String>,
    /// What they are called there. Several Backups with one key are one artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub key: Option<String>,
    /// In place of a key, when the driver names none: the UID of the Backup, or of the run that made the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub backup_uid: Option<String>,
    /// The Backup for which the record was first written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_for: Option<RecordedBackup>,
    /// The run that was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<ArtifactJob>,
    /// What was backed up.
    pub application_ref: TypedRef,
}

/// The strategy that wrote an artifact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactStrategy {
    /// API group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub api_group: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name; no part of the artifact's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
}

/// A Backup that refers to an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedBackup {
    /// UID.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
    /// Name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// When the API server created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// The largest size it has claimed; a claim that shrinks does not lower the charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub claimed_bytes: Option<i64>,
}

/// A BackupJob.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactJob {
    /// UID.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
    /// Name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// When the API server created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

/// What a record says now. Written by the operator alone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactStatus {
    /// Where the record is in its life.
    #[serde(default)]
    pub state: ArtifactState,
    /// Why it is in this state: one word, the same in events, metrics and the docs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// UID of the namespace when it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_uid: Option<String>,
    /// What is charged, for people: `48Mi`, or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// What is charged, in bytes. Absent: unknown, and counted as unreported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size_bytes: Option<i64>,
    /// Who says so.
    #[serde(default)]
    pub size_source: SizeSource,
    /// What the driver could do when the record was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<CapabilityWords>,
    /// Who said so.
    #[serde(default)]
    pub capabilities_from: CapabilitiesFrom,
    /// The Backups that refer to it, the newest 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub backups: Vec<RecordedBackup>,
    /// How many Backups refer to it.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub backup_count: u32,
    /// Another namespace has a record of the same place and key; it is charged in both.
    #[serde(default)]
    pub shared_across_namespaces: bool,
    /// Who wrote it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_off_by: Option<String>,
    /// When what happened.
    #[serde(default)]
    pub times: ArtifactTimes,
    /// What listings of the store have seen of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<ArtifactListing>,
}

/// Where a record is in its life (`docs/design.md` 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
pub enum ArtifactState {
    /// A run was admitted; the gate counts it beside `used`.
    InFlight,
    /// A Backup refers to it. Charged.
    Attributed,
    /// Its Backups are gone and its deletion was asked for. Charged until that is proven.
    PendingPurge,
    /// Its Backups are gone and its bytes are not. Charged.
    Retained,
    /// Its bytes are gone. Not charged.
    Released,
    /// An administrator decided not to charge it. The bytes may be there.
    WrittenOff,
    /// Written by a newer version, or not written yet. In the schema, because a default has to be.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Who says how large an artifact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SizeSource {
    /// The Backup's status.
    Claim,
    /// A listing of the store.
    Measured,
    /// Nobody.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Who says what a driver can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CapabilitiesFrom {
    /// The built-in table.
    BuiltIn,
    /// The annotation on the strategy.
    Annotation,
    /// Nobody: the careful values.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What a driver can do (`docs/design.md` 4.2). A word we do not know means the careful value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapabilityWords {
    /// `none`, `recordOnly`, `requested`, `confirmed`.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub deletion: String,
    /// `none`, `driver`, `measured`.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub size: String,
    /// `none`, `driver`, `driverOnNextRun`, `ttl`.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub pruning: String,
    /// `unique`, `shared`, `unknown`.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub identity: String,
    /// Whether bytes are added after the Backup is there.
    #[serde(default)]
    pub grows_after_ready: bool,
    /// `no`, `listing`, `operatorCR`.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub enumerable: String,
}

/// When what happened, by our own clock unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactTimes {
    /// The record was first written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_at: Option<Timestamp>,
    /// The run was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_at: Option<Timestamp>,
    /// The run began, as its BackupJob says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// The first Backup was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributed_at: Option<Timestamp>,
    /// The newest Backup was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup_at: Option<Timestamp>,
    /// The last Backup went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// The bytes were proven gone, or the record was written off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Timestamp>,
    /// A listing last found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_in_listing: Option<Timestamp>,
}

/// What listings of one store have seen of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactListing {
    /// The BackupStore.
    #[schemars(length(max = 253))]
    pub store: String,
    /// When the last listing began whose answer stands here; none counts twice.
    pub judged: Timestamp,
    /// Complete listings in a row that missed it.
    #[serde(default)]
    pub missed: u32,
    /// A complete listing has found it.
    #[serde(default)]
    pub found: bool,
}
