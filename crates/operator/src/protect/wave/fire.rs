//! Step 3: from a batch that may fire to a Job (`docs/design.md` 3.5, 3.6).
//!
//! **Promises.** In this order: nothing of an earlier batch is left, the live proof, what the Job needs, writers that have
//! not started are suspended where the engine minds, the lane's lock names the Job, each member is claimed against the judged resourceVersion, the day's memory is
//! written, CREATE. Whatever stops in between leaves claims that name no Job, which bind nobody.
//!
//! **Assumes.** The lock was held, and the Job it named looked for, before the plan was made.

use super::justified;
use super::lease::{self, Lock, Says};
use super::legacy;
use super::live::{self, Live, Untold};
use super::member::{self, Written, few_at_once};
use super::memory::Row;
use super::observe::{self, BatchJob, Observed};
use super::proven::Proven;
use super::{facts, memory, records, settings, writers};
use crate::context::{Context, Error};
use crate::jobs::build::{Mover, Storage};
use crate::jobs::create::{Created, NOT_READ, SecretFact, create, secret};
use crate::jobs::name_repository;
use crate::jobs::needs::{self, Needs};
use crate::protect::maintenance;
use crate::protect::repository::access;
use crate::protect::snapshot::pins;
use crate::runtime::queue::Next;
use crate::world::keys::{LaneKey, ObjectKey};
use crate::world::views::{JobView, RepositoryView, SnapshotView};
use holdfast_api::names;
use holdfast_core::deletion::names::repository_label;
use holdfast_core::deletion::silence::{self, Turn, Writers};
use holdfast_core::deletion::{Batch, DeleteReason, HeldChange, Plan, Settings, Verdict, wave};
use holdfast_protocol::work::{BatchMember, Operation, WorkDocument};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Seconds a Job has beside one for each member.
const DEADLINE_SECONDS: i64 = 600;
/// How long the pod of a Job that is gone may take to end before it is worth a word.
const LEFTOVER_PATIENCE: SignedDuration = SignedDuration::from_mins(2);
/// How soon something that another process ends is looked at again.
const SOON: Duration = Duration::from_secs(5);

/// Batch Jobs of the whole cluster that have not ended, live.
async fn live_jobs(ctx: &Context) -> Result<u32, Error> {
    let api: Api<JobView> = Api::all(ctx.client.clone());
    let labels = format!("{}={}", names::OP_LABEL, names::OP_DELETE_BATCH);
    let jobs = api.list(&ListParams::default().labels(&labels)).await?;
    Ok(u32::try_from(jobs.items.iter().filter(|j| !j.is_terminal()).count()).unwrap_or(u32::MAX))
}

/// What holds until a Job is created: nothing of an earlier batch is left, and nobody else comes between.
pub struct Gates {
    /// Batch Jobs of the whole cluster that have not ended; only where a cap counts them.
    pub jobs_in_cluster: Option<u32>,
    /// Who else writes; only where the engine minds.
    pub writers: Option<Writers>,
    _maintenance: Option<tokio::sync::OwnedMutexGuard<()>>,
    _cap: Option<tokio::sync::OwnedMutexGuard<()>>,
    _silence: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Gates {
    /// Whether cap or writers leave no room for a batch that no plan is made for.
    #[must_use]
    pub fn full(&self, settings: &Settings, now: Timestamp) -> bool {
        let capped =
            settings.max_jobs != 0 && self.jobs_in_cluster.is_some_and(|jobs| jobs >= settings.max_jobs);
        let waits = self
            .writers
            .as_ref()
            .is_some_and(|writers| match silence::turn(writers, now) {
                Turn::Alone | Turn::BesideWriters => false,
                Turn::AfterWriters(_) | Turn::WritersFirst(_) => true,
            });
        capped || waits
    }
}

/// Takes the gates; none while a pod of an earlier Job is left.
///
/// # Errors
/// [`Error`].
pub async fn gates(
    ctx: &Context,
    key: &LaneKey,
    lock: &Lock,
    observed: &mut Observed,
    now: Timestamp,
) -> Result<Option<Gates>, Error> {
    if let Some((view, pod)) = leftover(ctx, observed).await? {
        let name = pod.metadata.name.unwrap_or_default();
        tracing::info!(lane = %key, pod = name, "a pod of an earlier delete Job is still there; waiting for it");
        let since = pod
            .metadata
            .deletion_timestamp
            .or(pod.metadata.creation_timestamp);
        if since.is_some_and(|t| now.duration_since(t.0) > LEFTOVER_PATIENCE) {
            let message = format!(
                "The pod {}/{name} of an earlier delete Job has not ended, so it may still delete; no other delete Job is created beside it. It goes on when the pod has ended; if its node is lost, delete the pod by force.",
                view.place(&ctx.settings.namespace)
            );
            failed(ctx, observed, &view, "LeftoverPod", &message, now).await?;
        }
        return Ok(None);
    }
    if let Some(running) = legacy::running(ctx, key, observed, now).await? {
        let named = running.job.key();
        tracing::info!(lane = %key, job = %named, "a delete Job of the Kopia operator has not ended; waiting for it");
        let since = running.job.metadata.creation_timestamp.as_ref();
        if since.is_some_and(|t| now.duration_since(t.0) > LEFTOVER_PATIENCE) {
            let (does, end) = match running.until {
                None => ("deletes Snapshots of this repository", String::new()),
                Some(until) => ("may delete from this repository", format!(", or at {until}")),
            };
            let message = format!(
                "The delete Job {named} of the Kopia operator has not ended and {does}; no other delete Job is created beside it. It goes on when the Job has ended{end}; if it cannot end, delete it.",
            );
            for view in ctx.world.repositories_of(key) {
                failed(ctx, observed, &view, "LegacyDeleteJob", &message, now).await?;
            }
        }
        return Ok(None);
    }
    // Held until CREATE: a maintenance run that asks meanwhile finds the batch, or this batch finds the run.
    let mut maintenance_gate = None;
    if let LaneKey::Physical(id) = key {
        maintenance_gate = Some(ctx.gates.maintenance(id).lock_owned().await);
        let other = match maintenance::live(ctx, id).await? {
            Some(other) => Some(other),
            // It gives a snapshot another id, maybe one of this batch.
            None => {
                let minds = writers::minds(ctx, key).is_some();
                let members = observed.views.values().map(AsRef::as_ref);
                pins::beside(ctx, id, minds, members).await?
            }
        };
        if let Some(other) = other {
            tracing::info!(lane = %key, other, "maintenance or a pin Job has not ended; a delete Job waits for it");
            if lock.waiting_since().is_none() {
                lease::write(ctx, lock, Says::Waits(Some(now)), now).await?;
            }
            return Ok(None);
        }
    }
    // So that two lanes do not both take the last place under the cap.
    let (mut cap, mut jobs_in_cluster) = (None, None);
    if ctx.settings.max_concurrent_delete_jobs != 0 {
        cap = Some(Arc::clone(&ctx.gates.cap).lock_owned().await);
        jobs_in_cluster = Some(live_jobs(ctx).await?);
    }
    // The same for the writers of a repository that has to be silent.
    let silence = match writers::minds(ctx, key) {
        Some(id) => Some(ctx.gates.lane(&id).lock_owned().await),
        None => None,
    };
    Ok(Some(Gates {
        jobs_in_cluster,
        writers: writers::live(ctx, key, lock).await?,
        _maintenance: maintenance_gate,
        _cap: cap,
        _silence: silence,
    }))
}

/// Fires a plan's batch, if it stands the live proof.
///
/// # Errors
/// [`Error`].
pub async fn fire(
    ctx: &Context,
    key: &LaneKey,
    lock: &Lock,
    observed: &mut Observed,
    proven: &Proven,
    batch: &Batch,
    now: Timestamp,
) -> Result<Next, Error> {
    let Some(gates) = gates(ctx, key, lock, observed, now).await? else {
        return Ok(Next::After(SOON));
    };
    let mut live = live::read(ctx, key, observed, batch).await?;
    if let Some(untold) = &live.untold {
        return uncounted(ctx, key, observed, untold, now).await;
    }
    live.jobs_in_cluster = gates.jobs_in_cluster;
    live.writers.clone_from(&gates.writers);
    let Some(proof) = prove(ctx, key, &observed.jobs, proven, &live, batch, now) else {
        tracing::info!(lane = %key, "nothing of the batch stands what was read live; looking again");
        return Ok(Next::After(SOON));
    };
    let Some(repository) = proof.observed.repositories.get(&proof.batch.repository).cloned() else {
        return Err(Error::Conflict);
    };
    if let Some((reason, message)) = missing(ctx, &repository).await? {
        failed(ctx, observed, &repository, reason, &message, now).await?;
        return Ok(Next::After(SOON));
    }
    let riders = justified::riders(ctx, key, &proof.observed, &proof.plan, &proof.batch.members);
    justified::record(ctx, &riders.void).await?;
    if riders.members.is_empty() {
        return Ok(Next::After(super::CATCH_UP));
    }
    if !writers::suspend(ctx, key, lock, gates.writers.as_ref(), now).await? {
        return Ok(Next::After(SOON));
    }
    let job = ObjectKey::new(repository.place(&ctx.settings.namespace), &proof.batch.job_name);
    lease::write(ctx, lock, Says::Job(&job), now).await?;
    let (claimed, refused_claims) = claim(ctx, &proof, &riders.members, &repository, &job.name, now).await?;
    let mut members: Vec<(BatchMember, Arc<SnapshotView>)> = claimed
        .into_iter()
        .filter_map(|view| {
            let mut member = facts::batch_member(&view)?;
            member.justified_by = riders.group.get(view.uid()).copied();
            Some((member, view))
        })
        .collect();
    if members.is_empty() {
        // The lock names a Job that will not be: it binds nobody.
        return if refused_claims {
            Ok(Next::After(super::REFUSED_AGAIN))
        } else {
            Err(Error::Conflict)
        };
    }
    // The order of the answer's letters; the Job's annotation repeats it, so that it can be read back from there.
    members.sort_by(|a, b| a.0.uid.cmp(&b.0.uid));
    let why = |uid: &str| match proof.plan.decision(uid)?.verdict {
        Verdict::Delete(why) => Some(why),
        Verdict::InFlight
        | Verdict::Release(_)
        | Verdict::Orphan(_)
        | Verdict::Retain(_)
        | Verdict::Wait(_)
        | Verdict::Held(_) => None,
    };
    let rows: Vec<Row> = members
        .iter()
        .map(|(member, view)| row(member, view, why(&member.uid)))
        .collect();
    if let Err(error) = memory::write(ctx, &repository, &job, &rows, now).await {
        return refused(
            ctx,
            observed,
            &repository,
            "the memory of the delete Job",
            error,
            now,
        )
        .await;
    }
    let mover = mover(
        ctx,
        &repository,
        &job,
        members.into_iter().map(|(member, _)| member).collect(),
        riders.kept,
    );
    let created = match created(ctx, &mover).await {
        Ok(created) => created,
        Err(error) => {
            return refused(
                ctx,
                observed,
                &repository,
                &format!("the delete Job {job}"),
                error,
                now,
            )
            .await;
        }
    };
    match created {
        Created::Yes(created) => {
            tracing::info!(lane = %key, job = %job, "a delete Job was created");
            seen(ctx, &job, created.metadata.uid.as_deref()).await;
            Ok(Next::After(super::LIVE_AGAIN))
        }
        Created::Exists => exists(ctx, observed, &repository, &job, now).await,
        // Rule 4 decides about its members when the world says so.
        Created::NoPlace => Ok(Next::After(SOON)),
    }
}

/// How many are pending is not known, so the breaker cannot be asked: nothing fires.
async fn uncounted(
    ctx: &Context,
    key: &LaneKey,
    observed: &mut Observed,
    untold: &Untold,
    now: Timestamp,
) -> Result<Next, Error> {
    let snapshot = &untold.snapshot;
    tracing::info!(lane = %key, %snapshot, "a deletion that the watch has not told of is pending; nothing fires before it is counted");
    if untold
        .deleted_at
        .is_some_and(|t| now.duration_since(t) > LEFTOVER_PATIENCE)
    {
        let message = format!(
            "The API server says that the Snapshot {snapshot} is being deleted, and the operator's watch has not told so: how many deletions are pending is not known, and no delete Job is created. It goes on when the watch has caught up; if it does not, look in the operator's log for that Snapshot, and restart the operator.",
        );
        for view in ctx.world.repositories_of(key) {
            failed(ctx, observed, &view, "PendingUnknown", &message, now).await?;
        }
    }
    Ok(Next::After(SOON))
}

fn row(member: &BatchMember, view: &SnapshotView, why: Option<DeleteReason>) -> Row {
    let ObjectKey { namespace, name } = view.key();
    Row {
        uid: member.uid.clone(),
        namespace,
        name,
        snapshot: member.snapshot_id.clone(),
        source: member.source.clone(),
        start_time: member.start_time,
        why: why.map(|why| why.reason().to_owned()),
    }
}

/// The live proof's result.
struct Proof {
    observed: Observed,
    plan: Plan,
    batch: Batch,
}

/// Decides again with what was read live; none when nothing of the batch is left.
fn prove(
    ctx: &Context,
    key: &LaneKey,
    jobs: &[BatchJob],
    proven: &Proven,
    live: &Live,
    batch: &Batch,
    now: Timestamp,
) -> Option<Proof> {
    let observed = observe::lane(&ctx.world, &ctx.settings.namespace, key, jobs, proven, live);
    let plan = wave(&observed.lane, &settings(ctx), now);
    let batch = plan.confirm(batch)?;
    Some(Proof {
        observed,
        plan,
        batch,
    })
}

/// A pod of a delete Job of this lane that has not ended although no Job is left: somebody deleted the Job by hand.
async fn leftover(ctx: &Context, observed: &Observed) -> Result<Option<(Arc<RepositoryView>, Pod)>, Error> {
    for view in observed.repositories.values() {
        let api: Api<Pod> = Api::namespaced(ctx.client.clone(), view.place(&ctx.settings.namespace));
        let labels = format!(
            "{}={},{}={}",
            names::OP_LABEL,
            names::OP_DELETE_BATCH,
            names::DELETE_REPO_LABEL,
            repository_label(&view.key)
        );
        let pods = api.list(&ListParams::default().labels(&labels)).await?;
        let alive = pods.items.into_iter().find(|pod| {
            let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        });
        if let Some(pod) = alive {
            return Ok(Some((Arc::clone(view), pod)));
        }
    }
    Ok(None)
}

/// What a Job would need and is not there.
///
/// # Errors
/// [`Error`].
pub async fn missing(
    ctx: &Context,
    repository: &RepositoryView,
) -> Result<Option<(&'static str, String)>, Error> {
    let place = repository.place(&ctx.settings.namespace);
    let password = &repository.spec.encryption.password_secret_ref;
    let named = format!("{place}/{}", password.name);
    match secret(ctx, place, &password.name, &password.key).await? {
        SecretFact::Usable(_) => {}
        SecretFact::Missing => {
            let message = format!("Secret {named} {NOT_READ}; no delete Job is created. Create it.");
            return Ok(Some(("MissingCredentialsSecret", message)));
        }
        SecretFact::NoKey => {
            let message = format!(
                "The password Secret {named} lacks the key {}; no delete Job is created.",
                password.key
            );
            return Ok(Some(("MissingCredentialsKey", message)));
        }
    }
    if let Needs::Unmet(unmet) = needs::backend(ctx, place, place, repository).await? {
        let message = format!("{} Until then no delete Job is created.", unmet.message());
        return Ok(Some((unmet.reason(), message)));
    }
    Ok(None)
}

/// Claims the members of a proven batch; answers with those that were, and whether a claim was refused. The Job keeps the name of the set that was
/// proven even if some drop out: a name is only there to make a repeated CREATE harmless.
async fn claim(
    ctx: &Context,
    proof: &Proof,
    members: &[String],
    repository: &RepositoryView,
    job: &str,
    now: Timestamp,
) -> Result<(Vec<Arc<SnapshotView>>, bool), Error> {
    let mut claims = Vec::new();
    for uid in members {
        let (Some(view), Some(decision)) = (proof.observed.views.get(uid), proof.plan.decision(uid)) else {
            continue;
        };
        let why = match decision.verdict {
            Verdict::Delete(why) => why,
            Verdict::InFlight
            | Verdict::Release(_)
            | Verdict::Orphan(_)
            | Verdict::Retain(_)
            | Verdict::Wait(_)
            | Verdict::Held(_) => continue,
        };
        // A plan that leaves a member for later keeps its mark; it rides here all the same.
        let marked = proof
            .observed
            .member(uid)
            .is_some_and(|m| m.held != holdfast_core::deletion::HeldCondition::NotHeld);
        let held = if marked {
            HeldChange::Clear(why)
        } else {
            HeldChange::Keep
        };
        let mut status = member::claimed(view, job, why, held, now);
        member::pin(&mut status, repository);
        claims.push(async move {
            let written = member::write_claim(ctx, view, &status).await;
            (view, written)
        });
    }
    let (mut claimed, mut refused) = (Vec::new(), false);
    for (view, written) in few_at_once(claims).await {
        match written? {
            Written::Yes => claimed.push(Arc::clone(view)),
            Written::Changed => {
                tracing::info!(snapshot = %view.key(), "changed since it was judged; not in this delete Job");
            }
            Written::Refused => refused = true,
        }
    }
    Ok((claimed, refused))
}

/// The Job of a batch.
pub fn mover(
    ctx: &Context,
    repository: &RepositoryView,
    job: &ObjectKey,
    members: Vec<BatchMember>,
    kept: Vec<Vec<String>>,
) -> Mover {
    let uids: Vec<&str> = members.iter().map(|m| m.uid.as_str()).collect();
    let unique_id = repository.unique_id().unwrap_or_default();
    let annotations = BTreeMap::from([
        (names::DELETE_MEMBERS.to_owned(), uids.join(",")),
        (names::DELETE_UNIQUE_ID.to_owned(), unique_id.to_owned()),
    ]);
    let labels = BTreeMap::from([(
        names::DELETE_REPO_LABEL.to_owned(),
        repository_label(&repository.key),
    )]);
    let password = &repository.spec.encryption.password_secret_ref;
    Mover {
        name: job.name.clone(),
        namespace: job.namespace.clone(),
        op: names::OP_DELETE_BATCH,
        owner_uid: repository.uid().to_owned(),
        works_for: name_repository(&repository.key),
        // A repository object that is deleted must not take a running Job with it.
        owner: None,
        active_deadline_seconds: DEADLINE_SECONDS
            .saturating_add(i64::try_from(members.len()).unwrap_or(DEADLINE_SECONDS)),
        document: WorkDocument {
            version: holdfast_protocol::VERSION,
            cluster: ctx.cluster.clone(),
            repository: access(repository),
            operation: Operation::DeleteBatch { members, kept },
            results: None,
        },
        image: ctx.settings.mover_image.clone(),
        pull_policy: ctx.settings.mover_pull_policy.clone(),
        settings: repository.mover_defaults(),
        storage: Storage::of(repository),
        secret: password.name.clone(),
        secret_key: password.key.clone(),
        sources: Vec::new(),
        backoff_limit: 0,
        labels,
        annotations,
    }
}

/// No delete Job can be created: the repository's trouble.
///
/// # Errors
/// [`Error`].
pub async fn failed(
    ctx: &Context,
    observed: &mut Observed,
    repository: &RepositoryView,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let failure = records::Failure {
        job: None,
        silent: None,
        reason,
        message,
    };
    records::failed(ctx, observed, repository, failure, now).await
}

/// CREATE, through the one gate of all mover Jobs.
///
/// # Errors
/// [`Error`].
pub async fn created(ctx: &Context, mover: &Mover) -> Result<Created, Error> {
    create(ctx, mover).await
}

/// A quota or a webhook does not let the Job in: the repository's trouble, in the API server's own words. Any other
/// error ends the pass.
///
/// # Errors
/// [`Error`].
pub async fn refused(
    ctx: &Context,
    observed: &mut Observed,
    repository: &RepositoryView,
    what: &str,
    error: Error,
    now: Timestamp,
) -> Result<Next, Error> {
    if !error.is_refusal() {
        return Err(error);
    }
    let message = format!("The API server does not take {what}: {error}");
    failed(ctx, observed, repository, "JobRefused", &message, now).await?;
    Ok(Next::After(SOON))
}

/// CREATE found a Job of that name. One of ours is taken up by the next pass: the lock names it. A foreign one is in
/// the way, which is the repository's trouble.
async fn exists(
    ctx: &Context,
    observed: &mut Observed,
    repository: &RepositoryView,
    job: &ObjectKey,
    now: Timestamp,
) -> Result<Next, Error> {
    let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &job.namespace);
    match api.get_opt(&job.name).await? {
        Some(found) if found.label(names::OP_LABEL) == Some(names::OP_DELETE_BATCH) => {
            Ok(Next::After(Duration::from_millis(500)))
        }
        Some(_) => {
            let message = format!("A Job {job} that is not ours has the name of the delete Job; remove it.");
            failed(ctx, observed, repository, "JobNameTaken", &message, now).await?;
            Ok(Next::After(SOON))
        }
        None => Err(Error::Conflict),
    }
}

/// Waits until the world has the Job, at most for a while; the lock tells the next pass in any case.
pub async fn seen(ctx: &Context, job: &ObjectKey, uid: Option<&str>) {
    for _ in 0..20 {
        if ctx.world.job(job).is_some_and(|j| Some(j.uid()) == uid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
