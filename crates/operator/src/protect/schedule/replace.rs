//! Ending the runs that a new one replaces (`concurrencyPolicy: Replace`; `docs/design.md` 3.3 rule 5).
//!
//! **Promises.** The new Snapshot exists before. Each old one is stamped `replaced-run` with the resourceVersion that was
//! judged, so one that has ended meanwhile is not touched; its mover is stopped and its result read by the lane, which
//! deletes nothing of what it left.
//!
//! **Assumes.** One that waits for its repository is never among them.

use super::history::{self, Stamped};
use super::observe::Observed;
use crate::context::{Context, Error};
use crate::world::views::SnapshotView;
use holdfast_api::SnapshotSchedule;
use holdfast_api::snapshot::SnapshotPhase;
use kube::Resource;
use kube::runtime::events::EventType;
use std::sync::Arc;

/// The children among these that have begun, but for the new one.
pub fn begun<'a>(runs: &'a [Arc<SnapshotView>], new: &str) -> impl Iterator<Item = &'a Arc<SnapshotView>> {
    runs.iter().filter(move |run| {
        run.metadata.deletion_timestamp.is_none()
            && run.phase() == Some(SnapshotPhase::Running)
            && run.metadata.name.as_deref() != Some(new)
    })
}

/// Ends the runs among these that have begun.
///
/// # Errors
/// [`Error`]; after a conflict the slot is applied once more.
pub async fn carry_out(
    ctx: &Context,
    observed: &Observed,
    runs: &[Arc<SnapshotView>],
    new: &str,
) -> Result<(), Error> {
    for run in begun(runs, new) {
        if history::stamp_and_delete(ctx, run, "replaced-run").await? == Stamped::Gone {
            continue;
        }
        let note = format!(
            "Snapshot {} was under way and is replaced by {new} (concurrencyPolicy: Replace). What it has put into the repository stays there.",
            run.metadata.name.as_deref().unwrap_or_default()
        );
        let about = SnapshotSchedule::object_ref(&*observed.schedule, &());
        let _ = ctx
            .events
            .publish(&about, EventType::Normal, "ReplacedActiveRun", &note, "Replace")
            .await;
    }
    Ok(())
}
