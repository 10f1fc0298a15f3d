//! Rule 9: count, threshold, latch.

use crate::support::*;
use holdfast_core::deletion::*;

const HELD: Verdict = Verdict::Held(HeldReason::MassDeletionBreaker);

/// What the wave looks like once the plan's records and marks are written.
fn marked(mut lane: Lane) -> Lane {
    let plan = decide(&lane);
    for (facts, plan) in lane.repositories.iter_mut().zip(&plan.repositories) {
        match plan.held_through {
            LatchChange::Raise(time) => facts.held_through = Some(time),
            LatchChange::Clear => facts.held_through = None,
            LatchChange::Keep => {}
        }
    }
    for member in &mut lane.members {
        if plan.decision(&member.uid).unwrap().held_change == HeldChange::Set {
            member.held = HeldCondition::Held { since: now() };
        }
    }
    lane
}

#[test]
fn case_16_below_the_threshold_nothing_is_held_and_at_it_everything() {
    assert_eq!(held(&decide(&lane_with_threshold(5, members(4, 100)))), 0);
    assert_eq!(held(&decide(&lane_with_threshold(5, members(5, 100)))), 5);
}

#[test]
fn case_17_threshold_zero_allows_any_number() {
    // A million of the sentence, cut to what a test may cost.
    let plan = decide(&lane_with_threshold(0, members(10_000, 100)));
    assert_eq!(held(&plan), 0);
    assert!(
        plan.decisions
            .iter()
            .all(|d| d.verdict == Verdict::Delete(DeleteReason::BreakerDisabled))
    );
    assert_eq!(fired(&plan).len(), 200);
}

#[test]
fn an_absent_threshold_is_ten() {
    assert_eq!(held(&decide(&lane(members(9, 100)))), 0);
    assert_eq!(held(&decide(&lane(members(10, 100)))), 10);
}

#[test]
fn case_20_prunes_neither_count_nor_set_the_value_to_acknowledge() {
    let mut pending = members(10, 100);
    pending.push(prune("p", 900));
    let plan = decide(&lane(pending));
    assert_eq!(plan.repositories[0].count, 10);
    assert_eq!(plan.repositories[0].hold.as_ref().unwrap().newest, t(100));
}

#[test]
fn case_21_without_external_deletions_there_is_no_value_to_acknowledge() {
    let plan = decide(&lane(vec![prune("p", 900)]));
    assert_eq!(plan.repositories[0].hold, None);
}

#[test]
fn case_24_an_event_for_the_transition_only() {
    let first = lane(members(10, 100));
    assert!(
        decide(&first)
            .decisions
            .iter()
            .all(|d| d.held_change == HeldChange::Set)
    );
    let second = marked(first);
    assert!(
        decide(&second)
            .decisions
            .iter()
            .all(|d| d.verdict == HELD && d.held_change == HeldChange::Keep)
    );
}

#[test]
fn case_27_the_repository_condition_follows_the_hold() {
    let condition = |lane: &Lane| decide(lane).repositories[0].condition();
    assert_eq!(
        condition(&lane(members(10, 100))),
        Some((true, "ThresholdExceeded"))
    );
    assert_eq!(condition(&lane(members(9, 100))), Some((false, "BelowThreshold")));
    assert_eq!(
        condition(&lane_with_threshold(0, members(50, 100))),
        Some((false, "BelowThreshold"))
    );
    // Design: "9" is False only while nothing is latched.
    let mut rescued = marked(lane(members(10, 100)));
    rescued.members.pop();
    assert_eq!(condition(&rescued), Some((true, "ThresholdExceeded")));
}

#[test]
fn case_28_cold_caches_decide_nothing_and_are_looked_at_again_in_fifteen_seconds() {
    let mut cold = lane(members(3, 100));
    cold.cache = Cache::Cold;
    cold.members.push(prune("p", 100));
    cold.repositories[0].held_through = Some(t(5));
    let plan = decide(&cold);
    assert!(
        plan.decisions
            .iter()
            .all(|d| d.verdict == Verdict::Wait(Wait::CacheCold))
    );
    assert!(plan.is_settled());
    assert_eq!(plan.repositories[0].condition(), None, "unknown, never zero");
    assert_eq!(plan.wake_at, Some(t(1015)));
    assert_eq!(
        decide(&Lane::default()).fire,
        None,
        "a lane nobody filled is cold"
    );
    assert_eq!(Lane::default().cache, Cache::Cold);
}

#[test]
fn while_another_manager_is_alive_nothing_is_decided() {
    let mut foreign = lane(vec![
        member("a", 100),
        MemberFacts {
            skip: true,
            ..member("s", 100)
        },
    ]);
    foreign.foreign_manager = true;
    foreign.repositories[0].acknowledgement = Some("2027-01-15T08:00:00Z".into());
    let plan = decide(&foreign);
    assert!(plan.is_settled());
    assert!(
        plan.decisions
            .iter()
            .all(|d| d.verdict == Verdict::Wait(Wait::ForeignManager))
    );
}

#[test]
fn case_47_children_that_the_schedule_guard_keeps_do_not_count() {
    let mut pending: Vec<MemberFacts> = members(50, 100)
        .into_iter()
        .map(|m| MemberFacts {
            owner: Owner::Gone,
            ..m
        })
        .collect();
    pending.extend((0..9).map(|n| member(&format!("x{n}"), 100)));
    let plan = decide(&lane(pending));
    assert_eq!(plan.repositories[0].count, 9);
    assert_eq!(held(&plan), 0);
}

#[test]
fn members_in_flight_count() {
    let mut lane = lane_with_threshold(3, members(3, 100));
    lane.live = Some(live("snapdel-nas-1", &["m0000", "m0001"], true));
    let plan = decide(&lane);
    assert_eq!(plan.repositories[0].count, 3);
    assert_eq!(of(&plan, "m0002").verdict, HELD);
    assert_eq!(of(&plan, "m0000").verdict, Verdict::InFlight);
    // Whatever is written on them now: their Job may delete them all the same.
    lane.members[0].skip = true;
    lane.members[1].policy = Policy::Retain;
    assert_eq!(decide(&lane).repositories[0].count, 3);
    lane.members[0].stamp = Stamp::Retention;
    lane.members[0].pruned_at = Some(t(100));
    assert_eq!(
        decide(&lane).repositories[0].count,
        2,
        "a prune in flight is no external deletion"
    );
}

#[test]
fn the_latch_is_written_with_the_first_hold_to_the_newest_deletion_held() {
    let mut pending = members(10, 100);
    pending[3].deleted_at = t(140);
    let plan = decide(&lane(pending));
    assert_eq!(plan.repositories[0].held_through, LatchChange::Raise(t(140)));
    assert_eq!(plan.repositories[0].hold.as_ref().unwrap().newest, t(140));
}

#[test]
fn promise_2_rescuing_three_of_twelve_held_does_not_fire_the_other_nine() {
    let mut wave = marked(lane(members(12, 100)));
    wave.members.drain(..3);
    let plan = decide(&wave);
    assert_eq!(plan.repositories[0].count, 9);
    assert_eq!(held(&plan), 9);
    assert!(plan.fire.is_none());
}

#[test]
fn promise_2_either_witness_of_a_hold_is_enough() {
    let wave = marked(lane(members(12, 100)));
    let mut without_record = wave.clone();
    without_record.members.truncate(2);
    without_record.repositories[0].held_through = None;
    assert_eq!(held(&decide(&without_record)), 2);
    assert_eq!(
        decide(&without_record).repositories[0].held_through,
        LatchChange::Raise(t(100)),
        "and heals"
    );

    let mut without_condition = wave;
    without_condition.members.truncate(2);
    for member in &mut without_condition.members {
        member.held = HeldCondition::NotHeld;
    }
    assert_eq!(held(&decide(&without_condition)), 2);
    assert!(
        decide(&without_condition)
            .decisions
            .iter()
            .all(|d| d.held_change == HeldChange::Set)
    );

    without_condition.members[0].held = HeldCondition::Unreadable;
    without_condition.repositories[0].held_through = None;
    assert_eq!(
        of(&decide(&without_condition), "m0000").verdict,
        HELD,
        "an unreadable condition is a witness"
    );
}

#[test]
fn promise_2_raising_the_threshold_does_not_end_a_hold_and_zero_does() {
    let mut wave = marked(lane(members(12, 100)));
    wave.repositories[0].threshold = Some(1_000);
    assert_eq!(held(&decide(&wave)), 12);
    wave.repositories[0].threshold = Some(0);
    let plan = decide(&wave);
    assert_eq!(fired(&plan).len(), 12);
    assert_eq!(
        plan.repositories[0].held_through,
        LatchChange::Keep,
        "until the wave is gone"
    );
    assert!(
        plan.decisions
            .iter()
            .all(|d| d.held_change == HeldChange::Clear(DeleteReason::BreakerDisabled))
    );
}

#[test]
fn threshold_zero_ends_a_hold_only_on_every_object_of_the_lane_and_the_strictest_counts() {
    let mut wave = lane(members(12, 100));
    wave.repositories.push(repository(other()));
    wave.repositories[0].threshold = Some(0);
    wave.repositories[1].threshold = Some(20);
    assert_eq!(held(&decide(&wave)), 0);
    wave.repositories[1].threshold = Some(12);
    let plan = decide(&wave);
    assert_eq!(held(&plan), 12);
    assert!(plan.repositories.iter().all(|r| r.threshold == Some(12)));
    wave.repositories[1].threshold = Some(0);
    assert_eq!(held(&decide(&wave)), 0);
}

#[test]
fn two_objects_over_one_bucket_share_one_wave() {
    let mut pending = members(5, 100);
    pending.extend((0..5).map(|n| MemberFacts {
        pin: Some(other()),
        repository: Resolution::Resolved(other()),
        namespace: "tenant".into(),
        ..member(&format!("o{n}"), 120)
    }));
    let mut wave = lane(pending);
    wave.repositories.push(repository(other()));
    let plan = decide(&wave);
    assert_eq!(held(&plan), 10);
    assert!(
        plan.repositories
            .iter()
            .all(|r| r.count == 10 && r.hold.as_ref().unwrap().held == 5)
    );
    // An acknowledgement on one object does not cover members pinned to the other.
    let mut acked = marked(wave);
    acknowledge(&mut acked.repositories[0], 200);
    let plan = decide(&acked);
    assert_eq!(held(&plan), 5);
    assert_eq!(fired(&plan).len(), 5);
    assert!(fired(&plan).iter().all(|name| name.starts_with('m')));
}

#[test]
fn the_latch_of_any_object_of_the_lane_binds() {
    let mut wave = lane(members(2, 100));
    wave.repositories.push(RepositoryFacts {
        held_through: Some(t(100)),
        ..repository(other())
    });
    assert_eq!(held(&decide(&wave)), 2);
}

#[test]
fn a_deletion_after_the_latched_ones_is_judged_by_the_count_alone() {
    let mut wave = lane(vec![member("new", 101)]);
    wave.repositories[0].held_through = Some(t(100));
    let plan = decide(&wave);
    assert_eq!(fired(&plan), ["new"]);
    assert_eq!(
        plan.repositories[0].held_through,
        LatchChange::Clear,
        "no latched member is pending"
    );
}

#[test]
fn the_latch_stays_while_a_latched_member_is_pending_and_is_cleared_then() {
    let mut wave = marked(lane(members(12, 100)));
    acknowledge(&mut wave.repositories[0], 100);
    let plan = decide(&wave);
    assert_eq!(fired(&plan).len(), 12);
    assert_eq!(plan.repositories[0].held_through, LatchChange::Keep);
    wave.members.clear();
    assert_eq!(decide(&wave).repositories[0].held_through, LatchChange::Clear);
}

#[test]
fn a_latch_whose_members_are_all_kept_is_cleared() {
    let mut wave = marked(lane(members(12, 100)));
    for member in &mut wave.members {
        member.policy = Policy::Retain;
    }
    assert_eq!(decide(&wave).repositories[0].held_through, LatchChange::Clear);
}

#[test]
fn an_acknowledgement_that_is_taken_back_halfway_holds_the_rest_again() {
    let mut wave = marked(lane(members(12, 100)));
    acknowledge(&mut wave.repositories[0], 100);
    wave.members.truncate(3);
    for member in &mut wave.members {
        member.held = HeldCondition::NotHeld;
    }
    wave.repositories[0].acknowledgement = None;
    let plan = decide(&wave);
    assert_eq!(held(&plan), 3);
    assert_eq!(
        plan.repositories[0].acknowledgement,
        AcknowledgementChange::Forget
    );
}

#[test]
fn rules_that_keep_data_win_over_a_latch() {
    let mut wave = marked(lane(members(12, 100)));
    wave.members[0].skip = true;
    wave.members[1].policy = Policy::Retain;
    wave.members[2].owner = Owner::Gone;
    wave.members[3].sharing = Sharing::WithLive("app/x".into());
    let plan = decide(&wave);
    assert_eq!(held(&plan), 8);
    assert!((0..4).all(|n| of(&plan, &format!("m{n:04}")).releases()));
}

#[test]
fn a_stamp_does_not_end_a_latch() {
    let mut wave = marked(lane(members(12, 100)));
    wave.members.truncate(1);
    wave.members[0].stamp = Stamp::Retention;
    wave.members[0].pruned_at = Some(t(110));
    assert_eq!(held(&decide(&wave)), 1, "its own condition says it was held");
    wave.members[0].held = HeldCondition::NotHeld;
    assert_eq!(
        held(&decide(&wave)),
        1,
        "stamped after its deletion, within the latch"
    );
    wave.members[0].pruned_at = Some(t(900));
    wave.members[0].restamped = true;
    assert_eq!(held(&decide(&wave)), 1, "nor does a re-stamp");
    wave.members[0].pruned_at = Some(t(100));
    assert_eq!(held(&decide(&wave)), 1, "in the second of the deletion neither");
    wave.members[0].restamped = false;
    wave.members[0].pruned_at = Some(t(100));
    assert_eq!(
        fired(&decide(&wave)),
        ["m0000"],
        "stamped before its deletion and never marked: a prune"
    );
}

#[test]
fn promise_6_prunes_go_on_while_a_wave_is_held() {
    let mut wave = marked(lane(members(700, 100)));
    wave.members.extend((0..30).map(|n| prune(&format!("p{n}"), 100)));
    wave.members.extend((0..30).map(|n| prune(&format!("q{n}"), 500)));
    let plan = decide(&wave);
    assert_eq!(held(&plan), 700);
    assert_eq!(fired(&plan).len(), 60);
}

#[test]
fn namespaces_of_a_hold_are_counted() {
    let mut pending = members(10, 100);
    for member in pending.iter_mut().take(3) {
        member.namespace = "tenant".into();
    }
    let plan = decide(&lane(pending));
    let hold = plan.repositories[0].hold.clone().unwrap();
    assert_eq!(
        hold.namespaces.into_iter().collect::<Vec<_>>(),
        [("app".to_owned(), 7), ("tenant".to_owned(), 3)]
    );
    assert_eq!(hold.held, 10);
    assert_eq!(hold.since, now());
}

fn window(threshold: u32) -> Option<SlidingWindow> {
    Some(SlidingWindow {
        duration: jiff::SignedDuration::from_secs(600),
        threshold,
    })
}

fn carried_out(count: usize, seconds_ago: i64) -> Vec<Fired> {
    let one = |n| Fired {
        uid: format!("uid-before-{n}"),
        at: t(1000 - seconds_ago),
    };
    (0..count).map(one).collect()
}

/// One at a time, each below the threshold, is a mass deletion all the same.
#[test]
fn a_sliding_window_holds_the_slow_trickle_and_nothing_without_it() {
    let mut lane = lane(members(1, 100));
    lane.fired = carried_out(11, 60);
    assert_eq!(fired(&decide(&lane)).len(), 1, "off by default");
    lane.repositories[0].sliding_window = window(13);
    assert_eq!(fired(&decide(&lane)).len(), 1, "12 of 13");
    lane.repositories[0].sliding_window = window(12);
    let plan = decide(&lane);
    assert_eq!((held(&plan), &plan.fire), (1, &None));
    assert_eq!(
        plan.repositories[0].condition(),
        Some((true, "SlidingWindowExceeded"))
    );
    let text = messages::mass_deletion(crate::words::WORDS, &plan.repositories[0]).unwrap();
    assert!(text.contains("11 were carried out in the last 10m"), "{text}");
    assert!(text.contains("slidingWindow.threshold is 12"), "{text}");
    assert_eq!(plan.repositories[0].held_through, LatchChange::Raise(t(100)));
    // At the threshold by itself, the window is not what holds it.
    lane.members = members(10, 100);
    assert_eq!(
        decide(&lane).repositories[0].condition(),
        Some((true, "ThresholdExceeded"))
    );
}

#[test]
fn a_sliding_window_forgets_what_is_older_and_counts_nothing_twice() {
    let mut lane = lane(members(2, 100));
    lane.repositories[0].sliding_window = window(4);
    lane.fired = carried_out(3, 600);
    assert_eq!(held(&decide(&lane)), 0, "600 s ago is no longer within 600 s");
    lane.fired = carried_out(3, 599);
    assert_eq!(held(&decide(&lane)), 2);
    // Fired, failed, and pending again.
    lane.fired = lane
        .members
        .iter()
        .map(|m| Fired {
            uid: m.uid.clone(),
            at: t(990),
        })
        .collect();
    assert_eq!(held(&decide(&lane)), 0);
}

#[test]
fn a_hold_by_the_sliding_window_latches_and_ends_by_an_acknowledgement() {
    let mut lane = lane(members(1, 100));
    lane.repositories[0].sliding_window = window(2);
    lane.fired = carried_out(1, 60);
    assert_eq!(held(&decide(&lane)), 1);
    lane.repositories[0].held_through = Some(t(100));
    lane.fired.clear();
    assert_eq!(held(&decide(&lane)), 1, "the window moved on, the hold did not");
    acknowledge(&mut lane.repositories[0], 100);
    assert_eq!(fired(&decide(&lane)).len(), 1);
}

#[test]
fn prunes_are_not_held_by_a_sliding_window() {
    let mut lane = lane(vec![prune("p", 100)]);
    lane.repositories[0].sliding_window = window(1);
    lane.fired = carried_out(5, 60);
    assert_eq!(fired(&decide(&lane)).len(), 1);
}

/// Of two objects over one bucket the stricter one is deleted: the other's wave stays held.
#[test]
fn a_repository_object_that_goes_takes_neither_latch_nor_threshold_with_it() {
    let mut lane = lane_with_threshold(3, members(5, 100));
    for member in &mut lane.members {
        (member.pin, member.repository) = (Some(other()), Resolution::Resolved(other()));
    }
    lane.repositories.push(RepositoryFacts {
        threshold: Some(0),
        ..repository(other())
    });
    let plan = decide(&lane);
    assert_eq!(held(&plan), 5);
    let LaneLatchChange::Write(latch) = plan.latch else {
        panic!("written before the first member is marked: {:?}", plan.latch)
    };
    assert_eq!(latch.held_through, Some(t(100)));
    assert_eq!(latch.thresholds, [(nas(), 3), (other(), 0)].into());
    lane.repositories.remove(0);
    assert_eq!(fired(&decide(&lane)).len(), 5, "without it");
    lane.latch = Some(latch);
    let plan = decide(&lane);
    assert_eq!((held(&plan), plan.latch), (5, LaneLatchChange::Keep));
    assert_eq!(plan.repositories[0].threshold, Some(3));
    // The person who may acknowledge does so on the object that is left.
    acknowledge(&mut lane.repositories[0], 100);
    assert_eq!(fired(&decide(&lane)).len(), 5);
}

#[test]
fn threshold_zero_on_every_object_that_is_left_ends_a_hold_of_its_own() {
    let mut lane = lane_with_threshold(0, members(5, 100));
    lane.latch = Some(LaneLatch {
        held_through: Some(t(100)),
        thresholds: [(nas(), 3)].into(),
    });
    assert_eq!(
        fired(&decide(&lane)).len(),
        5,
        "it is the object's own threshold that changed"
    );
}

#[test]
fn the_lanes_memory_goes_when_nothing_of_the_wave_is_pending() {
    let memory = LaneLatch {
        held_through: Some(t(100)),
        thresholds: [(nas(), 3)].into(),
    };
    let mut lane = lane_with_threshold(3, members(1, 101));
    lane.latch = Some(memory.clone());
    assert_eq!(decide(&lane).latch, LaneLatchChange::Forget);
    lane.latch = None;
    assert_eq!(decide(&lane).latch, LaneLatchChange::Keep);
    // A higher threshold of an object that is there is remembered as it is now.
    let mut lane = lane_with_threshold(50, members(1, 100));
    lane.latch = Some(memory);
    let plan = decide(&lane);
    assert_eq!(held(&plan), 1);
    assert_eq!(
        plan.latch,
        LaneLatchChange::Write(LaneLatch {
            held_through: Some(t(100)),
            thresholds: [(nas(), 50)].into(),
        })
    );
}
