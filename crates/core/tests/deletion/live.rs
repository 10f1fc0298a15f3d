//! The batch that is live, its withdrawal, and the second plan from facts read live.

use crate::support::*;
use holdfast_core::deletion::*;

#[test]
fn promise_3_nothing_fires_while_a_batch_is_live() {
    let mut lane = lane(members(3, 100));
    lane.live = Some(live("snapdel-nas-1", &["m0000"], true));
    let plan = decide(&lane);
    assert!(plan.fire.is_none());
    assert_eq!(of(&plan, "m0001").not_yet, Some(Wait::BatchLive));
    assert_eq!(plan.withdraw, None);
}

#[test]
fn in_flight_is_ahead_of_every_rule() {
    let skip = MemberFacts {
        skip: true,
        policy: Policy::Retain,
        ..member("a", 100)
    };
    let mut lane = lane(vec![skip]);
    lane.api_going_away = true;
    lane.live = Some(live("snapdel-nas-1", &["a"], true));
    let plan = decide(&lane);
    assert_eq!(
        (of(&plan, "a").verdict, of(&plan, "a").rule),
        (Verdict::InFlight, Rule::InFlight)
    );
    assert!(!of(&plan, "a").releases());
    assert_eq!(plan.withdraw, None);
}

#[test]
fn a_batch_whose_member_is_no_longer_to_be_deleted_is_withdrawn_while_no_container_has_started() {
    let changes: [fn(&mut MemberFacts); 4] = [
        |m| m.skip = true,
        |m| m.policy = Policy::Retain,
        |m| m.namespace_state = NamespaceState::Unreadable,
        |m| m.owner = Owner::Gone,
    ];
    for change in changes {
        let mut lane = lane(members(3, 100));
        lane.live = Some(live("snapdel-nas-1", &["m0000", "m0001"], false));
        assert_eq!(decide(&lane).withdraw, None);
        assert_eq!(of(&decide(&lane), "m0000").not_yet, Some(Wait::JobNotStarted));
        change(&mut lane.members[0]);
        let plan = decide(&lane);
        assert_eq!(plan.withdraw, Some(Withdraw::MemberNotDeletable));
        assert!(!of(&plan, "m0000").releases(), "not before no pod is left");
        assert!(!of(&plan, "m0001").releases());
        assert!(plan.fire.is_none());
    }
}

#[test]
fn a_wave_that_grows_to_the_threshold_withdraws_the_batch_that_has_not_started() {
    let mut lane = lane(members(9, 100));
    lane.live = Some(live("snapdel-nas-1", &["m0000", "m0001"], false));
    assert_eq!(decide(&lane).withdraw, None);
    lane.members.push(member("tenth", 100));
    let plan = decide(&lane);
    assert_eq!(held(&plan), 10);
    assert_eq!(plan.withdraw, Some(Withdraw::MemberNotDeletable));
}

#[test]
fn suspending_the_repository_withdraws_a_batch_that_has_not_started() {
    let mut lane = lane(members(1, 100));
    lane.live = Some(live("snapdel-nas-1", &["m0000"], false));
    lane.repositories[0].suspend = true;
    assert_eq!(decide(&lane).withdraw, Some(Withdraw::MemberNotDeletable));
}

#[test]
fn a_finalizer_taken_off_by_hand_withdraws_a_batch_that_has_not_started() {
    let mut lane = lane(members(1, 100));
    lane.live = Some(live("snapdel-nas-1", &["m0000", "gone"], false));
    assert_eq!(decide(&lane).withdraw, Some(Withdraw::MemberNotDeletable));
}

#[test]
fn a_batch_that_does_not_start_within_five_minutes_is_withdrawn() {
    let mut lane = lane(members(1, 100));
    lane.live = Some(live("snapdel-nas-1", &["m0000"], false));
    let before = wave(&lane, &Settings::default(), t(1289));
    assert_eq!((before.withdraw, before.wake_at), (None, Some(t(1290))));
    assert_eq!(
        wave(&lane, &Settings::default(), t(1290)).withdraw,
        Some(Withdraw::NotStarted)
    );
}

#[test]
fn the_live_plan_confirms_only_what_it_would_delete_too() {
    let cached = lane(members(4, 100));
    let batch = decide(&cached).fire.unwrap();
    assert_eq!(batch.members.len(), 4);
    assert_eq!(
        decide(&cached).confirm(&batch),
        Some(batch.clone()),
        "nothing changed"
    );

    let mut live = cached.clone();
    live.members[1].owner = Owner::Gone;
    live.members[2].namespace_state = NamespaceState::Unreadable;
    live.members.remove(3);
    let confirmed = decide(&live).confirm(&batch).unwrap();
    assert_eq!(confirmed.members, ["uid-m0000"]);
    assert_ne!(confirmed.job_name, batch.job_name);
    live.repositories[0].threshold = Some(1);
    assert_eq!(
        decide(&live).confirm(&batch),
        None,
        "the live threshold holds them all"
    );
    live.repositories[0].threshold = None;
    live.repositories[0].suspend = true;
    assert_eq!(decide(&live).confirm(&batch), None);
}

#[test]
fn the_live_plan_does_not_add_members_nor_lose_those_it_would_cut_elsewhere() {
    let cached = lane_with_threshold(0, members(3, 100));
    let batch = decide(&cached).fire.unwrap();
    let mut live = cached;
    live.members
        .extend((0..250).map(|n| member(&format!("older{n:03}"), 50)));
    let plan = decide(&live);
    assert_eq!(of(&plan, "m0000").not_yet, Some(Wait::NextBatch));
    assert_eq!(plan.confirm(&batch), Some(batch));
}

#[test]
fn the_live_plan_drops_members_that_lost_their_pin_or_belong_elsewhere_now() {
    let cached = lane(members(3, 100));
    let batch = decide(&cached).fire.unwrap();
    let mut live = cached;
    live.members[0].pin = None;
    live.members[1].pin = Some(other());
    live.members[1].repository = Resolution::Resolved(other());
    live.repositories.push(repository(other()));
    assert_eq!(decide(&live).confirm(&batch).unwrap().members, ["uid-m0002"]);
}
