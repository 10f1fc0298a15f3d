//! Step 3: from a batch that may fire to a Job (`docs/design.md` 3.5, 3.6).
//!
//! **Promises.** In this order: nothing of an earlier batch is left, the live proof, what the Job needs, the
//! lane's lock names the Job, each member is claimed against the judged resourceVersion, the day's memory is
//! written, CREATE. Whatever stops in between leaves claims that name no Job, which bind nobody.
//!
//! **Assumes.** The lock was held, and the Job it named looked for, before the plan was made.

use super::justified;
use super::lease::{self, Lock};
use super::live::{self, Live};
use super::member::{self, Written, few_at_once};
use super::observe::{self, BatchJob, Observed};
use super::proven::Proven;
use super::{facts, memory, records, settings};
use crate::context::{Context, Error};
use crate::jobs::build::Mover;
use crate::jobs::create::{Created, SecretFact, claim_exists, create, secret};
use crate::jobs::name_repository;
use crate::protect::repository::access;
use crate::runtime::queue::Next;
use crate::world::keys::{LaneKey, ObjectKey};
use crate::world::views::{JobView, RepositoryView, SnapshotView};
use holdfast_api::names;
use holdfast_core::deletion::names::repository_label;
use holdfast_core::deletion::{Batch, HeldChange, Plan, Verdict, wave};
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

/// One batch Job at a time is created where a cap counts them.
static GATE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Batch Jobs of the whole cluster that have not ended, live.
async fn live_jobs(ctx: &Context) -> Result<u32, Error> {
    let api: Api<JobView> = Api::all(ctx.client.clone());
    let labels = format!("{}={}", names::OP_LABEL, names::OP_DELETE_BATCH);
    let jobs = api.list(&ListParams::default().labels(&labels)).await?;
    Ok(u32::try_from(jobs.items.iter().filter(|j| !j.is_terminal()).count()).unwrap_or(u32::MAX))
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
            records::failed(ctx, observed, &view, None, "LeftoverPod", &message, now).await?;
        }
        return Ok(Next::After(SOON));
    }
    // Held until CREATE, so that two lanes do not both take the last place under the cap.
    let capped = ctx.settings.max_concurrent_delete_jobs != 0;
    let _gate = if capped { Some(GATE.lock().await) } else { None };
    let mut live = live::read(ctx, observed, batch).await?;
    if capped {
        live.jobs_in_cluster = Some(live_jobs(ctx).await?);
    }
    let Some(proof) = prove(ctx, key, &observed.jobs, proven, &live, batch, now) else {
        tracing::info!(lane = %key, "nothing of the batch stands what was read live; looking again");
        return Ok(Next::After(SOON));
    };
    let Some(repository) = proof.observed.repositories.get(&proof.batch.repository).cloned() else {
        return Err(Error::Conflict);
    };
    if let Some((reason, message)) = missing(ctx, &repository).await? {
        records::failed(ctx, observed, &repository, None, reason, &message, now).await?;
        return Ok(Next::After(SOON));
    }
    let riders = justified::riders(ctx, key, &proof.observed, &proof.plan, &proof.batch.members);
    justified::record(ctx, &riders.void).await?;
    if riders.members.is_empty() {
        return Ok(Next::After(super::CATCH_UP));
    }
    let job = ObjectKey::new(repository.place(&ctx.settings.namespace), &proof.batch.job_name);
    lease::write(ctx, lock, Some(&job), now).await?;
    let claimed = claim(ctx, &proof, &riders.members, &repository, &job.name, now).await?;
    let mut members: Vec<(BatchMember, Arc<SnapshotView>)> = claimed
        .into_iter()
        .filter_map(|view| {
            let mut member = facts::batch_member(&view)?;
            member.justified_by = riders.group.get(view.uid()).copied();
            Some((member, view))
        })
        .collect();
    if members.is_empty() {
        return Err(Error::Conflict);
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
    if let Err(error) = memory::write(ctx, &repository, &job, &members, why, now).await {
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
    let created = match create(ctx, &mover).await {
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
async fn missing(
    ctx: &Context,
    repository: &RepositoryView,
) -> Result<Option<(&'static str, String)>, Error> {
    let place = repository.place(&ctx.settings.namespace);
    let password = &repository.spec.encryption.password_secret_ref;
    let named = format!("{place}/{}", password.name);
    match secret(ctx, place, &password.name, &password.key).await? {
        SecretFact::Usable(_) => {}
        SecretFact::Missing => {
            let message = format!("The password Secret {named} is not there; no delete Job is created.");
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
    let claim = repository
        .filesystem()
        .map(|(claim, _)| claim)
        .unwrap_or_default();
    if !claim_exists(ctx, place, claim).await? {
        let message =
            format!("The claim {place}/{claim} of the repository is not there; no delete Job is created.");
        return Ok(Some(("MissingRepositoryClaim", message)));
    }
    Ok(None)
}

/// Claims the members of a proven batch; answers with those that were. The Job keeps the name of the set that was
/// proven even if some drop out: a name is only there to make a repeated CREATE harmless.
async fn claim(
    ctx: &Context,
    proof: &Proof,
    members: &[String],
    repository: &RepositoryView,
    job: &str,
    now: Timestamp,
) -> Result<Vec<Arc<SnapshotView>>, Error> {
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
    let mut claimed = Vec::new();
    for (view, written) in few_at_once(claims).await {
        match written? {
            Written::Yes => claimed.push(Arc::clone(view)),
            Written::Changed | Written::Refused => {
                tracing::info!(snapshot = %view.key(), "changed since it was judged, or refused; not in this delete Job");
            }
        }
    }
    Ok(claimed)
}

fn mover(
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
        repository_claim: repository
            .filesystem()
            .map(|(claim, _)| claim.to_owned())
            .unwrap_or_default(),
        secret: password.name.clone(),
        secret_key: password.key.clone(),
        sources: Vec::new(),
        backoff_limit: 0,
        labels,
        annotations,
    }
}

/// A quota or a webhook does not let the Job in: the repository's trouble, in the API server's own words. Any other
/// error ends the pass.
async fn refused(
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
    records::failed(ctx, observed, repository, None, "JobRefused", &message, now).await?;
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
            records::failed(ctx, observed, repository, None, "JobNameTaken", &message, now).await?;
            Ok(Next::After(SOON))
        }
        None => Err(Error::Conflict),
    }
}

/// Waits until the world has the Job, at most for a while; the lock tells the next pass in any case.
async fn seen(ctx: &Context, job: &ObjectKey, uid: Option<&str>) {
    for _ in 0..20 {
        if ctx.world.job(job).is_some_and(|j| Some(j.uid()) == uid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
