//! What a listing says of the snapshots that live objects record: whether their records in the repository keep them, and by
//! which id they are known now.
//!
//! **Promises.** A pin of another program reaches the object's status, and retention with it. A snapshot whose record was
//! written anew, as pinning does, is known again by the rule of [`holdfast_core::pins::known_as`] and by nothing less; its
//! object records the new id then. What a pin Job recorded after the listing had begun is newer than the listing.
//!
//! **Assumes.** The listing is whole. Objects that are being deleted are the lane's: the mover finds their snapshots by the
//! same rule.

use super::plan::{Scan, is_row};
use crate::context::{Context, Error};
use crate::protect::snapshot::pins;
use crate::runtime::diff;
use crate::runtime::write::{self, WriteError};
use crate::world::views::SnapshotView;
use holdfast_api::conditions;
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_core::pins::{Found, Recorded, Seen, known_as};
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::Timestamp;
use kube::api::Api;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The live Snapshots of the physical repository of which the listing says something that they do not.
#[must_use]
pub fn of<'a>(scan: &Scan<'a>) -> Vec<(Arc<SnapshotView>, &'a ListedSnapshot)> {
    let by_id: HashMap<&str, &'a ListedSnapshot> = scan
        .listing
        .iter()
        .map(|row| (row.snapshot_id.as_str(), row))
        .collect();
    // Needed where an id is not listed, which is seldom.
    let by_source = OnceCell::new();
    let by_source = || {
        by_source.get_or_init(|| {
            let mut by_source: HashMap<&Source, Vec<&ListedSnapshot>> = HashMap::new();
            for row in scan.listing {
                by_source.entry(&row.source).or_default().push(row);
            }
            by_source
        })
    };
    let objects = || scan.snapshots.iter().filter(|view| !is_row(view));
    let recorded: HashSet<&str> = objects().filter_map(|view| view.snapshot_id()).collect();
    let uids: HashSet<&str> = objects().map(|view| view.uid()).collect();
    objects()
        .filter(|view| may_be_told(view, scan))
        .filter_map(|view| {
            let id = view.snapshot_id()?;
            let listed = match by_id.get(id) {
                Some(listed) => *listed,
                None => {
                    let known = Recorded {
                        uid: view.uid(),
                        id,
                        start: view.status.as_ref()?.timing.as_ref()?.start_time,
                        cluster: scan.adoption.cluster,
                    };
                    let same = by_source().get(&view.source()?)?.iter().map(|row| Found {
                        id: &row.snapshot_id,
                        start: row.start_time,
                        cluster: row.cluster.as_deref(),
                        of: row.snapshot_uid.as_deref().map(|uid| (uid, uids.contains(uid))),
                        recorded: recorded.contains(row.snapshot_id.as_str()),
                    });
                    by_id.get(known_as(&known, same)?)?
                }
            };
            is_news(view, listed).then(|| (Arc::clone(view), listed))
        })
        .collect()
}

/// Whether it is certain that the listing is of its repository, and not older than what it records of its pin.
fn may_be_told(view: &SnapshotView, scan: &Scan<'_>) -> bool {
    view.metadata.deletion_timestamp.is_none()
        && view.phase() == Some(SnapshotPhase::Succeeded)
        && view.pinned_unique_id() == Some(scan.unique_id)
        && is_newer_than_its_pin(view, scan.began)
}

/// Whether a listing that began then is newer than what the object records of its pin, and no pin Job is at work, which
/// gives the snapshot another id.
pub(super) fn is_newer_than_its_pin(view: &SnapshotView, began: Timestamp) -> bool {
    let pin = view.status.as_ref().and_then(|s| s.pin.as_ref());
    pin.is_none_or(|pin| pin.job.is_none() && pin.read_at.is_none_or(|at| at < began))
}

fn is_news(view: &SnapshotView, listed: &ListedSnapshot) -> bool {
    view.snapshot_id() != Some(listed.snapshot_id.as_str()) || pins::seen(view) != told(listed)
}

fn told(listed: &ListedSnapshot) -> Seen {
    Seen {
        pinned: listed.pinned,
        ours: listed.pin_is_ours,
    }
}

/// Records it.
///
/// # Errors
/// [`Error`].
pub async fn record(
    ctx: &Context,
    view: &SnapshotView,
    listed: &ListedSnapshot,
    began: Timestamp,
) -> Result<(), Error> {
    let before = view.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let now = ctx.clock.now();
    if view.snapshot_id() != Some(listed.snapshot_id.as_str()) {
        tracing::info!(
            snapshot = %view.key(), recorded = view.snapshot_id().unwrap_or_default(), now = listed.snapshot_id,
            "the snapshot has another id in the repository, which is recorded now"
        );
    }
    pins::take(
        &mut status,
        &listed.snapshot_id,
        told(listed),
        began,
        view.metadata.generation,
        now,
    );
    if view.is_vanished() {
        conditions::set(
            &mut status.conditions,
            conditions::VANISHED,
            false,
            "Listed",
            "The snapshot is in the repository again, and counts.",
            view.metadata.generation,
            now,
        );
    }
    let Some(patch) = diff::merge_patch(&before, &status) else {
        return Ok(());
    };
    let key = view.key();
    let api: Api<SnapshotView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    ctx.leadership.guard()?;
    match write::patch_status(&api, &key.name, version, patch).await {
        // Changed or gone in between: the next scan looks again.
        Ok(_) | Err(WriteError::Gone | WriteError::Conflict) => Ok(()),
        Err(error @ WriteError::Api(_)) => Err(error.into()),
    }
}
