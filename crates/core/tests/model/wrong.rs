//! Eight wrong rules, and some more: each is the decision with one thought left out.
//!
//! **Promises.** Everything but that one thought is `holdfast_core::deletion::wave`.
//!
//! **Assumes.** A rule is left out by showing the decision facts that hide it, or by changing the one answer.

use super::model::Decide;
use holdfast_core::deletion::{
    AcknowledgementChange, HeldCondition, Lane, Owner, Plan, RecordedAcknowledgement, Settings, Sharing, ack,
    wave,
};
use jiff::Timestamp;

/// What it says, the promise it breaks, and the rule.
pub type Rule = (&'static str, char, Decide);

/// The eight.
pub const RULES: [Rule; 8] = [
    (
        "the threshold itself is still below the threshold",
        '1',
        off_by_one,
    ),
    (
        "threshold 0 on one object switches the lane off",
        '1',
        weakest_threshold,
    ),
    ("a hold ends when the count falls", '2', no_latch),
    ("an acknowledgement counts before it is recorded", '1', unrecorded),
    ("a future acknowledgement is taken at its word", '1', unclamped),
    (
        "an acknowledgement covers the other object's members",
        '1',
        any_object,
    ),
    ("a stamp counts however old it is", '1', old_stamps),
    (
        "a schedule that went takes its data with it",
        '1',
        no_schedule_guard,
    ),
];

/// More, about the lane's bookkeeping.
pub const MORE: [Rule; 4] = [
    ("a live batch does not stop the next", '3', no_live_batch),
    ("members of a running Job are judged again", '4', judged_in_flight),
    ("a live Snapshot of the same id does not count", '1', no_sharing),
    ("an acknowledgement releases nobody", '2', deaf),
];

fn changed(lane: &Lane, change: impl FnOnce(&mut Lane)) -> Lane {
    let mut lane = lane.clone();
    change(&mut lane);
    lane
}

fn off_by_one(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let lane = changed(lane, |lane| {
        for repository in &mut lane.repositories {
            repository.threshold = repository.threshold.map(|t| if t == 0 { 0 } else { t + 1 });
        }
    });
    wave(&lane, settings, now)
}

fn weakest_threshold(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let lane = changed(lane, |lane| {
        if lane.repositories.iter().any(|r| r.threshold == Some(0)) {
            for repository in &mut lane.repositories {
                repository.threshold = Some(0);
            }
        }
    });
    wave(&lane, settings, now)
}

fn no_latch(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let lane = changed(lane, |lane| {
        for repository in &mut lane.repositories {
            repository.held_through = None;
        }
        for member in &mut lane.members {
            member.held = HeldCondition::NotHeld;
        }
    });
    wave(&lane, settings, now)
}

fn unrecorded(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let lane = changed(lane, |lane| {
        for repository in &mut lane.repositories {
            let parsed = repository.acknowledgement.as_deref().and_then(ack::parse);
            if let (Some(value), Some(effective)) = (repository.acknowledgement.clone(), parsed) {
                repository.recorded_acknowledgement = Some(RecordedAcknowledgement {
                    value,
                    effective: effective.min(now),
                    seen_at: now,
                });
            }
        }
    });
    wave(&lane, settings, now)
}

fn unclamped(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = wave(lane, settings, now);
    for repository in &mut plan.repositories {
        // Neither refused nor clamped.
        let refused = repository.invalid_acknowledgement.clone();
        if let Some((value, effective)) = refused.and_then(|value| Some((value.clone(), ack::parse(&value)?)))
        {
            repository.acknowledgement = AcknowledgementChange::Record(RecordedAcknowledgement {
                value,
                effective,
                seen_at: now,
            });
        } else if let AcknowledgementChange::Record(record) = &mut repository.acknowledgement {
            record.effective = ack::parse(&record.value).unwrap_or(record.effective);
        }
    }
    plan
}

fn any_object(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let lane = changed(lane, |lane| {
        let acknowledged = lane
            .repositories
            .iter()
            .find(|r| r.recorded_acknowledgement.is_some())
            .cloned();
        if let Some(acknowledged) = acknowledged {
            for repository in &mut lane.repositories {
                repository.acknowledgement = acknowledged.acknowledgement.clone();
                repository.recorded_acknowledgement = acknowledged.recorded_acknowledgement.clone();
            }
        }
    });
    wave(&lane, settings, now)
}

fn old_stamps(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let lane = changed(lane, |lane| {
        for member in &mut lane.members {
            if member.pruned_at.is_some() {
                member.pruned_at = Some(member.deleted_at);
            }
        }
    });
    wave(&lane, settings, now)
}

fn no_schedule_guard(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let lane = changed(lane, |lane| {
        for member in &mut lane.members {
            member.owner = Owner::Alive;
        }
    });
    wave(&lane, settings, now)
}

fn no_live_batch(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    wave(&changed(lane, |lane| lane.live = None), settings, now)
}

fn judged_in_flight(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = wave(lane, settings, now);
    let again = wave(&changed(lane, |lane| lane.live = None), settings, now);
    for (decision, other) in plan.decisions.iter_mut().zip(again.decisions) {
        if other.releases() {
            *decision = other;
        }
    }
    plan
}

fn no_sharing(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let lane = changed(lane, |lane| {
        for member in &mut lane.members {
            member.sharing = Sharing::Alone;
        }
    });
    wave(&lane, settings, now)
}

/// Nobody hears an acknowledgement.
fn deaf(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let lane = changed(lane, |lane| {
        for repository in &mut lane.repositories {
            repository.acknowledgement = None;
        }
    });
    wave(&lane, settings, now)
}
