//! The copy of the credentials that a mover of a Restore reads: when it follows, and when it goes.

use super::job;
use super::observe::Facts;
use super::source::Source;
use crate::context::{Context, Error};
use crate::jobs::projection::{self, Followed, User};
use crate::world::keys::{self, ObjectKey, RepositoryKey};
use crate::world::views::JobView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

fn repository(facts: &Facts) -> Option<RepositoryKey> {
    let namespace = ObjectKey::of(facts.view.as_ref()).namespace;
    match facts.resolved() {
        Some(resolved) => keys::resolve(resolved.repository.as_ref()?, &namespace),
        None => match facts.source.as_ref()? {
            Source::Asks(asks) => asks.repository.clone(),
            Source::Waits(_) | Source::Ends(_) | Source::Missing(_) | Source::Known(_) => None,
        },
    }
}

fn user(facts: &Facts) -> User<'_> {
    User {
        kind: "Restore",
        key: ObjectKey::of(facts.view.as_ref()),
        uid: facts.view.metadata.uid.as_deref().unwrap_or_default(),
        job: job::current(&facts.view),
        repository: repository(facts),
        unique_id: facts.resolved().and_then(|r| r.unique_id.as_deref()),
        asked: job::projects(&facts.view),
    }
}

/// A Job of the Restore runs: its copy follows, or goes. The sentence says why it went.
///
/// # Errors
/// [`Error`].
pub async fn follow(ctx: &Context, facts: &Facts, job: &JobView) -> Result<Option<String>, Error> {
    Ok(match projection::follow(ctx, job, &user(facts)).await? {
        Followed::Without | Followed::There | Followed::Behind(_) => None,
        Followed::Withdrawn(why) => Some(format!(
            "Job {} runs, and the copy of the credentials was removed: {why} A mover that has started goes on with what it has read; one that has not waits until the copy may be there again.",
            job.key()
        )),
        Followed::Stays(why) => Some(format!(
            "{why} Without that right the copy of the credentials cannot be removed: it goes with Job {}.",
            job.key()
        )),
    })
}

/// It waits for something: the copy of a Job that runs follows, or goes; one that no Job reads, or whose repository is not
/// known by now, so that nobody can be asked, goes.
///
/// # Errors
/// [`Error`].
pub async fn while_waiting(ctx: &Context, facts: &Facts) -> Result<(), Error> {
    match &facts.job {
        Some(fact) if !fact.job.is_terminal() && repository(facts).is_some() => {
            follow(ctx, facts, &fact.job).await.map(drop)
        }
        Some(_) | None => withdraw_recorded(ctx, facts).await,
    }
}

/// The Job that stands under the stage's name, as the owner of its copy, if it is the Restore's.
///
/// # Errors
/// [`Error`].
pub async fn own_job(ctx: &Context, facts: &Facts) -> Result<Option<OwnerReference>, Error> {
    projection::own_job(ctx, &user(facts)).await
}

/// What was copied for the Job that is recorded goes, whether that Job ever was.
///
/// # Errors
/// [`Error`].
pub async fn withdraw_recorded(ctx: &Context, facts: &Facts) -> Result<(), Error> {
    let recorded = facts.view.status.as_ref().and_then(|s| s.job.as_ref());
    match recorded {
        Some(job) => projection::withdraw(ctx, &job.name, &user(facts)).await.map(drop),
        None => Ok(()),
    }
}
