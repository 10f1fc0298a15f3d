//! Restores: which snapshot is looked up once and recorded, then a mover writes it into a claim.
//!
//! **Promises.** Which snapshot it is stands in the status before anything is written, and a retry restores the same.
//! What a restore needs is named in a condition when it is missing, and looked for again. A restore never waits for a
//! wave, a lane, paused deletions or a quota, and runs beside them: its movers only read the repository. A Restore that
//! has ended never runs again, but for one that fills claims: once for each claim. A claim that was made belongs to
//! nobody. What could not be set is in the status.
//!
//! **Assumes.** Nobody else writes to the target meanwhile.

mod access;
mod act;
mod claims;
mod copies;
mod decide;
mod finish;
mod job;
mod observe;
mod report;
mod source;
#[cfg(test)]
mod tests;

use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::world::keys::ObjectKey;

/// One pass over one Restore.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &ObjectKey) -> Result<Next, Error> {
    let Some(view) = ctx.world.restore(key) else {
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
