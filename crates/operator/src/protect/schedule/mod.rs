//! Schedules: they create Snapshots, one per slot, named by the slot.
//!
//! **Promises.** A slot is recorded before its Snapshot is created, so that a crash in between meets the same
//! name again; the Snapshot's first status (origin, phase Pending) is written by the schedule that made it
//! (`docs/design.md` 3.7). A run that another replaces is ended after that other one exists, and what it has put into
//! the repository stays there. An edit of `onScheduleDelete` reaches the children already made, and the last one also when
//! the schedule is deleted right after it.
//!
//! **Assumes.** Which slot runs is `core::schedule`'s decision.

mod act;
mod cleanup;
mod create;
mod defaults;
mod history;
mod observe;
mod replace;
mod report;

pub use observe::child_name;

use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::world::keys::ObjectKey;
use holdfast_core::schedule::decide;

/// One pass over one schedule.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &ObjectKey) -> Result<Next, Error> {
    let Some(schedule) = ctx.world.schedule(key) else {
        return Ok(Next::Settled);
    };
    if schedule.metadata.deletion_timestamp.is_some() {
        return cleanup::pass(ctx, key).await;
    }
    if !ctx.world.is_synced() {
        return Ok(Next::Settled);
    }
    let meta = &schedule.metadata;
    if !cleanup::has_finalizer(meta.finalizers.as_deref()) {
        let version = meta.resource_version.as_deref().unwrap_or_default();
        cleanup::add_finalizer(ctx, key, meta.finalizers.as_deref(), version).await?;
        // Its own event brings it back.
        return Ok(Next::After(std::time::Duration::from_secs(1)));
    }
    let now = ctx.clock.now();
    let observed = observe::observe(ctx, key, schedule);
    let timetable = match &observed.timetable {
        Ok(timetable) => timetable,
        Err(refused) => return report::refuse(ctx, key, &observed, refused, now).await,
    };
    match decide(&observed.facts, timetable, now) {
        Ok(plan) => act::carry_out(ctx, key, &observed, plan, now).await,
        Err(error) => report::refuse(ctx, key, &observed, &error.to_string(), now).await,
    }
}
