//! What rides, and when.

use crate::support::*;
use holdfast_core::deletion::*;

fn at(lane: &Lane, second: i64) -> Plan {
    wave(lane, &Settings::default(), t(second))
}

#[test]
fn case_51_while_externals_are_held_only_prunes_ride() {
    let mut pending = members(2, 100);
    pending.push(prune("p", 500));
    let plan = decide(&lane_with_threshold(2, pending));
    assert_eq!(held(&plan), 2);
    assert_eq!(fired(&plan), ["p"]);
}

#[test]
fn case_53_below_the_threshold_or_at_threshold_zero_all_ride() {
    let mut pending = members(4, 100);
    pending.push(prune("p", 100));
    assert_eq!(fired(&decide(&lane_with_threshold(5, pending.clone()))).len(), 5);
    assert_eq!(fired(&decide(&lane_with_threshold(0, pending))).len(), 5);
}

#[test]
fn case_54_an_unpinned_member_rides_alone() {
    let mut pending = members(2, 100);
    pending.push(MemberFacts {
        pin: None,
        ..member("u", 200)
    });
    let mut lane = lane(pending);
    let plan = decide(&lane);
    assert_eq!(fired(&plan), ["m0000", "m0001"]);
    assert_eq!(of(&plan, "u").not_yet, Some(Wait::RidesAlone));
    lane.members[2].deleted_at = t(50);
    let plan = decide(&lane);
    assert_eq!(fired(&plan), ["u"]);
    assert_eq!(of(&plan, "m0000").not_yet, Some(Wait::NextBatch));
}

#[test]
fn case_55_a_member_in_a_terminating_namespace_rides_only_under_delete() {
    let mut lane = torn_down(OnNamespaceDelete::Orphan, member("n", 100));
    lane.members.push(member("a", 100));
    assert_eq!(fired(&decide(&lane)), ["a"]);
    lane.repositories[0].on_namespace_delete = OnNamespaceDelete::Delete;
    assert_eq!(fired(&decide(&lane)), ["a", "n"]);
}

#[test]
fn case_56_design_a_member_in_an_unreadable_namespace_never_rides() {
    let mut lane = lane(vec![
        MemberFacts {
            namespace_state: NamespaceState::Unreadable,
            ..member("n", 100)
        },
        member("a", 100),
    ]);
    lane.repositories[0].on_namespace_delete = OnNamespaceDelete::Delete;
    assert_eq!(fired(&decide(&lane)), ["a"]);
    lane.members[0] = MemberFacts {
        namespace_state: NamespaceState::Unreadable,
        ..prune("n", 100)
    };
    assert_eq!(fired(&decide(&lane)), ["a"]);
}

#[test]
fn case_58_design_nobody_rides_who_is_not_certainly_eligible() {
    let doubtful: [(&str, MemberFacts, Wait); 5] = [
        (
            "owner",
            MemberFacts {
                owner: Owner::Unknown,
                ..prune("x", 100)
            },
            Wait::OwnerUnknown,
        ),
        (
            "mover",
            MemberFacts {
                mover: OwnMover::Running,
                ..member("x", 100)
            },
            Wait::OwnMoverRunning,
        ),
        (
            "result",
            MemberFacts {
                mover: OwnMover::Unread,
                ..member("x", 100)
            },
            Wait::OwnResultUnread,
        ),
        (
            "source",
            MemberFacts {
                snapshot: Some(RecordedSnapshot {
                    id: "id".into(),
                    source: None,
                    start: None,
                }),
                ..member("x", 100)
            },
            Wait::SourceNotRecorded,
        ),
        (
            "size",
            MemberFacts {
                document_bytes: usize::MAX,
                ..member("x", 100)
            },
            Wait::MemberTooLarge,
        ),
    ];
    for (what, doubtful, wait) in doubtful {
        let plan = decide(&lane(vec![doubtful, member("a", 200)]));
        assert_eq!(fired(&plan), ["a"], "{what}");
        assert_eq!(of(&plan, "x").not_yet, Some(wait), "{what}");
    }
}

#[test]
fn case_60_an_empty_lane_waits_for_an_event() {
    let plan = decide(&lane(vec![]));
    assert_eq!((plan.fire, plan.wake_at), (None, None));
}

#[test]
fn case_61_the_window_is_ten_seconds_from_first_sight_by_our_clock() {
    let mut a = member("a", 500);
    a.first_seen = t(100);
    let lane = lane(vec![a]);
    let plan = at(&lane, 109);
    assert_eq!(of(&plan, "a").not_yet, Some(Wait::QuietWindow(t(110))));
    assert_eq!((plan.fire.is_none(), plan.wake_at), (true, Some(t(110))));
    assert_eq!(fired(&at(&lane, 110)), ["a"]);
}

#[test]
fn case_61_younger_members_ride_with_the_oldest() {
    let lane = lane(vec![member("a", 100), member("b", 109)]);
    assert_eq!(fired(&at(&lane, 110)), ["a", "b"]);
}

#[test]
fn case_61_acknowledged_and_tried_members_do_not_wait() {
    let mut acked = lane_with_threshold(1, members(2, 100));
    acknowledge(&mut acked.repositories[0], 100);
    assert_eq!(fired(&at(&acked, 101)).len(), 2);
    let tried = lane(vec![
        MemberFacts {
            attempts: 1,
            ..member("a", 100)
        },
        member("b", 100),
    ]);
    let plan = at(&tried, 101);
    assert_eq!(fired(&plan), ["a"]);
    assert_eq!(of(&plan, "b").not_yet, Some(Wait::QuietWindow(t(110))));
}

#[test]
fn an_older_prune_does_not_shorten_the_window_of_a_cascade_that_just_began() {
    let mut pending = vec![prune("p", 100)];
    pending.extend(members(5, 109));
    let plan = at(&lane(pending), 110);
    assert_eq!(fired(&plan), ["p"]);
    assert_eq!(of(&plan, "m0000").not_yet, Some(Wait::QuietWindow(t(119))));
}

#[test]
fn case_62_design_more_members_than_the_cap_do_not_cut_the_window_short_and_the_oldest_ride_first() {
    let mut pending = members(250, 100);
    for (n, member) in pending.iter_mut().enumerate() {
        member.deleted_at = t(100 - i64::try_from(n / 50).unwrap());
    }
    let lane = lane_with_threshold(0, pending);
    assert!(at(&lane, 105).fire.is_none());
    let plan = at(&lane, 110);
    let riding = fired(&plan);
    assert_eq!(riding.len(), 200);
    assert_eq!(
        (riding[0].as_str(), riding[1].as_str()),
        ("m0200", "m0201"),
        "oldest first, ties by UID"
    );
    assert_eq!(of(&plan, "m0000").not_yet, Some(Wait::NextBatch));
}

#[test]
fn a_batch_is_cut_to_the_work_document() {
    let mut pending = members(5, 100);
    for member in &mut pending {
        member.document_bytes = 40 * 1024;
    }
    assert_eq!(fired(&decide(&lane(pending))).len(), 2, "112 KiB of members");
}

#[test]
fn case_67_the_cap_on_jobs_in_the_cluster() {
    let settings = Settings {
        max_jobs: 3,
        ..Settings::default()
    };
    let mut lane = lane(vec![member("a", 100)]);
    lane.live_jobs_in_cluster = 2;
    assert!(wave(&lane, &settings, now()).fire.is_some());
    lane.live_jobs_in_cluster = 3;
    let plan = wave(&lane, &settings, now());
    assert!(plan.fire.is_none());
    assert_eq!(of(&plan, "a").not_yet, Some(Wait::JobCapReached));
    assert_eq!(plan.wake_at, Some(t(1015)));
    lane.live_jobs_in_cluster = u32::MAX;
    assert!(decide(&lane).fire.is_some(), "no cap");
}

#[test]
fn case_77_one_manual_delete_is_one_batch_of_exactly_that_member() {
    let plan = decide(&lane(vec![member("a", 100)]));
    let batch = plan.fire.unwrap();
    assert_eq!(batch.members, ["uid-a"]);
    assert_eq!(batch.repository, nas());
}

#[test]
fn suspend_pause_and_an_unknown_repository_stop_all_firing() {
    let all = vec![member("a", 100), prune("p", 100)];
    let mut suspended = lane(all.clone());
    suspended.repositories.push(RepositoryFacts {
        suspend: true,
        ..repository(other())
    });
    let plan = decide(&suspended);
    assert!(
        plan.fire.is_none(),
        "one suspended object stops the physical repository"
    );
    assert_eq!(of(&plan, "p").not_yet, Some(Wait::RepositorySuspended));

    let paused = wave(
        &lane(all.clone()),
        &Settings {
            paused: true,
            ..Settings::default()
        },
        now(),
    );
    assert_eq!(
        (paused.fire.is_none(), of(&paused, "a").not_yet),
        (true, Some(Wait::DeletionsPaused))
    );

    let mut unknown = lane(all);
    unknown.repositories[0].connected = false;
    let plan = decide(&unknown);
    assert_eq!(
        (plan.fire.is_none(), of(&plan, "a").not_yet),
        (true, Some(Wait::RepositoryNotConnected))
    );
}

#[test]
fn a_failed_member_backs_off_by_itself_and_blocks_nobody() {
    let failed = MemberFacts {
        attempts: 2,
        next_attempt_at: Some(t(1200)),
        ..member("f", 50)
    };
    let mut pending = vec![failed];
    pending.extend(members(3, 100));
    let lane = lane(pending);
    let plan = decide(&lane);
    assert_eq!(fired(&plan).len(), 3);
    assert_eq!(of(&plan, "f").not_yet, Some(Wait::BackingOff(t(1200))));
    assert_eq!(plan.wake_at, Some(t(1200)));
    assert_eq!(fired(&at(&lane, 1200)).len(), 4);
}

#[test]
fn a_repository_that_backs_off_fires_nothing_until_then() {
    let mut lane = lane(members(3, 100));
    lane.repositories[0].backoff_until = Some(t(1100));
    let plan = decide(&lane);
    assert_eq!((plan.fire.is_none(), plan.wake_at), (true, Some(t(1100))));
    assert_eq!(
        of(&plan, "m0000").not_yet,
        Some(Wait::RepositoryBackingOff(t(1100)))
    );
}

#[test]
fn a_backoff_by_a_clock_that_was_wrong_is_not_waited_for() {
    let mut lane = lane(members(3, 100));
    let far = Some(t(1_000_000_000));
    lane.repositories[0].backoff_until = far;
    for member in &mut lane.members {
        (member.attempts, member.next_attempt_at) = (1, far);
    }
    assert_eq!(fired(&decide(&lane)).len(), 3);
}

#[test]
fn a_batch_is_of_one_repository_object() {
    let mut pending = members(3, 100);
    pending[0].pin = Some(other());
    pending[0].repository = Resolution::Resolved(other());
    let mut lane = lane(pending);
    lane.repositories.push(repository(other()));
    let plan = decide(&lane);
    assert_eq!(fired(&plan), ["m0000"]);
    assert_eq!(plan.fire.as_ref().unwrap().repository, other());
    assert_eq!(of(&plan, "m0001").not_yet, Some(Wait::NextBatch));
}

#[test]
fn what_fits_exactly_rides() {
    let exact = Settings::default().max_bytes;
    let mut one = lane(vec![MemberFacts {
        document_bytes: exact,
        ..member("a", 100)
    }]);
    assert_eq!(fired(&decide(&one)), ["a"]);
    one.members[0].document_bytes = exact / 2;
    one.members.push(MemberFacts {
        document_bytes: exact - exact / 2,
        ..member("b", 101)
    });
    assert_eq!(fired(&decide(&one)).len(), 2);
    one.members[1].document_bytes += 1;
    assert_eq!(fired(&decide(&one)), ["a"], "a byte too many");
}

/// Neither the one without a pin nor the one that was tried makes the others' window older than their own.
#[test]
fn the_window_of_the_others_is_not_shortened_by_what_does_not_wait_with_them() {
    let unpinned = MemberFacts {
        pin: None,
        first_seen: t(50),
        ..member("a", 100)
    };
    let tried = MemberFacts {
        attempts: 1,
        first_seen: t(50),
        ..member("b", 100)
    };
    for beside in [unpinned, tried] {
        let lane = lane(vec![beside, member("c", 105)]);
        let plan = at(&lane, 110);
        assert_eq!(of(&plan, "c").not_yet, Some(Wait::QuietWindow(t(115))));
    }
}

#[test]
fn a_plan_is_settled_only_when_there_is_nothing_to_write() {
    let settled = |lane: &Lane| decide(lane).is_settled();
    assert!(settled(&lane(vec![])));
    // Releases; fires; marks; records; forgets.
    assert!(!settled(&lane(vec![MemberFacts {
        skip: true,
        ..member("a", 100)
    }])));
    assert!(!settled(&lane(vec![member("a", 100)])));
    let waiting = MemberFacts {
        sharing: Sharing::Unknown,
        ..member("a", 100)
    };
    assert!(settled(&lane(vec![waiting.clone()])));
    let held = MemberFacts {
        held: HeldCondition::Held { since: t(100) },
        ..member("a", 100)
    };
    let memory = |threshold| {
        Some(LaneLatch {
            held_through: Some(t(100)),
            thresholds: [(nas(), threshold)].into(),
        })
    };
    let mut known = lane(vec![held]);
    known.repositories[0].held_through = Some(t(100));
    known.latch = memory(10);
    assert!(settled(&known));
    known.latch = memory(9);
    assert!(!settled(&known), "the lane's memory is out of date");
    known.latch = memory(10);
    known.repositories[0].held_through = None;
    assert!(!settled(&known), "the latch is to be raised");
    let mut acknowledged = lane(vec![waiting]);
    acknowledged.repositories[0].acknowledgement = Some(t(50).to_string());
    assert!(!settled(&acknowledged), "to be recorded first");
    let mut marked = lane(members(10, 100));
    marked.repositories[0].held_through = Some(t(100));
    marked.latch = memory(10);
    assert!(!settled(&marked), "held and not marked yet");
}
