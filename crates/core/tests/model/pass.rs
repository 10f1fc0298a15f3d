//! One pass of the operator, request by request: the order of acts of `operator::protect::wave`.
//!
//! **Promises.** Each request is a step of its own, so that a crash, another leader or anybody else may come between
//! any two. What a request carries is what the pass saw: a write against an old resourceVersion is a conflict and
//! ends the pass where it does so there.
//!
//! **Assumes.** Reads that a pass makes in a row are one step: observing, and the live proof. Job and pods are read
//! live, as there.

use super::facts::{self, batch, batch_name, index_of, lane, tick, time};
use super::model::{Model, Slip};
use super::oracle;
use super::world::{
    Act, Cache, JobName, Lease, Life, MEMBERS, Mask, Object, Pass, Phase, REPOSITORIES, Recording, State,
    Step, bit, has, owned, pin,
};
use super::world::{Job, Process};
use holdfast_core::deletion::{AcknowledgementChange, HeldChange, LatchChange, Plan};
use std::sync::atomic::Ordering;

const ALL: Mask = (1 << MEMBERS) - 1;
const OBJECTS_OLD: Mask = 1;
const REPOSITORIES_OLD: Mask = 2;
const SCHEDULE_OLD: Mask = 4;

/// What is left as it was known before when a pass begins: every mix of kinds, for watches are not ordered.
pub const VIEWS: [Mask; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// The steps of a pass that decides.
const DECIDES: [Step; 19] = [
    Step::Record(0),
    Step::Record(1),
    Step::Mark(0),
    Step::Mark(1),
    Step::Mark(2),
    Step::Mark(3),
    Step::Release(0),
    Step::Release(1),
    Step::Release(2),
    Step::Release(3),
    Step::Act,
    Step::Lock,
    Step::Claim(0),
    Step::Claim(1),
    Step::Claim(2),
    Step::Claim(3),
    Step::Create,
    Step::After(0),
    Step::After(1),
];

/// The steps of a pass that settles a Job.
const SETTLES: [Step; 11] = [
    Step::SettleRepository,
    Step::SettleMember(0),
    Step::SettleRelease(0),
    Step::SettleMember(1),
    Step::SettleRelease(1),
    Step::SettleMember(2),
    Step::SettleRelease(2),
    Step::SettleMember(3),
    Step::SettleRelease(3),
    Step::Reap,
    Step::Unlock,
];

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

    fn deliver_objects(&mut self, objects: &[Object; MEMBERS], clock: u8) {
        for member in 0..MEMBERS {
            match (self.objects[member].life, objects[member].life) {
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
        let steps: &[Step] = if pass.settles.is_some() { &SETTLES } else { &DECIDES };
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
                    Step::Record(_)
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
                gone(state, member);
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
            Step::After(index) => self.clear(state, &mut pass, index),
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
                gone(state, member);
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
            let steps: &[Step] = if pass.settles.is_some() { &SETTLES } else { &DECIDES };
            let at = steps.iter().position(|step| *step == pass.step);
            let at = at.unwrap_or(steps.len());
            self.go_on(state, former, pass, at + 1 + skip);
        }
        if state.former.is_some_and(|process| process.pass.is_none()) {
            state.former = None;
        }
    }

    fn conflict(&self) -> bool {
        self.seen.conflicts.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// A write of a repository object's status by a pass; false: a conflict.
    fn write_repository(
        &self,
        state: &mut State,
        pass: &mut Pass,
        index: usize,
        change: impl FnOnce(&mut super::world::Repository),
    ) -> bool {
        if !has(pass.repositories_current, index) {
            return self.conflict();
        }
        state.change_repository(index, change);
        true
    }

    fn record(&self, state: &mut State, pass: &mut Pass, index: usize) -> bool {
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

    fn mark(&self, state: &mut State, process: &Process, pass: &mut Pass, member: usize) {
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
                state.broken.note(2);
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
    fn act(&self, state: &mut State, former: bool, pass: &mut Pass, refresh: bool) {
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
        let (objects, clock, live, truth) =
            (state.objects, state.clock, state.repositories, state.schedule);
        let Some(process) = state.process(former) else {
            return;
        };
        if refresh {
            process.cache.deliver_objects(&objects, clock);
        }
        let cache = process.cache;
        let asks = (0..MEMBERS).any(|member| has(name.members, member) && owned(member));
        let schedule = if asks { truth } else { cache.schedule };
        let proven = if self.slip == Slip::NoLiveProof {
            Some(name)
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

    fn claim(&self, state: &mut State, process: &Process, pass: &mut Pass, member: usize) {
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

    fn create(&self, state: &mut State, former: bool, pass: &mut Pass) -> bool {
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

    fn clear(&self, state: &mut State, pass: &mut Pass, index: usize) -> bool {
        self.write_repository(state, pass, index, |repository| repository.held_through = None)
    }

    fn settle_repository(&self, state: &mut State, pass: &mut Pass) -> bool {
        let Some(job) = pass.settles else {
            return true;
        };
        let answered = job.phase != Phase::Ended(None);
        let again = pass.now + 1;
        self.write_repository(
            state,
            pass,
            usize::from(job.name.repository),
            |repository| {
                if answered {
                    repository.backoff = 0;
                    repository.counted = 0;
                } else {
                    repository.backoff = again;
                    repository.counted = job.serial;
                }
            },
        )
    }

    fn settle_member(&self, state: &mut State, process: &Process, pass: &Pass, member: usize) -> bool {
        if !has(process.cache.current, member) {
            return self.conflict();
        }
        let Some(job) = pass.settles else {
            return true;
        };
        let again = pass.now + 1;
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
fn gone(state: &mut State, member: usize) {
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

/// Keeps of a plan what is carried out later.
fn remember(pass: &mut Pass, plan: &Plan, state: &State, cache: &Cache) {
    let riding = state
        .jobs
        .iter()
        .flatten()
        .fold(0, |mask, job| mask | job.members);
    pass.act = match (plan.withdraw, &plan.fire) {
        (Some(_), _) => state
            .jobs
            .iter()
            .flatten()
            .find(|job| job.phase == Phase::Waiting && !job.leaving)
            .map_or(Act::Nothing, |job| Act::Withdraw(job.serial)),
        (None, Some(batch)) => Act::Fire(batch_name(batch)),
        (None, None) => Act::Nothing,
    };
    let firing = match pass.act {
        Act::Fire(JobName { members, .. }) => members,
        Act::Nothing | Act::Withdraw(_) => 0,
    };
    for decision in &plan.decisions {
        let mask = facts::members([&decision.uid]);
        if decision.verdict.is_held() {
            pass.judged_held |= mask;
        }
        if decision.releases() {
            pass.release |= mask;
        } else if mask & firing == 0 {
            if decision.held_change == HeldChange::Set {
                pass.mark |= mask;
            }
            let claimed = (0..MEMBERS).any(|m| has(mask, m) && cache.objects[m].claim.is_some());
            if claimed && mask & riding == 0 {
                pass.unclaim |= mask;
            }
        }
    }
    for repository in &plan.repositories {
        let index = index_of(&repository.key);
        pass.recordings[index] = match &repository.acknowledgement {
            AcknowledgementChange::Keep => Recording::Keep,
            AcknowledgementChange::Record(record) => Recording::Write(facts::record(record)),
            AcknowledgementChange::Forget => Recording::Forget,
        };
        match repository.held_through {
            LatchChange::Keep => {}
            LatchChange::Raise(through) => pass.raise[index] = Some(tick(through)),
            LatchChange::Clear => pass.clear |= bit(index),
        }
    }
}

/// Whether a step would send a request.
fn has_work(pass: &Pass, cache: &Cache, step: Step) -> bool {
    let fires = match pass.act {
        Act::Fire(name) => name.members,
        Act::Nothing | Act::Withdraw(_) => 0,
    };
    let settles = |member: usize| {
        let job = pass.settles.filter(|job| has(job.members, member))?;
        let object = &cache.objects[member];
        object.deleting().map(|_| (job, object))
    };
    match step {
        Step::Record(index) => pass.recordings[index] != Recording::Keep || pass.raise[index].is_some(),
        Step::Mark(member) => has(pass.mark | pass.unclaim, member),
        Step::Release(member) => has(pass.release, member),
        Step::Act => pass.act != Act::Nothing,
        Step::Lock | Step::Create => fires != 0,
        Step::Claim(member) => has(fires, member),
        Step::After(index) => has(pass.clear, index),
        Step::SettleRepository => pass.settles.is_some_and(|job| {
            let known = &cache.repositories[usize::from(job.name.repository)];
            if job.phase == Phase::Ended(None) {
                known.counted != job.serial
            } else {
                known.backoff != 0 || known.counted != 0
            }
        }),
        Step::SettleMember(member) => settles(member).is_some_and(|(job, object)| match job.phase {
            Phase::Ended(Some(letters)) if has(letters, member) => !object.confirmed,
            Phase::Ended(_) | Phase::Waiting | Phase::Running => object.claim == Some(job.name),
        }),
        Step::SettleRelease(member) => settles(member).is_some_and(|(job, _)| match job.phase {
            Phase::Ended(Some(letters)) => has(letters, member),
            Phase::Ended(None) | Phase::Waiting | Phase::Running => false,
        }),
        Step::Reap => pass.settles.is_some(),
        Step::Unlock => pass.unlock,
    }
}
