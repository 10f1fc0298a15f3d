//! Policies: they say what is kept, and prune the rest through the same lanes as every deletion.
//!
//! **Promises.** A prune looks only at Snapshots that are not being deleted and that succeeded. The stamp is
//! written with the resourceVersion that was judged, together with its time, one object at a time, each followed
//! by its delete with UID and resourceVersion as preconditions; a conflict drops that object from this pass
//! (`docs/design.md` 3.7). The ids that retention kept travel with it. A policy without `retention` never prunes.
//!
//! **Assumes.** The wave controller tells a fresh stamp from an old one; a live object that carries an old stamp
//! loses it here.

mod act;
mod decide;
#[cfg(test)]
mod tests;

use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::world::keys::ObjectKey;
pub use decide::kept_now;
use jiff::Timestamp;

/// One pass over one policy.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &ObjectKey) -> Result<Next, Error> {
    let Some(policy) = ctx.world.policy(key) else {
        return Ok(Next::Settled);
    };
    if policy.metadata.deletion_timestamp.is_some() || !ctx.world.is_synced() {
        return Ok(Next::Settled);
    }
    let repository = policy.spec.repository.as_ref();
    let repository = repository.and_then(|r| crate::world::keys::resolve(r, &key.namespace));
    let facts = decide::Facts {
        repository_exists: repository
            .as_ref()
            .is_some_and(|k| ctx.world.repository(k).is_some()),
        repository,
        snapshots: ctx.world.snapshots_of_policy(key),
        policy,
    };
    let now = Timestamp::now();
    let decision = decide::decide(&facts, now);
    act::carry_out(ctx, key, &facts, decision, now).await
}
