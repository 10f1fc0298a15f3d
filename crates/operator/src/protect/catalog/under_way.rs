//! While a policy takes over, its retention waits (`docs/design.md` 3.7).
//!
//! **Promises.** It is written on the policy before its first Snapshot is made, and taken off when all of them are there and
//! this process has seen them; with it goes what retention had completed, so that everything that came is judged at
//! once, as after an edit. Where none could be made nothing changes. What a crash leaves behind is taken off by the next scan,
//! and by the policy itself where none comes to its end. While some of it cannot be made, it stays for an hour at most, and
//! whatever retention would prune then waits for a person.

use crate::context::{Context, Error};
use crate::protect::policy;
use crate::runtime::diff;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use holdfast_api::SnapshotPolicy;
use holdfast_api::policy::SnapshotPolicyStatus;
use jiff::Timestamp;
use kube::api::Api;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a status is tried when others write to it.
const ATTEMPTS: usize = 10;

/// Whether a policy is what was judged: the same object and spec, and not being deleted.
#[must_use]
pub fn is_same(judged: &SnapshotPolicy, now: &SnapshotPolicy) -> bool {
    let (judged, now) = (&judged.metadata, &now.metadata);
    judged.uid == now.uid && judged.generation == now.generation && now.deletion_timestamp.is_none()
}

/// Whether retention waits for what is about to be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Began {
    /// From now on.
    Now,
    /// It did already: of what came before, nobody knows how much was made.
    Before,
    /// The policy is not what was judged any more: nothing may be made for it.
    Not,
}

/// How it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// All of it is there.
    Whole,
    /// Some of it could not be made in good time, or that is not known.
    Partial,
    /// None of it was made: retention goes on where it was.
    Nothing,
}

/// Has retention wait.
///
/// # Errors
/// [`Error`]: nothing may be made for this policy then.
pub async fn begin(ctx: &Context, policy: &SnapshotPolicy) -> Result<Began, Error> {
    let at = ctx.clock.now();
    let before = AtomicBool::new(false);
    let wanted = |live: &SnapshotPolicy| is_same(policy, live);
    let is = write(ctx, &ObjectKey::of(policy), wanted, |status| {
        let adoption = status.adoption.get_or_insert_default();
        before.store(adoption.under_way.is_some(), Ordering::Relaxed);
        adoption.under_way.get_or_insert(at);
    })
    .await?;
    Ok(match (is, before.into_inner()) {
        (false, _) => Began::Not,
        (true, true) => Began::Before,
        (true, false) => Began::Now,
    })
}

/// Whether retention has waited for longer than any scan takes.
#[must_use]
pub fn is_too_long(ctx: &Context, key: &ObjectKey) -> bool {
    let policy = ctx.world.policy(key);
    policy.is_some_and(|policy| policy::is_left_waiting(&policy, ctx.clock.now()))
}

/// Has retention go on, and judge everything at once where something came.
///
/// # Errors
/// [`Error`]: it waits on then, and the next scan tries it again.
pub async fn end(ctx: &Context, key: &ObjectKey, ends: Ends) -> Result<(), Error> {
    let at = ctx.clock.now();
    write(ctx, key, |_| true, |status| over(status, ends, at)).await?;
    Ok(())
}

/// The status after it: pure.
fn over(status: &mut SnapshotPolicyStatus, ends: Ends, at: Timestamp) {
    let adoption = status.adoption.get_or_insert_default();
    if adoption.under_way.take().is_none() {
        return;
    }
    adoption.partial = match ends {
        Ends::Nothing => return,
        Ends::Whole => false,
        Ends::Partial => true,
    };
    adoption.last_adopted_at = Some(at);
    if let Some(retention) = &mut status.retention {
        retention.completed_generation = None;
    }
}

async fn write(
    ctx: &Context,
    key: &ObjectKey,
    wanted: impl Fn(&SnapshotPolicy) -> bool,
    change: impl Fn(&mut SnapshotPolicyStatus),
) -> Result<bool, Error> {
    let api: Api<SnapshotPolicy> = Api::namespaced(ctx.client.clone(), &key.namespace);
    for _ in 0..ATTEMPTS {
        let Some(live) = api.get_opt(&key.name).await?.filter(&wanted) else {
            return Ok(false);
        };
        let before = live.status.clone().unwrap_or_default();
        let mut after = before.clone();
        change(&mut after);
        let Some(patch) = diff::merge_patch(&before, &after) else {
            return Ok(true);
        };
        ctx.leadership.guard()?;
        let version = live.metadata.resource_version.as_deref().unwrap_or_default();
        match write::patch_status(&api, &key.name, version, patch).await {
            Ok(_) => return Ok(true),
            Err(WriteError::Conflict) => {}
            Err(WriteError::Gone) => return Ok(false),
            Err(error @ WriteError::Api(_)) => return Err(error.into()),
        }
    }
    Err(Error::Conflict)
}

/// Waits until the world has these with what they record, for retention counts what the world shows. Only for so long: what
/// is not seen by then is left to the next scan.
pub async fn seen(ctx: &Context, made: &[ObjectKey]) -> bool {
    for _ in 0..100 {
        let there = |key: &ObjectKey| {
            let view = ctx.world.snapshot(key);
            view.is_some_and(|view| view.snapshot_id().is_some())
        };
        if made.iter().all(there) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}
