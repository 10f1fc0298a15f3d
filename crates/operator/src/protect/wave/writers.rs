//! Who else writes to a repository (`docs/design.md` 3.6, "The repository to itself"): facts for
//! [`holdfast_core::deletion::silence`], and the question that a writer asks before it begins.
//!
//! **Promises.** Only for engines whose deletions need silence: nothing is read for the others. What a batch or a
//! writer rests on is read live, under the gate of the repository, so that neither is let through beside the other. A
//! writer that has a Job and has not started is suspended right before a batch fires; its Job says so, and whoever finds
//! it when no batch is live resumes it, also after a crash.
//!
//! **Assumes.** A backup Job carries the annotation that names the repository it writes to. The Job controller says when
//! no pod of a suspended Job is left.

use super::facts;
use super::lease::{self, Lock, Says};
use crate::context::{Context, Error};
use crate::jobs::outcome;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::{LaneKey, ObjectKey};
use crate::world::views::{JobView, RepositoryView, SnapshotView};
use holdfast_api::repository::Engine;
use holdfast_api::{conditions, names};
use holdfast_core::deletion::silence::{self, Begin, Turn, Writers, begin};
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Reason of the conditions of a run that a batch holds back.
pub const HELD_BACK: &str = "DeletionsRunning";

/// How often it is asked whether a suspended writer has stopped, and at what pace, before the batch is put off.
const LOOKS: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Whether deletions from this repository need silence, as its engine says (`Engine::deletes_need_silence`).
#[must_use]
pub fn needs_silence(ctx: &Context, view: &RepositoryView) -> bool {
    engine_needs_silence(view.spec.engine) || ctx.settings.needs_silence
}

/// What the engines themselves say, which only the mover carries; a test holds the two together.
fn engine_needs_silence(engine: Engine) -> bool {
    match engine {
        // What a newer release knows may mind.
        Engine::Kopia | Engine::Unknown => true,
        Engine::Restic => false,
    }
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
    job.annotation(names::WRITES_TO) == Some(unique_id) && !job.is_terminal()
}

/// The backup Jobs of a physical repository that have not ended.
#[derive(Default)]
struct Jobs {
    /// A container of them may have started; those that are being stopped are among them until no pod is left.
    running: Vec<Arc<JobView>>,
    /// No container has.
    not_started: Vec<Arc<JobView>>,
    /// A batch suspended them, and no pod is left.
    suspended: usize,
}

/// Sorts them. Pods are only asked for where the counters do not tell: none or one that waits.
async fn sorted(ctx: &Context, jobs: Vec<Arc<JobView>>) -> Result<Jobs, Error> {
    let mut sorted = Jobs::default();
    for job in jobs {
        if job.is_stopped() {
            sorted.suspended += usize::from(job.is_suspended_for_batch());
        } else if job.spec.suspend == Some(true) || may_have_started(ctx, &job).await? {
            sorted.running.push(job);
        } else {
            sorted.not_started.push(job);
        }
    }
    Ok(sorted)
}

async fn may_have_started(ctx: &Context, job: &JobView) -> Result<bool, Error> {
    let status = job.status.clone().unwrap_or_default();
    if status.ready > 0 || status.failed > 0 || status.succeeded > 0 {
        return Ok(true);
    }
    let pods = outcome::pods(&ctx.client, job).await?;
    Ok(facts::started(job, &pods))
}

/// What is known of the writers of a lane, as the world has their Jobs; none where its engine does not mind.
///
/// # Errors
/// [`Error`].
pub async fn known(ctx: &Context, key: &LaneKey, lock: Option<&Lock>) -> Result<Option<Writers>, Error> {
    let Some(unique_id) = minds(ctx, key) else {
        return Ok(None);
    };
    let jobs = sorted(ctx, ctx.world.jobs(|job| writes_to(job, &unique_id))).await?;
    Ok(Some(told(ctx, key, lock, &jobs)))
}

async fn listed(ctx: &Context, unique_id: &str) -> Result<Vec<Arc<JobView>>, Error> {
    let api: Api<JobView> = Api::all(ctx.client.clone());
    let labels = format!("{}={}", names::OP_LABEL, names::OP_BACKUP);
    let jobs = api.list(&ListParams::default().labels(&labels)).await?.items;
    Ok(jobs
        .into_iter()
        .filter(|job| writes_to(job, unique_id))
        .map(Arc::new)
        .collect())
}

/// The same, with the Jobs read live.
///
/// # Errors
/// [`Error`].
pub async fn live(ctx: &Context, key: &LaneKey, lock: &Lock) -> Result<Option<Writers>, Error> {
    let Some(unique_id) = minds(ctx, key) else {
        return Ok(None);
    };
    let jobs = sorted(ctx, listed(ctx, &unique_id).await?).await?;
    Ok(Some(told(ctx, key, Some(lock), &jobs)))
}

fn told(ctx: &Context, key: &LaneKey, lock: Option<&Lock>, jobs: &Jobs) -> Writers {
    Writers {
        running: jobs.running.len(),
        not_started: jobs.not_started.len(),
        suspended: jobs.suspended,
        queued: held_back(ctx, key).len(),
        waiting_since: lock.and_then(Lock::waiting_since),
        batch_ended: lock.and_then(Lock::batch_ended),
    }
}

/// Writers that run beside a batch that has ended, live: UIDs of their Jobs. None where the engine does not mind.
///
/// # Errors
/// [`Error`].
pub async fn beside(ctx: &Context, key: &LaneKey) -> Result<Vec<String>, Error> {
    let Some(unique_id) = minds(ctx, key) else {
        return Ok(Vec::new());
    };
    let mut jobs = listed(ctx, &unique_id).await?;
    jobs.retain(|job| !job.is_stopped());
    Ok(jobs.iter().map(|job| job.uid().to_owned()).collect())
}

/// Right before a batch fires: the writers of which no container has started are suspended. Answers whether the batch may
/// go on: nobody is left that writes or still could start, or it runs beside writers in any case. Where it may not, it
/// is recorded that it waits, so that a writer that cannot be suspended is waited for as one that runs. The caller holds
/// the gate of the repository.
///
/// # Errors
/// [`Error`].
pub async fn suspend(
    ctx: &Context,
    key: &LaneKey,
    lock: &Lock,
    writers: Option<&Writers>,
    now: Timestamp,
) -> Result<bool, Error> {
    let (Some(writers), Some(unique_id)) = (writers, minds(ctx, key)) else {
        return Ok(true);
    };
    if writers.not_started == 0 {
        return Ok(true);
    }
    let there = sorted(ctx, listed(ctx, &unique_id).await?).await?;
    // A container may have started since the plan was made.
    let mut running = there.running.len();
    if !goes_on(ctx, lock, writers, running, now).await? {
        return Ok(false);
    }
    let mut left = there.not_started;
    for job in &left {
        let on = json!({
            "metadata": { "annotations": { names::SUSPENDED_AT: now.to_string() } },
            "spec": { "suspend": true },
        });
        tracing::info!(lane = %key, job = %job.key(), "a backup Job that has not started waits for a delete Job");
        running += usize::from(!changed(ctx, job, on).await?);
    }
    if running > there.running.len() && !goes_on(ctx, lock, writers, running, now).await? {
        // Nothing is gained by waiting for the others to stop.
        return Ok(false);
    }
    for _ in 0..LOOKS {
        let mut still = Vec::new();
        for job in left {
            let key = job.key();
            let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &key.namespace);
            let found = api.get_opt(&key.name).await?;
            still.extend(
                found
                    .filter(|found| found.uid() == job.uid() && !found.is_terminal() && !found.is_stopped())
                    .map(Arc::new),
            );
        }
        left = still;
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    // The suspension ends the pod of one whose container started in between. Until none is left it counts as one that runs.
    goes_on(ctx, lock, writers, running.max(left.len()), now).await
}

/// Whether a batch goes on although so many writers run after all; since when it waits is recorded where it does not.
async fn goes_on(
    ctx: &Context,
    lock: &Lock,
    writers: &Writers,
    running: usize,
    now: Timestamp,
) -> Result<bool, Error> {
    let writers = Writers {
        running,
        ..writers.clone()
    };
    if running == 0 || matches!(silence::turn(&writers, now), Turn::BesideWriters) {
        return Ok(true);
    }
    if lock.waiting_since().is_none() {
        lease::write(ctx, lock, Says::Waits(Some(now)), now).await?;
    }
    Ok(false)
}

/// No batch is live and none is about to fire: what one suspended goes on. Not one that is still being stopped while the
/// next batch waits for it: it would never end. Answers whether a Job could not be changed; the others go on.
///
/// # Errors
/// [`Error`].
pub async fn resume(ctx: &Context, key: &LaneKey, lock: Option<&Lock>) -> Result<bool, Error> {
    let mut refused = false;
    if let Some(unique_id) = minds(ctx, key) {
        let waits = lock.is_some_and(|lock| lock.waiting_since().is_some());
        let suspended = |job: &JobView| writes_to(job, &unique_id) && job.is_suspended_for_batch();
        for job in ctx.world.jobs(suspended) {
            if !waits || job.is_stopped() {
                refused |= !go_on(ctx, &job).await?;
            }
        }
    }
    Ok(refused)
}

/// The same beside another manager, where no batch of ours may be begun but one may still be live. Answers whether one
/// is left to look at again.
///
/// # Errors
/// [`Error`].
pub async fn resume_beside(ctx: &Context, key: &LaneKey) -> Result<bool, Error> {
    let Some(unique_id) = minds(ctx, key) else {
        return Ok(false);
    };
    let suspended = |job: &JobView| writes_to(job, &unique_id) && job.is_suspended_for_batch();
    if ctx.world.jobs(suspended).is_empty() {
        return Ok(false);
    }
    let gate = ctx.gates.lane(&unique_id);
    let _gate = gate.lock().await;
    if !silence::go_on(batch_is_live(ctx, &unique_id).await?, false) {
        return Ok(true);
    }
    resume(ctx, key, None).await
}

/// What a person let go on is not a batch's any more, so that nobody resumes what they suspend later. Answers whether a
/// Job could not be changed.
///
/// # Errors
/// [`Error`].
pub async fn forget_suspended(ctx: &Context, key: &LaneKey) -> Result<bool, Error> {
    let mut refused = false;
    if let Some(unique_id) = minds(ctx, key) {
        for job in ctx.world.jobs(|job| writes_to(job, &unique_id)) {
            refused |= !let_go(ctx, &job).await?;
        }
    }
    Ok(refused)
}

/// The same for one Job. Answers whether nothing is left to be done.
///
/// # Errors
/// [`Error`].
pub async fn let_go(ctx: &Context, job: &JobView) -> Result<bool, Error> {
    if job.spec.suspend == Some(true) || job.annotation(names::SUSPENDED_AT).is_none() {
        return Ok(true);
    }
    let off = json!({ "metadata": { "annotations": { names::SUSPENDED_AT: null } } });
    changed(ctx, job, off).await
}

/// The same for repositories that have no object any more, so that no lane looks after their writers.
///
/// # Errors
/// [`Error`].
pub async fn resume_forgotten(ctx: &Context) -> Result<(), Error> {
    for job in ctx
        .world
        .jobs(|job| job.is_suspended_for_batch() && !job.is_terminal())
    {
        let unique_id = job.annotation(names::WRITES_TO).unwrap_or_default();
        if minds(ctx, &LaneKey::Physical(unique_id.to_owned())).is_some() {
            continue;
        }
        let gate = ctx.gates.lane(unique_id);
        let _gate = gate.lock().await;
        if silence::go_on(batch_is_live(ctx, unique_id).await?, false) {
            go_on(ctx, &job).await?;
        }
    }
    Ok(())
}

async fn go_on(ctx: &Context, job: &JobView) -> Result<bool, Error> {
    let run = ObjectKey::new(
        job.key().namespace,
        job.annotation(names::WORKS_FOR).unwrap_or_default(),
    );
    let deleting = ctx
        .world
        .snapshot(&run)
        .is_some_and(|view| view.metadata.deletion_timestamp.is_some());
    if deleting {
        // Its own deletion stops it for good.
        return Ok(true);
    }
    tracing::info!(job = %job.key(), "a backup Job that waited for a delete Job goes on");
    let off = json!({
        "metadata": { "annotations": { names::SUSPENDED_AT: null } },
        "spec": { "suspend": false },
    });
    changed(ctx, job, off).await
}

/// Changes a Job as it was judged. Answers whether that was done: what is refused for one Job keeps no other waiting.
async fn changed(ctx: &Context, job: &JobView, patch: Value) -> Result<bool, Error> {
    let key = job.key();
    let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = job.metadata.resource_version.as_deref().unwrap_or_default();
    ctx.leadership.guard()?;
    match write::patch(&api, &key.name, version, patch).await {
        Ok(_) | Err(WriteError::Gone) => Ok(true),
        // It is judged again as it is now.
        Err(WriteError::Conflict) => Ok(false),
        Err(WriteError::Api(error)) => {
            tracing::warn!(job = %key, %error, "a backup Job could not be suspended or resumed; trying again");
            Ok(false)
        }
    }
}

/// Runs of a lane that a batch held back and that have no Job yet.
#[must_use]
pub fn held_back(ctx: &Context, key: &LaneKey) -> Vec<Arc<SnapshotView>> {
    let mut runs = ctx.world.unfinished_of(key);
    runs.retain(|view| {
        let list = view.status.as_ref().map(|s| s.conditions.as_slice());
        let said = conditions::get(list.unwrap_or_default(), conditions::READY);
        said.is_some_and(|c| c.reason == HELD_BACK) && ctx.world.jobs_of_snapshot(view).is_empty()
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
    Ok(begin(true, batch_is_live(ctx, unique_id).await?))
}

/// Whether a delete Job works on the physical repository, or may.
///
/// # Errors
/// [`Error`].
pub async fn batch_is_live(ctx: &Context, unique_id: &str) -> Result<bool, Error> {
    let of_lane = |job: &JobView| job.annotation(names::DELETE_UNIQUE_ID) == Some(unique_id);
    let seen = ctx.world.batch_jobs();
    if seen.iter().any(|job| of_lane(job) && !job.is_terminal()) {
        return Ok(true);
    }
    // Created a moment ago, perhaps by the leader before: the lock says so before the watch does.
    let Some(ObjectKey { namespace, name }) = lease::named(ctx, unique_id).await? else {
        return Ok(false);
    };
    let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &namespace);
    Ok(api.get_opt(&name).await?.is_some_and(|job| !job.is_terminal()))
}

/// A batch has ended: what it held back looks again.
pub fn wake(ctx: &Context, key: &LaneKey) {
    if minds(ctx, key).is_some() {
        for run in held_back(ctx, key) {
            ctx.queues.snapshots.add(run.key());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_engine::kopia::Kopia;
    use holdfast_engine::restic::Restic;

    #[test]
    fn the_operator_takes_an_engine_at_its_word() {
        let says: [(Engine, Box<dyn holdfast_engine::Engine>); 2] = [
            (Engine::Kopia, Box::new(Kopia::default())),
            (Engine::Restic, Box::new(Restic)),
        ];
        for (kind, engine) in says {
            assert_eq!(
                engine_needs_silence(kind),
                engine.deletes_need_silence(),
                "{kind:?}"
            );
        }
        assert!(engine_needs_silence(Engine::Unknown));
    }
}
