//! What is written into a pending Snapshot's status: pure builders and the one write.
//!
//! **Promises.** Each write carries the resourceVersion that was judged; a status that would not change is not
//! written. A status keeps what this code does not know.

use crate::context::{Context, Error};
use crate::runtime::write::WriteError;
use crate::runtime::{diff, write};
use crate::world::keys;
use crate::world::views::{RepositoryView, SnapshotStatusView, SnapshotView};
use futures::StreamExt;
use futures::stream;
use holdfast_api::conditions;
use holdfast_api::snapshot::{DeletionStatus, SnapshotPhase};
use holdfast_core::deletion::{DeleteReason, HeldChange, RetainReason};
use holdfast_protocol::letters::Letter;
use jiff::Timestamp;
use kube::api::Api;
use serde_json::{Value, json};
use std::future::Future;

/// Outcome of a Snapshot that no mover survived although it was alone in its delete Job.
pub const NO_ANSWER: &str = "NoResult";
/// Objects written at once.
const AT_ONCE: usize = 8;

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is written, or was so already.
    Yes,
    /// The object changed since it was judged, or is gone.
    Changed,
    /// The API server refuses it for this object; logged. Others are not to wait for it.
    Refused,
}

/// Writes a status against the judged resourceVersion, if it changes.
///
/// # Errors
/// [`Error`]; a conflict is no error but [`Written::Changed`], a refusal is [`Written::Refused`].
pub async fn write(
    ctx: &Context,
    view: &SnapshotView,
    status: &SnapshotStatusView,
) -> Result<Written, Error> {
    let before = view.status.clone().unwrap_or_default();
    let Some(patch) = diff::merge_patch(&before, status) else {
        return Ok(Written::Yes);
    };
    send(ctx, view, patch).await
}

/// Claims a member: written even if the status would not change, because the resourceVersion it carries is the
/// proof that the object is still the one that was judged.
///
/// # Errors
/// As [`write`].
pub async fn write_claim(
    ctx: &Context,
    view: &SnapshotView,
    status: &SnapshotStatusView,
) -> Result<Written, Error> {
    let before = view.status.clone().unwrap_or_default();
    let job = status.deletion.as_ref().and_then(|d| d.job.as_deref());
    let patch = diff::merge_patch(&before, status).unwrap_or_else(|| json!({ "deletion": { "job": job } }));
    send(ctx, view, patch).await
}

async fn send(ctx: &Context, view: &SnapshotView, patch: Value) -> Result<Written, Error> {
    let key = view.key();
    let api: Api<SnapshotView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    ctx.leadership.guard()?;
    match write::patch_status(&api, &key.name, version, patch).await {
        Ok(_) => Ok(Written::Yes),
        Err(WriteError::Conflict | WriteError::Gone) => Ok(Written::Changed),
        Err(error @ WriteError::Api(_)) => {
            let error = Error::from(error);
            if !error.is_refusal() {
                return Err(error);
            }
            tracing::warn!(snapshot = %key, %error, "a status is refused; going on with the others");
            Ok(Written::Refused)
        }
    }
}

/// Runs futures a few at a time and keeps their answers in no particular order.
pub async fn few_at_once<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    stream::iter(futures).buffer_unordered(AT_ONCE).collect().await
}

fn status_of(view: &SnapshotView) -> SnapshotStatusView {
    view.status.clone().unwrap_or_default()
}

/// Held by the breaker.
#[must_use]
pub fn held(view: &SnapshotView, reason: &str, message: &str, now: Timestamp) -> SnapshotStatusView {
    let mut status = status_of(view);
    let generation = view.metadata.generation;
    status.phase = Some(SnapshotPhase::Deleting);
    let list = &mut status.conditions;
    conditions::set(
        list,
        conditions::DELETION_HELD,
        true,
        reason,
        message,
        generation,
        now,
    );
    unblock(
        &mut status,
        view,
        reason,
        "The breaker holds it; see DeletionHeld.",
        now,
    );
    status
}

/// Waits, and for what.
#[must_use]
pub fn blocked(view: &SnapshotView, reason: &str, message: &str, now: Timestamp) -> SnapshotStatusView {
    let mut status = status_of(view);
    status.phase = Some(SnapshotPhase::Deleting);
    conditions::set(
        &mut status.conditions,
        conditions::DELETION_BLOCKED,
        true,
        reason,
        message,
        view.metadata.generation,
        now,
    );
    status
}

/// Does not wait any more; unchanged if it was not said to wait.
#[must_use]
pub fn unblocked(view: &SnapshotView, reason: &str, message: &str, now: Timestamp) -> SnapshotStatusView {
    let mut status = status_of(view);
    unblock(&mut status, view, reason, message, now);
    status
}

/// The skip annotation came while a Job that may have started includes the Snapshot: said where people look.
#[must_use]
pub fn too_late(view: &SnapshotView, reason: &str, message: &str, now: Timestamp) -> SnapshotStatusView {
    let mut status = status_of(view);
    conditions::set(
        &mut status.conditions,
        conditions::DELETION_BLOCKED,
        false,
        reason,
        message,
        view.metadata.generation,
        now,
    );
    status
}

fn unblock(
    status: &mut SnapshotStatusView,
    view: &SnapshotView,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let list = &mut status.conditions;
    if conditions::is_true(list, conditions::DELETION_BLOCKED) {
        conditions::set(
            list,
            conditions::DELETION_BLOCKED,
            false,
            reason,
            message,
            view.metadata.generation,
            now,
        );
    }
}

/// Claimed by a batch Job that is about to be created.
#[must_use]
pub fn claimed(
    view: &SnapshotView,
    job: &str,
    why: DeleteReason,
    held: HeldChange,
    now: Timestamp,
) -> SnapshotStatusView {
    let mut status = status_of(view);
    let generation = view.metadata.generation;
    status.phase = Some(SnapshotPhase::Deleting);
    let deletion = status.deletion.get_or_insert_default();
    deletion.job = Some(job.to_owned());
    // Remembered until a Job answers: it rides alone.
    deletion.outcome = deletion.outcome.take().filter(|o| o == NO_ANSWER);
    let message = format!("Rides in the delete Job {job} ({}).", why.reason());
    match held {
        HeldChange::Clear(reason) => {
            conditions::set(
                &mut status.conditions,
                conditions::DELETION_HELD,
                false,
                reason.reason(),
                &message,
                generation,
                now,
            );
        }
        HeldChange::Keep | HeldChange::Set => {}
    }
    unblock(&mut status, view, why.reason(), &message, now);
    status
}

/// One without a pin is bound to the repository that its Job deletes from: should its policy change or go meanwhile,
/// the result still finds it, and no other lane takes it for its own. The unique id is not recorded: that its snapshot is
/// in there is what nobody has seen.
pub fn pin(status: &mut SnapshotStatusView, repository: &RepositoryView) {
    let resolved = status.resolved.get_or_insert_default();
    if resolved.repository.is_none() {
        resolved.repository = Some(keys::pin_to(&repository.key));
    }
}

/// No longer claimed, because the Job it names does not exist or said nothing about it.
#[must_use]
pub fn unclaimed(mut status: SnapshotStatusView) -> SnapshotStatusView {
    if let Some(deletion) = &mut status.deletion {
        deletion.job = None;
        if *deletion == DeletionStatus::default() {
            status.deletion = None;
        }
    }
    status
}

/// The data is proven gone. The claim stays: it says which Job did it.
#[must_use]
pub fn confirmed(view: &SnapshotView, outcome: &str) -> SnapshotStatusView {
    let mut status = status_of(view);
    let deletion = status.deletion.get_or_insert_default();
    deletion.outcome = Some(outcome.to_owned());
    deletion.last_error = None;
    deletion.next_attempt_at = None;
    status
}

/// Tried and not confirmed.
#[must_use]
pub fn failed(view: &SnapshotView, outcome: &str, why: &str, next: Timestamp) -> SnapshotStatusView {
    let mut status = status_of(view);
    let deletion = status.deletion.get_or_insert_default();
    deletion.job = None;
    deletion.outcome = Some(outcome.to_owned());
    deletion.attempts = deletion.attempts.saturating_add(1);
    deletion.last_error = Some(why.to_owned());
    deletion.next_attempt_at = Some(next);
    status
}

/// Pruned, but what retention kept instead vanished, or the repository says that it is to be kept: never tried again.
#[must_use]
pub fn void(view: &SnapshotView, why: &str) -> SnapshotStatusView {
    let mut status = status_of(view);
    let deletion = status.deletion.get_or_insert_default();
    deletion.job = None;
    deletion.outcome = Some(RetainReason::Unjustified.reason().to_owned());
    deletion.last_error = Some(why.to_owned());
    deletion.next_attempt_at = None;
    status
}

/// Absent from a repository that it was never recorded to be in: tried no more, for it may be in any other.
#[must_use]
pub fn never_seen(view: &SnapshotView, why: &str) -> SnapshotStatusView {
    let mut status = status_of(view);
    let deletion = status.deletion.get_or_insert_default();
    deletion.job = None;
    deletion.outcome = Some(Letter::NeverSeen.reason().to_owned());
    deletion.last_error = Some(why.to_owned());
    deletion.next_attempt_at = None;
    status
}

/// Whether its snapshot was looked for where it was never recorded to be, and not found.
#[must_use]
pub fn is_never_seen(view: &SnapshotView) -> bool {
    let deletion = view.status.as_ref().and_then(|s| s.deletion.as_ref());
    deletion.is_some_and(|d| d.job.is_none() && d.outcome.as_deref() == Some(Letter::NeverSeen.reason()))
}

/// A live Snapshot whose snapshot is not in the repository.
#[must_use]
pub fn vanished(view: &SnapshotView, message: &str, now: Timestamp) -> SnapshotStatusView {
    let mut status = status_of(view);
    conditions::set(
        &mut status.conditions,
        conditions::VANISHED,
        true,
        "NotListed",
        message,
        view.metadata.generation,
        now,
    );
    status
}

/// Whether a Job has proved its data gone; what is left to do is to release it.
#[must_use]
pub fn is_confirmed(view: &SnapshotView) -> bool {
    let deletion = view.status.as_ref().and_then(|s| s.deletion.as_ref());
    deletion.is_some_and(|d| {
        d.job.is_some()
            && Letter::ALL
                .iter()
                .any(|l| l.confirms() && d.outcome.as_deref() == Some(l.reason()))
    })
}

/// The Job that a member's status names.
#[must_use]
pub fn claim(view: &SnapshotView) -> Option<&str> {
    view.status.as_ref()?.deletion.as_ref()?.job.as_deref()
}
