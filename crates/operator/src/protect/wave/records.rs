//! The repository's part of a plan: what is recorded before anything depends on it, and what is told at the end.
//!
//! **Promises.** Acknowledgement and latch are on the API server before the first member is touched; the latch is
//! cleared last. An unreadable acknowledgement is told once for each value.

use super::observe::Observed;
use crate::context::{Context, Error};
use crate::protect::catalog::due;
use crate::runtime::{diff, write};
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::{JobView, RepositoryView};
use holdfast_api::repository::{
    AcknowledgementRecord, DeletionJobsStatus, DeletionProtectionStatus, RepositoryStatus,
};
use holdfast_api::{ClusterRepository, Repository, Snapshot, conditions, names};
use holdfast_core::backoff;
use holdfast_core::deletion::look;
use holdfast_core::deletion::messages::{self, Words};
use holdfast_core::deletion::split::{self, Follows, Silent};
use holdfast_core::deletion::{
    AcknowledgementChange, Decision, LaneLatchChange, LatchChange, Plan, ReleaseReason, RepositoryPlan,
    Verdict,
};
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The literal names that sentences need.
pub const WORDS: Words<'static> = Words {
    allow_mass_deletion: names::ALLOW_MASS_DELETION,
    skip_snapshot_cleanup: names::SKIP_SNAPSHOT_CLEANUP,
};

/// Step 1: acknowledgements, then the latch upwards. The views in `observed` become what was written.
///
/// # Errors
/// [`Error`].
pub async fn before(ctx: &Context, observed: &mut Observed, plan: &Plan) -> Result<(), Error> {
    for repository in &plan.repositories {
        let Some(view) = observed.repositories.get(&repository.key).cloned() else {
            continue;
        };
        let protection = recorded(view.protection(), repository);
        let newly_invalid = protection
            .invalid_acknowledgement
            .clone()
            .filter(|_| protection.invalid_acknowledgement != view.protection().invalid_acknowledgement);
        let after = change(ctx, &view, |status| set_protection(status, protection)).await?;
        if let Some(value) = newly_invalid {
            let note = messages::invalid_acknowledgement(WORDS, &value);
            ctx.warn_repository(&after, "InvalidMassDeletionAck", &note, "CorrectAnnotation")
                .await;
        }
        observed.repositories.insert(repository.key.clone(), after);
    }
    Ok(())
}

/// The records as step 1 writes them: pure.
#[must_use]
pub fn recorded(mut protection: DeletionProtectionStatus, plan: &RepositoryPlan) -> DeletionProtectionStatus {
    match &plan.acknowledgement {
        AcknowledgementChange::Keep => {}
        AcknowledgementChange::Record(record) => {
            protection.acknowledgement = Some(AcknowledgementRecord {
                value: record.value.clone(),
                effective: record.effective,
                seen_at: record.seen_at,
            });
        }
        AcknowledgementChange::Forget => protection.acknowledgement = None,
    }
    match plan.held_through {
        LatchChange::Raise(through) => protection.held_through = Some(through),
        LatchChange::Keep | LatchChange::Clear => {}
    }
    // Undecided plans (no threshold) say nothing about the annotation either.
    if plan.threshold.is_some() {
        protection.invalid_acknowledgement = plan.invalid_acknowledgement.clone();
    }
    protection
}

/// Before step 2's second half: where data stays while its objects go, a scan is due. Written first, so that a crash
/// in between costs a scan and never hides what was kept.
///
/// # Errors
/// [`Error`].
pub async fn kept(ctx: &Context, observed: &mut Observed, plan: &Plan, now: Timestamp) -> Result<(), Error> {
    let keeping = plan
        .decisions
        .iter()
        .filter(|d| due::keeps_data(d.verdict) || was_stopped(ctx, d));
    let of: BTreeSet<RepositoryKey> = keeping.filter_map(|d| d.repository.clone()).collect();
    for key in of {
        let Some(view) = observed.repositories.get(&key).cloned() else {
            continue;
        };
        let catalog = view.status.catalog.as_ref();
        let Some(scan) = due::put_off(catalog.and_then(|c| c.scan_due.as_ref()), now) else {
            continue;
        };
        let after = change(ctx, &view, |status| {
            status.catalog.get_or_insert_default().scan_due = Some(scan);
        })
        .await?;
        observed.repositories.insert(key, after);
    }
    Ok(())
}

/// Nothing is recorded because the run was stopped: what it may have committed by then has no object.
fn was_stopped(ctx: &Context, decision: &Decision) -> bool {
    let released = decision.verdict == Verdict::Release(ReleaseReason::NothingRecorded);
    let suspended = |job: &JobView| job.spec.suspend == Some(true);
    released && ctx.world.jobs_of(&decision.uid).iter().any(|job| suspended(job))
}

fn set_protection(status: &mut RepositoryStatus, protection: DeletionProtectionStatus) {
    let empty = protection == DeletionProtectionStatus::default();
    if !empty || status.deletion_protection.is_some() {
        status.deletion_protection = Some(protection);
    }
}

/// Before step 4: a watch that hangs while that of the repositories goes on would show no latched member pending, so a
/// latch is cleared only over what the API server itself says is pending.
///
/// # Errors
/// [`Error`]; a conflict when the world does not know all of it.
pub async fn nothing_unknown_is_pending(ctx: &Context, plan: &Plan) -> Result<(), Error> {
    let clears = |r: &RepositoryPlan| r.held_through == LatchChange::Clear;
    let clears = plan.repositories.iter().any(clears) || plan.latch == LaneLatchChange::Forget;
    if clears && !knows_what_is_pending(ctx).await? {
        return Err(Error::Conflict);
    }
    Ok(())
}

/// Step 4: the latch downwards and the condition `MassDeletionHeld`.
///
/// # Errors
/// [`Error`].
pub async fn after(ctx: &Context, observed: &mut Observed, plan: &Plan, now: Timestamp) -> Result<(), Error> {
    for repository in &plan.repositories {
        let Some(view) = observed.repositories.get(&repository.key).cloned() else {
            continue;
        };
        let generation = view.metadata.generation;
        let after = change(ctx, &view, |status| {
            if repository.held_through == LatchChange::Clear {
                let mut protection = status.deletion_protection.take().unwrap_or_default();
                protection.held_through = None;
                set_protection(status, protection);
            }
            if let (Some((held, reason)), Some(message)) =
                (repository.condition(), messages::mass_deletion(WORDS, repository))
            {
                conditions::set(
                    &mut status.conditions,
                    conditions::MASS_DELETION_HELD,
                    held,
                    reason,
                    &message,
                    generation,
                    now,
                );
            }
        })
        .await?;
        observed.repositories.insert(repository.key.clone(), after);
    }
    Ok(())
}

/// Live proof before a latch is cleared: whether every Snapshot that the API server says is being deleted is
/// pending in the world as well. Asked once at the end of a wave.
async fn knows_what_is_pending(ctx: &Context) -> Result<bool, Error> {
    let api: Api<PartialObjectMeta<Snapshot>> = Api::all(ctx.client.clone());
    let mut page = ListParams::default().limit(500);
    loop {
        let list = api.list(&page).await?;
        let unknown = list.items.iter().any(|live| {
            let ours = live.finalizers().iter().any(|f| f == names::FINALIZER);
            let known = ctx.world.snapshot(&ObjectKey::of(live));
            let known =
                known.is_some_and(|k| k.is_pending_deletion() && Some(k.uid()) == live.meta().uid.as_deref());
            live.meta().deletion_timestamp.is_some() && ours && !known
        });
        if unknown {
            return Ok(false);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(true),
        }
    }
}

/// What failed.
#[derive(Debug, Clone, Copy)]
pub struct Failure<'a> {
    /// UID of the Job that failed, if there was one: none is counted twice.
    pub job: Option<&'a str>,
    /// What follows from its silence, if its mover ran and left nothing to read.
    pub silent: Option<Follows>,
    /// The word for condition and event.
    pub reason: &'a str,
    /// For people.
    pub message: &'a str,
}

/// What a repository remembers of delete Jobs that left no result.
#[must_use]
pub fn silence_of(jobs: Option<&DeletionJobsStatus>) -> Silent {
    Silent {
        times: jobs.and_then(|j| j.unanswered).unwrap_or_default(),
        most_members: jobs.and_then(|j| j.most_members),
    }
}

/// The delete Jobs of a repository cannot start or connect: one backoff, one condition, one event per transition.
/// The view in `observed` becomes what was written.
///
/// # Errors
/// [`Error`].
pub async fn failed(
    ctx: &Context,
    observed: &mut Observed,
    view: &RepositoryView,
    failure: Failure<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    let Failure {
        job,
        silent,
        reason,
        message,
    } = failure;
    let jobs = view.protection().jobs.unwrap_or_default();
    if job.is_some() && jobs.counted.as_deref() == job {
        return Ok(());
    }
    // Smaller batches are a new beginning: the pauses begin anew as well.
    let failures = match silent {
        Some(Follows::Halved(_)) => 1,
        Some(Follows::Again(_) | Follows::Alone(_)) | None => jobs.failures.saturating_add(1),
    };
    let remembered = silent.map_or_else(|| silence_of(Some(&jobs)), Follows::record);
    // Something that a person puts there ends a wait sooner than a repository that a Job could not reach.
    let patience = if job.is_some() { failures } else { failures.min(2) };
    let generation = view.metadata.generation;
    let after = change(ctx, view, |status| {
        let protection = status.deletion_protection.get_or_insert_default();
        protection.jobs = Some(DeletionJobsStatus {
            failures,
            next_attempt_at: Some(backoff::REPOSITORY.next(patience, now)),
            counted: job.map(str::to_owned).or(jobs.counted),
            unanswered: Some(remembered.times).filter(|times| *times > 0),
            most_members: remembered.most_members,
        });
        let list = &mut status.conditions;
        conditions::set(
            list,
            conditions::DELETION_JOBS_FAILING,
            true,
            reason,
            message,
            generation,
            now,
        );
    })
    .await?;
    if jobs.failures == 0 {
        ctx.warn_repository(
            &after,
            conditions::DELETION_JOBS_FAILING,
            message,
            "CheckRepository",
        )
        .await;
    }
    observed.repositories.insert(view.key.clone(), after);
    Ok(())
}

/// A delete Job of the repository, of this UID, answered for its members; where it proved any of them gone
/// (`confirmed`), the second look is due.
///
/// # Errors
/// [`Error`].
pub async fn worked(
    ctx: &Context,
    observed: &mut Observed,
    view: &RepositoryView,
    job: &str,
    confirmed: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let generation = view.metadata.generation;
    tell(ctx, observed, view, |status| {
        if confirmed {
            let catalog = status.catalog.get_or_insert_default();
            catalog.second_look_at = Some(look::scheduled(catalog.second_look_at, now));
        }
        if let Some(protection) = &mut status.deletion_protection
            && let Some(jobs) = &mut protection.jobs
            // Not twice for one Job: two answers in a row make batches large again.
            && jobs.counted.as_deref() != Some(job)
        {
            let kept = split::answered(silence_of(Some(jobs)), jobs.failures > 0);
            protection.jobs = kept.most_members.map(|most| DeletionJobsStatus {
                counted: Some(job.to_owned()),
                most_members: Some(most),
                ..DeletionJobsStatus::default()
            });
        }
        let list = &mut status.conditions;
        if conditions::is_true(list, conditions::DELETION_JOBS_FAILING) {
            let message = "The last delete Job reached the repository.";
            conditions::set(
                list,
                conditions::DELETION_JOBS_FAILING,
                false,
                "Working",
                message,
                generation,
                now,
            );
        }
    })
    .await
}

/// Writes to a repository's status; the view in `observed` becomes what was written.
///
/// # Errors
/// [`Error`].
pub async fn tell(
    ctx: &Context,
    observed: &mut Observed,
    view: &RepositoryView,
    how: impl FnOnce(&mut RepositoryStatus),
) -> Result<(), Error> {
    let current = observed.repositories.get(&view.key).cloned();
    let after = change(ctx, current.as_deref().unwrap_or(view), how).await?;
    observed.repositories.insert(view.key.clone(), after);
    Ok(())
}

/// Writes a repository's status against the judged resourceVersion, if it changes, and answers with what is there
/// then.
pub(super) async fn change(
    ctx: &Context,
    view: &RepositoryView,
    change: impl FnOnce(&mut RepositoryStatus),
) -> Result<Arc<RepositoryView>, Error> {
    let mut status = view.status.clone();
    change(&mut status);
    let Some(patch) = diff::merge_patch(&view.status, &status) else {
        return Ok(Arc::new(view.clone()));
    };
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    ctx.leadership.guard()?;
    let client = ctx.client.clone();
    Ok(Arc::new(match &view.key {
        RepositoryKey::Repository { namespace, name } => {
            let api: Api<Repository> = Api::namespaced(client, namespace);
            RepositoryView::namespaced(write::patch_status(&api, name, version, patch).await?)
        }
        RepositoryKey::ClusterRepository { name } => {
            let api: Api<ClusterRepository> = Api::all(client);
            RepositoryView::cluster(write::patch_status(&api, name, version, patch).await?)
        }
    }))
}
