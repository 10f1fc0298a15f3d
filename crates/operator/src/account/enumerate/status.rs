//! What a BackupStore says of its listings.
//!
//! **Promises.** Each write rests on the object as it was just read; what a newer version wrote stays. A listing that
//! failed changes nothing of what the last complete one found.

use super::reason::{StoreReason, Trouble};
use crate::account::Account;
use crate::context::Error;
use crate::runtime::write::WriteError;
use crate::runtime::{diff, write};
use holdfast_api::conditions::{self, Kstatus};
use holdfast_api::ledger::{
    ApprovedRelease, BackupStore, BackupStoreStatus, CompleteListing, ListingProgress, PendingRelease,
    UnaccountedBytes, UnaccountedElsewhere,
};
use holdfast_core::quota::enumerate::{Complete, Held, Sum};
use jiff::Timestamp;
use kube::Api;
use std::collections::BTreeMap;

/// Condition: the bucket keeps old versions, which listings do not see.
pub const VERSIONED: &str = "Versioned";
/// Namespaces whose unexplained bytes are told.
const TOLD: usize = 100;
/// Longest error that is told, in characters.
const LONGEST: usize = 1024;

/// Changes the status of a store, against the version that is read now. Answers the object as it is then.
///
/// # Errors
/// [`Error`]; [`Error::Conflict`] when it is gone or changes all the time.
pub async fn tell(
    account: &Account,
    name: &str,
    change: impl Fn(&mut BackupStoreStatus, Option<i64>),
) -> Result<BackupStore, Error> {
    let api: Api<BackupStore> = Api::all(account.client.clone());
    for _ in 0..5 {
        let object = api.get(name).await?;
        let before = object.status.clone().unwrap_or_default();
        let mut after = before.clone();
        change(&mut after, object.metadata.generation);
        let Some(patch) = diff::merge_patch(&before, &after) else {
            return Ok(object);
        };
        account.leadership.guard()?;
        let version = object.metadata.resource_version.as_deref().unwrap_or_default();
        match write::patch_status(&api, name, version, patch).await {
            Ok(written) => return Ok(written),
            Err(WriteError::Conflict) => {}
            Err(error @ (WriteError::Gone | WriteError::Api(_))) => return Err(error.into()),
        }
    }
    Err(Error::Conflict)
}

fn ready(
    status: &mut BackupStoreStatus,
    is_ready: bool,
    reason: StoreReason,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let kin = Kstatus {
        ready: is_ready,
        reconciling: false,
        stalled: matches!(reason, StoreReason::BadSpec),
    };
    kin.set(&mut status.conditions, reason.as_str(), message, generation, now);
    status.observed_generation = generation;
}

/// No listings, because the spec says so.
pub fn suspended(status: &mut BackupStoreStatus, generation: Option<i64>, now: Timestamp) {
    status.next_listing_at = None;
    status.progress = None;
    let message = "spec.suspend is true: the store is not listed, and what listings found before stands";
    ready(status, false, StoreReason::Suspended, message, generation, now);
}

/// How far a listing is.
pub fn under_way(status: &mut BackupStoreStatus, started_at: Timestamp, last_key: Option<&str>, sum: Sum) {
    status.progress = Some(ListingProgress {
        started_at,
        last_key: last_key.map(str::to_owned),
        objects: sum.objects,
        bytes: sum.bytes,
    });
}

/// An attempt did not reach the end.
pub fn failed(status: &mut BackupStoreStatus, trouble: &Trouble, generation: Option<i64>, now: Timestamp) {
    let message: String = trouble.message.chars().take(LONGEST).collect();
    status.failures = status.failures.saturating_add(1);
    status.last_attempt_at = Some(now);
    let sentence = format!("{message}. Nothing was concluded from it; it is tried again");
    ready(status, false, trouble.reason, &sentence, generation, now);
    status.last_error = Some(message);
}

/// A listing reached the end and what it led to is written.
pub fn complete(
    status: &mut BackupStoreStatus,
    listing: &Complete,
    held: Option<&Held>,
    versioned: Option<bool>,
    generation: Option<i64>,
    now: Timestamp,
) {
    status.failures = 0;
    status.last_error = None;
    status.progress = None;
    status.last_attempt_at = Some(now);
    status.last_complete_listing = Some(CompleteListing {
        started_at: listing.started_at,
        completed_at: listing.completed_at,
        objects: listing.all.objects,
        bytes: listing.all.bytes,
    });
    (status.unaccounted, status.unaccounted_elsewhere) =
        largest(&listing.unaccounted, listing.unaccounted_elsewhere);
    // Not knowing is not knowing it any more.
    status.versioned = versioned;
    match versioned {
        None => _ = conditions::clear(&mut status.conditions, VERSIONED),
        Some(yes) => {
            let (reason, message) = if yes {
                (
                    "VersionsKept",
                    "the bucket keeps, or has kept, old versions: they occupy space that listings do not see and nobody is charged for",
                )
            } else {
                ("NoVersions", "the bucket keeps no old versions")
            };
            conditions::set(
                &mut status.conditions,
                VERSIONED,
                yes,
                reason,
                message,
                generation,
                now,
            );
        }
    }
    waiting(status, held, now);
    stands(status, generation, now);
}

/// What waits for an administrator.
pub fn waiting(status: &mut BackupStoreStatus, held: Option<&Held>, now: Timestamp) {
    let before = status.pending_release.take();
    status.pending_release = held.map(|held| PendingRelease {
        since: before
            .filter(|before| before.token == held.token)
            .map_or(now, |before| before.since),
        token: held.token.clone(),
        records: u32::try_from(held.names.len()).unwrap_or(u32::MAX),
        bytes: held.bytes,
        reason: held.reason.as_str().to_owned(),
    });
}

/// A release was approved and carried out.
pub fn approved(
    status: &mut BackupStoreStatus,
    token: &str,
    held: Option<&Held>,
    generation: Option<i64>,
    now: Timestamp,
) {
    status.approved_release = Some(ApprovedRelease {
        token: token.to_owned(),
        at: now,
    });
    waiting(status, held, now);
    if status.failures == 0 && status.last_complete_listing.is_some() {
        stands(status, generation, now);
    }
}

fn stands(status: &mut BackupStoreStatus, generation: Option<i64>, now: Timestamp) {
    let (reason, message) = match &status.pending_release {
        Some(pending) => (
            StoreReason::ReleaseWaits,
            format!(
                "two complete listings did not have {} records with {} bytes ({}): they stay charged until an administrator approves with `kubectl holdfast quota approve`, or the store's description is corrected",
                pending.records, pending.bytes, pending.reason
            ),
        ),
        None => (
            StoreReason::Listed,
            "the last listing reached the end, and what it led to is recorded".to_owned(),
        ),
    };
    ready(status, true, reason, &message, generation, now);
}

/// The largest first, of equal ones by name, and the sum of those that are not named.
fn largest(
    all: &BTreeMap<String, Sum>,
    elsewhere: Sum,
) -> (Vec<UnaccountedBytes>, Option<UnaccountedElsewhere>) {
    let mut told: Vec<UnaccountedBytes> = all
        .iter()
        .map(|(namespace, sum)| UnaccountedBytes {
            namespace: namespace.clone(),
            objects: sum.objects,
            bytes: sum.bytes,
        })
        .collect();
    told.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.namespace.cmp(&b.namespace)));
    let mut rest = UnaccountedElsewhere {
        objects: elsewhere.objects,
        bytes: elsewhere.bytes,
    };
    for part in told.iter().skip(TOLD) {
        rest.objects = rest.objects.saturating_add(part.objects);
        rest.bytes = rest.bytes.saturating_add(part.bytes);
    }
    told.truncate(TOLD);
    (told, (rest.objects > 0).then_some(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(count: i64) -> BTreeMap<String, Sum> {
        let sum = |bytes| Sum { objects: 1, bytes };
        (1..=count).map(|n| (format!("tenant-{n:04}"), sum(n))).collect()
    }

    #[test]
    fn the_largest_hundred_are_named_and_the_others_are_a_sum_and_not_nothing() {
        let (told, rest) = largest(&parts(100), Sum::default());
        assert_eq!((told.len(), rest), (100, None), "every one is named");
        let (told, rest) = largest(
            &parts(103),
            Sum {
                objects: 5,
                bytes: 50,
            },
        );
        assert_eq!((told.len(), told[0].bytes), (100, 103));
        assert_eq!(
            rest,
            Some(UnaccountedElsewhere {
                objects: 8,
                bytes: 1 + 2 + 3 + 50
            })
        );
    }
}
