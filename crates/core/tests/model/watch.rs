//! What a process knows: its copies, and how the watches bring them up to date.
//!
//! **Promises.** Each kind catches up by itself: watches of different kinds are not ordered.
//!
//! **Assumes.** A watch that catches up does so whole; every older state was a state of its own before.

use super::model::Model;
use super::world::{
    Cache, Life, MEMBERS, Mask, Note, Object, REPOSITORIES, Repository, Schedule, State, bit,
};

pub const ALL: Mask = (1 << MEMBERS) - 1;
pub const OBJECTS_OLD: Mask = 1;
pub const REPOSITORIES_OLD: Mask = 2;
pub const SCHEDULE_OLD: Mask = 4;

/// What is left as it was known before when a pass begins: every mix of kinds, for watches are not ordered.
pub const VIEWS: [Mask; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

impl Cache {
    /// A fresh list.
    pub fn list(state: &State) -> Self {
        let mut cache = Self {
            objects: state.objects,
            current: ALL,
            first_seen: [0; MEMBERS],
            repositories: state.repositories,
            repositories_current: 3,
            schedule: state.schedule,
        };
        for member in 0..MEMBERS {
            if state.objects[member].deleting().is_some() {
                cache.first_seen[member] = state.clock;
            }
        }
        cache
    }

    pub fn deliver_objects(&mut self, objects: &[Object; MEMBERS], clock: u8) {
        for (member, object) in objects.iter().enumerate() {
            match (self.objects[member].life, object.life) {
                (Life::Live, Life::Deleting(_)) => self.first_seen[member] = clock,
                (_, Life::Gone) => self.first_seen[member] = 0,
                (_, Life::Live | Life::Deleting(_)) => {}
            }
        }
        self.objects = *objects;
        self.current = ALL;
    }

    /// Whether anything of these kinds is not known yet.
    pub fn lags(&self, state: &State, kinds: Mask) -> bool {
        (kinds & OBJECTS_OLD != 0 && self.current != ALL)
            || (kinds & REPOSITORIES_OLD != 0 && self.repositories_current != 3)
            || (kinds & SCHEDULE_OLD != 0 && self.schedule != state.schedule)
    }

    /// Each of these kinds lags.
    pub fn lags_each(&self, state: &State, kinds: Mask) -> bool {
        [OBJECTS_OLD, REPOSITORIES_OLD, SCHEDULE_OLD]
            .into_iter()
            .all(|kind| kinds & kind == 0 || self.lags(state, kind))
    }
}

impl Model {
    /// What there is before anything happens.
    pub fn beginning(&self) -> Cache {
        let object = Object {
            life: Life::Live,
            skip: false,
            pruned: false,
            held: false,
            claim: None,
            confirmed: false,
            tried: false,
            next_attempt: 0,
        };
        let repository = |threshold| Repository {
            threshold,
            note: Note::Absent,
            record: None,
            held_through: None,
            backoff: 0,
            counted: 0,
            scan_due: false,
        };
        let mut objects = [object; MEMBERS];
        if self.appears {
            objects[3].life = Life::Gone;
        }
        Cache {
            objects,
            current: (1 << MEMBERS) - 1,
            first_seen: [0; MEMBERS],
            repositories: self.thresholds.map(repository),
            repositories_current: (1 << REPOSITORIES) - 1,
            schedule: Schedule::Alive,
        }
    }

    /// The beginning, as a process knows it whose watches have not moved since.
    pub fn before(&self, state: &State) -> Cache {
        let mut cache = self.beginning();
        let changed = |mask: Mask, (index, same): (usize, bool)| if same { mask } else { mask & !bit(index) };
        let same = (0..MEMBERS).map(|m| (m, cache.objects[m] == state.objects[m]));
        cache.current = same.fold(cache.current, changed);
        let same = (0..REPOSITORIES).map(|r| (r, cache.repositories[r] == state.repositories[r]));
        cache.repositories_current = same.fold(cache.repositories_current, changed);
        cache
    }
}
