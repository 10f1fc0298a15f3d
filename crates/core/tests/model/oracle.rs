//! The promises of `docs/design.md` section 8, stated again over the model's state.
//!
//! **Promises.** Nothing here calls the decision or the code it is made of.
//!
//! **Assumes.** Asked at the live proof, with the copies of members that the claims will carry: a member that has
//! changed since is not claimed.

use super::world::{
    Cache, Life, MEMBERS, Mask, Note, Object, REPOSITORIES, Schedule, State, bit, has, keeps_on_cascade, pin,
    sharer,
};

/// A recorded acknowledgement covers a member deleted at this moment: the person's value is not before it, and it
/// was pending, or in the past, when the value was seen.
pub fn covered(state: &State, skew: u8, member: usize, deleted_at: u8) -> bool {
    let repository = &state.repositories[pin(member)];
    match (repository.note, repository.record) {
        (Note::At(value), Some(record)) => {
            record.value == value && deleted_at <= value && deleted_at <= record.seen.saturating_add(skew)
        }
        (Note::At(_) | Note::Absent | Note::Garbage, _) => false,
    }
}

/// The smallest threshold that is not 0.
pub fn threshold(state: &State) -> Option<u8> {
    (0..REPOSITORIES)
        .map(|index| state.repositories[index].threshold)
        .filter(|threshold| *threshold != 0)
        .min()
}

/// Whether a rule keeps a member's data, as far as this copy and this schedule tell.
pub fn keeps(objects: &[Object; MEMBERS], schedule: Schedule, member: usize) -> bool {
    objects[member].skip
        || (keeps_on_cascade(member) && schedule != Schedule::Alive)
        || sharer(member).is_some_and(|other| objects[other].life == Life::Live)
}

/// Pending members, whether this process has been told of them or not, that nobody covers, stamped or keeps.
fn wave(state: &State, skew: u8) -> usize {
    (0..MEMBERS)
        .filter(|&member| {
            let object = &state.objects[member];
            object.deleting().is_some_and(|at| {
                !object.done()
                    && (!object.pruned || has(state.was_held, member))
                    && !keeps(&state.objects, state.schedule, member)
                    && !covered(state, skew, member, at)
            })
        })
        .count()
}

/// Promise 1: whether the data of a member may be deleted.
pub fn may_delete(state: &State, skew: u8, cache: &Cache, member: usize) -> bool {
    let object = &cache.objects[member];
    let Some(at) = object.deleting() else {
        return false;
    };
    let mut objects = cache.objects;
    // Who else is live is asked of the API server.
    if let Some(other) = sharer(member) {
        objects[other] = state.objects[other];
    }
    if keeps(&objects, state.schedule, member) {
        return false;
    }
    match threshold(state) {
        None => true,
        Some(threshold) => {
            (object.pruned && !has(state.was_held, member))
                || covered(state, skew, member, at)
                || wave(state, skew) < usize::from(threshold)
        }
    }
}

/// Promise 2: a member that was held fires only by an acknowledgement or by threshold 0.
pub fn may_leave_hold(state: &State, skew: u8, cache: &Cache, member: usize) -> bool {
    !has(state.was_held, member)
        || threshold(state).is_none()
        || cache.objects[member]
            .deleting()
            .is_some_and(|at| covered(state, skew, member, at))
}

/// Those of a set that something is not true of.
pub fn without(set: Mask, holds: impl Fn(usize) -> bool) -> Mask {
    (0..MEMBERS)
        .filter(|&member| has(set, member) && !holds(member))
        .fold(0, |mask, member| mask | bit(member))
}
