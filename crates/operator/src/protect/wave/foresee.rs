//! What a pass would decide, for those who only read: the same translation and the same records, no writes.
//!
//! **Promises.** Nothing is asked here; the facts are those that a pass gathers from the same world. What the caller
//! could not read becomes the fact that says so.
//!
//! **Assumes.** The world is filled and synced by the caller, who lists in [`Unread`] what it could not read. Delete
//! Jobs that run are left out: what they carry counts as pending.

use super::live::Live;
use super::observe;
use super::proven::{Proven, missing_job};
pub use super::records::WORDS;
use super::records::recorded;
use crate::world::World;
use crate::world::keys::{LaneKey, ObjectKey, RepositoryKey};
use crate::world::views::RepositoryView;
use holdfast_core::deletion::{Lane, Owner, RepositoryPlan};
use std::collections::BTreeSet;

/// Objects whose absence in the world proves nothing.
#[derive(Debug, Clone, Default)]
pub struct Unread {
    /// Repository objects.
    pub repositories: BTreeSet<RepositoryKey>,
    /// Policies.
    pub policies: BTreeSet<ObjectKey>,
    /// Schedules.
    pub schedules: BTreeSet<ObjectKey>,
    /// Whether the Jobs could not be read.
    pub jobs: bool,
}

/// The facts about a lane. `home` is the operator's namespace.
#[must_use]
pub fn lane(world: &World, home: &str, key: &LaneKey, unread: &Unread) -> Lane {
    let mut proven = Proven {
        repositories: unread.repositories.clone(),
        policies: unread.policies.clone(),
        ..Proven::default()
    };
    if !unread.jobs {
        let pending = world.pending(key);
        proven.absent_jobs = pending
            .iter()
            .filter_map(|p| missing_job(world, &p.snapshot))
            .collect();
    }
    let mut lane = observe::lane(world, home, key, &[], &proven, &Live::default()).lane;
    for member in lane.members.iter_mut().chain(&mut lane.unplaced) {
        let view = world.snapshot(&ObjectKey::new(&member.namespace, &member.name));
        let owner = view.as_ref().and_then(|view| view.schedule_owner());
        if owner.is_some_and(|(_, name)| {
            unread
                .schedules
                .contains(&ObjectKey::new(&member.namespace, name))
        }) {
            member.owner = Owner::Unknown;
        }
    }
    lane
}

/// Writes into a view what step 1 of a pass would have recorded before it decides again.
pub fn record(view: &mut RepositoryView, plan: &RepositoryPlan) {
    view.status.deletion_protection = Some(recorded(view.protection(), plan));
}
