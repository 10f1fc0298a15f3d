//! The incident, told to the pure function: a schedule that flaps, a cascade that was asked for, and its release.

use crate::support::*;
use holdfast_core::deletion::*;

fn children(count: usize, cascade: Cascade) -> Vec<MemberFacts> {
    let child = |(n, m): (usize, MemberFacts)| {
        let second = 100 + i64::try_from(n / 70).unwrap();
        MemberFacts {
            owner: Owner::Replaced,
            cascade,
            deleted_at: t(second),
            first_seen: t(second),
            attempts: 0,
            ..m
        }
    };
    members(count, 100).into_iter().enumerate().map(child).collect()
}

/// Applies a plan as the controller would, with a Job that deletes everything it is given.
fn apply(lane: &mut Lane, plan: &Plan, second: i64) -> usize {
    for (facts, plan) in lane.repositories.iter_mut().zip(&plan.repositories) {
        match &plan.acknowledgement {
            AcknowledgementChange::Keep => {}
            AcknowledgementChange::Record(record) => facts.recorded_acknowledgement = Some(record.clone()),
            AcknowledgementChange::Forget => facts.recorded_acknowledgement = None,
        }
        match plan.held_through {
            LatchChange::Keep => {}
            LatchChange::Raise(time) => facts.held_through = Some(time),
            LatchChange::Clear => facts.held_through = None,
        }
    }
    let riding: std::collections::BTreeSet<String> = plan
        .fire
        .iter()
        .flat_map(|batch| batch.members.iter().cloned())
        .collect();
    let decisions: std::collections::BTreeMap<&str, &Decision> = plan
        .decisions
        .iter()
        .map(|decision| (decision.uid.as_str(), decision))
        .collect();
    lane.members
        .retain(|m| !riding.contains(&m.uid) && !decisions[m.uid.as_str()].releases());
    for member in &mut lane.members {
        if decisions[member.uid.as_str()].held_change == HeldChange::Set {
            member.held = HeldCondition::Held { since: t(second) };
        }
    }
    riding.len()
}

#[test]
fn case_78_a_schedule_that_flaps_deletes_nothing_and_lets_every_object_go() {
    let lane = lane(children(700, Cascade::Retain));
    for second in 100..125 {
        let mut so_far = lane.clone();
        so_far.members.retain(|m| m.deleted_at <= t(second));
        let plan = wave(&so_far, &Settings::default(), t(second));
        assert!(plan.fire.is_none());
        assert_eq!(plan.repositories[0].count, 0);
        assert!(
            plan.decisions
                .iter()
                .all(|d| d.releases() && d.verdict == Verdict::Retain(RetainReason::ScheduleDelete))
        );
    }
}

#[test]
fn case_79_a_cascade_of_700_is_held_while_prunes_go_on_and_drains_in_four_batches_when_acknowledged() {
    let all = children(700, Cascade::Delete);
    let mut lane = lane(vec![]);
    let mut pruned = 0;
    for second in 100..130 {
        lane.members
            .extend(all.iter().filter(|m| m.deleted_at == t(second)).cloned());
        let prune = prune(&format!("p{second}"), second);
        lane.members.push(prune);
        let plan = wave(&lane, &Settings::default(), t(second));
        assert!(
            fired(&plan).iter().all(|name| name.starts_with('p')),
            "no member of the wave ever rides"
        );
        pruned += apply(&mut lane, &plan, second);
    }
    let plan = wave(&lane, &Settings::default(), t(140));
    assert_eq!(held(&plan), 700);
    pruned += apply(&mut lane, &plan, 140);
    assert_eq!(pruned, 30);

    let hold = wave(&lane, &Settings::default(), t(141)).repositories[0]
        .hold
        .clone()
        .unwrap();
    assert_eq!((hold.held, hold.newest), (700, t(109)));
    lane.repositories[0].acknowledgement = Some(ack::render(hold.newest));
    let recorded = wave(&lane, &Settings::default(), t(142));
    assert!(recorded.fire.is_none(), "records before acts");
    apply(&mut lane, &recorded, 142);

    let mut batches = Vec::new();
    for second in 143..150 {
        let plan = wave(&lane, &Settings::default(), t(second));
        batches.extend(plan.fire.as_ref().map(|batch| batch.members.len()));
        apply(&mut lane, &plan, second);
    }
    assert_eq!(batches, [200, 200, 200, 100]);
    assert!(lane.members.is_empty());
    assert_eq!(
        lane.repositories[0].held_through, None,
        "the latch went with the last of them"
    );
}

/// In a namespace torn down with Delete the children of a policy that went count as external, so the lane's latch
/// binds them as it binds all that were counted.
#[test]
fn the_latch_binds_children_of_a_policy_that_count_as_external() {
    let mut child = member("a", 100);
    child.stamp = Stamp::PolicyCascade;
    child.pruned_at = Some(t(100));
    let mut lane = torn_down(OnNamespaceDelete::Delete, child);
    assert!(decide(&lane).decisions[0].verdict.deletes());
    lane.repositories[0].held_through = Some(t(100));
    assert!(decide(&lane).decisions[0].verdict.is_held());
}
