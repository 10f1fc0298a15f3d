//! BackupStore: an object store that is listed to measure what drivers do not report (`docs/design.md` 4.5).

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An object store, and how its keys map to namespaces and artifacts.
#[derive(Debug, Clone, PartialEq, Eq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ledger.backups.cozystack.io",
    version = "v1alpha1",
    kind = "BackupStore",
    plural = "backupstores",
    status = "BackupStoreStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Bucket","type":"string","jsonPath":".spec.bucket"}"#,
    printcolumn = r#"{"name":"Prefix","type":"string","priority":1,"jsonPath":".spec.prefix"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Listed","type":"date","jsonPath":".status.lastCompleteListing.completedAt"}"#,
    printcolumn = r#"{"name":"Objects","type":"integer","jsonPath":".status.lastCompleteListing.objects"}"#,
    printcolumn = r#"{"name":"Waiting","type":"integer","jsonPath":".status.pendingRelease.records"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BackupStoreSpec {
    /// The bucket.
    #[schemars(length(min = 3, max = 63))]
    pub bucket: String,
    /// Only keys that begin with this are listed. Empty: the whole bucket. Ends with `/` unless empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub prefix: String,
    /// URL of the S3 server, e.g. `https://s3.example.org`.
    #[schemars(length(min = 1, max = 2048))]
    pub endpoint: String,
    /// Region; absent: `us-east-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub region: Option<String>,
    /// The bucket stands in the path, not in the host name. Default true: most servers of one's own want it.
    #[serde(default = "yes")]
    pub force_path_style: bool,
    /// Certificates that the server's is checked against, besides the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<StoreCaBundle>,
    /// What to sign in with. Rights to list are enough.
    pub credentials: StoreCredentials,
    /// Pause between two listings (`30m`, `6h`; 1 minute to 7 days).
    #[serde(default = "six_hours")]
    #[schemars(length(max = 32))]
    pub interval: String,
    /// How keys map to namespaces and artifacts.
    pub layout: StoreLayout,
    /// No listings while true.
    #[serde(default)]
    pub suspend: bool,
}

fn yes() -> bool {
    true
}

fn six_hours() -> String {
    "6h".to_owned()
}

/// How keys, below the prefix, map to namespaces and artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreLayout {
    /// Segments joined by `/`: words that have to be there, `{namespace}`, `{application}`, `{any}`, and at the end
    /// `{artifact...}` for the rest of the key. Example: `{namespace}/{application}/{artifact...}`.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// The namespace of everything in the store, when the path has no `{namespace}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The strategy kinds whose records a listing may release. Empty: every kind with a key in this bucket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    pub strategy_kinds: Vec<String>,
}

/// Certificates in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreCaBundle {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; absent: the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The key that holds the certificates, PEM.
    #[serde(default = "crate::shared::ca_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Credentials in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreCredentials {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; absent: the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// The key that holds the access key id.
    #[serde(default = "access_key")]
    #[schemars(length(min = 1, max = 253))]
    pub access_key_id_key: String,
    /// The key that holds the secret access key.
    #[serde(default = "secret_key")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_access_key_key: String,
}

fn access_key() -> String {
    "AWS_ACCESS_KEY_ID".to_owned()
}

fn secret_key() -> String {
    "AWS_SECRET_ACCESS_KEY".to_owned()
}

/// What listings have found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStoreStatus {
    /// `Ready` and its kin, `Versioned`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The last listing that reached the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_complete_listing: Option<CompleteListing>,
    /// When the last attempt ended, whole or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Timestamp>,
    /// Attempts in a row that did not reach the end.
    #[serde(default)]
    pub failures: u32,
    /// Why the last one did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When the next one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_listing_at: Option<Timestamp>,
    /// How far the listing under way is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ListingProgress>,
    /// Bytes that no record explains, by namespace: the largest 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub unaccounted: Vec<UnaccountedBytes>,
    /// The sum of what no record explains in all other namespaces; absent: every one is named above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaccounted_elsewhere: Option<UnaccountedElsewhere>,
    /// The bucket keeps old versions, which listings do not see. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versioned: Option<bool>,
    /// A release that waits for an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_release: Option<PendingRelease>,
    /// The release that an administrator allowed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_release: Option<ApprovedRelease>,
}

/// Bytes that no record explains, in namespaces that are not named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnaccountedElsewhere {
    /// How many objects.
    #[schemars(range(min = 0))]
    pub objects: i64,
    /// Their bytes.
    #[schemars(range(min = 0))]
    pub bytes: i64,
}

/// A listing that reached the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompleteListing {
    /// When it began: only records that are older may be released on its account.
    pub started_at: Timestamp,
    /// When it ended.
    pub completed_at: Timestamp,
    /// Objects it saw.
    #[schemars(range(min = 0))]
    pub objects: i64,
    /// Their bytes.
    #[schemars(range(min = 0))]
    pub bytes: i64,
}

/// How far a listing is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListingProgress {
    /// When it began.
    pub started_at: Timestamp,
    /// The last key it saw; it goes on after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_key: Option<String>,
    /// Objects so far.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub objects: i64,
    /// Bytes so far.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub bytes: i64,
}

/// Bytes that no record explains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnaccountedBytes {
    /// The namespace that the layout reads from the keys; empty: keys that fit no layout.
    pub namespace: String,
    /// Objects.
    #[schemars(range(min = 0))]
    pub objects: i64,
    /// Bytes.
    #[schemars(range(min = 0))]
    pub bytes: i64,
}

/// A release that waits for an administrator, because it is large for its scope (`docs/design.md` 4.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRelease {
    /// Stands for exactly these records; approving it approves no others.
    pub token: String,
    /// Records.
    pub records: u32,
    /// Bytes they are charged with.
    #[schemars(range(min = 0))]
    pub bytes: i64,
    /// Since when.
    pub since: Timestamp,
    /// Why it waits: one word.
    pub reason: String,
}

/// A release that an administrator allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedRelease {
    /// Its token.
    pub token: String,
    /// When it was carried out.
    pub at: Timestamp,
}
