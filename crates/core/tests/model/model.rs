//! The model: what may happen next, and what must hold.
//!
//! **Promises.** Breadth first over every order of what a scenario allows; a counterexample is a shortest one.
//!
//! **Assumes.** A write that was guarded by the leadership arrives before the next leader begins, as
//! `runtime::leader` assumes: a former leader's CREATE does not come late, unless a model says so. Its other writes
//! do.

use super::drain;
use super::facts::settings;
use super::pass::VIEWS;
use super::world::{
    Broken, Budget, Cache, Lease, Life, MEMBERS, Mask, Note, Object, Phase, Process, REPOSITORIES, Repository,
    Schedule, State, bit, has, pin, snapshot,
};
use holdfast_core::deletion::{Lane, Plan, Settings, wave};
use jiff::Timestamp;
use stateright::{Property, fingerprint};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

pub type Decide = fn(&Lane, &Settings, Timestamp) -> Plan;

/// An order of acts that is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slip {
    Not,
    /// The batch fires as planned from the caches.
    NoLiveProof,
    /// Claims do not carry the judged resourceVersion.
    BlindClaim,
    /// Members are marked without the latch on the repository.
    LatchNotRecorded,
    /// The mover believes the engine and does not list again.
    NoReadBack,
}

/// What people may do in a scenario.
#[derive(Debug, Clone, Copy)]
pub struct Deeds {
    pub skip: bool,
    pub acknowledge: bool,
    pub threshold: bool,
    pub schedule: bool,
    pub prune: bool,
}

/// What happened on the way, over all paths.
#[derive(Debug, Default)]
pub struct Seen {
    pub conflicts: AtomicUsize,
    pub disproven: AtomicUsize,
    pub drained: AtomicUsize,
}

#[derive(Clone)]
pub struct Model {
    pub decide: Decide,
    pub slip: Slip,
    pub settings: Settings,
    /// Ticks that the API server's clock is ahead of ours.
    pub skew: u8,
    /// A former leader's CREATE may come late.
    pub late_create: bool,
    pub clock_max: u8,
    /// Members that are being deleted when it begins.
    pub deleting: Mask,
    /// Members that may be deleted later.
    pub deletable: Mask,
    pub thresholds: [u8; REPOSITORIES],
    pub deeds: Deeds,
    pub budget: Budget,
    /// One state in so many is drained; 0: none.
    pub drain_one_in: u64,
    pub seen: Arc<Seen>,
}

impl Model {
    pub fn new(deleting: Mask, deletable: Mask, budget: Budget) -> Self {
        Self {
            decide: wave,
            slip: Slip::Not,
            settings: settings(),
            skew: 0,
            late_create: false,
            clock_max: 2,
            deleting,
            deletable,
            thresholds: [3, 2],
            deeds: Deeds {
                skip: true,
                acknowledge: true,
                threshold: true,
                schedule: true,
                prune: false,
            },
            budget,
            drain_one_in: 0,
            seen: Arc::new(Seen::default()),
        }
    }

    fn delete(&self, state: &mut State, member: usize, pruned: bool) {
        let at = state.clock + self.skew;
        state.change_object(member, |object| {
            object.life = Life::Deleting(at);
            object.pruned = pruned;
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Tick,
    Delete(usize),
    Prune(usize),
    Skip(usize),
    Acknowledge(usize, Note),
    Threshold(usize, u8),
    Schedule(Schedule),
    /// The leader begins a pass; these kinds it knows only as before.
    Begin {
        old: Mask,
    },
    /// The leader sends its next request.
    Step {
        refresh: bool,
    },
    /// The leader before sends its next request.
    FormerStep,
    /// The leader dies and is started again.
    Crash,
    /// Another process leads; this one still has a pass to end.
    Failover,
    /// A container of a Job starts.
    Start(u8),
    /// A mover has done its work; the deletion of the first member is lost.
    Finish {
        job: u8,
        lost: bool,
    },
    /// A mover ends without an answer, after the first member or before.
    Kill {
        job: u8,
        half: bool,
    },
    /// The last pod of a Job that is being deleted is gone.
    Leave(u8),
    /// A deletion that was read back is undone.
    Reappear(usize),
}

impl stateright::Model for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
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
        };
        let cache = Cache {
            objects: [object; MEMBERS],
            current: 15,
            first_seen: [0; MEMBERS],
            repositories: self.thresholds.map(repository),
            repositories_current: 3,
            schedule: Schedule::Alive,
        };
        let mut state = State {
            clock: 1,
            objects: cache.objects,
            repositories: cache.repositories,
            schedule: cache.schedule,
            bytes: 7,
            jobs: [None; 2],
            lease: Lease { holder: 0, job: None },
            leader: Process {
                term: 1,
                cache,
                pass: None,
            },
            former: None,
            was_held: 0,
            serial: 0,
            budget: self.budget,
            broken: Broken::default(),
        };
        for member in 0..MEMBERS {
            if has(self.deleting, member) {
                self.delete(&mut state, member, false);
            }
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.clock < self.clock_max {
            actions.push(Action::Tick);
        }
        self.deeds_of_people(state, actions);
        if state.leader.pass.is_some() {
            actions.push(Action::Step { refresh: false });
            let acts = state
                .leader
                .pass
                .is_some_and(|p| matches!(p.act, super::world::Act::Fire(_)));
            if acts && state.leader.cache.lags(state, 1) {
                actions.push(Action::Step { refresh: true });
            }
        } else {
            for old in VIEWS {
                if old == 0 || (state.budget.stale > 0 && state.leader.cache.lags_each(state, old)) {
                    actions.push(Action::Begin { old });
                }
            }
        }
        if state.former.is_some() {
            actions.push(Action::FormerStep);
        }
        if state.budget.crashes > 0 {
            actions.push(Action::Crash);
            if state.leader.pass.is_some() && state.former.is_none() {
                actions.push(Action::Failover);
            }
        }
        for job in state.jobs.iter().flatten() {
            let serial = job.serial;
            match job.phase {
                Phase::Waiting => actions.push(Action::Start(serial)),
                Phase::Running => {
                    actions.push(Action::Finish {
                        job: serial,
                        lost: false,
                    });
                    if state.budget.faults > 0 {
                        actions.push(Action::Finish {
                            job: serial,
                            lost: true,
                        });
                    }
                    if state.budget.faults > 0 || job.leaving {
                        actions.push(Action::Kill {
                            job: serial,
                            half: false,
                        });
                        actions.push(Action::Kill {
                            job: serial,
                            half: true,
                        });
                    }
                }
                Phase::Ended(_) => {}
            }
            if job.leaving && job.phase != Phase::Running {
                actions.push(Action::Leave(serial));
            }
        }
        if state.budget.faults > 0 {
            let back = (0..MEMBERS - 1).filter(|&id| !has(state.bytes, id));
            actions.extend(back.map(Action::Reappear));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Tick => state.clock += 1,
            Action::Delete(member) => self.delete(&mut state, member, false),
            Action::Prune(member) => self.delete(&mut state, member, true),
            Action::Skip(member) => {
                state.budget.deeds -= 1;
                state.change_object(member, |object| object.skip = true);
            }
            Action::Acknowledge(index, note) => {
                state.budget.deeds -= 1;
                state.change_repository(index, |repository| repository.note = note);
            }
            Action::Threshold(index, threshold) => {
                state.budget.deeds -= 1;
                state.change_repository(index, |repository| repository.threshold = threshold);
            }
            Action::Schedule(schedule) => {
                state.budget.deeds -= 1;
                state.schedule = schedule;
            }
            Action::Begin { old } => {
                state.budget.stale -= u8::from(old != 0);
                self.begin(&mut state, old);
            }
            Action::Step { refresh } => self.step(&mut state, false, refresh),
            Action::FormerStep => self.step(&mut state, true, false),
            Action::Crash | Action::Failover => {
                state.budget.crashes -= 1;
                if action == Action::Failover {
                    state.former = Some(state.leader);
                }
                state.leader = Process {
                    term: state.leader.term + 1,
                    cache: Cache::list(&state),
                    pass: None,
                };
            }
            Action::Start(_) | Action::Finish { .. } | Action::Kill { .. } | Action::Leave(_) => {
                self.cluster(&mut state, action);
            }
            Action::Reappear(id) => {
                state.budget.faults -= 1;
                state.bytes |= bit(id);
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always("1: nothing is deleted that may not be", |_, s| {
                !s.broken.is(1)
            }),
            Property::<Self>::always("2: a hold ends by those who may", |_, s| !s.broken.is(2)),
            Property::<Self>::always("3: never two live batches, nor two Jobs over one member", |_, s| {
                !s.broken.is(3)
            }),
            Property::<Self>::always("4: a finalizer goes after a decision or a listing", |_, s| {
                !s.broken.is(4)
            }),
        ];
        if self.drain_one_in > 0 {
            properties.push(Property::<Self>::always("2: it drains or says why not", |model, s| {
                !fingerprint(s).get().is_multiple_of(model.drain_one_in) || drain::ends_well(model, s)
            }));
            properties.extend(reachable());
        }
        properties
    }
}

/// What has to be possible, or the rest would prove nothing.
fn reachable() -> Vec<Property<Model>> {
    vec![
        Property::<Model>::sometimes("a member is held and marked", |_, s| {
            s.objects.iter().any(|object| object.held)
        }),
        Property::<Model>::sometimes("a held member fires", |_, s| {
            let jobs = s.jobs.iter().flatten();
            jobs.fold(0, |mask, job| mask | job.members) & s.was_held != 0
        }),
        Property::<Model>::sometimes("a whole wave is gone with its data", |_, s| {
            s.bytes == 0 && s.objects.iter().all(|object| object.life == Life::Gone)
        }),
        Property::<Model>::sometimes("a former leader is still at work beside the next", |_, s| {
            s.former.is_some() && s.leader.pass.is_some()
        }),
    ]
}

impl Model {
    fn deeds_of_people(&self, state: &State, actions: &mut Vec<Action>) {
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

    /// What kubelet and mover do.
    pub fn cluster(&self, state: &mut State, action: Action) {
        match action {
            Action::Start(serial) => {
                if let Some(job) = state.job_mut(serial) {
                    job.phase = Phase::Running;
                }
            }
            Action::Finish { job, lost } => {
                state.budget.faults -= u8::from(lost);
                self.work(state, job, lost);
            }
            Action::Kill { job: serial, half } => {
                let Some(job) = state.job(serial) else {
                    return;
                };
                if !job.leaving {
                    state.budget.faults -= 1;
                }
                if half {
                    delete(state, serial, first(job.members));
                }
                if let Some(job) = state.job_mut(serial) {
                    job.phase = Phase::Ended(None);
                }
            }
            Action::Leave(serial) => state.remove_job(serial),
            Action::Tick
            | Action::Delete(_)
            | Action::Prune(_)
            | Action::Skip(_)
            | Action::Acknowledge(..)
            | Action::Threshold(..)
            | Action::Schedule(_)
            | Action::Begin { .. }
            | Action::Step { .. }
            | Action::FormerStep
            | Action::Crash
            | Action::Failover
            | Action::Reappear(_) => {}
        }
    }

    /// The mover deletes, lists again and answers.
    fn work(&self, state: &mut State, serial: u8, lost: bool) {
        let Some(job) = state.job(serial) else {
            return;
        };
        let lost = if lost { snapshot(first(job.members)) } else { MEMBERS };
        for member in 0..MEMBERS {
            if has(job.members, member) && snapshot(member) != lost {
                delete(state, serial, member);
            }
        }
        let gone = (0..MEMBERS)
            .filter(|&m| has(job.members, m) && !has(state.bytes, snapshot(m)))
            .fold(0, |mask, m| mask | bit(m));
        let letters = match self.slip {
            Slip::NoReadBack => job.members,
            Slip::Not | Slip::NoLiveProof | Slip::BlindClaim | Slip::LatchNotRecorded => gone,
        };
        if let Some(job) = state.job_mut(serial) {
            job.gone = gone;
            job.phase = Phase::Ended(Some(letters));
        }
    }
}

fn first(members: Mask) -> usize {
    (0..MEMBERS)
        .find(|&member| has(members, member))
        .unwrap_or(MEMBERS)
}

/// A Job deletes the data of a member.
fn delete(state: &mut State, serial: u8, member: usize) {
    let id = bit(snapshot(member));
    let Some(job) = state.job(serial) else {
        return;
    };
    if state.bytes & id == 0 {
        return;
    }
    state.bytes &= !id;
    if has(job.unjustified, member) {
        state.broken.note(1);
    }
    if has(job.unreleased, member) {
        state.broken.note(2);
    }
}
