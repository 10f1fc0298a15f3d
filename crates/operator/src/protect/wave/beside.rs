//! A lane beside another manager of the API group: nothing is decided (`docs/design.md` 3.8).
//!
//! **Promises.** Each pending Snapshot is told once for each appearance of the other manager. Backups that a batch of
//! ours suspended go on when none is live. Nothing else is written, no lock is taken, no delete Job is looked after.

use super::{Live, facts_of, member, settings, writers};
use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::world::keys::LaneKey;
use holdfast_core::deletion::messages::waiting;
use holdfast_core::deletion::wave;
use jiff::Timestamp;
use std::time::Duration;

/// How soon it is looked again when nobody says that the other one is gone.
const AGAIN: Duration = Duration::from_secs(60);

/// One pass; `who` says what was seen.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &LaneKey, who: &str, now: Timestamp) -> Result<Next, Error> {
    // They are ours, and nobody else lets them go on.
    let mut left = writers::resume_beside(ctx, key).await?;
    left |= writers::forget_suspended(ctx, key).await?;
    let mut observed = facts_of(ctx, key, &Live::default());
    if observed.views.is_empty() {
        return Ok(if left { Next::After(AGAIN) } else { Next::Settled });
    }
    observed.lane.foreign_manager = true;
    let plan = wave(&observed.lane, &settings(ctx), now);
    for decision in &plan.decisions {
        let (Some(view), Some(wait)) = (observed.views.get(&decision.uid), decision.waits_for()) else {
            continue;
        };
        if ctx.foreign.tells(&decision.uid) {
            let message = format!("{} ({who})", waiting(wait));
            let status = member::blocked(view, wait.reason(), &message, now);
            member::write(ctx, view, &status).await?;
        }
    }
    Ok(Next::After(AGAIN))
}
