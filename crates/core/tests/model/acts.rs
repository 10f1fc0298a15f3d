//! What each request of a pass does to what is stored.
//!
//! **Promises.** A status is written only against the copy that was judged; a finalizer goes whatever the
//! resourceVersion; CREATE meets a Job of the same name.
//!
//! **Assumes.** [`super::pass`] calls these in the order of the wave controller.

use super::facts::{batch, batch_name, lane, time};
use super::model::{Clearing, Model, Slip};
use super::oracle;
use super::world::{
    Act, Cache, Job, Life, MEMBERS, Mask, Object, Pass, Phase, Process, Recording, Repository, State, bit,
    has, owned, pin,
};
use std::sync::atomic::Ordering;

impl Model {
    pub fn conflict(&self) -> bool {
        self.seen.conflicts.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// A write of a repository object's status by a pass; false: a conflict.
    pub fn write_repository(
        &self,
        state: &mut State,
        pass: &mut Pass,
        index: usize,
        change: impl FnOnce(&mut Repository),
    ) -> bool {
        if !has(pass.repositories_current, index) {
            return self.conflict();
        }
        state.change_repository(index, change);
        true
    }

    pub fn record(&self, state: &mut State, pass: &mut Pass, index: usize) -> bool {
        let (recording, raise) = (pass.recordings[index], pass.raise[index]);
        let written = self.write_repository(state, pass, index, |repository| {
            match recording {
                Recording::Keep => {}
                Recording::Write(record) => repository.record = Some(record),
                Recording::Forget => repository.record = None,
            }
            if let Some(through) = raise
                && self.slip != Slip::LatchNotRecorded
            {
                repository.held_through = Some(through);
            }
        });
        if written && raise.is_some() {
            state.was_held |= pending(state, pass.judged_held & repository_members(index));
        }
        pass.recordings[index] = Recording::Keep;
        pass.raise[index] = None;
        written
    }

    pub fn mark(&self, state: &mut State, process: &Process, pass: &mut Pass, member: usize) {
        if !has(process.cache.current, member) {
            self.conflict();
            pass.conflict = true;
            return;
        }
        let (hold, unclaim) = (has(pass.mark, member), has(pass.unclaim, member));
        if hold {
            let latch = state
                .repositories
                .iter()
                .filter_map(|repository| repository.held_through)
                .max();
            if state.objects[member].deleting() > latch {
                // A mark without a record would be forgotten.
                state.broken.note(0);
            }
            state.was_held |= bit(member);
        }
        state.change_object(member, |object| {
            object.held |= hold;
            if unclaim {
                object.claim = None;
            }
        });
    }

    /// Withdraws, or proves the batch.
    pub fn act(&self, state: &mut State, former: bool, pass: &mut Pass, refresh: bool) {
        let name = match pass.act {
            Act::Nothing => return,
            Act::Withdraw(serial) => {
                if let Some(job) = state.job_mut(serial) {
                    job.leaving = true;
                }
                pass.act = Act::Nothing;
                return;
            }
            Act::Fire(name) => name,
        };
        let (objects, clock, live, truth) = (state.objects, state.clock, state.repositories, state.schedule);
        let Some(process) = state.process(former) else {
            return;
        };
        if refresh {
            process.cache.deliver_objects(&objects, clock);
        }
        let cache = process.cache;
        let asks = (0..MEMBERS).any(|member| has(name.members, member) && owned(member));
        let schedule = if asks { truth } else { cache.schedule };
        let untold = (0..MEMBERS)
            .any(|member| objects[member].deleting().is_some() && cache.objects[member].deleting().is_none());
        let proven = if self.slip == Slip::NoLiveProof {
            Some(name)
        } else if untold && self.slip != Slip::CountFromTheWatch {
            None
        } else {
            let lane = lane(&cache, &live, schedule, &[None; 2]);
            let plan = (self.decide)(&lane, &self.settings, time(pass.now));
            plan.confirm(&batch(name)).map(|batch| batch_name(&batch))
        };
        pass.act = Act::Nothing;
        let Some(proven) = proven else {
            self.seen.disproven.fetch_add(1, Ordering::Relaxed);
            return;
        };
        pass.act = Act::Fire(proven);
        pass.unjustified = oracle::without(proven.members, |member| {
            oracle::may_delete(state, self.skew, &cache, member)
        });
        pass.unreleased = oracle::without(proven.members, |member| {
            oracle::may_leave_hold(state, self.skew, &cache, member)
        });
    }

    pub fn claim(&self, state: &mut State, process: &Process, pass: &mut Pass, member: usize) {
        let Act::Fire(name) = pass.act else {
            return;
        };
        if !has(process.cache.current, member) && self.slip != Slip::BlindClaim {
            self.conflict();
            return;
        }
        if self.slip == Slip::BlindClaim {
            // What is claimed is what is there.
            let current = Cache::list(state);
            if !oracle::may_delete(state, self.skew, &current, member) {
                pass.unjustified |= bit(member);
            }
        }
        pass.claimed |= bit(member);
        state.change_object(member, |object| {
            object.claim = Some(name);
            object.confirmed = false;
            object.held = false;
        });
    }

    pub fn create(&self, state: &mut State, former: bool, pass: &mut Pass) -> bool {
        let Act::Fire(name) = pass.act else {
            return true;
        };
        if pass.claimed == 0 || (former && !self.late_create) {
            // Nothing was claimed; or the lease that guards CREATE is over.
            return false;
        }
        if state.jobs.iter().flatten().any(|job| job.name == name) {
            return true;
        }
        let others = state.jobs.iter().flatten();
        if others
            .clone()
            .any(|job| !matches!(job.phase, Phase::Ended(_)) || job.members & pass.claimed != 0)
        {
            state.broken.note(3);
        }
        state.serial += 1;
        let job = Job {
            name,
            members: pass.claimed,
            serial: state.serial,
            phase: Phase::Waiting,
            gone: 0,
            leaving: false,
            unjustified: pass.unjustified & pass.claimed,
            unreleased: pass.unreleased & pass.claimed,
        };
        match state.jobs.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(job),
            None => state.broken.note(3),
        }
        pass.act = Act::Nothing;
        pass.claimed = 0;
        true
    }

    pub fn clear(&self, state: &mut State, former: bool, pass: &mut Pass, index: usize) -> bool {
        let objects = state.objects;
        let known = state.process(former).map(|process| process.cache.objects);
        let unknown = (0..MEMBERS).any(|member| {
            objects[member].deleting().is_some()
                && known.is_some_and(|known| known[member].deleting().is_none())
        });
        if unknown && self.clearing == Clearing::AfterLiveList {
            return true;
        }
        self.write_repository(state, pass, index, |repository| repository.held_through = None)
    }

    pub fn settle_repository(&self, state: &mut State, pass: &mut Pass) -> bool {
        let Some(job) = pass.settles else {
            return true;
        };
        let answered = job.phase != Phase::Ended(None);
        let again = pass.now + 1;
        self.write_repository(state, pass, usize::from(job.name.repository), |repository| {
            if answered {
                repository.backoff = 0;
                repository.counted = 0;
            } else {
                repository.backoff = again;
                repository.counted = job.serial;
            }
        })
    }

    pub fn settle_member(&self, state: &mut State, process: &Process, pass: &Pass, member: usize) -> bool {
        if !has(process.cache.current, member) {
            return self.conflict();
        }
        let Some(job) = pass.settles else {
            return true;
        };
        let again = pass.now + 1;
        if matches!(job.phase, Phase::Ended(Some(letters)) if has(letters, member) && !has(job.gone, member))
        {
            state.broken.note(4);
        }
        state.change_object(member, |object| match job.phase {
            Phase::Ended(Some(letters)) if has(letters, member) => {
                object.confirmed = true;
                object.next_attempt = 0;
            }
            Phase::Ended(Some(_)) => {
                object.claim = None;
                object.tried = true;
                object.next_attempt = again;
            }
            Phase::Ended(None) | Phase::Waiting | Phase::Running => object.claim = None,
        });
        true
    }
}

/// Takes the finalizer off, whatever the resourceVersion.
pub fn gone(state: &mut State, member: usize) {
    state.change_object(member, |object| {
        if object.deleting().is_some() {
            *object = Object {
                life: Life::Gone,
                skip: false,
                pruned: false,
                held: false,
                claim: None,
                confirmed: false,
                tried: false,
                next_attempt: 0,
            };
        }
    });
}

fn repository_members(index: usize) -> Mask {
    (0..MEMBERS)
        .filter(|&member| pin(member) == index)
        .fold(0, |mask, member| mask | bit(member))
}

fn pending(state: &State, of: Mask) -> Mask {
    oracle::without(of, |member| state.objects[member].deleting().is_none())
}
