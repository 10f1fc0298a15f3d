//! The result of a backup mover, and how one is stopped.
//!
//! **Promises.** A result is recorded once, against the judged resourceVersion; the Job stays for an hour after
//! that for its log. A run without a readable result is Failed, and says that nothing is known to be recorded.

use super::act::{kstatus, write_status};
use super::copies;
use crate::context::{Context, Error};
use crate::jobs::outcome::{self, Read};
use crate::protect::repository;
use crate::runtime::metrics::BackupResult;
use crate::runtime::write::WriteError;
use crate::world::views::{JobState, JobView, SnapshotStatusView, SnapshotView};
use holdfast_api::shared::Identity;
use holdfast_api::snapshot::{RecordedSnapshot, RunFailure, SnapshotPhase, Stats, Timing};
use holdfast_api::{conditions, names};
use holdfast_core::retention::ended;
use holdfast_protocol::outcome::{FailureClass, OperationResult, TakenSnapshot};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::EventType;
use serde_json::json;

/// The mover's word for a backend that is away.
const UNREACHABLE: &str = "BackendUnreachable";
/// What can be done where the mover's user may not read everything.
const READ_BY_ROOT: &str =
    "(What only root may read: spec.mover.privilegedMode of the policy, where the namespace agrees to it.)";
/// Seconds that a Job stays after its result was recorded.
const KEEP_SECONDS: i32 = 3600;

/// Records what a terminal backup Job left, also on a Snapshot that is being deleted.
///
/// # Errors
/// [`Error`].
pub async fn record(
    ctx: &Context,
    view: &SnapshotView,
    job: &JobView,
    read: &Read,
    now: Timestamp,
) -> Result<(), Error> {
    super::vanished::report(ctx, view, read, now).await?;
    // Before the result is recorded: after that nobody looks at this Job again.
    match copies::withdraw(ctx, view).await {
        Ok(()) => {}
        Err(Error::NotLeader) => return Err(Error::NotLeader),
        // A result that is not recorded is lost with its pod; a copy goes with its Job at the latest.
        Err(error) => {
            tracing::warn!(snapshot = %view.key(), "the copy of the credentials stays until its owner goes: {error}");
        }
    }
    let generation = view.metadata.generation;
    let outcome = judge(view.uid(), job.state(), read);
    let created = view.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let ends_as = if view.metadata.deletion_timestamp.is_some() {
        SnapshotPhase::Deleting
    } else {
        SnapshotPhase::Failed
    };
    write_status(ctx, view, |status| match &outcome {
        Ok(taken) => {
            status.phase = Some(SnapshotPhase::Succeeded);
            let identity = identity(view, status);
            status.snapshot = Some(RecordedSnapshot {
                kopia_snapshot_id: taken.snapshot_id.clone(),
                identity: Some(identity),
            });
            status.timing = Some(Timing {
                start_time: Some(taken.start_time),
                end_time: Some(ended::taken(taken.end_time, created, now)),
                duration_seconds: Some(taken.end_time.duration_since(taken.start_time).as_secs()),
            });
            let message = taken_message(taken);
            status.stats = Some(stats(taken));
            kstatus(
                status,
                generation,
                (true, false, false),
                "SnapshotCreated",
                &message,
                now,
            );
            conditions::clear(&mut status.conditions, conditions::STATUS_LOST);
        }
        Err(failure) => {
            status.phase = Some(ends_as);
            status.failure = Some(failure.clone());
            kstatus(
                status,
                generation,
                (false, false, true),
                "SnapshotFailed",
                &failure.message,
                now,
            );
        }
    })
    .await?;
    if outcome
        .as_ref()
        .is_err_and(|failure| failure.class == UNREACHABLE)
        && let Some(repository) = view.pin()
    {
        repository::ask(ctx, &repository, now).await?;
    }
    keep_for_a_while(ctx, job).await?;
    let policy = view
        .spec
        .policy_ref
        .as_ref()
        .map(|p| p.name.clone())
        .unwrap_or_default();
    let ended = if outcome.is_ok() {
        BackupResult::Succeeded
    } else {
        BackupResult::Failed
    };
    ctx.metrics.backup(ended, &view.key().namespace, &policy);
    if let Ok(taken) = &outcome {
        let counted = ended::taken(taken.end_time, created, now);
        if counted != taken.end_time {
            tracing::warn!(
                snapshot = %view.key(), told = %taken.end_time, %counted,
                "the mover's clock is not ours: retention counts the backup as ended when it may have; check the time on its node"
            );
        }
    }
    if let Err(failure) = &outcome {
        let _ = ctx
            .event_snapshot(
                view,
                EventType::Warning,
                &failure.class,
                &failure.message,
                "ReadMoverLog",
            )
            .await;
    }
    Ok(())
}

/// Who the run was told to record, which stands with the snapshot from now on. A run of an older release did not record
/// it when it began: then it was the policy's name and the namespace.
fn identity(view: &SnapshotView, status: &mut SnapshotStatusView) -> Identity {
    let recorded = status.resolved.as_mut().and_then(|r| r.identity.take());
    recorded.unwrap_or_else(|| {
        let source = status.resolved.as_ref().and_then(|r| r.sources.first());
        let policy = view.spec.policy_ref.as_ref();
        Identity {
            username: policy.map(|p| p.name.clone()).unwrap_or_default(),
            hostname: view.key().namespace,
            source_path: source.map(|s| s.source_path.clone()).unwrap_or_default(),
        }
    })
}

fn taken_message(taken: &TakenSnapshot) -> String {
    let grew = taken
        .bytes_new
        .map_or_else(String::new, |bytes| format!("; the repository grew by {bytes}"));
    format!(
        "Snapshot {} holds {} bytes{grew}.",
        taken.snapshot_id, taken.size_bytes
    )
}

fn stats(taken: &TakenSnapshot) -> Stats {
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    Stats {
        size_bytes: signed(taken.size_bytes),
        bytes_new: taken.bytes_new.map(signed),
        files_new: signed(taken.files_new),
        files_modified: signed(taken.files_modified),
        files_unchanged: signed(taken.files_unchanged),
    }
}

/// What a Job's end means. Only a whole outcome for this very object counts.
fn judge(uid: &str, state: JobState, read: &Read) -> Result<TakenSnapshot, RunFailure> {
    match read {
        Read::Unreadable(why) | Read::Silent(why) => Err(RunFailure {
            class: "MoverLeftNoResult".into(),
            message: format!(
                "The mover left no result: {why}. Nothing is recorded; what it may have written stays in the repository."
            ),
        }),
        Read::Outcome { outcome, .. } => match (&outcome.error, &outcome.result) {
            (
                None,
                OperationResult::BackedUp {
                    first: Some(taken), ..
                },
            ) if taken.uid == uid => Ok(taken.clone()),
            (Some(failure), _) => Err(RunFailure {
                class: format!("{:?}", failure.class),
                message: match failure.class {
                    FailureClass::SourceUnreadable => format!("{} {READ_BY_ROOT}", failure.message),
                    FailureClass::InvalidPassword
                    | FailureClass::RepositoryNotInitialized
                    | FailureClass::RepositoryReplaced
                    | FailureClass::BackendUnreachable
                    | FailureClass::InvalidWork
                    | FailureClass::OperationFailed
                    | FailureClass::Unknown => failure.message.clone(),
                },
            }),
            (None, _) => Err(RunFailure {
                class: "UnexpectedResult".into(),
                message: format!(
                    "The mover ended as {state:?} and answered something else than was asked; are operator and mover of one release?"
                ),
            }),
        },
    }
}

async fn keep_for_a_while(ctx: &Context, job: &JobView) -> Result<(), Error> {
    let key = job.key();
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let patch = Patch::Merge(json!({ "spec": { "ttlSecondsAfterFinished": KEEP_SECONDS } }));
    ctx.leadership.guard()?;
    match api
        .patch(&key.name, &PatchParams::default(), &patch)
        .await
        .map_err(WriteError::from)
    {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Stops a running mover: its Job is suspended, so that the Job controller ends the pod and starts no other
/// (`docs/design.md` 3.3 rule 3). What it had committed stays in the repository. One that is done already is left
/// alone: the Job controller has not seen it yet, and would delete the pod with the result in it.
///
/// # Errors
/// [`Error`].
pub async fn stop(ctx: &Context, job: &JobView) -> Result<(), Error> {
    match outcome::read(&ctx.client, job).await? {
        Read::Outcome {
            exited_well: true, ..
        } => return Ok(()),
        Read::Outcome {
            exited_well: false, ..
        }
        | Read::Unreadable(_)
        | Read::Silent(_) => {}
    }
    ctx.leadership.guard()?;
    let key = job.key();
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
    // For good: what suspended it for a batch does not resume it.
    let patch = Patch::Merge(json!({
        "metadata": { "annotations": { names::SUSPENDED_AT: null } },
        "spec": { "suspend": true },
    }));
    match api
        .patch(&key.name, &PatchParams::default(), &patch)
        .await
        .map_err(WriteError::from)
    {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
