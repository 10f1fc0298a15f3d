//! What people, retention and other controllers may do.
//!
//! **Promises.** Everything here may happen between any two requests of the operator.
//!
//! **Assumes.** A deletion cannot be taken back; an annotation put on stays.

use super::model::{Action, Model};
use super::world::{Life, MEMBERS, Note, Schedule, State, has, pin};

impl Model {
    pub fn deeds_of_people(&self, state: &State, actions: &mut Vec<Action>) {
        for member in 0..MEMBERS {
            let object = &state.objects[member];
            if object.life == Life::Live && has(self.deletable, member) {
                actions.push(Action::Delete(member));
                if self.deeds.prune && member == 0 {
                    actions.push(Action::Prune(member));
                }
            }
        }
        if state.budget.deeds == 0 {
            return;
        }
        if self.appears && state.objects[3].life == Life::Gone {
            actions.push(Action::Appear(3));
        }
        if self.deeds.skip {
            for member in 0..MEMBERS {
                if state.objects[member].deleting().is_some() && !state.objects[member].skip {
                    actions.push(Action::Skip(member));
                }
            }
        }
        for (index, repository) in state.repositories.iter().enumerate() {
            let pinned = (0..MEMBERS).any(|m| pin(m) == index && state.objects[m].deleting().is_some());
            if self.deeds.acknowledge && pinned {
                let notes = [Note::Garbage, Note::At(state.clock), Note::At(200)];
                let new = notes.into_iter().filter(|note| *note != repository.note);
                actions.extend(new.map(|note| Action::Acknowledge(index, note)));
            }
            if self.deeds.threshold {
                let new = [0, 9].into_iter().filter(|t| *t != repository.threshold);
                actions.extend(new.map(|threshold| Action::Threshold(index, threshold)));
            }
        }
        if self.deeds.schedule {
            actions.push(Action::Schedule(match state.schedule {
                Schedule::Alive | Schedule::Again => Schedule::Gone,
                Schedule::Gone => Schedule::Again,
            }));
        }
    }
}
