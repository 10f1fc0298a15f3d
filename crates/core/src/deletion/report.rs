//! Turns what was judged into what is to be written.
//!
//! **Promises.** The latch is raised to the newest deletion judged held before any member is marked, and cleared
//! only when no latched member that could still be destructive is pending.
//!
//! **Assumes.** The caller applies a plan in the order [`super::plan`] gives.

use super::ack::Acknowledgement;
use super::breaker::Breaker;
use super::facts::{HeldCondition, LaneLatch, MemberFacts, RepositoryFacts};
use super::plan::{
    AcknowledgementChange, Decision, HeldChange, Hold, LaneLatchChange, LatchChange, Plan, RepositoryPlan,
};
use super::verdict::{Rule, Verdict, Wait};
use super::wave::{Judged, LaneFacts};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The plan that touches nothing.
pub(super) fn undecided(
    members: &[&MemberFacts],
    repositories: &[&RepositoryFacts],
    wait: Wait,
    wake_at: Timestamp,
) -> Plan {
    let decide = |member: &&MemberFacts| Decision {
        uid: member.uid.clone(),
        repository: None,
        pinned: member.pin.is_some(),
        verdict: Verdict::Wait(wait),
        rule: Rule::Lane,
        not_yet: Some(wait),
        held_change: HeldChange::Keep,
    };
    let plan = |repository: &&RepositoryFacts| RepositoryPlan {
        key: repository.key.clone(),
        acknowledgement: AcknowledgementChange::Keep,
        invalid_acknowledgement: None,
        held_through: LatchChange::Keep,
        threshold: None,
        window: None,
        count: 0,
        hold: None,
    };
    Plan {
        decisions: members.iter().map(decide).collect(),
        repositories: repositories.iter().map(plan).collect(),
        latch: LaneLatchChange::Keep,
        fire: None,
        withdraw: None,
        wake_at: Some(wake_at),
    }
}

impl LaneFacts<'_> {
    /// One plan for each repository object.
    pub(super) fn repository_plans(
        &self,
        judged: &[Judged<'_>],
        acknowledgements: Vec<Acknowledgement>,
        breaker: Breaker,
        latch_needed: bool,
        now: Timestamp,
    ) -> Vec<RepositoryPlan> {
        let mut holds: Vec<Option<Hold>> = vec![None; self.repositories.len()];
        for member in judged.iter().filter(|member| member.verdict.is_held()) {
            let Some(slot) = member.repository.and_then(|index| holds.get_mut(index)) else {
                continue;
            };
            let since = match member.member.held {
                HeldCondition::Held { since } => since,
                HeldCondition::NotHeld | HeldCondition::Unreadable => now,
            };
            let deleted_at = member.member.deleted_at;
            let hold = slot.get_or_insert_with(|| Hold {
                held: 0,
                newest: deleted_at,
                namespaces: BTreeMap::new(),
                since,
            });
            hold.held += 1;
            hold.newest = hold.newest.max(deleted_at);
            hold.since = hold.since.min(since);
            match hold.namespaces.get_mut(&member.member.namespace) {
                Some(count) => *count += 1,
                None => {
                    hold.namespaces.insert(member.member.namespace.clone(), 1);
                }
            }
        }
        self.repositories
            .iter()
            .zip(acknowledgements)
            .zip(holds)
            .map(|((facts, acknowledgement), hold)| RepositoryPlan {
                key: facts.key.clone(),
                acknowledgement: acknowledgement.change,
                invalid_acknowledgement: facts.acknowledgement.clone().filter(|_| acknowledgement.invalid),
                held_through: match &hold {
                    Some(hold) if facts.held_through.is_none_or(|through| through < hold.newest) => {
                        LatchChange::Raise(hold.newest)
                    }
                    None if facts.held_through.is_some() && !latch_needed => LatchChange::Clear,
                    Some(_) | None => LatchChange::Keep,
                },
                threshold: Some(match (&hold, breaker.threshold) {
                    // Held by the threshold of an object that went.
                    (Some(_), 0) => breaker.latch_threshold,
                    (_, threshold) => threshold,
                }),
                window: breaker.window,
                count: breaker.count,
                hold,
            })
            .collect()
    }

    /// What the lane itself has to remember beside the objects it may lose.
    pub(super) fn lane_latch(
        &self,
        plans: &[RepositoryPlan],
        latch_needed: bool,
        known: Option<&LaneLatch>,
    ) -> LaneLatchChange {
        if !latch_needed && plans.iter().all(|plan| plan.hold.is_none()) {
            return match known {
                Some(_) => LaneLatchChange::Forget,
                None => LaneLatchChange::Keep,
            };
        }
        let raised = plans.iter().filter_map(|plan| match plan.held_through {
            LatchChange::Raise(through) => Some(through),
            LatchChange::Keep | LatchChange::Clear => None,
        });
        let wanted = LaneLatch {
            held_through: raised.chain(self.held_through).max(),
            thresholds: self.thresholds.clone(),
        };
        if known == Some(&wanted) {
            LaneLatchChange::Keep
        } else {
            LaneLatchChange::Write(wanted)
        }
    }
}

impl Judged<'_> {
    /// The decision as the plan tells it.
    pub(super) fn decide(self, repositories: &[&RepositoryFacts]) -> Decision {
        let marked = match self.member.held {
            HeldCondition::Held { .. } => true,
            HeldCondition::NotHeld | HeldCondition::Unreadable => false,
        };
        let held_change = match self.verdict {
            Verdict::Held(_) if !marked => HeldChange::Set,
            Verdict::Delete(reason) if self.not_yet.is_none() && marked => HeldChange::Clear(reason),
            Verdict::Held(_)
            | Verdict::Delete(_)
            | Verdict::InFlight
            | Verdict::Release(_)
            | Verdict::Orphan(_)
            | Verdict::Retain(_)
            | Verdict::Wait(_) => HeldChange::Keep,
        };
        Decision {
            uid: self.member.uid.clone(),
            repository: self.repository.map(|index| repositories[index].key.clone()),
            pinned: self.member.pin.is_some(),
            verdict: self.verdict,
            rule: self.rule,
            not_yet: self.verdict.wait().or(self.not_yet),
            held_change,
        }
    }
}
