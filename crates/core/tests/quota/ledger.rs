//! What Backups, drivers and administrators do to records, as sentences.

use crate::support::*;
use holdfast_core::quota::capability::CAREFUL;
use holdfast_core::quota::ledger::{Change, Start, start};
use holdfast_core::quota::record::{Reason, SizeSource, State};
use holdfast_core::quota::transitions::*;
use holdfast_core::quota::{DeclaredBy, Deletion, InForce, Ledger};
use std::collections::BTreeSet;

#[test]
fn case_ledger_1_an_etcd_backup_of_48mi_is_attributed() {
    let mut ledger = Ledger::default();
    let record = see(&mut ledger, &backup("a", 48 * MI), 0);
    assert_eq!(figures(&ledger), (48 * MI, 0, 1));
    assert_eq!(
        (record.state, record.reason),
        (State::Attributed, Reason::BackupSeen)
    );
    assert_eq!(record.size.source, SizeSource::Claim);
}

#[test]
fn case_ledger_2_deleting_it_moves_it_to_retained_and_used_and_count_stay() {
    let mut ledger = Ledger::default();
    let fact = backup("a", 48 * MI);
    see(&mut ledger, &fact, 0);
    let record = delete(&mut ledger, &fact, 1);
    assert_eq!(
        figures(&ledger),
        (0, 48 * MI, 1),
        "the count is of things in storage, not of Backups"
    );
    assert_eq!(
        (record.state, record.reason),
        (State::Retained, Reason::NotPurged)
    );
    assert_eq!(
        delete(&mut ledger, &fact, 2),
        record,
        "a second time changes nothing"
    );
}

#[test]
fn case_ledger_3_writing_it_off_frees_it_and_a_second_time_changes_nothing() {
    let mut ledger = Ledger::default();
    let fact = backup("a", 48 * MI);
    see(&mut ledger, &fact, 0);
    let name = delete(&mut ledger, &fact, 1).name;
    let WriteOff::Done(change) = write_off(&ledger, &name, "jane", t(2)) else {
        panic!()
    };
    ledger.apply(&change);
    assert_eq!(figures(&ledger), (0, 0, 0));
    assert_eq!(ledger.figures(NS).written_off(), 48 * MI);
    let record = of(&ledger, &fact);
    assert_eq!(record.state, State::WrittenOff);
    assert_eq!(record.written_off_by.as_deref(), Some("jane"));
    assert_eq!(
        write_off(&ledger, &name, "joe", t(3)),
        WriteOff::Already(State::WrittenOff)
    );
}

#[test]
fn what_a_living_backup_refers_to_a_run_or_nothing_cannot_be_written_off_and_it_says_why() {
    let mut ledger = Ledger::default();
    let name = see(&mut ledger, &backup("a", 1), 0).name;
    let changes = holdfast_core::quota::runs::run_seen(PLATFORM, &ledger, &run("r", "Etcd"), t(0));
    apply(&mut ledger, changes);
    for (name, word) in [
        (name.as_str(), "delete the Backup first"),
        ("job-r", "run under way"),
        ("x", "no artifact x"),
    ] {
        let WriteOff::Refused(why) = write_off(&ledger, name, "jane", t(1)) else {
            panic!("{name}")
        };
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn case_ledger_4_the_same_name_made_again_with_another_key_is_charged_beside_the_old_one() {
    let mut ledger = Ledger::default();
    let first = backup("a", 48 * MI);
    see(&mut ledger, &first, 0);
    delete(&mut ledger, &first, 1);
    let mut second = backup("a", 50 * MI);
    second.uid = "uid-second".into();
    second.uri = Some("s3://shared-archive/other-key".into());
    see(&mut ledger, &second, 2);
    assert_eq!(figures(&ledger), (50 * MI, 48 * MI, 2));
}

#[test]
fn case_ledger_4_with_the_same_key_it_is_the_same_artifact_charged_with_the_larger_size() {
    let mut ledger = Ledger::default();
    let first = backup("a", 48 * MI);
    see(&mut ledger, &first, 0);
    delete(&mut ledger, &first, 1);
    let mut second = backup("a", 50 * MI);
    second.uid = "uid-second".into();
    see(&mut ledger, &second, 2);
    assert_eq!(figures(&ledger), (50 * MI, 0, 1));
    let mut third = backup("a", 10 * MI);
    third.uid = "uid-third".into();
    see(&mut ledger, &third, 3);
    assert_eq!(
        figures(&ledger),
        (50 * MI, 0, 1),
        "overwritten by less: only a measurement says so"
    );
}

#[test]
fn case_ledger_5_a_requested_deletion_is_pending_until_the_driver_says_that_it_succeeded() {
    for (evidence, state, reason) in [
        (Evidence::Succeeded, State::Released, Reason::PurgeProven),
        (Evidence::DriverRecordGone, State::Released, Reason::PurgeProven),
        (Evidence::Failed, State::Retained, Reason::PurgeFailed),
    ] {
        let mut ledger = Ledger::default();
        let mut fact = backup("vm", 5 * GI);
        fact.in_force = deleting(Deletion::Requested);
        see(&mut ledger, &fact, 0);
        let record = delete(&mut ledger, &fact, 1);
        assert_eq!(
            (record.state, record.reason),
            (State::PendingPurge, Reason::DeletionRequested)
        );
        assert_eq!(figures(&ledger), (0, 5 * GI, 1));
        assert_eq!(ledger.figures(NS).pending_purge(), 5 * GI);
        let change = purge(&ledger, &record.name, evidence, t(2)).unwrap();
        ledger.apply(&change);
        let record = of(&ledger, &fact);
        assert_eq!((record.state, record.reason), (state, reason));
        assert_eq!(
            purge(&ledger, &record.name, evidence, t(3)),
            None,
            "a second time changes nothing"
        );
    }
}

#[test]
fn case_ledger_6_a_confirmed_deletion_is_released_only_by_reading_back() {
    let mut ledger = Ledger::default();
    let mut fact = backup("k", GI);
    fact.in_force = deleting(Deletion::Confirmed);
    see(&mut ledger, &fact, 0);
    let record = delete(&mut ledger, &fact, 1);
    assert_eq!(
        (record.state, record.reason),
        (State::PendingPurge, Reason::AwaitingReadBack)
    );
    assert_eq!(purge(&ledger, &record.name, Evidence::Succeeded, t(2)), None);
    assert_eq!(
        purge(&ledger, &record.name, Evidence::DriverRecordGone, t(2)),
        None
    );
    ledger.apply(&purge(&ledger, &record.name, Evidence::ReadBack, t(3)).unwrap());
    assert_eq!(figures(&ledger), (0, 0, 0));
    assert_eq!(of(&ledger, &fact).reason, Reason::ReadBack);
}

#[test]
fn what_was_let_go_without_deleting_is_retained_whatever_its_driver_can_do() {
    let mut ledger = Ledger::default();
    let mut fact = backup("k", GI);
    fact.in_force = deleting(Deletion::Confirmed);
    see(&mut ledger, &fact, 0);
    let changes = backup_gone(&ledger, &fact.uid, Left::Kept, t(1));
    apply(&mut ledger, changes);
    assert_eq!(
        (of(&ledger, &fact).state, of(&ledger, &fact).reason),
        (State::Retained, Reason::KeptOnPurpose)
    );
    let name = of(&ledger, &fact).name;
    assert_eq!(
        purge(&ledger, &name, Evidence::ReadBack, t(2)),
        None,
        "nobody asked for its deletion"
    );
}

#[test]
fn a_deletion_nobody_speaks_about_for_a_day_is_shown_to_a_person_and_late_proof_still_counts() {
    let mut ledger = Ledger::default();
    let mut fact = backup("vm", GI);
    fact.in_force = deleting(Deletion::Requested);
    see(&mut ledger, &fact, 0);
    let record = delete(&mut ledger, &fact, 1);
    assert!(overdue(PLATFORM, &ledger, &record, t(86_400)).is_empty());
    let changes = overdue(PLATFORM, &ledger, &record, t(86_401));
    apply(&mut ledger, changes);
    let record = of(&ledger, &fact);
    assert_eq!(
        (record.state, record.reason),
        (State::Retained, Reason::PurgeUnproven)
    );
    ledger.apply(&purge(&ledger, &record.name, Evidence::Succeeded, t(90_000)).unwrap());
    assert_eq!(of(&ledger, &fact).state, State::Released);
}

#[test]
fn case_ledger_7_what_was_deleted_while_nobody_looked_is_found_by_comparing() {
    let mut ledger = Ledger::default();
    let (kept, gone) = (backup("kept", GI), backup("gone", 2 * GI));
    see(&mut ledger, &kept, 0);
    see(&mut ledger, &gone, 0);
    let mut restarted = Ledger::of(ledger.records().cloned());
    assert_eq!(restarted, ledger);
    let listed = BTreeSet::from([kept.uid.clone()]);
    assert_eq!(gone_since(&restarted, &listed), [gone.uid.as_str()]);
    delete(&mut restarted, &gone, 5);
    assert_eq!(figures(&restarted), (GI, 2 * GI, 2));
    assert!(gone_since(&restarted, &listed).is_empty());
}

#[test]
fn case_ledger_8_a_lost_ledger_is_rebuilt_from_live_backups_and_that_is_told() {
    assert_eq!(start(None, false), Start::First);
    assert_eq!(
        start(Some(false), false),
        Start::Resumed,
        "there was nothing to lose"
    );
    assert_eq!(start(Some(true), false), Start::Rebuilt);
    assert_eq!(start(Some(true), true), Start::Resumed);
    assert_eq!(start(None, true), Start::Resumed);
    assert_eq!(Start::Rebuilt.as_str(), "LedgerRebuilt");
    let mut ledger = Ledger::default();
    see(&mut ledger, &backup("a", GI), 0);
    assert_eq!(figures(&ledger), (GI, 0, 1), "retained begins at zero");
}

#[test]
fn case_ledger_9_a_claim_grows_at_once_and_one_that_shrinks_does_not_lower_the_charge() {
    let mut ledger = Ledger::default();
    let claimed = |bytes: Option<i64>| {
        let mut fact = backup("a", 0);
        fact.size_bytes = bytes;
        fact
    };
    see(&mut ledger, &claimed(Some(0)), 0);
    assert_eq!(figures(&ledger), (0, 0, 1));
    assert_eq!(ledger.figures(NS).unreported(), 1, "zero is unknown, not free");
    see(&mut ledger, &claimed(Some(4 * GI)), 1);
    assert_eq!(
        (figures(&ledger), ledger.figures(NS).unreported()),
        ((4 * GI, 0, 1), 0)
    );
    see(&mut ledger, &claimed(Some(GI)), 2);
    see(&mut ledger, &claimed(None), 3);
    assert_eq!(figures(&ledger), (4 * GI, 0, 1));
}

#[test]
fn case_ledger_10_of_an_unknown_driver_nothing_is_released() {
    let mut ledger = Ledger::default();
    let mut fact = backup("a", GI);
    fact.strategy.kind = "TapeLibrary".into();
    fact.in_force = in_force("TapeLibrary");
    see(&mut ledger, &fact, 0);
    let record = delete(&mut ledger, &fact, 1);
    assert_eq!(
        (record.state, record.reason),
        (State::Retained, Reason::CapabilityUnknown)
    );
}

/// Three Backups over one fixed key.
fn three_over_one() -> (Ledger, Vec<BackupFact>) {
    let mut ledger = Ledger::default();
    let facts: Vec<BackupFact> = ["a", "b", "c"]
        .map(|name| {
            let mut fact = backup(name, GI);
            fact.strategy = strategy("Job");
            fact.in_force = in_force("Job");
            fact.uri = Some("s3://shared-archive/bus/ORDERS.tar".into());
            fact
        })
        .to_vec();
    for fact in &facts {
        see(&mut ledger, fact, 0);
    }
    (ledger, facts)
}

#[test]
fn three_backups_over_one_uri_are_charged_once() {
    let (ledger, _) = three_over_one();
    assert_eq!(figures(&ledger), (GI, 0, 1));
    assert_eq!(ledger.len(), 1);
}

#[test]
fn case_ledger_12_of_three_backups_over_one_uri_only_the_last_one_moves_it_to_retained() {
    let (mut ledger, facts) = three_over_one();
    delete(&mut ledger, &facts[0], 1);
    delete(&mut ledger, &facts[2], 2);
    assert_eq!(figures(&ledger), (GI, 0, 1));
    delete(&mut ledger, &facts[1], 3);
    assert_eq!(figures(&ledger), (0, GI, 1));
}

#[test]
fn of_two_drivers_over_one_artifact_the_one_that_proves_less_decides() {
    let (mut ledger, facts) = three_over_one();
    let mut late = facts[0].clone();
    late.uid = "uid-late".into();
    late.in_force = deleting(Deletion::Confirmed);
    see(&mut ledger, &late, 1);
    for fact in facts.iter().chain([&late]) {
        delete(&mut ledger, fact, 2);
    }
    assert_eq!(of(&ledger, &late).reason, Reason::NotPurged);
}

/// Of a record only the first of two writes was made, and the next thing seen is another Backup over its artifact.
#[test]
fn what_was_never_written_of_a_driver_is_taken_from_the_next_backup_seen() {
    let (mut ledger, facts) = three_over_one();
    let mut record = of(&ledger, &facts[0]).clone();
    record.backups.retain(|uid, _| *uid == facts[0].uid);
    for (from, expected) in [
        (DeclaredBy::Unwritten, Reason::NotPurged),
        (DeclaredBy::Unknown, Reason::CapabilityUnknown),
    ] {
        for seen in [&facts[0], &facts[1]] {
            record.in_force = InForce {
                capabilities: CAREFUL,
                from,
            };
            ledger = Ledger::of([record.clone()]);
            see(&mut ledger, seen, 1);
            for fact in [&facts[0], &facts[1]] {
                delete(&mut ledger, fact, 2);
            }
            assert_eq!(of(&ledger, seen).reason, expected, "{from:?} {}", seen.name);
        }
    }
}

/// Which Backup is shown first decides nothing.
#[test]
fn a_claim_that_grows_over_released_bytes_is_noted_and_charged_with_no_later_backup() {
    let mut old = backup("a", 23);
    let mut ledger = Ledger::default();
    let mut record = see(&mut ledger, &old, 0);
    record.state = State::Released;
    record.reason = Reason::NoLongerListed;
    ledger = Ledger::of([record]);
    old.size_bytes = Some(61);
    let mut new = backup("a", 41);
    new.uid = "uid-new".into();
    let (mut first, mut last) = (ledger.clone(), ledger);
    see(&mut first, &old, 1);
    see(&mut first, &new, 2);
    see(&mut first, &old, 3);
    assert_eq!(of(&first, &new).size.bytes, Some(41));
    see(&mut last, &old, 1);
    assert_eq!(of(&last, &old).state, State::Released);
    assert!(backup_seen(&last, &old, t(2)).is_empty(), "once");
}

#[test]
fn case_ledger_13_a_backup_that_names_another_bucket_is_charged_in_both() {
    let mut ledger = Ledger::default();
    let mut fact = backup("a", GI);
    let before = see(&mut ledger, &fact, 0);
    fact.uri = Some("s3://new-archive/a.db".into());
    let changes = backup_seen(&ledger, &fact, t(1));
    assert!(
        matches!(&changes[0], Change::Write(new) if new.name != before.name),
        "the new one is written first"
    );
    apply(&mut ledger, changes);
    assert_eq!(figures(&ledger), (GI, GI, 2));
    let old = ledger.get(&before.name).unwrap();
    assert_eq!((old.state, old.reason), (State::Retained, Reason::BackupMoved));
}

#[test]
fn case_ledger_14_a_backup_that_is_being_deleted_is_attributed_until_it_is_gone() {
    // A deletion time is no fact of the ledger: only the object's absence is.
    let mut ledger = Ledger::default();
    let fact = backup("a", GI);
    let record = see(&mut ledger, &fact, 0);
    assert_eq!(see(&mut ledger, &fact, 3600), record);
    assert_eq!(record.state, State::Attributed);
}

#[test]
fn case_ledger_18_a_negative_size_is_unknown_and_told() {
    let mut ledger = Ledger::default();
    let fact = backup("a", -7);
    assert!(fact.size_is_nonsense());
    see(&mut ledger, &fact, 0);
    assert_eq!(figures(&ledger), (0, 0, 1));
    assert_eq!(ledger.figures(NS).unreported(), 1);
    assert!(!backup("b", 0).size_is_nonsense());
}

#[test]
fn an_absurd_size_is_bounded_and_sums_never_overflow() {
    let mut ledger = Ledger::default();
    for n in 0..2000 {
        see(&mut ledger, &backup(&format!("b{n}"), i64::MAX), 0);
    }
    assert_eq!(ledger.figures(NS).used_size(), i64::MAX, "saturates");
    assert_eq!(ledger.figures(NS).published_size(), 8 << 50);
    for n in 0..2000 {
        let name = delete(&mut ledger, &backup(&format!("b{n}"), 0), 1).name;
        let WriteOff::Done(change) = write_off(&ledger, &name, "jane", t(2)) else {
            panic!()
        };
        ledger.apply(&change);
    }
    assert_eq!(figures(&ledger), (0, 0, 0), "what saturated can be taken back");
}

#[test]
fn case_ledger_19_whatever_a_backups_phase_says_its_bytes_are_charged() {
    // The phase is no fact of the ledger.
    let mut ledger = Ledger::default();
    see(&mut ledger, &backup("failed", GI), 0);
    assert_eq!(figures(&ledger), (GI, 0, 1));
}

#[test]
fn case_ledger_25_a_namespace_made_again_inherits_its_records() {
    let mut ledger = Ledger::default();
    let fact = backup("a", GI);
    see(&mut ledger, &fact, 0);
    delete(&mut ledger, &fact, 1);
    assert!(namespace_seen(&ledger, NS, "ns-1").is_empty());
    let changes = namespace_seen(&ledger, NS, "ns-2");
    apply(&mut ledger, changes);
    assert_eq!(figures(&ledger), (0, GI, 1));
    assert_eq!(of(&ledger, &fact).namespace_uid.as_deref(), Some("ns-2"));
    assert!(namespace_seen(&ledger, NS, "ns-2").is_empty());
}

#[test]
fn the_same_key_in_two_namespaces_is_charged_in_both_and_flagged() {
    let mut ledger = Ledger::default();
    let one = backup("a", GI);
    let mut two = one.clone();
    two.namespace = "tenant-beta".into();
    two.uid = "uid-two".into();
    see(&mut ledger, &one, 0);
    assert!(!of(&ledger, &one).shared_across_namespaces);
    see(&mut ledger, &two, 1);
    assert!(of(&ledger, &one).shared_across_namespaces && of(&ledger, &two).shared_across_namespaces);
    assert_eq!(ledger.figures("tenant-beta").used_size(), GI);
    assert_eq!((figures(&ledger), ledger.figures(NS).shared()), ((GI, 0, 1), 1));
    assert!(backup_seen(&ledger, &two, t(2)).is_empty(), "told once");
}

#[test]
fn a_backup_of_before_is_not_charged_again_after_a_release_and_a_new_one_is() {
    let mut ledger = Ledger::default();
    let mut fact = backup("k", GI);
    fact.in_force = deleting(Deletion::Confirmed);
    see(&mut ledger, &fact, 0);
    let name = delete(&mut ledger, &fact, 1).name;
    ledger.apply(&purge(&ledger, &name, Evidence::ReadBack, t(2)).unwrap());
    let mut second = fact.clone();
    second.uid = "uid-second".into();
    second.created_at = t(2);
    second.size_bytes = Some(MI);
    see(&mut ledger, &second, 3);
    assert_eq!(
        figures(&ledger),
        (MI, 0, 1),
        "the old size went with the old bytes"
    );
}

#[test]
fn a_released_record_is_remembered_for_a_week_and_as_long_as_a_backup_refers_to_it() {
    let mut ledger = Ledger::default();
    let mut fact = backup("k", GI);
    fact.in_force = deleting(Deletion::Confirmed);
    see(&mut ledger, &fact, 0);
    let name = delete(&mut ledger, &fact, 1).name;
    ledger.apply(&purge(&ledger, &name, Evidence::ReadBack, t(2)).unwrap());
    let week = 7 * 86_400;
    assert!(overdue(PLATFORM, &ledger, &of(&ledger, &fact), t(1 + week)).is_empty());
    assert!(matches!(
        overdue(PLATFORM, &ledger, &of(&ledger, &fact), t(2 + week))[..],
        [Change::Remove { .. }]
    ));
    let mut living = of(&ledger, &fact);
    living.backups = holdfast_core::quota::Record {
        ..see(&mut Ledger::default(), &fact, 0)
    }
    .backups;
    assert!(overdue(PLATFORM, &ledger, &living, t(2 + week)).is_empty());
}

#[test]
fn a_record_of_a_newer_version_is_charged_and_never_touched() {
    let mut ledger = Ledger::default();
    let fact = backup("a", GI);
    let mut record = see(&mut ledger, &fact, 0);
    record.state = State::Unknown;
    record.reason = Reason::NewerVersion;
    ledger = Ledger::of([record.clone()]);
    assert_eq!(ledger.figures(NS).used_size(), GI);
    let mut moved = fact.clone();
    moved.uri = None;
    assert!(backup_seen(&ledger, &fact, t(1)).is_empty());
    assert!(
        backup_seen(&ledger, &moved, t(1))
            .iter()
            .all(|change| change.name() != record.name)
    );
    assert!(backup_gone(&ledger, &fact.uid, Left::Deleted, t(1)).is_empty());
    assert!(namespace_seen(&ledger, NS, "ns-9").is_empty());
    assert_eq!(purge(&ledger, &record.name, Evidence::ReadBack, t(1)), None);
    assert!(overdue(PLATFORM, &ledger, &record, t(1 << 30)).is_empty());
}
