//! Failed runs beyond `failedJobsHistoryLimit` (`docs/design.md` 3.3 rule 5, 3.7).
//!
//! **Promises.** Each is stamped with the resourceVersion that was judged and deleted with it as a precondition, as
//! retention does; the newest failures stay.
//!
//! **Assumes.** A run that failed has reached its end.

use crate::context::{Context, Error};
use crate::runtime::write::{self, WriteError};
use crate::world::views::SnapshotView;
use holdfast_api::names;
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_core::retention::history::{FailedRun, beyond_limit};
use jiff::Timestamp;
use kube::api::{Api, PropagationPolicy};
use serde_json::json;
use std::sync::Arc;

/// The children that go, oldest first.
#[must_use]
pub fn beyond(children: &[Arc<SnapshotView>], limit: Option<u32>) -> Vec<Arc<SnapshotView>> {
    let failed = |child: &&Arc<SnapshotView>| {
        child.phase() == Some(SnapshotPhase::Failed) && child.metadata.deletion_timestamp.is_none()
    };
    let runs: Vec<FailedRun> = children
        .iter()
        .filter(failed)
        .map(|child| {
            let timing = child.status.as_ref().and_then(|s| s.timing.as_ref());
            let created = child.metadata.creation_timestamp.as_ref().map(|t| t.0);
            FailedRun {
                uid: child.uid().to_owned(),
                // One without any time is the last to go.
                at: timing
                    .and_then(|t| t.end_time)
                    .or(created)
                    .unwrap_or(Timestamp::MAX),
            }
        })
        .collect();
    let uids = beyond_limit(&runs, limit);
    let of = |uid: &String| children.iter().find(|child| child.uid() == uid).cloned();
    uids.iter().filter_map(of).collect()
}

/// Stamps and deletes them.
///
/// # Errors
/// [`Error`]; a conflict on one brings the schedule back by that one's own event, and one that is refused is tried
/// again by the next pass.
pub async fn prune(ctx: &Context, runs: &[Arc<SnapshotView>]) -> Result<(), Error> {
    for run in runs {
        match one(ctx, run).await {
            Ok(()) | Err(Error::Conflict) => {}
            Err(error) if error.is_refusal() => {
                tracing::warn!(snapshot = %run.key(), %error, "a failed run cannot be pruned; going on with the others");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn one(ctx: &Context, run: &SnapshotView) -> Result<(), Error> {
    stamp_and_delete(ctx, run, "failed-history").await.map(drop)
}

/// What became of a Snapshot that was to be stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamped {
    /// It is, and it is being deleted.
    Yes,
    /// It was gone.
    Gone,
}

/// Stamps a Snapshot with the resourceVersion that was judged, then deletes it with the stamped one as a precondition.
///
/// # Errors
/// [`Error::Conflict`] when it changed since it was judged.
pub async fn stamp_and_delete(ctx: &Context, run: &SnapshotView, by: &str) -> Result<Stamped, Error> {
    let key = run.key();
    let api: Api<SnapshotView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = run.metadata.resource_version.as_deref().unwrap_or_default();
    let stamp = json!({ "metadata": { "annotations": {
        names::PRUNED_BY: by,
        names::PRUNED_AT: ctx.clock.now().to_string(),
        names::PRUNED_KEPT: null,
    } } });
    ctx.leadership.guard()?;
    let stamped = match write::patch(&api, &key.name, version, stamp).await {
        Ok(stamped) => stamped,
        Err(WriteError::Gone) => return Ok(Stamped::Gone),
        Err(error @ (WriteError::Conflict | WriteError::Api(_))) => return Err(error.into()),
    };
    let version = stamped.metadata.resource_version.as_deref();
    ctx.leadership.guard()?;
    write::delete(&api, &key.name, run.uid(), version, PropagationPolicy::Background).await?;
    Ok(Stamped::Yes)
}
