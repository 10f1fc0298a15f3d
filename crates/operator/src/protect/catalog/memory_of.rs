//! What a scan knows of what was let go, and whether that is all of it.
//!
//! **Promises.** A memory that is gone is not taken for one that never was: the repository object names its maps, and the lane's
//! Lease says that something could not be written, also to an object that was made since. It ends when nothing in the
//! repository is without an object.

use super::act::read as read_live;
use crate::context::{Context, Error};
use crate::protect::wave::kept::LetGo;
use crate::protect::wave::unremembered::{FORGOTTEN, LOST, incomplete};
use crate::protect::wave::{lease, let_go};
use crate::world::views::RepositoryView;
use holdfast_api::conditions;
use holdfast_api::repository::RepositoryStatus;
use jiff::Timestamp;

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
}

impl Known {
    /// Whether something is missing.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.said || self.refused.is_some() || self.lost
    }

    /// The status that shows it, and the maps that there are: pure.
    pub fn say(&self, status: &mut RepositoryStatus, generation: Option<i64>, now: Timestamp) {
        if self.lost {
            incomplete(status, ("MemoryLost", LOST), generation, now);
        } else if let Some(at) = self.refused.filter(|_| !self.said) {
            incomplete(status, ("MemoryRefused", FORGOTTEN), generation, at);
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

    /// Nothing is without an object: the lane forgets that something is missing, unless that came later.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn complete(&self, ctx: &Context, unique_id: &str, began: Timestamp) -> Result<(), Error> {
        let now = ctx.clock.now();
        match lease::incomplete(ctx, unique_id).await? {
            Some(at) if at < began => {
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
    let names = let_go.names();
    let catalog = live.as_ref().and_then(|live| live.status.catalog.as_ref());
    let named = catalog.map(|catalog| catalog.kept_maps.as_slice());
    let kind = conditions::KEPT_MEMORY_INCOMPLETE;
    Ok(Known {
        said: live
            .as_ref()
            .is_none_or(|live| conditions::is_true(&live.status.conditions, kind)),
        lost: named.unwrap_or_default().iter().any(|name| !names.contains(name)),
        refused,
        let_go,
    })
}

/// Nothing in the repository is without an object: whatever was not remembered is recorded again, or gone.
pub fn complete_again(status: &mut RepositoryStatus, began: Timestamp, now: Timestamp) {
    let kind = conditions::KEPT_MEMORY_INCOMPLETE;
    let said = conditions::get(&status.conditions, kind);
    let Some(said) = said.filter(|said| said.status == "True" && said.last_transition_time.0 < began) else {
        return;
    };
    let generation = said.observed_generation;
    let message = "Nothing in the repository belongs to no object.";
    conditions::set(
        &mut status.conditions,
        kind,
        false,
        "NothingLeft",
        message,
        generation,
        now,
    );
}
