//! Rules 1 to 8: the decision table.

use crate::support::*;
use holdfast_core::deletion::guard::{Origin, effective_cascade, effective_policy};
use holdfast_core::deletion::*;

const KEPT_BY_SCHEDULE: Verdict = Verdict::Retain(RetainReason::ScheduleDelete);
const BELOW: Verdict = Verdict::Delete(DeleteReason::BelowThreshold);

fn owned(owner: Owner, cascade: Cascade) -> MemberFacts {
    MemberFacts {
        owner,
        cascade,
        ..member("a", 100)
    }
}

#[test]
fn case_03_an_external_deletion_with_policy_delete_an_id_and_a_matching_pin_is_one_that_counts() {
    let plan = decide(&lane(vec![member("a", 100)]));
    assert_eq!(plan.repositories[0].count, 1);
    assert_eq!(of(&plan, "a").verdict, BELOW);
}

#[test]
fn case_06_retain_and_orphan_do_not_count() {
    for policy in [Policy::Retain, Policy::Orphan] {
        let plan = decide(&lane(vec![MemberFacts {
            policy,
            ..member("a", 100)
        }]));
        assert_eq!(plan.repositories[0].count, 0);
        assert!(of(&plan, "a").releases());
    }
}

#[test]
fn case_07_the_skip_annotation_excludes_from_the_count() {
    let plan = decide(&lane(vec![MemberFacts {
        skip: true,
        ..member("a", 100)
    }]));
    assert_eq!(plan.repositories[0].count, 0);
}

#[test]
fn case_08_a_retention_stamp_is_included_but_not_external() {
    let plan = decide(&lane(vec![prune("a", 100)]));
    assert_eq!(plan.repositories[0].count, 0);
    assert_eq!(of(&plan, "a").verdict, Verdict::Delete(DeleteReason::OwnPrune));
}

#[test]
fn case_09_without_a_recorded_id_the_finalizer_is_just_released() {
    let plan = decide(&lane(vec![MemberFacts {
        snapshot: None,
        ..member("a", 100)
    }]));
    assert_eq!(plan.repositories[0].count, 0);
    assert_eq!(
        of(&plan, "a").verdict,
        Verdict::Release(ReleaseReason::NothingRecorded)
    );
    assert!(of(&plan, "a").releases());
}

#[test]
fn case_09_without_an_id_a_mover_that_may_still_record_one_is_waited_for_and_counts() {
    for (mover, wait) in [
        (OwnMover::Running, Wait::OwnMoverRunning),
        (OwnMover::Unread, Wait::OwnResultUnread),
        (OwnMover::Unknown, Wait::OwnMoverUnknown),
    ] {
        let plan = decide(&lane(vec![MemberFacts {
            snapshot: None,
            mover,
            ..member("a", 100)
        }]));
        assert_eq!(of(&plan, "a").verdict, Verdict::Wait(wait));
        assert_eq!(plan.repositories[0].count, 1);
    }
}

#[test]
fn case_11_an_unpinned_member_counts_in_every_lane_it_may_resolve_to() {
    let unpinned = MemberFacts {
        pin: None,
        repository: Resolution::Unreadable,
        ..member("u", 100)
    };
    let mut lane = lane_with_threshold(2, vec![member("a", 100)]);
    lane.unplaced = vec![unpinned.clone()];
    let plan = decide(&lane);
    assert_eq!(plan.repositories[0].count, 2);
    assert!(
        of(&plan, "a").verdict.is_held(),
        "its doubt makes the count larger"
    );
    assert_eq!(plan.decisions.len(), 1, "and it is decided elsewhere");

    let nowhere = Lane {
        members: vec![unpinned],
        cache: Cache::Synced,
        ..Lane::default()
    };
    assert_eq!(
        verdict_of(&decide(&nowhere), 0),
        Verdict::Wait(Wait::RepositoryUnreadable)
    );
}

#[test]
fn case_14_design_an_unreadable_namespace_counts_and_does_not_fire() {
    let unreadable = MemberFacts {
        namespace_state: NamespaceState::Unreadable,
        ..member("a", 100)
    };
    let plan = decide(&lane(vec![unreadable]));
    assert_eq!(plan.repositories[0].count, 1);
    assert_eq!(of(&plan, "a").not_yet, Some(Wait::NamespaceUnreadable));
    assert!(plan.fire.is_none());
}

#[test]
fn case_14_a_child_of_a_schedule_that_went_keeps_retain_semantics_in_an_unreadable_namespace() {
    let child = MemberFacts {
        namespace_state: NamespaceState::Unreadable,
        ..owned(Owner::Gone, Cascade::Retain)
    };
    let mut lane = lane(vec![child]);
    let plan = decide(&lane);
    assert_eq!(of(&plan, "a").verdict, KEPT_BY_SCHEDULE);
    assert_eq!(
        plan.repositories[0].count, 0,
        "orphaned or retained: certain to be kept"
    );
    // Under Delete the namespace, were it terminating, would lift the guard: then it could be destructive.
    lane.repositories[0].on_namespace_delete = OnNamespaceDelete::Delete;
    let plan = decide(&lane);
    assert_eq!(of(&plan, "a").verdict, KEPT_BY_SCHEDULE);
    assert_eq!(plan.repositories[0].count, 1);
}

#[test]
fn case_29_an_owner_that_is_gone_keeps_the_data_loudly() {
    assert_eq!(alone(owned(Owner::Gone, Cascade::Retain)), KEPT_BY_SCHEDULE);
}

#[test]
fn case_30_an_owner_that_is_terminating_keeps_the_data_loudly() {
    assert_eq!(
        alone(owned(Owner::Terminating, Cascade::Retain)),
        KEPT_BY_SCHEDULE
    );
}

#[test]
fn case_31_a_schedule_of_the_same_name_with_another_uid_keeps_the_data_loudly() {
    assert_eq!(alone(owned(Owner::Replaced, Cascade::Retain)), KEPT_BY_SCHEDULE);
}

#[test]
fn case_32_cascade_delete_deletes_below_the_threshold_and_is_held_at_it() {
    let children = |count: usize| -> Vec<MemberFacts> {
        members(count, 100)
            .into_iter()
            .map(|m| MemberFacts {
                owner: Owner::Gone,
                cascade: Cascade::Delete,
                ..m
            })
            .collect()
    };
    assert_eq!(held(&decide(&lane(children(9)))), 0);
    assert_eq!(fired(&decide(&lane(children(9)))).len(), 9);
    assert_eq!(held(&decide(&lane(children(10)))), 10);
    assert!(decide(&lane(children(10))).fire.is_none());
}

#[test]
fn case_33_with_a_living_owner_one_snapshot_deleted_by_hand_is_deleted() {
    assert_eq!(alone(owned(Owner::Alive, Cascade::Retain)), BELOW);
}

#[test]
fn case_34_without_an_owner_only_the_own_policy_matters() {
    for (policy, verdict) in [
        (Policy::Delete, BELOW),
        (Policy::Retain, Verdict::Retain(RetainReason::Policy)),
        (Policy::Orphan, Verdict::Orphan(OrphanReason::Policy)),
    ] {
        assert_eq!(
            alone(MemberFacts {
                policy,
                ..owned(Owner::None, Cascade::Retain)
            }),
            verdict
        );
    }
}

#[test]
fn case_35_a_stamp_follows_the_prune_table_and_is_never_held() {
    let table = [
        (
            Stamp::Retention,
            Policy::Delete,
            Verdict::Delete(DeleteReason::OwnPrune),
        ),
        (
            Stamp::Retention,
            Policy::Retain,
            Verdict::Retain(RetainReason::Policy),
        ),
        (
            Stamp::Retention,
            Policy::Orphan,
            Verdict::Orphan(OrphanReason::Policy),
        ),
        (
            Stamp::FailedHistory,
            Policy::Delete,
            Verdict::Delete(DeleteReason::OwnPrune),
        ),
        (
            Stamp::FailedHistory,
            Policy::Retain,
            Verdict::Retain(RetainReason::Policy),
        ),
        (
            Stamp::FailedHistory,
            Policy::Orphan,
            Verdict::Orphan(OrphanReason::Policy),
        ),
        (
            Stamp::PolicyCascade,
            Policy::Delete,
            Verdict::Retain(RetainReason::PolicyDelete),
        ),
        (
            Stamp::PolicyCascade,
            Policy::Retain,
            Verdict::Retain(RetainReason::Policy),
        ),
        (
            Stamp::PolicyCascade,
            Policy::Orphan,
            Verdict::Orphan(OrphanReason::Policy),
        ),
        (
            Stamp::ReplacedRun,
            Policy::Delete,
            Verdict::Retain(RetainReason::ReplacedRun),
        ),
        (
            Stamp::ReplacedRun,
            Policy::Retain,
            Verdict::Retain(RetainReason::Policy),
        ),
        (
            Stamp::ReplacedRun,
            Policy::Orphan,
            Verdict::Orphan(OrphanReason::Policy),
        ),
    ];
    for (stamp, policy, verdict) in table {
        let stamped = MemberFacts {
            stamp,
            policy,
            owner: Owner::Gone,
            ..prune("p", 500)
        };
        let mut pending = members(10, 100);
        pending.push(stamped);
        let plan = decide(&lane(pending));
        assert_eq!(held(&plan), 10, "the breaker trips");
        assert_eq!(of(&plan, "p").verdict, verdict, "{stamp:?} {policy:?}");
    }
}

#[test]
fn case_36_an_unknown_stamp_is_external() {
    assert_eq!(Stamp::parse(Some("garbage")), Stamp::Unknown);
    let stamped = |stamp| MemberFacts {
        stamp,
        pruned_at: Some(t(100)),
        ..owned(Owner::Gone, Cascade::Retain)
    };
    assert_eq!(alone(stamped(Stamp::parse(Some("garbage")))), KEPT_BY_SCHEDULE);
    assert_eq!(alone(stamped(Stamp::parse(Some("Retention")))), KEPT_BY_SCHEDULE);
    assert_eq!(
        alone(stamped(Stamp::parse(Some("retention")))),
        Verdict::Delete(DeleteReason::OwnPrune)
    );
}

#[test]
fn a_stamp_counts_only_within_sixty_seconds_of_the_deletion_in_either_direction() {
    for (pruned, counts) in [(39, false), (40, true), (100, true), (160, true), (161, false)] {
        let stamped = MemberFacts {
            pruned_at: Some(t(pruned)),
            ..prune("a", 100)
        };
        let expected = if counts {
            Verdict::Delete(DeleteReason::OwnPrune)
        } else {
            BELOW
        };
        assert_eq!(alone(stamped), expected, "stamped at {pruned}, deleted at 100");
    }
    assert_eq!(
        alone(MemberFacts {
            pruned_at: None,
            ..prune("a", 100)
        }),
        BELOW,
        "a stamp without a time is none"
    );
}

#[test]
fn a_restamp_by_our_own_pass_counts_however_old_the_deletion() {
    let restamped = MemberFacts {
        pruned_at: Some(t(900)),
        restamped: true,
        ..prune("a", 100)
    };
    assert_eq!(alone(restamped), Verdict::Delete(DeleteReason::OwnPrune));
}

#[test]
fn case_38_skip_wins_over_stamp_hold_and_teardown() {
    let all = MemberFacts {
        skip: true,
        held: HeldCondition::Held { since: t(200) },
        snapshot: None,
        mover: OwnMover::Running,
        ..prune("a", 100)
    };
    let plan = decide(&torn_down(OnNamespaceDelete::Delete, all));
    assert_eq!(of(&plan, "a").verdict, Verdict::Orphan(OrphanReason::Skip));
    assert!(of(&plan, "a").releases());
}

#[test]
fn a_crd_that_is_being_deleted_is_no_wish_to_delete_backups() {
    let mut lane = lane(members(3, 100));
    lane.api_going_away = true;
    let plan = decide(&lane);
    assert!(
        plan.decisions
            .iter()
            .all(|d| d.verdict == Verdict::Orphan(OrphanReason::ApiGoingAway))
    );
    assert_eq!(plan.repositories[0].count, 0);
    assert_eq!(plan.decisions[0].reason(), "APIGoingAway");
}

#[test]
fn case_39_a_torn_down_namespace_with_an_unresolvable_repository_orphans_whatever_the_policy() {
    for policy in [Policy::Delete, Policy::Retain, Policy::Orphan, Policy::Unknown] {
        for repository in [Resolution::Gone, Resolution::Unreadable] {
            let gone = MemberFacts {
                policy,
                repository,
                namespace_state: NamespaceState::Terminating,
                ..member("a", 100)
            };
            let nowhere = Lane {
                members: vec![gone],
                cache: Cache::Synced,
                ..Lane::default()
            };
            assert_eq!(
                verdict_of(&decide(&nowhere), 0),
                Verdict::Orphan(OrphanReason::NamespaceTerminating)
            );
        }
    }
}

#[test]
fn case_40_a_torn_down_namespace_under_orphan_orphans_even_with_cascade_delete_or_a_stamp() {
    for on_namespace_delete in [OnNamespaceDelete::Orphan, OnNamespaceDelete::Unknown] {
        for m in [owned(Owner::Gone, Cascade::Delete), prune("a", 100)] {
            let plan = decide(&torn_down(on_namespace_delete, m));
            assert_eq!(
                of(&plan, "a").verdict,
                Verdict::Orphan(OrphanReason::NamespaceTerminating)
            );
        }
    }
}

#[test]
fn case_41_teardown_under_delete_lifts_the_schedule_guard_but_not_the_breaker() {
    let child = owned(Owner::Gone, Cascade::Retain);
    let plan = decide(&torn_down(OnNamespaceDelete::Delete, child.clone()));
    assert_eq!(of(&plan, "a").verdict, BELOW);
    let mut lane = torn_down(OnNamespaceDelete::Delete, child);
    lane.repositories[0].threshold = Some(1);
    assert_eq!(held(&decide(&lane)), 1);
}

#[test]
fn case_43_teardown_under_delete_deletes_a_retention_prune_although_the_breaker_trips() {
    let mut lane = torn_down(OnNamespaceDelete::Delete, prune("p", 500));
    lane.members.extend(members(10, 100));
    let plan = decide(&lane);
    assert_eq!(held(&plan), 10);
    assert_eq!(fired(&plan), ["p"]);
}

#[test]
fn a_policy_cascade_counts_as_external_in_a_teardown_under_delete() {
    let stamped = MemberFacts {
        stamp: Stamp::PolicyCascade,
        ..prune("a", 100)
    };
    let plan = decide(&torn_down(OnNamespaceDelete::Delete, stamped));
    assert_eq!(of(&plan, "a").verdict, BELOW);
    assert_eq!(plan.repositories[0].count, 1);
}

#[test]
fn case_44_retain_and_orphan_are_never_held() {
    let mut pending = members(10, 100);
    pending.push(MemberFacts {
        policy: Policy::Retain,
        ..member("r", 100)
    });
    pending.push(MemberFacts {
        policy: Policy::Orphan,
        ..member("o", 100)
    });
    let plan = decide(&lane(pending));
    assert_eq!(held(&plan), 10);
    assert!(of(&plan, "r").releases() && of(&plan, "o").releases());
}

#[test]
fn case_45_a_discovered_row_or_an_unreadable_or_differing_origin_is_retained() {
    let policy = |label: Option<&str>, status: Option<&str>| {
        effective_policy(Some(Policy::Delete), Origin::parse(label), Origin::parse(status))
    };
    for (label, status) in [
        (Some("discovered"), Some("discovered")),
        (Some("discovered"), None),
        (None, Some("discovered")),
        (Some("Scheduled"), Some("scheduled")),
        (Some("martian"), None),
        (Some("scheduled"), Some("manual")),
    ] {
        assert_eq!(policy(label, status), Policy::Retain, "{label:?} {status:?}");
    }
    for origin in ["scheduled", "manual", "adopted", "replicated"] {
        assert_eq!(policy(Some(origin), Some(origin)), Policy::Delete);
        assert_eq!(policy(None, Some(origin)), Policy::Delete);
    }
    assert_eq!(
        effective_policy(None, None, None),
        Policy::Delete,
        "no marker is manual, absent is Delete"
    );
    assert_eq!(effective_policy(Some(Policy::Orphan), None, None), Policy::Orphan);
}

#[test]
fn case_48_a_replaced_run_that_committed_at_the_same_moment_keeps_its_snapshot() {
    let replaced = MemberFacts {
        stamp: Stamp::ReplacedRun,
        ..prune("a", 100)
    };
    assert_eq!(alone(replaced), Verdict::Retain(RetainReason::ReplacedRun));
}

#[test]
fn case_80_no_place_to_run_orphans_and_one_that_cannot_be_read_waits() {
    for (place, verdict) in [
        (Place::Terminating, Verdict::Orphan(OrphanReason::NoPlaceToRun)),
        (Place::NotSet, Verdict::Orphan(OrphanReason::NoPlaceToRun)),
        (Place::Unknown, Verdict::Wait(Wait::PlaceUnknown)),
        (Place::Fine, BELOW),
    ] {
        assert_eq!(
            alone(MemberFacts {
                place,
                ..member("a", 100)
            }),
            verdict
        );
    }
    let plan = decide(&lane(vec![MemberFacts {
        place: Place::Unknown,
        ..member("a", 100)
    }]));
    assert_eq!(plan.wake_at, Some(t(1015)));
}

#[test]
fn case_80_a_cluster_repository_runs_elsewhere_so_a_torn_down_application_may_delete() {
    let key = RepositoryKey::ClusterRepository { name: "nas".into() };
    let m = MemberFacts {
        pin: Some(key.clone()),
        repository: Resolution::Resolved(key.clone()),
        namespace_state: NamespaceState::Terminating,
        ..member("a", 100)
    };
    let mut lane = lane(vec![m]);
    lane.repositories = vec![RepositoryFacts {
        on_namespace_delete: OnNamespaceDelete::Delete,
        ..repository(key)
    }];
    assert_eq!(fired(&decide(&lane)), ["a"]);
}

#[test]
fn a_snapshot_that_another_live_object_records_is_kept_and_the_last_one_decides() {
    let shared = MemberFacts {
        sharing: Sharing::WithLive("app/b".into()),
        ..member("a", 100)
    };
    assert_eq!(
        alone(shared.clone()),
        Verdict::Retain(RetainReason::SharedSnapshot)
    );
    assert_eq!(
        alone(MemberFacts {
            sharing: shared.sharing,
            ..prune("a", 100)
        }),
        Verdict::Retain(RetainReason::SharedSnapshot)
    );
    assert_eq!(
        alone(MemberFacts {
            sharing: Sharing::Unknown,
            ..member("a", 100)
        }),
        Verdict::Wait(Wait::SharingUnknown)
    );
}

#[test]
fn case_83_two_objects_of_one_snapshot_both_deleting_ride_together() {
    let mut pair = members(2, 100);
    pair[1].snapshot = pair[0].snapshot.clone();
    assert_eq!(fired(&decide(&lane(pair))).len(), 2);
}

#[test]
fn a_snapshot_that_a_held_object_records_too_does_not_go_with_a_prune() {
    let mut pending = members(10, 100);
    let same = MemberFacts {
        snapshot: pending[0].snapshot.clone(),
        ..prune("p", 500)
    };
    pending.push(same);
    let plan = decide(&lane(pending));
    assert_eq!(of(&plan, "p").not_yet, Some(Wait::SharedWithPending));
    assert!(plan.fire.is_none());
}

#[test]
fn a_repository_that_is_gone_for_good_orphans_and_one_that_cannot_be_read_waits() {
    let nowhere = |repository| Lane {
        members: vec![MemberFacts {
            repository,
            pin: None,
            ..member("a", 100)
        }],
        cache: Cache::Synced,
        ..Lane::default()
    };
    assert_eq!(
        verdict_of(&decide(&nowhere(Resolution::Gone)), 0),
        Verdict::Orphan(OrphanReason::RepositoryUnknown)
    );
    assert_eq!(
        verdict_of(&decide(&nowhere(Resolution::Unreadable)), 0),
        Verdict::Wait(Wait::RepositoryUnreadable)
    );
}

#[test]
fn a_pin_that_differs_from_what_resolves_touches_nothing() {
    let torn = MemberFacts {
        pin: Some(other()),
        ..member("a", 100)
    };
    assert_eq!(alone(torn), Verdict::Wait(Wait::RepositoryMismatch));
    let foreign = MemberFacts {
        pin: Some(other()),
        repository: Resolution::Resolved(other()),
        ..member("a", 100)
    };
    assert_eq!(alone(foreign), Verdict::Wait(Wait::RepositoryMismatch));
}

#[test]
fn an_owner_that_cannot_be_read_is_never_guessed() {
    let plan = decide(&lane(vec![owned(Owner::Unknown, Cascade::Retain)]));
    assert_eq!(of(&plan, "a").verdict, Verdict::Wait(Wait::OwnerUnknown));
    assert_eq!(plan.repositories[0].count, 1);
    let plan = decide(&lane(vec![owned(Owner::Unknown, Cascade::Delete)]));
    assert_eq!(
        of(&plan, "a").not_yet,
        Some(Wait::OwnerUnknown),
        "known when schedule-owned, or it does not ride"
    );
}

#[test]
fn values_of_a_newer_version_hold_and_touch_nothing() {
    assert_eq!(
        alone(MemberFacts {
            policy: Policy::Unknown,
            ..member("a", 100)
        }),
        Verdict::Wait(Wait::PolicyUnreadable)
    );
    assert_eq!(
        alone(MemberFacts {
            policy: Policy::Unknown,
            ..prune("a", 100)
        }),
        Verdict::Wait(Wait::PolicyUnreadable)
    );
    assert_eq!(
        alone(owned(Owner::Gone, Cascade::Unknown)),
        Verdict::Wait(Wait::CascadeUnreadable)
    );
}

/// An edit of the schedule that has not reached its Snapshots yet keeps their data; none of it ever deletes more.
#[test]
fn the_stricter_of_snapshot_and_schedule_is_the_cascade() {
    let all = [
        None,
        Some(Cascade::Retain),
        Some(Cascade::Delete),
        Some(Cascade::Unknown),
    ];
    for own in all {
        for schedule in all {
            let both = [
                own.unwrap_or(Cascade::Retain),
                schedule.unwrap_or(Cascade::Delete),
            ];
            let wanted = if both.contains(&Cascade::Retain) {
                Cascade::Retain
            } else if both.contains(&Cascade::Unknown) {
                Cascade::Unknown
            } else {
                Cascade::Delete
            };
            assert_eq!(effective_cascade(own, schedule), wanted, "{own:?} {schedule:?}");
        }
    }
}

#[test]
fn an_origin_is_read_by_its_word() {
    for (word, origin) in [
        ("scheduled", Origin::Scheduled),
        ("manual", Origin::Manual),
        ("discovered", Origin::Discovered),
        ("adopted", Origin::Adopted),
        ("replicated", Origin::Replicated),
        ("Scheduled", Origin::Unreadable),
        ("", Origin::Unreadable),
    ] {
        assert_eq!(Origin::parse(Some(word)), Some(origin), "{word}");
    }
    assert_eq!(Origin::parse(None), None);
}
