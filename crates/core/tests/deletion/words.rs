//! The sentences people read.

use crate::support::*;
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
        Wait::NextBatch,
        Wait::RidesAlone,
    ]
}
