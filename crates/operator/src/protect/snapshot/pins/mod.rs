//! Pinning a Snapshot's snapshot in its repository, and taking our pin back (`docs/design.md` 3.6).
//!
//! **Promises.** What is wanted is `spec.pin`, what is there is what a listing or a pin Job last read. That a Job is to come
//! is recorded before it is created. One pin Job at a time for each physical repository, never beside a delete Job: both
//! ask under one gate, live, until their Job is created, and the Snapshot is read there once more, so that one that is being
//! deleted is not pinned any more. The id that the snapshot has then is recorded together with the result, in one write.
//! Only our own pin is taken back.
//!
//! **Assumes.** A crash between the mover's write and this record leaves an id that the delete Job's plan, a restore, the
//! next pin Job and the next listing find again by what the snapshot is of and when it was begun.

mod ended;
mod start;

use super::act::write_status;
use crate::context::{Context, Error};
use crate::jobs::outcome::job_fact;
use crate::runtime::queue::Next;
use crate::world::keys::LaneKey;
use crate::world::views::{JobView, SnapshotStatusView, SnapshotView};
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{conditions, names};
use holdfast_core::backoff;
use holdfast_core::pins::{Facts, Hold, PinReason, Seen, Step, decide};
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use std::time::Duration;

/// How soon what stands in the way is looked at again.
const AGAIN: Duration = Duration::from_secs(10);

/// What the repository's record said when it was last read.
#[must_use]
pub fn seen(view: &SnapshotView) -> Seen {
    let status = view.status.as_ref();
    Seen {
        pinned: status.and_then(|s| s.pinned) == Some(true),
        ours: status.and_then(|s| s.pin.as_ref()).is_some_and(|pin| pin.ours),
    }
}

/// Takes what was read into a status: the id that the snapshot has, and its pins.
pub fn take(
    status: &mut SnapshotStatusView,
    id: &str,
    seen: Seen,
    read_at: Timestamp,
    generation: Option<i64>,
    now: Timestamp,
) {
    if let Some(snapshot) = status.snapshot.as_mut() {
        id.clone_into(&mut snapshot.kopia_snapshot_id);
    }
    status.pinned = Some(seen.pinned);
    let pin = status.pin.get_or_insert_default();
    pin.ours = seen.ours;
    pin.read_at = Some(read_at);
    say(status, PinReason::of(seen), "", generation, now);
}

/// Says a word of [`PinReason`].
fn say(
    status: &mut SnapshotStatusView,
    reason: PinReason,
    detail: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (is_true, message) = match reason {
        PinReason::Pinned => (
            true,
            "Its record in the repository says that it is to be kept; retention never prunes it.",
        ),
        PinReason::PinnedInRepository => (
            true,
            "It was pinned in the repository itself, so retention never prunes it. That is not taken back here: unpin it with the repository's own program.",
        ),
        PinReason::NotPinned => (
            false,
            "Its record in the repository does not say that it is to be kept.",
        ),
        PinReason::PinJobRunning | PinReason::PinJobFailed | PinReason::SharedSnapshot => (false, detail),
    };
    let list = &mut status.conditions;
    let kind = conditions::PINNED;
    match reason {
        PinReason::PinJobRunning => {
            conditions::set_unknown(list, kind, reason.as_str(), message, generation, now);
        }
        PinReason::Pinned
        | PinReason::PinnedInRepository
        | PinReason::NotPinned
        | PinReason::PinJobFailed
        | PinReason::SharedSnapshot => {
            conditions::set(list, kind, is_true, reason.as_str(), message, generation, now);
        }
    }
}

/// Whether a Job pins or unpins in the physical repository of this unique id and has not ended.
#[must_use]
pub fn works_on(job: &JobView, unique_id: &str) -> bool {
    job.label(names::OP_LABEL) == Some(names::OP_PIN)
        && job.annotation(names::PINS_IN) == Some(unique_id)
        && !job.is_terminal()
}

/// The Job that pins or unpins in the physical repository and has not ended, read live.
///
/// # Errors
/// [`Error`].
pub async fn live(ctx: &Context, unique_id: &str) -> Result<Option<String>, Error> {
    let api: Api<JobView> = Api::all(ctx.client.clone());
    let of_kind = ListParams::default().labels(&format!("{}={}", names::OP_LABEL, names::OP_PIN));
    let jobs = api.list(&of_kind).await?.items;
    let found = jobs.iter().find(|job| works_on(job, unique_id));
    Ok(found.map(|job| job.key().to_string()))
}

/// What a batch may not run beside, read live: the pin Jobs of its own members, and, where the engine minds who else writes,
/// every pin Job of the repository. That a member's Job is to come is recorded on the member before, so that a batch which
/// has not heard of it cannot claim the member.
///
/// # Errors
/// [`Error`].
pub async fn beside(
    ctx: &Context,
    unique_id: &str,
    minds: bool,
    members: impl Iterator<Item = &SnapshotView>,
) -> Result<Option<String>, Error> {
    if minds {
        return live(ctx, unique_id).await;
    }
    for view in members {
        let pin = view.status.as_ref().and_then(|s| s.pin.as_ref());
        let Some(name) = pin.and_then(|pin| pin.job.as_deref()) else {
            continue;
        };
        let namespace = view.key().namespace;
        let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &namespace);
        let found = api.get_opt(name).await?;
        if found.is_some_and(|job| works_on(&job, unique_id)) {
            return Ok(Some(format!("{namespace}/{name}")));
        }
    }
    Ok(None)
}

/// One pass over a Snapshot that is not being deleted and has come to its end.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, view: &SnapshotView, now: Timestamp) -> Result<Next, Error> {
    if view.phase() != Some(SnapshotPhase::Succeeded) {
        return Ok(Next::Settled);
    }
    if let Some(job) = job_fact(ctx, view.uid(), names::OP_PIN).await? {
        return if job.job.is_terminal() {
            ended::record(ctx, view, &job, now).await
        } else {
            ended::running(ctx, view, &job, now).await
        };
    }
    let sharer = sharer(ctx, view);
    match decide(&facts(view, sharer.is_some(), now), now) {
        Step::Nothing => Ok(Next::Settled),
        Step::Settled(reason) => {
            settled(ctx, view, reason, sharer.as_deref(), now).await?;
            Ok(Next::Settled)
        }
        Step::Wait(at) => Ok(Next::After(
            Duration::try_from(at.duration_since(now))
                .unwrap_or(AGAIN)
                .max(AGAIN),
        )),
        Step::Job { on } => start::start(ctx, view, on, now).await,
    }
}

fn facts(view: &SnapshotView, shared: bool, now: Timestamp) -> Facts {
    let status = view.status.as_ref();
    let told = view.source().is_some() && view.pinned_unique_id().is_some() && view.pin().is_some();
    let hold = if view.is_discovered() || !told {
        Some(Hold::NothingRecorded)
    } else if view.is_vanished() {
        Some(Hold::Vanished)
    } else {
        shared.then_some(Hold::Shared)
    };
    let pin = status.and_then(|s| s.pin.as_ref());
    Facts {
        wanted: view.spec.pin,
        seen: seen(view),
        hold,
        next_attempt_at: pin
            .and_then(|pin| pin.next_attempt_at)
            .filter(|at| backoff::MEMBER.waits(*at, now)),
    }
}

/// Another live Snapshot that records the same id, by its key.
fn sharer(ctx: &Context, view: &SnapshotView) -> Option<String> {
    let lane = LaneKey::Physical(view.pinned_unique_id()?.to_owned());
    let recorders = ctx.world.live_recorders(&lane, view.snapshot_id()?);
    recorders
        .iter()
        .find(|other| other.uid() != view.uid() && !other.is_discovered())
        .map(|other| other.key().to_string())
}

/// Nothing is to be written in the repository; the word is only said of what somebody asked about or pinned.
async fn settled(
    ctx: &Context,
    view: &SnapshotView,
    reason: PinReason,
    sharer: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    let status = view.status.as_ref();
    let silent = status.is_none_or(|s| {
        s.pin.is_none() && s.pinned.is_none() && conditions::get(&s.conditions, conditions::PINNED).is_none()
    });
    if silent && reason == PinReason::NotPinned {
        return Ok(());
    }
    let detail = format!(
        "Snapshot {} records the same snapshot. Its record in the repository gets another id when it is pinned or unpinned, which that one would not know, so nothing is written there. Here spec.pin keeps this Snapshot from retention all the same. Delete one of the two.",
        sharer.unwrap_or("of another name")
    );
    write_status(ctx, view, |status| {
        if let Some(pin) = &mut status.pin {
            pin.job = None;
            pin.attempts = 0;
            pin.last_error = None;
            pin.next_attempt_at = None;
        }
        say(status, reason, &detail, view.metadata.generation, now);
    })
    .await
}
