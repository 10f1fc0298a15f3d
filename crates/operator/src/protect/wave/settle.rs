//! The end of a batch Job: its result is read, recorded member by member, and the Job reaped; and the withdrawal of
//! one that has not started.
//!
//! **Promises.** A finalizer goes only after a letter that proves the data gone. The Job, which holds the only copy
//! of the result, goes only after every member has its outcome recorded or has gone. Each step may be repeated
//! after a crash with the same end:
//! - a confirmed member is recorded and released again until it is gone;
//! - a failed one is counted while it still names the Job, and the write that counts it removes that name;
//! - the repository's failure is counted once for each Job's UID, before the claims are removed;
//! - the Job is deleted with its UID as a precondition, and the lock names it until then.

use super::judge::{self, MemberResult, Verdict};
use super::justified;
use super::lease::{self, Lock, Says};
use super::member::{self, Written, few_at_once};
use super::observe::{BatchJob, Observed};
use super::{again, memory, records, release, writers};
use crate::context::{Context, Error};
use crate::jobs::outcome::{self, Read};
use crate::runtime::metrics::{BatchOutcome, DeletionOutcome, MemberOutcome};
use crate::runtime::write;
use crate::world::keys::LaneKey;
use crate::world::views::{JobView, SnapshotView};
use holdfast_core::backoff;
use holdfast_core::deletion::Withdraw;
use holdfast_core::deletion::messages;
use holdfast_core::deletion::split::{self, Follows, Silent};
use holdfast_protocol::letters::Letter;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, PropagationPolicy};
use kube::runtime::events::EventType;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The failed attempt that is told in an event.
const TOLD_AT: u32 = 3;

/// Settles a Job that came to an end. Answers whether it was still there.
///
/// # Errors
/// [`Error`].
pub async fn settle(
    ctx: &Context,
    observed: &mut Observed,
    lock: Option<&Lock>,
    ended: &BatchJob,
    now: Timestamp,
) -> Result<bool, Error> {
    // The watch may lag behind our own reaping; the pods of a reaped Job are gone, which is not a result.
    if !is_there(ctx, &ended.job).await? {
        return Ok(false);
    }
    let key = ended.job.key();
    let read = outcome::read(&ctx.client, &ended.job).await?;
    let succeeded = match judge::judge(ended.members.len(), &ended.unique_id, &read) {
        Verdict::Repository { reason, message } => {
            let silent = matches!(read, Read::Silent(_)) || ended.job.ran_out_of_time();
            not_for_members(ctx, observed, ended, silent, (&reason, &message), now).await?;
            false
        }
        Verdict::Members { results, missing } => {
            // What is proven gone is remembered, and looked for again, before any finalizer goes.
            let gone = confirmed(ended, &results);
            let beside = writers::beside(ctx, &ctx.world.lane_of(&ended.repository)).await?;
            memory::confirm(ctx, &key, &gone, &beside, now).await?;
            if let Some(repository) = observed.repositories.get(&ended.repository).cloned() {
                let uid = ended.job.uid();
                records::worked(ctx, observed, &repository, uid, !gone.is_empty(), now).await?;
            }
            if ended.again {
                let letters: Vec<Letter> = results.iter().map(|r| r.letter).collect();
                again::settle(ctx, observed, ended, &letters, now).await?;
            }
            each(ctx, observed, ended, &results, &missing, now).await?;
            results.iter().all(|r| r.letter.confirms())
        }
    };
    // Here every member is recorded or gone: the Job's result is not needed any more.
    reap(ctx, &ended.job, PropagationPolicy::Background).await?;
    let outcome = if succeeded {
        BatchOutcome::Succeeded
    } else {
        BatchOutcome::Failed
    };
    ctx.metrics.batch_job(outcome);
    tracing::info!(job = %key, members = ended.members.len(), outcome = outcome.as_str(), "a delete Job was settled");
    let lane = ctx.world.lane_of(&ended.repository);
    if let Some(lock) = lock.filter(|l| l.job().as_ref() == Some(&key)) {
        lease::write(ctx, lock, free(ctx, &lane, now), now).await?;
    }
    writers::wake(ctx, &lane);
    Ok(true)
}

/// UIDs of the members that were proven gone.
fn confirmed<'a>(ended: &'a BatchJob, results: &[MemberResult]) -> BTreeSet<&'a str> {
    let members = ended.members.iter().zip(results);
    members
        .filter(|(_, result)| result.letter.confirms())
        .map(|(uid, _)| uid.as_str())
        .collect()
}

/// A lock without a Job; with when a batch ended where writers go first then.
pub fn free(ctx: &Context, lane: &LaneKey, now: Timestamp) -> Says<'static> {
    Says::Free(writers::minds(ctx, lane).map(|_| now))
}

async fn is_there(ctx: &Context, job: &JobView) -> Result<bool, Error> {
    let key = job.key();
    let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let found = api.get_opt(&key.name).await?;
    Ok(found.is_some_and(|j| j.uid() == job.uid()))
}

/// The Job's failure is the repository's. Where its mover ran and left nothing to read, the batches become smaller; one
/// member alone answers for itself as well.
async fn not_for_members(
    ctx: &Context,
    observed: &mut Observed,
    ended: &BatchJob,
    silent: bool,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> Result<(), Error> {
    let mut alone = false;
    if let Some(repository) = observed.repositories.get(&ended.repository).cloned() {
        let uid = ended.job.uid();
        let jobs = repository.protection().jobs;
        let known = members(observed, ended).any(|(_, view)| is_known(view));
        let follows =
            silent.then(|| split::silent(records::silence_of(jobs.as_ref()), ended.members.len(), known));
        let counted = jobs.as_ref().and_then(|j| j.counted.as_deref()) == Some(uid);
        alone = match follows {
            // Counted before a crash: what was remembered then says it.
            Some(_) if counted => {
                ended.members.len() == 1 && records::silence_of(jobs.as_ref()) == Silent::default()
            }
            Some(Follows::Alone(_)) => true,
            Some(Follows::Again(_) | Follows::Halved(_)) | None => false,
        };
        let message = match follows {
            Some(Follows::Halved(Silent {
                most_members: Some(most),
                ..
            })) => {
                format!(
                    "{message} The next delete Jobs carry at most {most}, until the Snapshot that ends them is found."
                )
            }
            Some(Follows::Halved(_) | Follows::Again(_) | Follows::Alone(_)) | None => message.to_owned(),
        };
        let failure = records::Failure {
            job: Some(uid),
            silent: follows,
            reason,
            message: &message,
        };
        records::failed(ctx, observed, &repository, failure, now).await?;
    }
    let job = ended.job.key().name;
    let claims = members(observed, ended).filter(|(_, view)| member::claim(view) == Some(job.as_str()));
    let writes = claims
        .map(|(_, view)| async move {
            let status = if alone {
                let next = backoff::MEMBER.next(attempts(view).saturating_add(1), now);
                member::failed(view, member::NO_ANSWER, message, next)
            } else {
                member::unclaimed(view.status.clone().unwrap_or_default())
            };
            member::write(ctx, view, &status).await
        })
        .collect();
    for written in few_at_once(writes).await {
        recorded(written?)?;
    }
    Ok(())
}

/// Whether a Snapshot is known to ride alone, because no mover survived it.
fn is_known(view: &SnapshotView) -> bool {
    let deletion = view.status.as_ref().and_then(|s| s.deletion.as_ref());
    deletion.is_some_and(|d| d.outcome.as_deref() == Some(member::NO_ANSWER))
}

/// Failed attempts so far.
fn attempts(view: &SnapshotView) -> u32 {
    let deletion = view.status.as_ref().and_then(|s| s.deletion.as_ref());
    deletion.map_or(0, |d| d.attempts)
}

/// Members of a Job that still wait, with their place in its answer. One that the lane does not have any more is
/// gone, or was released before.
fn members<'a>(
    observed: &'a Observed,
    ended: &'a BatchJob,
) -> impl Iterator<Item = (usize, &'a Arc<SnapshotView>)> {
    ended
        .members
        .iter()
        .enumerate()
        .filter_map(|(n, uid)| Some((n, observed.views.get(uid)?)))
}

/// Until a status is written the Job stays, and with it the only copy of the result. A status that the API server
/// refuses (logged) will not be written by waiting: the Job and the lane are not kept for it. A confirmed member is
/// released all the same, another one is judged again, and its next claim is refused like this write.
fn recorded(written: Written) -> Result<(), Error> {
    match written {
        Written::Yes | Written::Refused => Ok(()),
        Written::Changed => Err(Error::Conflict),
    }
}

/// Every member gets what its letter says.
async fn each(
    ctx: &Context,
    observed: &Observed,
    ended: &BatchJob,
    results: &[MemberResult],
    missing: &[String],
    now: Timestamp,
) -> Result<(), Error> {
    let job = ended.job.key().name;
    let unjustified = members(observed, ended).filter_map(|(n, view)| {
        let result = results.get(n)?;
        justified::is_unjustified(result.letter).then_some(view)
    });
    // Before anything is said about the prunes: what vanished must not count when they are judged again.
    let mut void = justified::vanish(ctx, ended, unjustified, missing, now).await?;
    for (n, view) in members(observed, ended) {
        // As void as one without a justification, and for good: the object cannot be undeleted.
        if results
            .get(n)
            .is_some_and(|result| result.letter == Letter::Pinned)
        {
            void.insert(view.uid().to_owned(), justified::PINNED.to_owned());
        }
    }
    let mut released = Vec::new();
    let mut work = Vec::new();
    for (n, view) in members(observed, ended) {
        let Some(result) = results.get(n) else {
            continue;
        };
        if result.letter.confirms() {
            released.push(Arc::clone(view));
        }
        work.push(one(ctx, view, &job, result, void.get(view.uid()), now));
    }
    let mut conflict = false;
    for done in few_at_once(work).await {
        match done {
            Ok(()) => {}
            Err(Error::Conflict) => conflict = true,
            Err(error) => return Err(error),
        }
    }
    if conflict {
        // Somebody wrote in between. The Job stays, and with it the result for the next pass.
        return Err(Error::Conflict);
    }
    release::seen_gone(ctx, &released).await;
    Ok(())
}

async fn one(
    ctx: &Context,
    view: &SnapshotView,
    job: &str,
    result: &MemberResult,
    void: Option<&String>,
    now: Timestamp,
) -> Result<(), Error> {
    let word = result.letter.reason();
    let namespace = view.key().namespace;
    if result.letter.confirms() {
        recorded(member::write(ctx, view, &member::confirmed(view, word)).await?)?;
        match release::finalizer(ctx, view).await {
            Ok(()) => {}
            // Recorded: the Job is not needed for it any more, and the next passes go on trying.
            Err(error) if error.is_refusal() => {}
            Err(error) => return Err(error),
        }
        ctx.metrics.deletion(&namespace, DeletionOutcome::Deleted);
        ctx.metrics.batch_members(MemberOutcome::Deleted, 1);
        return Ok(());
    }
    if member::claim(view) != Some(job) {
        // Recorded before a crash: counting it again would lengthen its backoff.
        return Ok(());
    }
    if let Some(why) = void {
        recorded(member::write(ctx, view, &member::void(view, why)).await?)?;
        ctx.metrics.batch_members(MemberOutcome::Failed, 1);
        return Ok(());
    }
    if result.letter == Letter::NeverSeen {
        recorded(member::write(ctx, view, &member::never_seen(view, &result.why)).await?)?;
        ctx.metrics.batch_members(MemberOutcome::Failed, 1);
        return Ok(());
    }
    let attempts = attempts(view).saturating_add(1);
    let next = backoff::MEMBER.next(attempts, now);
    let status = member::failed(view, word, &result.why, next);
    recorded(member::write(ctx, view, &status).await?)?;
    ctx.metrics.deletion_failed(&namespace);
    ctx.metrics.batch_members(MemberOutcome::Failed, 1);
    if attempts == TOLD_AT {
        let note = format!(
            "The snapshot could not be deleted in {attempts} attempts. {}",
            result.why
        );
        let _ = ctx
            .event_snapshot(
                view,
                EventType::Warning,
                "SnapshotDeletionFailing",
                &note,
                "CheckRepository",
            )
            .await;
    }
    Ok(())
}

/// Deletes exactly this Job.
async fn reap(ctx: &Context, job: &JobView, propagation: PropagationPolicy) -> Result<(), Error> {
    let key = job.key();
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
    ctx.leadership.guard()?;
    Ok(write::delete(&api, &key.name, job.uid(), None, propagation).await?)
}

/// Withdraws a Job of which no container has started. It stays the lane's live batch until no pod of it is left:
/// Foreground deletion keeps the Job until then, and the API's default would leave a pod running behind.
///
/// # Errors
/// [`Error`].
pub async fn withdraw(
    ctx: &Context,
    observed: &mut Observed,
    why: Withdraw,
    now: Timestamp,
) -> Result<(), Error> {
    let waiting: Vec<BatchJob> = observed.jobs.iter().filter(|j| !j.started).cloned().collect();
    for waiting in waiting {
        if waiting.job.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match why {
            Withdraw::NotStarted => {
                if let Some(repository) = observed.repositories.get(&waiting.repository).cloned() {
                    let message = format!("{}: {}.", messages::withdrawn(why), waiting.why_not);
                    let failure = records::Failure {
                        job: Some(waiting.job.uid()),
                        silent: None,
                        reason: why.reason(),
                        message: &message,
                    };
                    records::failed(ctx, observed, &repository, failure, now).await?;
                }
            }
            Withdraw::MemberNotDeletable => {}
        }
        tracing::info!(job = %waiting.job.key(), reason = why.reason(), "a delete Job is withdrawn");
        reap(ctx, &waiting.job, PropagationPolicy::Foreground).await?;
    }
    Ok(())
}
