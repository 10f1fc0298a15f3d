//! From any state, without further disturbance: the wave drains or says why not, and with an acknowledgement it
//! drains.
//!
//! **Promises.** What is left without an acknowledgement is held by the breaker, marked, and told on its repository;
//! what is left with one is nothing.
//!
//! **Assumes.** Watches deliver, Jobs start, movers do their work, and the clock goes on.

use super::facts::{lane, members, time};
use super::model::{Action, Model};
use super::oracle::covered;
use super::world::{Cache, MEMBERS, Note, Phase, REPOSITORIES, State, has, sharer};
use holdfast_core::deletion::Wait;
use std::sync::atomic::Ordering;

/// More turns than any undisturbed end needs.
const TURNS: usize = 400;

/// One turn of an undisturbed world; false: nothing happens but time.
fn turn(model: &Model, state: &mut State) -> bool {
    if state.leader.pass.is_some() {
        model.step(state, false, true);
        return true;
    }
    let job = state.jobs.iter().flatten().next().copied();
    let action = job.and_then(|job| match job.phase {
        Phase::Ended(_) => None,
        Phase::Waiting if job.leaving => Some(Action::Leave(job.serial)),
        Phase::Waiting => Some(Action::Start(job.serial)),
        Phase::Running => Some(Action::Finish {
            job: job.serial,
            lost: false,
        }),
    });
    let before = *state;
    // The operator looks before the cluster moves on.
    model.begin(state, 0);
    if *state != before {
        return true;
    }
    if let Some(action) = action {
        model.cluster(state, action);
    }
    action.is_some()
}

/// Until nothing happens any more; false: it goes on for ever.
fn settle(model: &Model, state: &mut State) -> bool {
    let mut idle = 0;
    for _ in 0..TURNS {
        if turn(model, state) {
            idle = 0;
        } else {
            idle += 1;
            state.clock += 1;
        }
        // Longer than quiet window and backoff.
        if idle > 3 {
            return true;
        }
    }
    false
}

pub fn ends_well(model: &Model, state: &State) -> bool {
    let mut state = *state;
    state.former = None;
    if !settle(model, &mut state) || !says_why(model, &state) {
        return false;
    }
    for index in 0..REPOSITORIES {
        let now = state.clock + model.skew;
        // A person who acknowledges writes a value that is not there already.
        state.change_repository(index, |repository| {
            let taken = repository.note == Note::At(now);
            repository.note = Note::At(now + u8::from(taken));
        });
    }
    model.seen.drained.fetch_add(1, Ordering::Relaxed);
    settle(model, &mut state) && state.objects.iter().all(|object| object.deleting().is_none())
}

/// Everything pending is held, marked and not covered, and its repository says so; or it waits for a held one that
/// records the same snapshot, and says that.
fn says_why(model: &Model, state: &State) -> bool {
    let cache = Cache::list(state);
    let lane = lane(&cache, &state.repositories, state.schedule, &state.jobs);
    let plan = (model.decide)(&lane, &model.settings, time(state.clock));
    let mut held = 0;
    for decision in &plan.decisions {
        let mask = members([&decision.uid]);
        let Some(member) = (0..MEMBERS).find(|&m| has(mask, m)) else {
            return false;
        };
        let object = &state.objects[member];
        let released = object
            .deleting()
            .is_some_and(|at| covered(state, model.skew, member, at));
        let waits = decision.not_yet == Some(Wait::SharedWithPending)
            && sharer(member).is_some_and(|other| state.objects[other].held);
        let held_back = decision.verdict.is_held() && object.held && !released;
        if !waits && !held_back {
            return false;
        }
        held += usize::from(decision.verdict.is_held());
    }
    let told = plan.repositories.iter().filter_map(|r| r.hold.as_ref());
    told.map(|hold| hold.held).sum::<usize>() == held && state.jobs.iter().all(Option::is_none)
}
