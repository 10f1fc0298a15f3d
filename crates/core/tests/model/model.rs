//! The model: what may happen next, and what must hold.
//!
//! **Promises.** Breadth first over every order of what a scenario allows; a counterexample is a shortest one.
//!
//! **Assumes.** A write that was guarded by the leadership arrives before the next leader begins, as
//! `runtime::leader` assumes: a former leader's CREATE does not come late, unless a model says so. Its other writes
//! do.

use super::facts::settings;
use super::promises;
use super::watch::VIEWS;
use super::world::{
    Broken, Budget, Cache, Lease, Life, MEMBERS, Mask, Note, Phase, Process, REPOSITORIES, Schedule, State,
    bit, has,
};
use holdfast_core::deletion::{Lane, Plan, Settings, wave};
use jiff::Timestamp;
use stateright::Property;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

pub type Decide = fn(&Lane, &Settings, Timestamp) -> Plan;

/// An order of acts that is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slip {
    Not,
    /// The batch fires as planned from the caches.
    NoLiveProof,
    /// The live proof counts what the watch told of.
    CountFromTheWatch,
    /// Claims do not carry the judged resourceVersion.
    BlindClaim,
    /// Members are marked without the latch on the repository.
    LatchNotRecorded,
    /// The mover believes the engine and does not list again.
    NoReadBack,
}

/// How the latch is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clearing {
    /// As the plan says, from what the watches know.
    FromTheWatch,
    /// Only if a live list shows no pending deletion that the watch does not know.
    AfterLiveList,
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
    /// The watches of the next leader may hang.
    pub hangs: bool,
    pub clearing: Clearing,
    /// Member 3 is not there in the beginning: it may appear alive.
    pub appears: bool,
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
            hangs: false,
            clearing: Clearing::FromTheWatch,
            appears: false,
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

    /// Whether this state is one of those that are drained.
    pub fn samples(&self, state: &State) -> bool {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish().is_multiple_of(self.drain_one_in)
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
    /// Another object that records a snapshot of the lane appears.
    Appear(usize),
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
    /// Another process leads; this one still has a pass to end. `behind`: the watches of the new one hang, it knows
    /// what was there in the beginning.
    Failover {
        behind: bool,
    },
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
        let cache = self.beginning();
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
                actions.push(Action::Failover { behind: false });
                if self.hangs {
                    actions.push(Action::Failover { behind: true });
                }
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
            Action::Appear(member) => {
                state.budget.deeds -= 1;
                state.change_object(member, |object| object.life = Life::Live);
            }
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
            Action::Crash => {
                state.budget.crashes -= 1;
                state.leader = Process {
                    term: state.leader.term + 1,
                    cache: Cache::list(&state),
                    pass: None,
                };
            }
            Action::Failover { behind } => {
                state.budget.crashes -= 1;
                state.former = Some(state.leader);
                let cache = if behind {
                    self.before(&state)
                } else {
                    Cache::list(&state)
                };
                state.leader = Process {
                    term: state.leader.term + 1,
                    cache,
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
        promises::properties(self.drain_one_in > 0)
    }
}
