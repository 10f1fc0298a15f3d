//! Eight wrong rules: each is the decision with one thought left out.
//!
//! **Promises.** Everything but that one thought is `holdfast_core::deletion::wave`.
//!
//! **Assumes.** A rule is left out by showing the decision facts that hide it, or by changing the one answer.

use super::model::Decide;
use holdfast_core::deletion::{
    AcknowledgementChange, HeldCondition, Lane, LatchChange, Owner, Plan, RecordedAcknowledgement, Settings,
    Sharing, ack, wave,
};
use jiff::Timestamp;

/// Name, and the rule.
pub const RULES: [(&str, Decide); 8] = [
    ("the threshold itself is still below the threshold", off_by_one),
    ("threshold 0 on one object switches the lane off", weakest_threshold),
    ("a hold ends when the count falls", no_latch),
    ("an acknowledgement counts before it is recorded", unrecorded),
    ("a future acknowledgement is not clamped", unclamped),
    ("an acknowledgement covers the other object's members", any_object),
    ("a stamp counts however old it is", old_stamps),
    ("a schedule that went takes its data with it", no_schedule_guard),
];

/// Two more that only the lane's bookkeeping shows.
pub const MORE: [(&str, Decide); 3] = [
    ("a live batch does not stop the next", no_live_batch),
    ("members of a running Job are judged again", judged_in_flight),
    ("a live Snapshot of the same id does not count", no_sharing),
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
        if let AcknowledgementChange::Record(record) = &mut repository.acknowledgement {
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

/// The latch is cleared as soon as the count is below the threshold, and marks are not believed.
#[allow(dead_code)]
fn cleared_early(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = wave(lane, settings, now);
    for repository in &mut plan.repositories {
        repository.held_through = LatchChange::Clear;
    }
    plan
}
