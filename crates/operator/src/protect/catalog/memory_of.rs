//! What a scan knows of what was let go, and whether that is all of it.
//!
//! **Promises.** A memory that is gone is not taken for one that never was: the repository object names its maps, and the lane's
//! Lease says that something could not be written, also to an object that was made since. It ends when nothing in the
//! repository is without an object, or a person accepts it.

use super::act::read as read_live;
use crate::context::{Context, Error};
use crate::protect::wave::kept::LetGo;
use crate::protect::wave::unremembered::{FORGOTTEN, LOST, acceptance, incomplete};
use crate::protect::wave::{lease, let_go};
use crate::world::views::RepositoryView;
use holdfast_api::repository::RepositoryStatus;
use holdfast_api::{conditions, names};
use jiff::{SignedDuration, Timestamp};

/// Conditions know no fractions.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// What is known.
pub struct Known {
    /// What is remembered.
    pub let_go: LetGo,
    /// The repository says that something is missing.
    said: bool,
    /// The lane says so, since then.
    refused: Option<Timestamp>,
    /// A map that the repository names is not there.
    lost: bool,
    /// A person accepted what is missing up to then.
    accepted: Option<Timestamp>,
}

impl Known {
    /// Whether something is missing.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.said || self.refused.is_some() || self.lost
    }

    /// The status that shows it, and the maps that there are: pure.
    pub fn say(&self, status: &mut RepositoryStatus, view: &RepositoryView, now: Timestamp) {
        if self.lost {
            incomplete(status, view, ("MemoryLost", LOST), now);
        } else if let Some(at) = self.refused.filter(|_| !self.said) {
            incomplete(status, view, ("MemoryRefused", FORGOTTEN), at);
        } else if let Some(accepted) = self.accepted {
            let message = "A person accepted what is not remembered.";
            let until = accepted + SECOND;
            over(status, ("Accepted", message), until, now);
        }
        let names = self.let_go.names();
        if !names.is_empty() || status.catalog.is_some() {
            let catalog = status.catalog.get_or_insert_default();
            // What came meanwhile is kept, what was missed is said.
            let missed = |name: &String| self.lost && !names.contains(name);
            let mut all: Vec<String> = catalog.kept_maps.drain(..).filter(|name| !missed(name)).collect();
            all.extend(names.iter().cloned());
            all.sort();
            all.dedup();
            catalog.kept_maps = all;
        }
    }

    /// Up to when nothing is missing any more, after a listing that began then.
    #[must_use]
    pub fn is_over_until(&self, nothing_left: bool, began: Timestamp) -> Option<Timestamp> {
        let accepted = self.accepted.map(|accepted| accepted + SECOND);
        accepted.max(nothing_left.then_some(began))
    }

    /// The lane forgets that something is missing, unless that came later than `until`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn complete(&self, ctx: &Context, unique_id: &str, until: Timestamp) -> Result<(), Error> {
        let now = ctx.clock.now();
        match lease::incomplete(ctx, unique_id).await? {
            Some(at) if at < until => {
                match lease::say_incomplete(ctx, None, unique_id, None, now).await {
                    // The next scan does it.
                    Ok(_) | Err(Error::Conflict) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Reads it: what says that something is missing, first.
///
/// # Errors
/// [`Error`].
pub async fn read(ctx: &Context, view: &RepositoryView, unique_id: &str) -> Result<Known, Error> {
    let live = read_live(ctx, &view.key).await?;
    let refused = lease::incomplete(ctx, unique_id).await?;
    let let_go = let_go::of(ctx, unique_id).await?;
    let maps = let_go.names();
    let catalog = live.as_ref().and_then(|live| live.status.catalog.as_ref());
    let named = catalog.map(|catalog| catalog.kept_maps.as_slice());
    let kind = conditions::KEPT_MEMORY_INCOMPLETE;
    let said = live
        .as_ref()
        .and_then(|live| conditions::get(&live.status.conditions, kind));
    let said = said.filter(|said| said.status == "True");
    let annotations = live.as_ref().and_then(|live| live.metadata.annotations.as_ref());
    let word = annotations.and_then(|all| all.get(names::ACCEPT_INCOMPLETE_MEMORY));
    let since = said.map(|said| said.last_transition_time.0);
    let accepted = since.filter(|since| word == Some(&acceptance(*since)));
    let covered = |at: &Timestamp| accepted.is_some_and(|accepted| *at < accepted + SECOND);
    Ok(Known {
        said: live.is_none() || (said.is_some() && accepted.is_none()),
        lost: named.unwrap_or_default().iter().any(|name| !maps.contains(name)),
        refused: refused.filter(|at| !covered(at)),
        accepted,
        let_go,
    })
}

/// Nothing in the repository is without an object: whatever was not remembered is recorded again, or gone.
pub fn complete_again(status: &mut RepositoryStatus, began: Timestamp, now: Timestamp) {
    let message = "Nothing in the repository belongs to no object.";
    over(status, ("NothingLeft", message), began, now);
}

/// What was said before `until` is not so any more.
fn over(
    status: &mut RepositoryStatus,
    (reason, message): (&'static str, &str),
    until: Timestamp,
    now: Timestamp,
) {
    let kind = conditions::KEPT_MEMORY_INCOMPLETE;
    let said = conditions::get(&status.conditions, kind);
    let Some(said) = said.filter(|said| said.status == "True" && said.last_transition_time.0 < until) else {
        return;
    };
    let generation = said.observed_generation;
    conditions::set(
        &mut status.conditions,
        kind,
        false,
        reason,
        message,
        generation,
        now,
    );
}
