//! Who else writes to a repository (`docs/design.md` 3.6, "The repository to itself"): facts for
//! [`holdfast_core::deletion::silence`], and the question that a writer asks before it begins.
//!
//! **Promises.** Only for engines whose deletions need silence: nothing is read for the others. What a batch or a
//! writer rests on is read live, under the gate of the repository, so that neither is let through beside the other.
//!
//! **Assumes.** A backup Job carries the annotation that names the repository it writes to.

use super::lease::{self, Lock};
use crate::context::{Context, Error};
use crate::world::keys::{LaneKey, ObjectKey};
use crate::world::views::{JobView, RepositoryView, SnapshotView};
use holdfast_api::repository::Engine;
use holdfast_api::{conditions, names};
use holdfast_core::deletion::silence::{Begin, Writers, begin};
use kube::api::{Api, ListParams};
use std::sync::Arc;

/// Reason of the conditions of a run that a batch holds back.
pub const HELD_BACK: &str = "DeletionsRunning";

/// Whether deletions from this repository need silence, as its engine says (`Engine::deletes_need_silence`).
#[must_use]
pub fn needs_silence(ctx: &Context, view: &RepositoryView) -> bool {
    let engine = match view.spec.engine {
        // What a newer release knows may mind.
        Engine::Kopia | Engine::Unknown => true,
        Engine::Restic => false,
    };
    engine || ctx.settings.needs_silence
}

/// The unique id of a lane whose engine minds.
#[must_use]
pub fn minds(ctx: &Context, key: &LaneKey) -> Option<String> {
    match key {
        LaneKey::Physical(id) => {
            let objects = ctx.world.repositories_of(key);
            objects
                .iter()
                .any(|view| needs_silence(ctx, view))
                .then(|| id.clone())
        }
        LaneKey::Unconnected(_) | LaneKey::Unresolved => None,
    }
}

fn writes_to(job: &JobView, unique_id: &str) -> bool {
    job.annotation(names::WRITES_TO) == Some(unique_id) && !job.is_terminal() && !job.is_stopped()
}

/// What the world knows of the writers of a lane; none where its engine does not mind.
#[must_use]
pub fn known(ctx: &Context, key: &LaneKey, lock: Option<&Lock>) -> Option<Writers> {
    let unique_id = minds(ctx, key)?;
    let running = ctx.world.jobs(|job| writes_to(job, &unique_id)).len();
    Some(told(ctx, key, lock, running))
}

/// The same, with the Jobs read live.
///
/// # Errors
/// [`Error`].
pub async fn live(ctx: &Context, key: &LaneKey, lock: &Lock) -> Result<Option<Writers>, Error> {
    let Some(unique_id) = minds(ctx, key) else {
        return Ok(None);
    };
    let api: Api<JobView> = Api::all(ctx.client.clone());
    let labels = format!("{}={}", names::OP_LABEL, names::OP_BACKUP);
    let jobs = api.list(&ListParams::default().labels(&labels)).await?;
    let running = jobs.items.iter().filter(|job| writes_to(job, &unique_id)).count();
    Ok(Some(told(ctx, key, Some(lock), running)))
}

fn told(ctx: &Context, key: &LaneKey, lock: Option<&Lock>, running: usize) -> Writers {
    Writers {
        running,
        queued: held_back(ctx, key).len(),
        waiting_since: lock.and_then(Lock::waiting_since),
        batch_ended: lock.and_then(Lock::batch_ended),
    }
}

/// Runs of a lane that a batch held back and that have no Job yet.
#[must_use]
pub fn held_back(ctx: &Context, key: &LaneKey) -> Vec<Arc<SnapshotView>> {
    let mut runs = ctx.world.unfinished_of(key);
    runs.retain(|view| {
        let list = view.status.as_ref().map(|s| s.conditions.as_slice());
        let said = conditions::get(list.unwrap_or_default(), conditions::READY);
        said.is_some_and(|c| c.reason == HELD_BACK) && ctx.world.jobs_of(view.uid()).is_empty()
    });
    runs
}

/// A writer asks whether it may begin. The caller holds the gate of the repository.
///
/// # Errors
/// [`Error`].
pub async fn may_begin(ctx: &Context, view: &RepositoryView) -> Result<Begin, Error> {
    let (true, Some(unique_id)) = (needs_silence(ctx, view), view.unique_id()) else {
        return Ok(begin(false, false));
    };
    let of_lane = |job: &JobView| job.annotation(names::DELETE_UNIQUE_ID) == Some(unique_id);
    let seen = ctx.world.batch_jobs();
    let mut live = seen.iter().any(|job| of_lane(job) && !job.is_terminal());
    // Created a moment ago, perhaps by the leader before: the lock says so before the watch does.
    if let (false, Some(ObjectKey { namespace, name })) = (live, lease::named(ctx, unique_id).await?) {
        let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &namespace);
        live = api.get_opt(&name).await?.is_some_and(|job| !job.is_terminal());
    }
    Ok(begin(true, live))
}

/// A batch has ended: what it held back looks again.
pub fn wake(ctx: &Context, key: &LaneKey) {
    if minds(ctx, key).is_some() {
        for run in held_back(ctx, key) {
            ctx.queues.snapshots.add(run.key());
        }
    }
}
