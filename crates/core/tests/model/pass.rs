//! One pass of the operator, request by request: the order of acts of `operator::protect::wave`.
//!
//! **Promises.** Each request is a step of its own, so that a crash, another leader or anybody else may come between
//! any two. What a request carries is what the pass saw: a write against an old resourceVersion is a conflict and
//! ends the pass where it does so there.
//!
//! **Assumes.** Reads that a pass makes in a row are one step: observing, and the live proof. Job and pods are read
//! live, as there.

use super::facts::{lane, time};
use super::model::Model;
use super::oracle;
use super::plan::{DECIDES, SETTLES, has_work, remember};
use super::watch::{OBJECTS_OLD, REPOSITORIES_OLD, SCHEDULE_OLD};
use super::world::{Act, Lease, Mask, Pass, Phase, REPOSITORIES, Recording, State, Step, has};

impl Model {
    /// The leader begins a pass; the kinds in `old` it sees as it did before.
    pub fn begin(&self, state: &mut State, old: Mask) {
        let (objects, repositories, schedule, clock) =
            (state.objects, state.repositories, state.schedule, state.clock);
        let cache = &mut state.leader.cache;
        if old & OBJECTS_OLD == 0 {
            cache.deliver_objects(&objects, clock);
        }
        if old & REPOSITORIES_OLD == 0 {
            cache.repositories = repositories;
            cache.repositories_current = 3;
        }
        if old & SCHEDULE_OLD == 0 {
            cache.schedule = schedule;
        }
        let cache = *cache;
        let term = state.leader.term;
        let idle = state.jobs.iter().all(Option::is_none)
            && cache.objects.iter().all(|object| object.deleting().is_none());
        if !idle && state.lease.holder != 0 && state.lease.holder != term {
            state.write_lease(Lease {
                holder: term,
                ..state.lease
            });
        }
        let mut pass = Pass {
            step: Step::Record(0),
            now: clock,
            lock_current: true,
            repositories_current: cache.repositories_current,
            recordings: [Recording::Keep; REPOSITORIES],
            raise: [None; REPOSITORIES],
            clear: 0,
            judged_held: 0,
            mark: 0,
            unclaim: 0,
            release: 0,
            finish: 0,
            act: Act::Nothing,
            claimed: 0,
            unjustified: 0,
            unreleased: 0,
            settles: None,
            unlock: false,
            conflict: false,
        };
        let ended = state.jobs.iter().flatten().find(|job| match job.phase {
            Phase::Ended(_) => true,
            Phase::Waiting | Phase::Running => false,
        });
        if let Some(job) = ended {
            pass.settles = Some(*job);
            pass.unlock = state.lease.job == Some(job.name);
        } else {
            let lane = lane(&cache, &cache.repositories, cache.schedule, &state.jobs);
            let plan = (self.decide)(&lane, &self.settings, time(clock));
            remember(&mut pass, &plan, state, &cache);
        }
        self.go_on(state, false, pass, 0);
    }

    /// The pass goes on at the first step from `from` on that has something to do.
    fn go_on(&self, state: &mut State, former: bool, mut pass: Pass, from: usize) {
        let Some(process) = state.process(former) else {
            return;
        };
        let steps: &[Step] = if pass.settles.is_some() {
            &SETTLES
        } else {
            &DECIDES
        };
        let next = steps
            .iter()
            .skip(from)
            .find(|step| has_work(&pass, &process.cache, **step));
        // What comes after the members of a step is not reached by a pass that met a conflict among them.
        let stops = pass.conflict
            && match next {
                None
                | Some(
                    Step::Mark(_) | Step::SettleRepository | Step::SettleMember(_) | Step::SettleRelease(_),
                ) => false,
                Some(
                    Step::Finish(_)
                    | Step::Record(_)
                    | Step::Kept(_)
                    | Step::Release(_)
                    | Step::Act
                    | Step::Lock
                    | Step::Claim(_)
                    | Step::Create
                    | Step::After(_)
                    | Step::Reap
                    | Step::Unlock,
                ) => true,
            };
        process.pass = match next {
            Some(step) if !stops => {
                pass.step = *step;
                Some(pass)
            }
            Some(_) | None => None,
        };
    }

    /// Sends the next request. `refresh`: the watch has caught up before the live proof.
    pub fn step(&self, state: &mut State, former: bool, refresh: bool) {
        let Some(process) = state.process(former) else {
            return;
        };
        let Some(mut pass) = process.pass else {
            return;
        };
        let process = *process;
        let mut skip = 0;
        let goes_on = match pass.step {
            Step::Finish(member) => {
                super::acts::gone(state, member);
                true
            }
            Step::Kept(index) => self.write_repository(state, &mut pass, index, |r| r.scan_due = true),
            Step::Record(index) => self.record(state, &mut pass, index),
            Step::Mark(member) => {
                self.mark(state, &process, &mut pass, member);
                true
            }
            Step::Release(member) => {
                let rides = state
                    .jobs
                    .iter()
                    .flatten()
                    .any(|job| job.phase == Phase::Running && has(job.members, member));
                if !oracle::keeps(&process.cache.objects, process.cache.schedule, member) || rides {
                    state.broken.note(4);
                }
                super::acts::gone(state, member);
                true
            }
            Step::Act => {
                self.act(state, former, &mut pass, refresh);
                true
            }
            Step::Lock => match pass.act {
                Act::Fire(name) if pass.lock_current => {
                    state.write_lease(Lease {
                        holder: process.term,
                        job: Some(name),
                    });
                    pass.lock_current = true;
                    true
                }
                Act::Fire(_) | Act::Nothing | Act::Withdraw(_) => self.conflict(),
            },
            Step::Claim(member) => {
                self.claim(state, &process, &mut pass, member);
                true
            }
            Step::Create => self.create(state, former, &mut pass),
            Step::After(index) => self.clear(state, former, &mut pass, index),
            Step::SettleRepository => self.settle_repository(state, &mut pass),
            Step::SettleMember(member) => {
                if !self.settle_member(state, &process, &pass, member) {
                    pass.conflict = true;
                    // Its finalizer stays.
                    skip = 1;
                }
                true
            }
            Step::SettleRelease(member) => {
                if pass.settles.is_some_and(|job| !has(job.gone, member)) {
                    state.broken.note(4);
                }
                super::acts::gone(state, member);
                true
            }
            Step::Reap => {
                if let Some(job) = pass.settles {
                    state.remove_job(job.serial);
                }
                true
            }
            Step::Unlock => {
                if pass.lock_current {
                    state.write_lease(Lease {
                        holder: process.term,
                        job: None,
                    });
                }
                pass.lock_current || self.conflict()
            }
        };
        if !goes_on {
            if let Some(process) = state.process(former) {
                process.pass = None;
            }
        } else {
            let steps: &[Step] = if pass.settles.is_some() {
                &SETTLES
            } else {
                &DECIDES
            };
            let at = steps.iter().position(|step| *step == pass.step);
            let at = at.unwrap_or(steps.len());
            self.go_on(state, former, pass, at + 1 + skip);
        }
        if state.former.is_some_and(|process| process.pass.is_none()) {
            state.former = None;
        }
    }
}
