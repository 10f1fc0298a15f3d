//! Repository and ClusterRepository: where snapshots are kept, and how their deletion is protected.

pub use crate::catalog::{Catalog, CatalogRetain, CatalogStatus, ScanDue, ScanProgress};
use crate::mover::MoverDefaults;
use crate::shared::{LabelSelector, NamespaceDeletePolicy, NotYet, SecretKeyRef};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A backup repository of one namespace.
#[derive(Debug, Clone, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kopiur.home-operations.com",
    version = "v1alpha1",
    kind = "Repository",
    plural = "repositories",
    shortname = "kopiarepo",
    namespaced,
    status = "RepositoryStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Backend","type":"string","jsonPath":".status.backend"}"#,
    printcolumn = r#"{"name":"Held","type":"string","jsonPath":".status.conditions[?(@.type=='MassDeletionHeld')].status"}"#,
    printcolumn = r#"{"name":"Snapshots","type":"integer","priority":1,"jsonPath":".status.storageStats.snapshotCount"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RepositorySpec {
    /// Which engine speaks to the repository.
    #[serde(default)]
    pub engine: Engine,
    /// Where the repository is. Exactly one.
    pub backend: Backend,
    /// How it is encrypted.
    pub encryption: Encryption,
    /// Whether an absent repository may be created. Absent: connect only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<Create>,
    /// What a namespace's teardown does to the data of its Snapshots.
    #[serde(default)]
    pub on_namespace_delete: NamespaceDeletePolicy,
    /// The breaker against mass deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_protection: Option<DeletionProtection>,
    /// ReadWrite, or ReadOnly (not supported yet).
    #[serde(default)]
    pub mode: Mode,
    /// Stops connecting and every deletion from this repository.
    #[serde(default)]
    pub suspend: bool,
    /// What every mover inherits, whatever it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mover_defaults: Option<MoverDefaults>,
    /// What schedules inherit where they say nothing themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_defaults: Option<ScheduleDefaults>,
    /// When the repository is listed again, and how many of the snapshots that belong to no object are shown. Absent:
    /// it is listed when something may have changed, and all are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<Catalog>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<NotYet>,
    /// What policies inherit of the identity under which the repository records their snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_defaults: Option<IdentityDefaults>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<NotYet>,
    /// How it is watched whether the repository can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<NotYet>,
}

/// A backup repository for namespaces that it allows.
#[derive(Debug, Clone, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kopiur.home-operations.com",
    version = "v1alpha1",
    kind = "ClusterRepository",
    plural = "clusterrepositories",
    shortname = "kopiacrepo",
    status = "RepositoryStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Backend","type":"string","jsonPath":".status.backend"}"#,
    printcolumn = r#"{"name":"Namespaces","type":"integer","jsonPath":".status.allowedNamespaceCount"}"#,
    printcolumn = r#"{"name":"Held","type":"string","jsonPath":".status.conditions[?(@.type=='MassDeletionHeld')].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRepositorySpec {
    /// Everything a Repository has.
    #[serde(flatten)]
    pub repository: RepositorySpec,
    /// Which namespaces may use it. Exactly one of `list`, `selector`, `all: true`.
    pub allowed_namespaces: AllowedNamespaces,
    /// Whether its Secrets may be copied to where movers run, for those who ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_projection: Option<ProjectionGrant>,
}

/// Whether a ClusterRepository's Secrets may be copied: one of the three consents (`docs/movers.md`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectionGrant {
    /// The owner of the repository consents.
    #[serde(default)]
    pub allowed: bool,
}

/// What policies inherit of their identity. Expressions are CEL that says a string; they may name `namespace`,
/// `policyName`, `labels` and `annotations` of the policy, and `cluster`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityDefaults {
    /// Says the host name. Absent: the namespace, with `.<cluster>` behind it where that is set. In a ClusterRepository
    /// it says one of these two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub hostname_expr: Option<String>,
    /// Says the user name. Absent: the policy's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub username_expr: Option<String>,
    /// What tells this cluster from others that share the repository: a label of a host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub cluster: Option<String>,
}

/// What schedules inherit where they say nothing themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleDefaults {
    /// IANA time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub timezone: Option<String>,
    /// A delay of at most this, fixed per slot (`90s`, `5m`, `2h`; at most 24h).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub jitter: Option<String>,
}

/// Engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Engine {
    /// The kopia program, which ships in the mover image.
    #[default]
    Kopia,
    /// restic's format through rustic_core.
    Restic,
    /// Written by a newer version.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// Where a repository is. Exactly one key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// A directory on a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<FilesystemBackend>,
    /// A bucket on an S3 server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Backend>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b2: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sftp: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web_dav: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rclone: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gdrive: Option<NotYet>,
}

/// A bucket on an S3 server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Backend {
    /// Name of the bucket, which is there already.
    #[schemars(length(min = 1, max = 255))]
    pub bucket: String,
    /// What the names of the repository's objects begin with. Kopia puts it before its names as it is, so there it ends
    /// with a slash. Restic takes it as a folder either way. Empty: the whole bucket.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub prefix: String,
    /// `host` or `host:port` of the server, without a scheme. Absent: Amazon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub endpoint: Option<String>,
    /// Region. Absent: the server's own idea of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub region: Option<String>,
    /// What of TLS is not as usual. At most one key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<S3Tls>,
    /// What to sign in with.
    pub auth: S3Auth,
}

/// What of TLS is not as usual. At most one key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Tls {
    /// Talk without TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disable_tls: bool,
    /// Do not check the server's certificate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    /// The authorities to trust instead of the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<ConfigMapKeyRef>,
}

/// Reference to one key of a ConfigMap in the namespace where the mover runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyRef {
    /// The ConfigMap's name.
    #[schemars(length(min = 1, max = 253))]
    pub config_map_name: String,
    /// The key that holds PEM certificates.
    #[serde(default = "crate::shared::ca_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// What to sign in to an S3 server with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Auth {
    /// The Secret with `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, with temporary keys, `AWS_SESSION_TOKEN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_identity: Option<NotYet>,
}

impl S3Auth {
    /// Name of the Secret; empty in an object that is refused.
    #[must_use]
    pub fn secret_name(&self) -> &str {
        self.secret_ref
            .as_ref()
            .map_or("", |reference| reference.name.as_str())
    }
}

/// Reference to a whole Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace: required (the operator's) for a ClusterRepository; otherwise the repository's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// A directory on a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemBackend {
    /// Directory of the repository on the volume, absolute.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/"))]
    pub path: String,
    /// The volume.
    pub volume: RepositoryVolume,
}

fn root() -> String {
    "/".to_owned()
}

/// A volume that holds a repository. Exactly one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryVolume {
    /// A claim in the namespace where the mover runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<crate::shared::LocalRef>,
    /// A directory that an NFS server exports; the node mounts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NfsVolume>,
}

/// A directory that an NFS server exports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NfsVolume {
    /// Host name or address of the server, as the nodes know it.
    #[schemars(length(min = 1, max = 253))]
    pub server: String,
    /// The exported directory, absolute.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/"))]
    pub path: String,
}

/// How a repository is encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// The Secret that holds the password. The reference may change, the password may not.
    pub password_secret_ref: SecretKeyRef,
}

/// Whether and how an absent repository is created.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Create {
    /// Create the repository when there is none; never again once a unique id was recorded.
    #[serde(default)]
    pub enabled: bool,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splitter: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc: Option<NotYet>,
}

/// How it is watched whether a repository can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Connecting again and again. Absent: the defaults of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_blob_warn_threshold: Option<NotYet>,
}

/// A connection that is made to see whether it can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Whether it is made by itself.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How often (`90s`, `5m`, `2h`; at least 30s). Absent: 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub interval: Option<String>,
    /// Failures in a row that make the repository degraded. Absent: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<u32>,
    /// What they do.
    #[serde(default)]
    pub on_failure: OnProbeFailure,
}

fn yes() -> bool {
    true
}

/// What as many failed probes as the threshold do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum OnProbeFailure {
    /// The repository is degraded: new backups wait until it can be reached.
    #[default]
    Degrade,
    /// It is only told.
    Alert,
    /// Written by a newer version: degrade.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The breaker (`docs/design.md` 3.4).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionProtection {
    /// Pending external destructive deletions at which the wave is held. Absent: 10. 0: no breaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub threshold: Option<u32>,
    /// Deletions that were carried out lately count too: a slow trickle is held like a wave. Absent: only pending ones
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sliding_window: Option<SlidingWindow>,
}

/// Counts the external destructive deletions of the last while that no acknowledgement covered, together with the
/// pending ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlidingWindow {
    /// How far back (`90m`, `12h`; at most 24h).
    #[schemars(length(max = 32))]
    pub duration: String,
    /// Pending and carried out ones together at which what is pending is held.
    #[schemars(range(min = 1))]
    pub threshold: u32,
}

/// Access mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Backups and deletions.
    #[default]
    ReadWrite,
    /// Not supported yet.
    ReadOnly,
    /// Written by a newer version.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// Which namespaces may use a ClusterRepository. Exactly one key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedNamespaces {
    /// These.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000), inner(length(max = 63)))]
    pub list: Option<Vec<String>>,
    /// Those with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Every namespace (only `true` is accepted).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
}

/// State of a repository, for people and for the operator after a restart.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryStatus {
    /// Pending, Initializing, Ready, Degraded, Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RepositoryPhase>,
    /// Unique id of the physical repository as read when connecting; once written it never changes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_id: Option<String>,
    /// Name of the backend in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// resourceVersion of the password Secret that was last tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_credential_version: Option<String>,
    /// What the repository held when last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_stats: Option<StorageStats>,
    /// Latch and acknowledgement of the breaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_protection: Option<DeletionProtectionStatus>,
    /// What the last scan of the repository saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogStatus>,
    /// How probes went lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthStatus>,
    /// Connection attempts in a row that failed, and when the next one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionStatus>,
    /// Namespaces that may use a ClusterRepository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespace_count: Option<u32>,
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// kstatus conditions and ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Phase of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RepositoryPhase {
    /// Something is missing, see the conditions.
    Pending,
    /// Being connected or created.
    Initializing,
    /// Usable.
    Ready,
    /// Was usable and is not now; heals by itself.
    Degraded,
    /// A person has to act.
    Failed,
    /// Written by a newer version.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What a repository held when last looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageStats {
    /// Snapshots in the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_count: Option<i64>,
    /// Bytes as the sources count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_size: Option<i64>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_observed_at: Option<Timestamp>,
}

/// The breaker's memory (`docs/design.md` 3.4): written before anything depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionProtectionStatus {
    /// Newest deletion time judged held; cleared when no such member is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_through: Option<Timestamp>,
    /// The acknowledgement as it was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledgement: Option<AcknowledgementRecord>,
    /// The value of the annotation that was last refused, as unreadable or too far ahead: told once, and refused for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid_acknowledgement: Option<String>,
    /// Snapshots that were confirmed deleted and are in the repository again; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reappeared: Option<ReappearedStatus>,
    /// How the delete Jobs of this object went lately; absent: well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<DeletionJobsStatus>,
}

/// Snapshots that were confirmed deleted and are in the repository again (`docs/design.md` 3.6); which ones stands in
/// a ConfigMap of the operator's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReappearedStatus {
    /// How many.
    pub count: u32,
    /// When they were found.
    pub found_at: Timestamp,
    /// They are held until a person acknowledges their deletion.
    #[serde(default)]
    pub held: bool,
    /// Failed tries in a row to delete them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// When the next try is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
}

/// Delete Jobs that could not start or connect: the repository's failure, which counts against no Snapshot
/// (`docs/design.md` 3.6).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionJobsStatus {
    /// Failures in a row.
    #[serde(default)]
    pub failures: u32,
    /// No delete Job before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    /// UID of the Job whose failure was counted last, so that none is counted twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<String>,
    /// Delete Jobs in a row whose mover ran and left no result, at the present size of a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<u32>,
    /// Most Snapshots of the next delete Job, where larger ones left no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_members: Option<u32>,
}

/// An acknowledgement as it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcknowledgementRecord {
    /// The annotation's value, to the letter.
    pub value: String,
    /// What it covers: deletion times up to and including this one.
    pub effective: Timestamp,
    /// When it was first seen.
    pub seen_at: Timestamp,
}

/// How probes went lately.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthStatus {
    /// When the last answer came, good or bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_at: Option<Timestamp>,
    /// Probes in a row that did not reach the repository.
    #[serde(default)]
    pub consecutive_probe_failures: u32,
    /// When the first of them failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure_at: Option<Timestamp>,
    /// The value of the annotation `reverify-requested-at` that was answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverify_honored: Option<String>,
}

/// How connecting went lately.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionStatus {
    /// Failures in a row.
    #[serde(default)]
    pub failures: u32,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
    /// Seconds that the next attempt may take: more after each one that was cut off. Absent: 120.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<i64>,
    /// Hash of what the last connection was made with (engine, backend, password Secret and its version).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
}
