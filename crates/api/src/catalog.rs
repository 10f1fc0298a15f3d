//! What a repository's status says about the scans that find snapshots again.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the last scan of the repository saw, and when the next one is due.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogStatus {
    /// The request (annotation `catalog-scan-requested-at`) that was answered last, compared for equality.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_request_honored: Option<String>,
    /// When the last scan ended, whole or void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_request_attempt_at: Option<Timestamp>,
    /// When the repository was last listed whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refresh_at: Option<Timestamp>,
    /// Snapshot objects with origin `discovered` of this repository after the last scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovered_backup_count: Option<i64>,
    /// Why the last scan is void, or which of its rows could not be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Void scans in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// A scan that is due, recorded before the data it is to find lost its objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_due: Option<ScanDue>,
    /// When the repository is listed for the second look after a delete Job (`docs/design.md` 3.6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_look_at: Option<Timestamp>,
    /// When the newest whole listing began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<Timestamp>,
    /// How far the scan under way is with its rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ScanProgress>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A scan that is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanDue {
    /// Since when there is something to find.
    pub since: Timestamp,
    /// When to look for it.
    pub at: Timestamp,
}

/// How far a scan is with writing rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanProgress {
    /// Rows created, completed or removed so far.
    pub done: i64,
    /// Of how many.
    pub of: i64,
}
