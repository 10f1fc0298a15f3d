//! The sentences people read.

use crate::support::*;
use holdfast_core::deletion::look::{Again, Reappeared};
use holdfast_core::deletion::messages::*;
use holdfast_core::deletion::*;

pub const WORDS: Words<'static> = Words {
    allow_mass_deletion: "kopiur.home-operations.com/allow-mass-deletion",
    skip_snapshot_cleanup: "kopiur.home-operations.com/skip-snapshot-cleanup",
};

#[test]
fn case_25_the_command_names_the_namespace_of_a_repository_and_none_of_a_cluster_repository() {
    assert_eq!(
        acknowledge_command(WORDS, &nas(), t(0)),
        "kubectl -n backup annotate repository/nas kopiur.home-operations.com/allow-mass-deletion=\"2027-01-15T08:00:00Z\" --overwrite"
    );
    let cluster = RepositoryKey::ClusterRepository { name: "nas".into() };
    assert_eq!(
        acknowledge_command(WORDS, &cluster, t(0)),
        "kubectl annotate clusterrepository/nas kopiur.home-operations.com/allow-mass-deletion=\"2027-01-15T08:00:00Z\" --overwrite"
    );
}

#[test]
fn case_26_the_hold_message_has_all_a_person_needs() {
    let lane = lane(members(12, 0));
    let plan = decide(&lane);
    let message = describe(
        WORDS,
        &lane.members[0],
        &plan.decisions[0],
        Some(&plan.repositories[0]),
    );
    for part in [
        "12 deletions",
        "threshold is 10",
        "backup/nas",
        "2027-01-15T08:00:00Z",
        WORDS.skip_snapshot_cleanup,
        &acknowledge_command(WORDS, &nas(), t(0)),
        "snapshot/m0000",
    ] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
    assert!(message.len() < 1024, "fits an event");
    let condition = mass_deletion(WORDS, &plan.repositories[0]).unwrap();
    assert!(
        condition.contains("app (12)") && condition.contains("annotate repository/nas"),
        "{condition}"
    );
    let mut earlier = lane;
    earlier.members[3].held = HeldCondition::Held { since: t(-60) };
    let condition = mass_deletion(WORDS, &decide(&earlier).repositories[0]).unwrap();
    assert!(
        condition.contains("12 held here since 2027-01-15T07:59:00Z"),
        "{condition}"
    );
}

#[test]
fn a_hold_below_the_threshold_says_that_it_latched() {
    let mut lane = lane(members(3, 0));
    lane.repositories[0].held_through = Some(t(0));
    let plan = decide(&lane);
    let message = messages::held(WORDS, &plan.repositories[0], &lane.members[0]).unwrap();
    assert!(
        message.contains("3 deletions") && message.contains("wave that was held"),
        "{message}"
    );
}

#[test]
fn case_49_design_rule_3_says_that_nothing_was_completed() {
    let early = MemberFacts {
        owner: Owner::Gone,
        snapshot: None,
        ..member("a", 0)
    };
    let lane = lane(vec![early]);
    let plan = decide(&lane);
    let message = describe(WORDS, &lane.members[0], &plan.decisions[0], None);
    assert!(message.contains("No snapshot was completed"), "{message}");
    assert!(!message.contains("was kept"), "{message}");
}

#[test]
fn case_50_the_retain_message_promises_no_timer() {
    for owner in [Owner::Gone, Owner::Replaced, Owner::Terminating] {
        let m = MemberFacts {
            owner,
            ..member("a", 0)
        };
        for reason in RetainReason::ALL {
            let message = retained(&m, *reason);
            for promise in ["minute", "hour", "soon", "interval", "automatically", "refresh"] {
                assert!(!message.contains(promise), "{promise}: {message}");
            }
        }
        let message = retained(&m, RetainReason::ScheduleDelete);
        assert!(message.contains("onScheduleDelete: Delete") && message.contains("origin: discovered"));
    }
}

#[test]
fn an_invalid_acknowledgement_is_quoted_and_cut() {
    let message = invalid_acknowledgement(WORDS, &"\n".repeat(5000));
    assert!(
        message.len() < 512 && message.contains("stays armed"),
        "{message}"
    );
}

#[test]
fn a_reason_is_one_camel_case_word_and_no_two_mean_the_same() {
    let mut words: Vec<&str> = Vec::new();
    words.extend(ReleaseReason::ALL.iter().map(|r| r.reason()));
    words.extend(OrphanReason::ALL.iter().map(|r| r.reason()));
    words.extend(RetainReason::ALL.iter().map(|r| r.reason()));
    words.extend(HeldReason::ALL.iter().map(|r| r.reason()));
    words.extend(DeleteReason::ALL.iter().map(|r| r.reason()));
    words.extend(Withdraw::ALL.iter().map(|r| r.reason()));
    words.extend(waits().iter().map(|w| w.reason()));
    words.push(Verdict::InFlight.reason());
    for word in &words {
        assert!(word.starts_with(|c: char| c.is_ascii_uppercase()), "{word}");
        assert!(word.chars().all(|c| c.is_ascii_alphanumeric()), "{word}");
    }
    let total = words.len();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), total);
}

#[test]
fn every_wait_says_what_ends_it() {
    for wait in waits() {
        let text = waiting(wait);
        assert!(text.len() > 30, "{wait:?}: {text}");
    }
    assert!(waiting(Wait::BackingOff(t(0))).contains("2027-01-15T08:00:00Z"));
}

fn waits() -> Vec<Wait> {
    vec![
        Wait::ForeignManager,
        Wait::CacheCold,
        Wait::OwnMoverRunning,
        Wait::OwnResultUnread,
        Wait::OwnMoverUnknown,
        Wait::PlaceUnknown,
        Wait::PolicyUnreadable,
        Wait::CascadeUnreadable,
        Wait::OwnerUnknown,
        Wait::SharingUnknown,
        Wait::SharedWithPending,
        Wait::RepositoryUnreadable,
        Wait::RepositoryMismatch,
        Wait::NamespaceUnreadable,
        Wait::SourceNotRecorded,
        Wait::RepositoryNotConnected,
        Wait::RepositorySuspended,
        Wait::DeletionsPaused,
        Wait::RepositoryBackingOff(t(0)),
        Wait::BackingOff(t(0)),
        Wait::MemberTooLarge,
        Wait::QuietWindow(t(0)),
        Wait::BatchLive,
        Wait::JobNotStarted,
        Wait::Withdrawing,
        Wait::JobCapReached,
        Wait::MaintenanceRunning,
        Wait::NextBatch,
        Wait::RidesAlone,
    ]
}

#[test]
fn a_repository_that_holds_nothing_says_how_near_it_is_or_that_there_is_no_breaker() {
    let says = |lane: &Lane| mass_deletion(WORDS, &decide(lane).repositories[0]);
    assert_eq!(
        says(&lane(members(4, 0))).as_deref(),
        Some("4 pending deletions, threshold 10; nothing is held.")
    );
    assert_eq!(
        says(&lane_with_threshold(0, members(4, 0))).as_deref(),
        Some("The breaker is switched off: threshold is 0.")
    );
    let mut cold = lane(members(4, 0));
    cold.cache = Cache::Cold;
    assert_eq!(says(&cold), None);
}

/// The longest first, eight of them, and how many more.
#[test]
fn a_hold_lists_at_most_eight_namespaces() {
    let says = |namespaces: usize| {
        let mut pending = members(20, 0);
        for (n, member) in pending.iter_mut().enumerate() {
            member.namespace = format!("ns{}", n % namespaces);
        }
        mass_deletion(WORDS, &decide(&lane(pending)).repositories[0]).unwrap()
    };
    let eight = says(8);
    assert!(
        eight.contains("ns0 (3), ns1 (3)") && eight.contains("ns7 (2)."),
        "{eight}"
    );
    assert!(!eight.contains("more"), "{eight}");
    let ten = says(10);
    assert!(ten.contains("ns7 (2), 2 more."), "{ten}");
}

#[test]
fn in_flight_says_whether_the_skip_annotation_came_too_late() {
    let says = |skip: bool| {
        let mut flying = lane(vec![MemberFacts {
            skip,
            ..member("a", 0)
        }]);
        flying.live = Some(live("snapdel-nas-0", &["a"], true));
        let plan = decide(&flying);
        describe(WORDS, &flying.members[0], &plan.decisions[0], None)
    };
    assert!(says(true).contains("came too late"), "{}", says(true));
    assert!(!says(false).contains("too late") && says(false).contains("its result decides"));
}

#[test]
fn what_is_let_go_says_why_and_that_the_repository_was_not_contacted() {
    let says = |change: fn(&mut MemberFacts)| {
        let mut one = member("a", 0);
        change(&mut one);
        let lane = lane(vec![one]);
        let plan = decide(&lane);
        describe(WORDS, &lane.members[0], &plan.decisions[0], None)
    };
    let skipped = says(|m| m.skip = true);
    assert!(skipped.contains(WORDS.skip_snapshot_cleanup), "{skipped}");
    assert!(skipped.contains("was not contacted"), "{skipped}");
    for (why, text) in [
        (says(|m| m.policy = Policy::Orphan), "deletionPolicy is Orphan"),
        (
            says(|m| m.namespace_state = NamespaceState::Terminating),
            "set onNamespaceDelete: Delete",
        ),
        (
            says(|m| m.place = Place::Terminating),
            "no namespace in which a delete Job could run",
        ),
        (says(|m| m.repository = Resolution::Gone), "no longer exists"),
    ] {
        assert!(why.contains(text), "{text}: {why}");
        assert!(why.contains("the data stays where it is"), "{why}");
    }
}

#[test]
fn a_withdrawn_job_says_why() {
    assert!(withdrawn(Withdraw::NotStarted).contains("no container of the delete Job started in time"));
    assert!(withdrawn(Withdraw::MemberNotDeletable).contains("may no longer be deleted"));
}

#[test]
fn an_acknowledgement_that_is_ahead_says_so_and_one_that_is_no_time_too() {
    let ahead = invalid_acknowledgement(WORDS, "2099-01-01T00:00:00Z");
    assert!(ahead.contains("more than 5 minutes ahead"), "{ahead}");
    let garbage = invalid_acknowledgement(WORDS, "yes");
    assert!(garbage.contains("not an RFC 3339 time"), "{garbage}");
}

/// Metrics, conditions and the decision table go by these words.
#[test]
fn each_kind_of_verdict_and_each_rule_has_its_word() {
    let verdicts = [
        (Verdict::InFlight, "InFlight"),
        (Verdict::Release(ReleaseReason::NothingRecorded), "Release"),
        (Verdict::Orphan(OrphanReason::Skip), "Orphan"),
        (Verdict::Retain(RetainReason::ScheduleDelete), "Retain"),
        (Verdict::Wait(Wait::CacheCold), "Wait"),
        (Verdict::Held(HeldReason::MassDeletionBreaker), "Held"),
        (Verdict::Delete(DeleteReason::OwnPrune), "Delete"),
    ];
    for (verdict, kind) in verdicts {
        assert_eq!(verdict.kind(), kind, "{verdict:?}");
    }
    let rules = [
        (Rule::Lane, "Lane"),
        (Rule::InFlight, "InFlight"),
        (Rule::Skip, "SkipAnnotation"),
        (Rule::ApiGoingAway, "APIGoingAway"),
        (Rule::NothingRecorded, "NothingRecorded"),
        (Rule::Namespace, "NamespaceTeardown"),
        (Rule::OwnStamp, "OwnStamp"),
        (Rule::ScheduleGuard, "ScheduleGuard"),
        (Rule::Policy, "DeletionPolicy"),
        (Rule::SharedOrUnknown, "SharedOrUnknown"),
        (Rule::Breaker, "MassDeletionBreaker"),
    ];
    for (rule, name) in rules {
        assert_eq!(rule.name(), name, "{rule:?}");
    }
}

#[test]
fn a_plan_says_the_lanes_threshold_and_none_where_nothing_is_decided() {
    assert_eq!(decide(&lane(members(1, 0))).threshold(), Some(10));
    let off = lane_with_threshold(0, members(1, 0));
    assert_eq!(decide(&off).threshold(), Some(0));
    let mut cold = lane(members(1, 0));
    cold.cache = Cache::Cold;
    assert_eq!(decide(&cold).threshold(), None);
}

#[test]
fn what_came_back_says_how_many_since_when_and_either_that_it_goes_or_the_command() {
    let found = Reappeared {
        count: 12,
        found_at: t(60),
        held: false,
        next_attempt_at: None,
    };
    let says = |again| reappeared(WORDS, &nas(), &found, again);
    let what = "12 snapshots that a delete Job had proven gone are in repository backup/nas again, found 2027-01-15T08:01:00Z";
    let again = says(Again::Later(t(90)));
    assert_eq!(again, format!("{what}. They are deleted again."));
    let kept = says(Again::Held);
    assert!(
        kept.starts_with(what) && kept.contains(&acknowledge_command(WORDS, &nas(), t(60))),
        "{kept}"
    );
}
