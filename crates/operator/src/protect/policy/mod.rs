//! Policies: they say what is kept, and prune the rest through the same lanes as every deletion.
//!
//! **Promises.** A prune looks only at Snapshots that are not being deleted and that succeeded. The stamp is
//! written with the resourceVersion that was judged, together with its time, one object at a time, each followed
//! by its delete with UID and resourceVersion as preconditions; a conflict drops that object from this pass
//! (`docs/design.md` 3.7). The ids that retention kept travel with it. A policy without `retention` never prunes, and
//! as many as the threshold after an edit, or of adopted ones, wait for a person. Names that no schedule made are
//! recorded before what bears them goes, so that a tool which makes them again causes no new runs.
//!
//! What its snapshots are called in the repository is resolved here, and recorded ([`identity`]).
//!
//! A policy that is being deleted lets its Snapshots go first ([`cleanup`]).
//!
//! **Assumes.** The wave controller tells a fresh stamp from an old one; a live object that carries an old stamp
//! loses it here.

mod act;
mod adoption;
mod cleanup;
mod decide;
pub mod identity;
#[cfg(test)]
mod tests;

use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::world::World;
use crate::world::keys::{LaneKey, ObjectKey, RepositoryKey};
use crate::world::views::SnapshotView;
pub use adoption::is_left_waiting;
pub use decide::{Decision, Facts, completed, counted, decide, is_adopting, keep, kept_now};
use holdfast_api::{SnapshotPolicy, names};
use holdfast_core::deletion::breaker::strictest;
use holdfast_core::identity::Named;
use holdfast_protocol::work::Source;
use identity::Refused;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One pass over one policy.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &ObjectKey) -> Result<Next, Error> {
    let Some(policy) = ctx.world.policy(key) else {
        return Ok(Next::Settled);
    };
    if !ctx.world.is_synced() {
        return Ok(Next::Settled);
    }
    if policy.metadata.deletion_timestamp.is_some() {
        return cleanup::pass(ctx, key, &policy).await;
    }
    if !cleanup::has_finalizer(&policy) {
        cleanup::add_finalizer(ctx, key, &policy).await?;
        // Its own event brings it back.
        return Ok(Next::After(std::time::Duration::from_secs(1)));
    }
    let now = ctx.clock.now();
    let asked = match adoption::look(ctx, key, &policy, now).await {
        // Its own event brings it back.
        Ok(true) => return Ok(Next::After(std::time::Duration::from_secs(1))),
        Ok(false) => true,
        Err(Error::NotLeader) => return Err(Error::NotLeader),
        // Retention does not wait for what only adoption needs.
        Err(error) => {
            tracing::warn!(policy = %key, %error, "what there is to adopt cannot be asked for; retention goes on");
            false
        }
    };
    // It is judged together with what it has: an adoption may have come and gone while it was asked for.
    let Some(policy) = ctx.world.policy(key) else {
        return Ok(Next::Settled);
    };
    if policy.metadata.deletion_timestamp.is_some() {
        return Ok(Next::After(std::time::Duration::from_secs(1)));
    }
    let facts = observe(&ctx.world, key, policy);
    let decision = decide::decide(&facts, now);
    let next = act::carry_out(ctx, key, &facts, decision, now).await?;
    Ok(match next {
        Next::Settled if !asked => Next::After(ASK_AGAIN),
        Next::Settled | Next::Failed | Next::After(_) => next,
    })
}

/// How soon it is asked again for what there is to adopt, when that failed.
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_secs(60);

/// Who and what a snapshot is of: the policy's identity, and the claim (`docs/design.md` 3.7).
#[must_use]
pub fn source_of(named: &Named, claim: &str) -> Source {
    Source {
        username: named.username.clone(),
        hostname: named.hostname.clone(),
        path: identity::path_of(claim),
    }
}

/// What a policy claims in its repository: also what another policy has already, for then neither may take over what
/// belongs to no object. None: it names no claim, or its specs say no name.
#[must_use]
pub fn source(world: &World, key: &ObjectKey, policy: &SnapshotPolicy) -> Option<Source> {
    let claim = policy.spec.sources.first()?.pvc.as_ref()?;
    let named = match identity::of(world, key, policy) {
        Ok(resolved) => resolved.in_force.named().clone(),
        Err(Refused::Taken { by: _, named }) => named,
        Err(Refused::Invalid(_)) => return None,
    };
    Some(source_of(&named, &claim.name))
}

/// What a decision about a policy rests on.
#[must_use]
pub fn observe(world: &World, key: &ObjectKey, policy: Arc<SnapshotPolicy>) -> Facts {
    let repository = policy.spec.repository.as_ref();
    let repository = repository.and_then(|r| crate::world::keys::resolve(r, &key.namespace));
    let snapshots = world.snapshots_of_policy(key);
    Facts {
        identity: identity::of(world, key, &policy),
        repository_exists: repository.as_ref().is_some_and(|k| world.repository(k).is_some()),
        threshold: threshold(world, repository.as_ref(), &snapshots),
        repository,
        snapshots,
        policy,
    }
}

/// The strictest threshold of the lanes that the policy and its Snapshots point to.
fn threshold(world: &World, repository: Option<&RepositoryKey>, snapshots: &[Arc<SnapshotView>]) -> u32 {
    let pins: BTreeSet<RepositoryKey> = snapshots.iter().filter_map(|s| s.pin()).collect();
    let lanes: BTreeSet<LaneKey> = pins
        .iter()
        .chain(repository)
        .map(|key| world.lane_of(key))
        .collect();
    let thresholds = lanes.iter().map(|lane| {
        let objects = world.repositories_of(lane);
        let said = objects
            .iter()
            .map(|r| r.spec.deletion_protection.as_ref()?.threshold);
        Some(strictest(said, names::DEFAULT_THRESHOLD))
    });
    strictest(thresholds, names::DEFAULT_THRESHOLD)
}
