//! A pin Job runs, or has ended: its result is recorded, once.

use super::super::act::write_status;
use super::start::{Obstacle, blocked};
use super::{AGAIN, say, take};
use crate::context::{Context, Error};
use crate::jobs::outcome::{JobFact, Read, refused_pod};
use crate::runtime::queue::Next;
use crate::runtime::write;
use crate::world::views::SnapshotView;
use holdfast_api::{conditions, names};
use holdfast_core::backoff;
use holdfast_core::pins::{PinReason, Seen};
use holdfast_protocol::outcome::OperationResult;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, PropagationPolicy};
use kube::runtime::events::EventType;
use std::time::Duration;

/// The failed attempt that is told in an event.
const TOLD_AT: u32 = 3;

/// Says that it runs, or why it does not.
pub(super) async fn running(
    ctx: &Context,
    view: &SnapshotView,
    job: &JobFact,
    now: Timestamp,
) -> Result<Next, Error> {
    let created = job.job.metadata.creation_timestamp.as_ref();
    let is_slow = created.is_some_and(|t| now.duration_since(t.0) > SignedDuration::from_secs(20));
    if is_slow && let Some(message) = refused_pod(&ctx.client, job).await? {
        let why = Obstacle {
            reason: "JobRefused",
            message,
        };
        return blocked(ctx, view, why, now).await;
    }
    let does = match job.job.annotation(names::PIN_TARGET) {
        Some("false") => "takes our pin back",
        Some(_) | None => "pins it",
    };
    let detail = format!("Job {} {does} in the repository.", job.job.key());
    write_status(ctx, view, |status| {
        say(
            status,
            PinReason::PinJobRunning,
            &detail,
            view.metadata.generation,
            now,
        );
    })
    .await?;
    Ok(Next::After(Duration::from_secs(20)))
}

/// Records what a Job that ended left, once, and removes it.
pub(super) async fn record(
    ctx: &Context,
    view: &SnapshotView,
    job: &JobFact,
    now: Timestamp,
) -> Result<Next, Error> {
    let pin = view
        .status
        .as_ref()
        .and_then(|s| s.pin.clone())
        .unwrap_or_default();
    if pin.job.as_deref() == Some(job.job.key().name.as_str()) {
        match judge(view, &job.read) {
            Ok((id, seen)) => {
                write_status(ctx, view, |status| {
                    take(status, &id, seen, now, view.metadata.generation, now);
                    let pin = status.pin.get_or_insert_default();
                    pin.job = None;
                    pin.attempts = 0;
                    pin.last_error = None;
                    pin.next_attempt_at = None;
                    if view.is_vanished() {
                        let there = "The snapshot is in the repository, and counts.";
                        let generation = view.metadata.generation;
                        let kind = conditions::VANISHED;
                        conditions::set(
                            &mut status.conditions,
                            kind,
                            false,
                            "Listed",
                            there,
                            generation,
                            now,
                        );
                    }
                })
                .await?;
            }
            Err(why) => failed(ctx, view, &why, pin.attempts.saturating_add(1), now).await?,
        }
    }
    let key = job.job.key();
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
    ctx.leadership.guard()?;
    write::delete(
        &api,
        &key.name,
        job.job.uid(),
        None,
        PropagationPolicy::Background,
    )
    .await?;
    Ok(Next::After(AGAIN))
}

async fn failed(
    ctx: &Context,
    view: &SnapshotView,
    why: &str,
    attempts: u32,
    now: Timestamp,
) -> Result<(), Error> {
    let next = backoff::MEMBER.next(attempts, now);
    let detail = format!("The Job failed: {why} It is tried again at {next}.");
    write_status(ctx, view, |status| {
        let pin = status.pin.get_or_insert_default();
        pin.job = None;
        pin.attempts = attempts;
        pin.last_error = Some(why.to_owned());
        pin.next_attempt_at = Some(next);
        say(
            status,
            PinReason::PinJobFailed,
            &detail,
            view.metadata.generation,
            now,
        );
    })
    .await?;
    if attempts == TOLD_AT {
        let reason = PinReason::PinJobFailed.as_str();
        let _ = ctx
            .event_snapshot(view, EventType::Warning, reason, &detail, "CheckRepository")
            .await;
    }
    Ok(())
}

/// What a Job's end means: only a whole outcome for this very object, from the right repository, counts.
fn judge(view: &SnapshotView, read: &Read) -> Result<(String, Seen), String> {
    let outcome = match read {
        Read::Unreadable(why) | Read::Silent(why) => {
            return Err(format!(
                "the mover left no result: {why}. If it wrote, the next Job finds what it wrote."
            ));
        }
        Read::Outcome { outcome, .. } => outcome,
    };
    if let Some(failure) = &outcome.error {
        return Err(format!("{}.", failure.message.trim_end_matches('.')));
    }
    if outcome.unique_id.as_deref() != view.pinned_unique_id() {
        return Err("the mover worked on another repository than this snapshot is in.".to_owned());
    }
    match &outcome.result {
        OperationResult::Pinned {
            uid,
            snapshot_id,
            pinned,
            ours,
        } if uid == view.uid() => Ok((
            snapshot_id.clone(),
            Seen {
                pinned: *pinned,
                ours: *ours,
            },
        )),
        OperationResult::Pinned { .. }
        | OperationResult::None
        | OperationResult::Bootstrapped { .. }
        | OperationResult::BackedUp { .. }
        | OperationResult::Listed { .. }
        | OperationResult::Restore(_)
        | OperationResult::Maintained { .. }
        | OperationResult::NotOwner { .. }
        | OperationResult::Batch { .. } => Err(
            "the mover answered something else than was asked; are operator and mover of one release?"
                .to_owned(),
        ),
    }
}
