//! Repositories: connected or created once, by a bootstrap Job, and looked at again when that is called for.
//!
//! **Promises.** A repository is never created again once a unique id was recorded. Whatever is missing is named
//! in a condition and looked for again without a restart. The password is never read beyond the question
//! whether it is there.
//!
//! **Assumes.** The breaker's part of the status belongs to the wave controller; both write against the
//! resourceVersion they judged.

mod act;
mod decide;
mod health;
mod observe;
mod report;

pub use act::access;
pub use health::ask;
pub use report::patch_status;
#[cfg(test)]
mod tests;

use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::world::keys::RepositoryKey;

/// One pass over one repository object.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &RepositoryKey) -> Result<Next, Error> {
    if !ctx.world.is_synced() {
        return Ok(Next::Settled);
    }
    let Some(view) = ctx.world.repository(key) else {
        ctx.metrics.forget_repository(key.into(), key.name());
        return Ok(Next::Settled);
    };
    let facts = observe::facts(ctx, view).await?;
    ctx.metrics
        .maintenance_configured(key.into(), key.name(), facts.maintenance.is_some());
    let now = ctx.clock.now();
    let step = decide::decide(&facts, now);
    act::carry_out(ctx, &facts, step, now).await
}
