//! The copy of the credentials that a run reads: what its Snapshot says about it, and when it goes.

use super::act::{kstatus, write_status};
use crate::context::{Context, Error};
use crate::jobs::job_name;
use crate::jobs::projection::{self, Followed, Hold, User};
use crate::world::views::{JobView, SnapshotView};
use holdfast_api::conditions;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The Snapshot as the user of its repository's credentials: what it is pinned to, and what its policy asks now.
fn user<'a>(ctx: &Context, view: &'a SnapshotView) -> User<'a> {
    let policy = view.policy().and_then(|key| ctx.world.policy(&key));
    let asked = policy
        .as_deref()
        .and_then(|p| p.spec.credential_projection.as_ref());
    let resolved = view.status.as_ref().and_then(|s| s.resolved.as_ref());
    User {
        kind: "Snapshot",
        key: view.key(),
        uid: view.uid(),
        job: job_name(&view.key().name),
        repository: view.pin(),
        unique_id: resolved.and_then(|r| r.unique_id.as_deref()),
        asked: asked.is_some_and(|projection| projection.enabled),
    }
}

/// A Job of the Snapshot runs: its copy follows, or goes, and the condition says which. True: that was written.
///
/// # Errors
/// [`Error`].
pub async fn follow(
    ctx: &Context,
    view: &SnapshotView,
    job: &JobView,
    now: Timestamp,
) -> Result<bool, Error> {
    let (there, reason, message) = match projection::follow(ctx, job, &user(ctx, view)).await? {
        // What runs keeps what it has; the log says why it does not follow.
        Followed::Without | Followed::Behind(_) => return Ok(false),
        Followed::There => (
            true,
            "Projected",
            "The copy of the credentials is there.".to_owned(),
        ),
        Followed::Withdrawn(why) => (
            false,
            "CredentialProjectionNotAllowed",
            format!(
                "The copy of the credentials was removed while Job {} runs: {why} A mover that has started goes on with what it has read; one that has not waits until the copy may be there again.",
                job.key()
            ),
        ),
        Followed::Stays(why) => (
            false,
            "CredentialProjectionNotAllowed",
            format!(
                "{why} Without that right the copy of the credentials cannot be removed: it goes with Job {}.",
                job.key()
            ),
        ),
    };
    let kind = conditions::CREDENTIALS_AVAILABLE;
    let list = view.status.as_ref().map(|s| s.conditions.as_slice());
    let said = conditions::get(list.unwrap_or_default(), kind);
    if said.is_some_and(|c| c.reason == reason && c.message == message) {
        return Ok(false);
    }
    let generation = view.metadata.generation;
    write_status(ctx, view, |status| {
        let list = &mut status.conditions;
        conditions::set(list, kind, there, reason, &message, generation, now);
    })
    .await?;
    Ok(true)
}

/// The run has ended, or does not begin: what was copied for its Job goes.
///
/// # Errors
/// [`Error`].
pub async fn withdraw(ctx: &Context, view: &SnapshotView) -> Result<(), Error> {
    let user = user(ctx, view);
    projection::withdraw(ctx, &user.job, &user).await.map(drop)
}

/// The Job that stands under the run's name, as the owner of its copy, if it is the Snapshot's.
///
/// # Errors
/// [`Error`].
pub async fn own_job(ctx: &Context, view: &SnapshotView) -> Result<Option<OwnerReference>, Error> {
    projection::own_job(ctx, &user(ctx, view)).await
}

/// There is no copy of the credentials, so there is no Job: why.
///
/// # Errors
/// [`Error`].
pub async fn say_hold(ctx: &Context, view: &SnapshotView, hold: &Hold, now: Timestamp) -> Result<(), Error> {
    let generation = view.metadata.generation;
    let (reason, message) = (hold.reason(), hold.message());
    write_status(ctx, view, |status| {
        let kind = conditions::CREDENTIALS_AVAILABLE;
        conditions::set(
            &mut status.conditions,
            kind,
            false,
            reason,
            message,
            generation,
            now,
        );
        kstatus(status, generation, (false, true, false), reason, message, now);
    })
    .await
}
