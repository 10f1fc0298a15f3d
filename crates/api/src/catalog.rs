//! How often a repository is listed and what is shown of it, and what its status says about the scans.

use crate::shared::{AdoptionMode, NotYet, duration};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When a repository is listed again, and what is shown of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Catalog {
    /// Whether it is listed again and again, so that what another program wrote is seen.
    #[serde(default)]
    pub periodic_refresh: bool,
    /// How long after the last listing (`45m`, `6h`; at least 30s). Absent: 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub refresh_interval: Option<String>,
    /// Bounds of what is shown. The snapshots themselves stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<CatalogRetain>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_namespace: Option<NotYet>,
    /// Whether policies adopt what was taken of exactly what they back up; `spec.adoption` of a policy goes before.
    /// Absent: Adopt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption: Option<AdoptionMode>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_snapshots: Option<NotYet>,
}

/// How many snapshots that belong to no object are shown as Snapshots with origin `discovered`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogRetain {
    /// The newest so many of each user, host and path; 0 shows none. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_identity: Option<u32>,
    /// Those that were begun in the last so many days. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36_500))]
    pub max_age_days: Option<u32>,
}

impl Catalog {
    /// The shortest interval.
    pub const SHORTEST: SignedDuration = SignedDuration::from_secs(30);

    /// How long after the last listing the next one is due; none if only changes lead to one. An interval that cannot
    /// be read is an hour, as if there were none.
    #[must_use]
    pub fn interval(&self) -> Option<SignedDuration> {
        let written = self.refresh_interval.as_deref().and_then(duration);
        let every = written.unwrap_or(SignedDuration::from_hours(1));
        self.periodic_refresh.then_some(every.max(Self::SHORTEST))
    }
}

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
    /// Snapshots that belong to no object and are not shown, because of `spec.catalog.retain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_shown_count: Option<i64>,
    /// Snapshots that belong to no object and are not shown, because their namespace does not exist or may not use the
    /// repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaced_count: Option<i64>,
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
    /// The ConfigMaps in which what was let go of this repository is remembered: one that is missing was removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_maps: Vec<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_only_where_it_is_asked_for() {
        let of = |periodic_refresh, every: Option<&str>| {
            let catalog = Catalog {
                periodic_refresh,
                refresh_interval: every.map(str::to_owned),
                ..Catalog::default()
            };
            catalog.interval().map(|d| d.as_secs())
        };
        assert_eq!(of(false, Some("6h")), None);
        assert_eq!(of(true, None), Some(3_600));
        assert_eq!(of(true, Some("6h")), Some(21_600));
        assert_eq!(of(true, Some("1s")), Some(30));
        assert_eq!(of(true, Some("often")), Some(3_600));
    }
}
