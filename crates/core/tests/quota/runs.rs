//! What BackupJobs do to records.

use crate::support::*;
use holdfast_core::quota::ledger::{Change, Ledger};
use holdfast_core::quota::record::{Reason, RemoveReason, State};
use holdfast_core::quota::runs::*;
use holdfast_core::quota::transitions::{Left, backup_gone, backup_seen, overdue};

fn seen(ledger: &mut Ledger, fact: &RunFact, at: i64) -> Vec<Change> {
    let changes = run_seen(PLATFORM, ledger, fact, t(at));
    apply(ledger, changes)
}

fn removed(changes: &[Change]) -> Vec<RemoveReason> {
    changes
        .iter()
        .filter_map(|change| match change {
            Change::Remove { reason, .. } => Some(*reason),
            Change::Write(_) => None,
        })
        .collect()
}

fn in_flight(ledger: &Ledger) -> i64 {
    ledger.figures(NS).in_flight()
}

#[test]
fn a_run_is_recorded_once_under_its_jobs_uid_and_is_not_used() {
    let mut ledger = Ledger::default();
    let fact = run("r", "Etcd");
    seen(&mut ledger, &fact, 0);
    assert_eq!(ledger.get("job-r").unwrap().state, State::InFlight);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((0, 0, 0), 1));
    assert!(seen(&mut ledger, &fact, 1).is_empty(), "again changes nothing");
}

#[test]
fn its_backup_takes_its_place_the_new_record_written_before_the_old_one_goes() {
    let mut ledger = Ledger::default();
    seen(&mut ledger, &run("r", "Etcd"), 0);
    let changes = backup_seen(&ledger, &backup("r", GI), t(1));
    assert!(matches!(changes.first(), Some(Change::Write(_))));
    assert!(matches!(changes.last(), Some(Change::Remove { .. })));
    apply(&mut ledger, changes);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((GI, 0, 1), 0));
}

#[test]
fn a_backup_that_appears_15_ms_before_its_job_succeeds_is_charged_once() {
    let mut ledger = Ledger::default();
    let mut fact = run("r", "Etcd");
    seen(&mut ledger, &fact, 0);
    let changes = backup_seen(&ledger, &backup("r", GI), t(1));
    apply(&mut ledger, changes);
    assert!(
        seen(&mut ledger, &fact, 1).is_empty(),
        "the job still says Running"
    );
    fact.phase = Phase::Succeeded;
    assert!(seen(&mut ledger, &fact, 2).is_empty());
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((GI, 0, 1), 0));
}

#[test]
fn a_job_that_succeeds_before_the_watch_brings_its_backup_goes_on_counting() {
    let mut ledger = Ledger::default();
    let mut fact = run("r", "Etcd");
    seen(&mut ledger, &fact, 0);
    fact.phase = Phase::Succeeded;
    assert!(seen(&mut ledger, &fact, 1).is_empty());
    assert_eq!(in_flight(&ledger), 1);
    let changes = backup_seen(&ledger, &backup("r", GI), t(2));
    apply(&mut ledger, changes);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((GI, 0, 1), 0));
}

#[test]
fn a_run_that_succeeded_without_a_backup_left_bytes_that_are_retained() {
    let mut ledger = Ledger::default();
    let mut fact = run("r", "Etcd");
    seen(&mut ledger, &fact, 0);
    fact.phase = Phase::Succeeded;
    fact.result = ResultLookup::Absent;
    let changes = seen(&mut ledger, &fact, 1);
    assert_eq!(removed(&changes), [RemoveReason::Replaced]);
    assert!(
        matches!(changes[..], [Change::Write(_), Change::Remove { .. }]),
        "the new record is written before the old one goes"
    );
    assert_eq!(
        (
            figures(&ledger),
            in_flight(&ledger),
            ledger.figures(NS).unreported()
        ),
        ((0, 0, 1), 0, 1)
    );
    let left = ledger.records().next().unwrap();
    assert_eq!(
        (left.state, left.reason),
        (State::Retained, Reason::NoBackupRecorded)
    );
}

#[test]
fn a_job_made_again_under_its_name_writes_a_second_archive_and_is_counted_though_the_old_backup_is_there() {
    let mut ledger = Ledger::default();
    apply(
        &mut ledger,
        backup_seen(&Ledger::default(), &backup("r", GI), t(0)),
    );
    let mut again = run("r", "MariaDB");
    again.job.uid = "job-again".into();
    again.job.created_at = Some(t(100));
    again.started_at = Some(t(100));
    seen(&mut ledger, &again, 101);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((GI, 0, 1), 1));
    again.phase = Phase::Succeeded;
    again.result = ResultLookup::Absent;
    seen(&mut ledger, &again, 102);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((GI, 0, 2), 0));
}

#[test]
fn over_a_fixed_key_a_second_run_without_a_backup_of_its_own_is_not_a_second_thing_and_a_first_is_one() {
    let mut ledger = Ledger::default();
    for (uid, charged) in [("job-1", 1), ("job-2", 1)] {
        let mut fact = run("r", "FoundationDB");
        fact.job.uid = uid.into();
        seen(&mut ledger, &fact, 0);
        fact.phase = Phase::Succeeded;
        fact.result = ResultLookup::Absent;
        seen(&mut ledger, &fact, 1);
        assert_eq!(
            (figures(&ledger), in_flight(&ledger)),
            ((0, 0, charged), 0),
            "{uid}"
        );
    }
}

#[test]
fn a_job_that_had_succeeded_before_the_ledger_began_is_nothing() {
    let mut ledger = Ledger::default();
    let mut fact = run("r", "Etcd");
    fact.phase = Phase::Succeeded;
    fact.result = ResultLookup::Absent;
    assert!(seen(&mut ledger, &fact, 1).is_empty());
}

#[test]
fn case_webhook_3_a_deleted_jobs_run_goes_on_counting_until_it_ends() {
    let mut ledger = Ledger::default();
    seen(&mut ledger, &run("r", "Velero"), 0);
    ledger.apply(&run_gone(PLATFORM, &ledger, "job-r", None, t(1)).unwrap());
    assert_eq!(in_flight(&ledger), 1);
    assert_eq!(ledger.get("job-r").unwrap().reason, Reason::JobDeleted);
    assert_eq!(
        run_gone(PLATFORM, &ledger, "job-r", None, t(2)),
        None,
        "told once"
    );
    assert!(overdue(PLATFORM, &ledger, ledger.get("job-r").unwrap(), t(86_399)).is_empty());
    let changes = run_over(&ledger, "job-r", RunEnd::Failed, t(90));
    assert_eq!(removed(&changes), [RemoveReason::RunOver]);
    apply(&mut ledger, changes);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((0, 0, 0), 0));
}

fn left(ledger: &Ledger) -> (State, Reason) {
    let record = ledger.records().next().unwrap();
    (record.state, record.reason)
}

#[test]
fn a_run_that_completed_after_its_job_was_deleted_left_bytes_that_are_retained() {
    let mut ledger = Ledger::default();
    seen(&mut ledger, &run("r", "Velero"), 0);
    ledger.apply(&run_gone(PLATFORM, &ledger, "job-r", None, t(1)).unwrap());
    let changes = run_over(&ledger, "job-r", RunEnd::Completed, t(90));
    assert!(
        matches!(changes[..], [Change::Write(_), Change::Remove { .. }]),
        "the new record is written before the old one goes"
    );
    apply(&mut ledger, changes);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((0, 0, 1), 0));
    assert_eq!(left(&ledger), (State::Retained, Reason::NoBackupRecorded));
    assert!(
        run_over(&ledger, "job-r", RunEnd::Completed, t(91)).is_empty(),
        "once"
    );
}

#[test]
fn a_run_that_completed_after_its_job_was_deleted_and_has_a_backup_is_charged_once() {
    let mut ledger = Ledger::default();
    seen(&mut ledger, &run("r", "Etcd"), 0);
    ledger.apply(&run_gone(PLATFORM, &ledger, "job-r", None, t(1)).unwrap());
    let changes = backup_seen(&ledger, &backup("r", GI), t(2));
    // A death between the two writes.
    ledger.apply(&changes[0]);
    let changes = run_over(&ledger, "job-r", RunEnd::Completed, t(90));
    assert_eq!(removed(&changes), [RemoveReason::Recorded]);
    apply(&mut ledger, changes);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((GI, 0, 1), 0));
}

#[test]
fn a_failed_job_whose_driver_completed_left_bytes_that_are_retained() {
    let mut ledger = Ledger::default();
    let mut fact = run("r", "Velero");
    seen(&mut ledger, &fact, 0);
    fact.phase = Phase::Failed;
    fact.driver = DriverRun::Completed;
    let changes = seen(&mut ledger, &fact, 1);
    assert_eq!(removed(&changes), [RemoveReason::Replaced]);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((0, 0, 1), 0));
    assert_eq!(left(&ledger), (State::Retained, Reason::NoBackupRecorded));
    assert!(seen(&mut ledger, &fact, 2).is_empty(), "again changes nothing");
}

#[test]
fn a_run_that_had_begun_when_its_job_was_deleted_is_charged_at_the_deadline_and_another_is_not() {
    for (started, begun, charged) in [(Some(t(5)), None, 1), (None, Some(t(5)), 1), (None, None, 0)] {
        let mut ledger = Ledger::default();
        let mut fact = run("r", "Etcd");
        fact.started_at = started;
        seen(&mut ledger, &fact, 5);
        ledger.apply(&run_gone(PLATFORM, &ledger, "job-r", begun, t(6)).unwrap());
        let record = ledger.get("job-r").unwrap().clone();
        assert!(overdue(PLATFORM, &ledger, &record, t(5 + 1199)).is_empty());
        let changes = overdue(PLATFORM, &ledger, &record, t(6 + 1200));
        assert_eq!(removed(&changes), [RemoveReason::DeadlinePassed]);
        apply(&mut ledger, changes);
        assert_eq!(
            (figures(&ledger), in_flight(&ledger)),
            ((0, 0, charged), 0),
            "started {started:?}, begun {begun:?}"
        );
    }
}

#[test]
fn a_new_job_that_succeeds_before_it_was_recorded_is_charged_though_its_backup_is_gone() {
    let mut ledger = Ledger::default();
    let mut fact = run("r", "Etcd");
    fact.phase = Phase::Succeeded;
    fact.result = ResultLookup::AbsentOfNewJob;
    seen(&mut ledger, &fact, 1);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((0, 0, 1), 0));
    assert_eq!(left(&ledger), (State::Retained, Reason::NoBackupRecorded));
    assert!(seen(&mut ledger, &fact, 2).is_empty(), "again changes nothing");
}

/// Its Backup was recorded and deleted before the job was looked at again: it was the result all the same.
#[test]
fn a_run_whose_backup_was_recorded_and_is_gone_is_not_charged_once_more() {
    for phase in [Phase::Running, Phase::Succeeded] {
        let mut ledger = Ledger::default();
        seen(&mut ledger, &run("r", "Etcd"), 0);
        let made = backup("r", GI);
        let changes = backup_seen(&ledger, &made, t(1));
        apply(&mut ledger, changes);
        let changes = backup_gone(&ledger, &made.uid, Left::Deleted, t(2));
        apply(&mut ledger, changes);
        assert_eq!((figures(&ledger), in_flight(&ledger)), ((0, GI, 1), 0));
        let mut fact = run("r", "Etcd");
        fact.phase = phase;
        fact.result = ResultLookup::AbsentOfNewJob;
        assert!(seen(&mut ledger, &fact, 3).is_empty(), "{phase:?}");
        assert_eq!((figures(&ledger), in_flight(&ledger)), ((0, GI, 1), 0));
    }
}

#[test]
fn a_deleted_jobs_backup_still_takes_its_place() {
    let mut ledger = Ledger::default();
    seen(&mut ledger, &run("r", "Etcd"), 0);
    ledger.apply(&run_gone(PLATFORM, &ledger, "job-r", None, t(1)).unwrap());
    let changes = backup_seen(&ledger, &backup("r", GI), t(2));
    apply(&mut ledger, changes);
    assert_eq!((figures(&ledger), in_flight(&ledger)), ((GI, 0, 1), 0));
}

#[test]
fn a_run_that_is_a_pod_of_its_job_dies_with_it() {
    for kind in ["Altinity", "Job"] {
        let mut ledger = Ledger::default();
        seen(&mut ledger, &run("r", kind), 0);
        let change = run_gone(PLATFORM, &ledger, "job-r", None, t(1)).unwrap();
        assert_eq!(removed(&[change]), [RemoveReason::DiedWithJob], "{kind}");
    }
    let mut foreign = run("r", "Job");
    foreign.strategy.as_mut().unwrap().group = "vendor.example".into();
    let mut ledger = Ledger::default();
    seen(&mut ledger, &foreign, 0);
    assert!(
        matches!(
            run_gone(PLATFORM, &ledger, "job-r", None, t(1)),
            Some(Change::Write(_))
        ),
        "nobody knows that driver"
    );
}

#[test]
fn runs_deleted_while_nobody_looked_are_found_by_comparing() {
    let mut ledger = Ledger::default();
    seen(&mut ledger, &run("a", "Etcd"), 0);
    seen(&mut ledger, &run("b", "Etcd"), 0);
    let listed = std::collections::BTreeSet::from(["job-a".to_owned()]);
    assert_eq!(runs_gone_since(&ledger, &listed), ["job-b"]);
}

#[test]
fn case_webhook_4_a_job_nobody_takes_up_stops_counting_after_a_day_and_stays_so() {
    let mut ledger = Ledger::default();
    let mut fact = run("r", "Etcd");
    fact.strategy = None;
    fact.phase = Phase::None;
    fact.started_at = None;
    seen(&mut ledger, &fact, 0);
    let record = ledger.get("job-r").unwrap().clone();
    assert!(overdue(PLATFORM, &ledger, &record, t(86_399)).is_empty());
    let changes = overdue(PLATFORM, &ledger, &record, t(86_400));
    assert_eq!(removed(&changes), [RemoveReason::NeverTakenUp]);
    apply(&mut ledger, changes);
    assert!(
        seen(&mut ledger, &fact, 90_000).is_empty(),
        "it is not counted again"
    );
    fact.phase = Phase::Running;
    fact.started_at = Some(t(90_000));
    seen(&mut ledger, &fact, 90_001);
    assert_eq!(in_flight(&ledger), 1, "unless it begins after all");
}

#[test]
fn each_drivers_deadline_ends_a_run_and_a_day_those_without_one() {
    for (kind, seconds) in [
        ("CNPG", 1800),
        ("MariaDB", 1800),
        ("MongoDB", 1800),
        ("Etcd", 1200),
        ("FoundationDB", 2700),
        ("Velero", 86_400),
        ("Altinity", 86_400),
        ("Job", 86_400),
        ("TapeLibrary", 86_400),
    ] {
        let mut ledger = Ledger::default();
        let mut fact = run("r", kind);
        fact.started_at = Some(t(10));
        seen(&mut ledger, &fact, 20);
        let record = ledger.get("job-r").unwrap();
        assert!(overdue(PLATFORM, &ledger, record, t(10 + seconds - 1)).is_empty());
        let changes = overdue(PLATFORM, &ledger, record, t(10 + seconds));
        assert_eq!(removed(&changes), [RemoveReason::DeadlinePassed], "{kind}");
        assert_eq!(
            changes.len(),
            1,
            "{kind}: its BackupJob is there and says how it ends"
        );
    }
}

#[test]
fn every_phase_with_everything_a_driver_says() {
    use DriverRun::{Completed, NotKnown};
    use Phase::{Failed, None, Pending, Succeeded, Unknown};
    for phase in [None, Pending, Phase::Running, Succeeded, Failed, Unknown] {
        for driver in [NotKnown, DriverRun::Running, Completed, DriverRun::Failed] {
            let mut ledger = Ledger::default();
            let mut fact = run("r", "Velero");
            seen(&mut ledger, &fact, 0);
            fact.phase = phase;
            fact.driver = driver;
            let ends = removed(&seen(&mut ledger, &fact, 1));
            let wanted: &[RemoveReason] = match (phase, driver) {
                (Succeeded, _) => &[],
                (_, Completed) => &[RemoveReason::Replaced],
                (_, DriverRun::Failed) => &[RemoveReason::RunOver],
                (Failed, NotKnown) => &[RemoveReason::RunFailed],
                (Failed, DriverRun::Running) => &[],
                (None | Pending | Phase::Running | Unknown, NotKnown | DriverRun::Running) => &[],
            };
            assert_eq!(ends, wanted, "{phase:?} {driver:?}");
            let charged = i64::from(phase != Succeeded && driver == Completed);
            assert_eq!(figures(&ledger).2, charged, "{phase:?} {driver:?}");
        }
    }
}

#[test]
fn a_change_of_application_follows_into_the_record() {
    let mut ledger = Ledger::default();
    let mut fact = run("r", "Etcd");
    seen(&mut ledger, &fact, 0);
    fact.application = app("other");
    seen(&mut ledger, &fact, 1);
    assert_eq!(ledger.get("job-r").unwrap().application, app("other"));
}
