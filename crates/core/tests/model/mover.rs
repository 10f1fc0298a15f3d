//! What kubelet, mover and engine do.
//!
//! **Promises.** A mover deletes, lists again and answers with what is not listed any more. One that is killed leaves
//! no answer, whatever it has deleted.
//!
//! **Assumes.** The engine says of every deletion that it worked; `lost` ones did not.

use super::model::{Action, Model, Slip};
use super::world::{MEMBERS, Mask, Phase, State, bit, has, snapshot};

impl Model {
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
            | Action::Appear(_)
            | Action::Acknowledge(..)
            | Action::Threshold(..)
            | Action::Schedule(_)
            | Action::Begin { .. }
            | Action::Step { .. }
            | Action::FormerStep
            | Action::Crash
            | Action::Failover { .. }
            | Action::Reappear(_) => {}
        }
    }

    /// The mover deletes, lists again and answers.
    fn work(&self, state: &mut State, serial: u8, lost: bool) {
        let Some(job) = state.job(serial) else {
            return;
        };
        let lost = if lost {
            snapshot(first(job.members))
        } else {
            MEMBERS
        };
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
            Slip::Not
            | Slip::NoLiveProof
            | Slip::CountFromTheWatch
            | Slip::BlindClaim
            | Slip::LatchNotRecorded => gone,
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
