//! Snapshots that are not being deleted: each is run once by a mover Job, and its result recorded.
//!
//! **Promises.** The finalizer is on the object before any work starts. What a run is pinned to is recorded
//! before its Job is created. A terminal Snapshot never creates another Job. A Snapshot that lost its status is
//! not run (`StatusLost`). What is missing is named in a condition and looked for again.
//!
//! **Assumes.** Deleting Snapshots belong to the wave controller; it calls [`result::record`] and
//! [`result::stop`] for a mover that still runs.

mod act;
mod allowed;
mod copies;
mod decide;
mod observe;
pub mod pins;
pub mod result;
#[cfg(test)]
mod tests;
mod vanished;

pub use allowed::allows;
pub use vanished::mark as mark_vanished;

use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::world::keys::ObjectKey;

/// One pass over one Snapshot.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &ObjectKey) -> Result<Next, Error> {
    let Some(view) = ctx.world.snapshot(key) else {
        return Ok(Next::Settled);
    };
    if view.metadata.deletion_timestamp.is_some() || !ctx.world.is_synced() {
        return Ok(Next::Settled);
    }
    let now = ctx.clock.now();
    let facts = observe::facts(ctx, view).await?;
    let step = decide::decide(&facts, now);
    act::carry_out(ctx, &facts, step, now).await
}
