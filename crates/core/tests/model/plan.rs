//! What a pass keeps of a plan, and which requests follow from it.
//!
//! **Promises.** The order of [`DECIDES`] and [`SETTLES`] is that of `operator::protect::wave`.
//!
//! **Assumes.** Conditions other than `DeletionHeld`, events and metrics decide nothing.

use super::facts::{self, batch_name, index_of, tick};
use super::world::{Act, Cache, JobName, MEMBERS, Pass, Phase, Recording, State, Step, bit, done, has, pin};
use holdfast_core::deletion::{AcknowledgementChange, HeldChange, LatchChange, Plan};

/// The steps of a pass that decides.
pub const DECIDES: [Step; 25] = [
    Step::Finish(0),
    Step::Finish(1),
    Step::Finish(2),
    Step::Finish(3),
    Step::Record(0),
    Step::Record(1),
    Step::Mark(0),
    Step::Mark(1),
    Step::Mark(2),
    Step::Mark(3),
    Step::Kept(0),
    Step::Kept(1),
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
pub const SETTLES: [Step; 11] = [
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

/// Keeps of a plan what is carried out later.
pub fn remember(pass: &mut Pass, plan: &Plan, state: &State, cache: &Cache) {
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
    pass.finish = done(&cache.objects, riding);
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
pub fn has_work(pass: &Pass, cache: &Cache, step: Step) -> bool {
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
        Step::Finish(member) => has(pass.finish, member),
        Step::Kept(index) => {
            let keeps = (0..MEMBERS).any(|m| has(pass.release, m) && pin(m) == index);
            keeps && !cache.repositories[index].scan_due
        }
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
