//! What a crash or a person left behind (`docs/design.md` 3.6): memories older than a day, delete Jobs that nobody
//! settles, locks of lanes that are gone or idle, writers that a batch suspended and whose lane is gone.
//!
//! **Promises.** Nothing that may still be needed goes: a Job only a day after it was made and ended, a lock only when
//! its lane has nothing to do and the Job it names does not exist, and only in the version that was looked at. No
//! metric is touched: what is removed here was never an outcome. Nothing is removed beside another manager.
//!
//! **Assumes.** It runs on the leader, once in a while. A lane that has something to do clears its own lock.

use super::{memory, writers};
use crate::context::{Context, Error};
use crate::runtime::write::{self, WriteError};
use crate::world::Dirty;
use crate::world::keys::{LaneKey, ObjectKey};
use crate::world::views::JobView;
use holdfast_api::names;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, PropagationPolicy};
use std::time::Duration;

/// How long after a term began the first look is taken.
pub const FIRST: Duration = Duration::from_secs(10 * 60);
/// And then how often.
pub const EVERY: Duration = Duration::from_secs(3_600);
/// A lock that nobody wrote for so long.
const IDLE: SignedDuration = SignedDuration::from_hours(1);

/// Removes what was left behind.
///
/// # Errors
/// [`Error`].
pub async fn tidy(ctx: &Context, now: Timestamp) -> Result<(), Error> {
    if !ctx.world.is_synced() {
        return Ok(());
    }
    // Ours, and nobody else lets them go on.
    writers::resume_forgotten(ctx).await?;
    if ctx.foreign.alive().is_some() {
        return Ok(());
    }
    memory::forget(ctx, now).await?;
    jobs(ctx, now).await?;
    locks(ctx, now).await?;
    // What was forgotten may have been what a repository waits with.
    let mut lanes = ctx.world.everything();
    lanes.retain(|dirty| matches!(dirty, Dirty::Lane(_)));
    ctx.queues.add(lanes);
    Ok(())
}

fn gone(result: Result<(), WriteError>) -> Result<(), Error> {
    match result {
        Ok(()) | Err(WriteError::Conflict | WriteError::Gone) => Ok(()),
        Err(error @ WriteError::Api(_)) => Err(error.into()),
    }
}

/// A lane settles its Jobs as they end; one that is still there a day after it was made is nobody's.
async fn jobs(ctx: &Context, now: Timestamp) -> Result<(), Error> {
    for job in ctx.world.batch_jobs() {
        let made = job.metadata.creation_timestamp.as_ref();
        let old = made.is_some_and(|t| now.duration_since(t.0) > memory::KEPT);
        if !old || !job.is_terminal() || job.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let key = job.key();
        tracing::info!(job = %key, "a delete Job that ended long ago and that nobody settles is removed");
        let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
        ctx.leadership.guard()?;
        let version = job.metadata.resource_version.as_deref();
        let background = PropagationPolicy::Background;
        gone(write::delete(&api, &key.name, job.uid(), version, background).await)?;
    }
    Ok(())
}

async fn locks(ctx: &Context, now: Timestamp) -> Result<(), Error> {
    let api: Api<Lease> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    let ours = format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY);
    for lease in api.list(&ListParams::default().labels(&ours)).await?.items {
        let meta = &lease.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let of = |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key)).cloned();
        let (true, Some(id)) = (
            name.starts_with(names::LANE_LEASE_PREFIX),
            of(names::DELETE_UNIQUE_ID),
        ) else {
            continue;
        };
        let written = lease.spec.as_ref().and_then(|s| s.renew_time.as_ref());
        let fresh = written.is_none_or(|t| now.duration_since(t.0) <= IDLE);
        // What it remembers of a hold is forgotten by the lane itself, when nothing held is pending; that something is not
        // remembered by a scan.
        let remembers = of(names::LANE_LATCH).is_some() || of(names::LANE_KEPT_INCOMPLETE).is_some();
        if fresh || remembers || busy(ctx, &id) || names_a_job(ctx, of(names::LANE_JOB).as_deref()).await? {
            continue;
        }
        tracing::info!(
            lease = name,
            "the lock of a lane that has nothing to do is removed"
        );
        ctx.leadership.guard()?;
        let (uid, version) = (meta.uid.as_deref(), meta.resource_version.as_deref());
        let background = PropagationPolicy::Background;
        gone(write::delete(&api, &name, uid.unwrap_or_default(), version, background).await)?;
    }
    Ok(())
}

/// Whether a lane has something to do.
fn busy(ctx: &Context, unique_id: &str) -> bool {
    let lane = LaneKey::Physical(unique_id.to_owned());
    let of_lane = |job: &JobView| job.annotation(names::DELETE_UNIQUE_ID) == Some(unique_id);
    !ctx.world.pending(&lane).is_empty()
        || super::again::any(&ctx.world.repositories_of(&lane))
        || ctx.world.batch_jobs().iter().any(|job| of_lane(job))
}

async fn names_a_job(ctx: &Context, named: Option<&str>) -> Result<bool, Error> {
    let Some((namespace, name)) = named.and_then(|named| named.split_once('/')) else {
        return Ok(false);
    };
    let key = ObjectKey::new(namespace, name);
    let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    Ok(api.get_opt(&key.name).await?.is_some())
}
