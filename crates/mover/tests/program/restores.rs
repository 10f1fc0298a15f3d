//! The built mover restores: which snapshot is looked up, then written, from a repository that is mounted read-only.

use crate::support::{Bench, Run, source};
use holdfast_protocol::outcome::{OperationResult, TakenSnapshot};
use holdfast_protocol::restore::{Existing, Found, How, NotSet, Refused, RestoreAnswer, RestoreItem, Wanted};
use holdfast_protocol::work::Operation;
use std::fs;

fn answer(run: &Run) -> &RestoreAnswer {
    match &run.outcome().result {
        OperationResult::Restore(answer) => answer,
        other => panic!("no answer of a restore: {other:?} {}", run.message),
    }
}

fn wanted(offset: u32) -> Operation {
    let source = source();
    Operation::Resolve {
        wanted: Wanted {
            username: source.username,
            hostname: source.hostname,
            path: None,
            snapshot_id: None,
            offset,
            as_of: None,
            others: None,
        },
    }
}

impl Bench {
    fn found(&self, offset: u32) -> Option<Found> {
        match answer(&self.run(wanted(offset))) {
            RestoreAnswer::Resolved { found, .. } => found.clone(),
            other => panic!("not resolved: {other:?}"),
        }
    }
}

fn restoring(bench: &Bench, taken: &TakenSnapshot, existing: Existing) -> Operation {
    Operation::Restore {
        item: RestoreItem {
            uid: "restore-uid".to_owned(),
            snapshot_id: taken.snapshot_id.clone(),
            source: source(),
            start_time: Some(taken.start_time),
            to: bench.path("target").to_str().unwrap().to_owned(),
            how: How {
                existing,
                delete_others: false,
                owners: true,
                sparse: true,
                all_or_fail: false,
            },
        },
    }
}

#[test]
fn a_snapshot_is_looked_up_and_restored_from_a_read_only_repository() {
    let bench = Bench::new();
    let taken = bench.back_up(0..1).remove(0);
    fs::write(bench.path("source/a"), "changed").unwrap();
    let newer = bench.back_up(1..2).remove(0);
    assert_eq!(
        bench.found(0).map(|f| f.snapshot_id),
        Some(newer.snapshot_id.clone())
    );
    assert_eq!(
        bench.found(1).map(|f| f.snapshot_id),
        Some(taken.snapshot_id.clone())
    );
    assert_eq!(bench.found(2), None);

    fs::create_dir(bench.path("target")).unwrap();
    let document = bench.document(restoring(&bench, &taken, Existing::Refuse));
    let Some(command) = bench.command_read_only(&document) else {
        eprintln!("skipped: a read-only mount is not allowed here");
        return;
    };
    let run = bench.finish(command);
    assert_eq!(run.code, Some(0), "{}", run.message);
    let expected = RestoreAnswer::Restored {
        snapshot_id: taken.snapshot_id.clone(),
        files: 2,
        bytes: 1500,
        not_set: Some(NotSet::default()),
    };
    assert_eq!(answer(&run), &expected);
    let read = |name: &str| fs::read_to_string(bench.path("target").join(name)).unwrap();
    assert_eq!((read("a").len(), read("sub/b").len()), (1000, 500));
    let left: Vec<_> = fs::read_dir(bench.path("target")).unwrap().collect();
    assert_eq!(left.len(), 2, "nothing of ours stays behind");

    // Again into the same place: refused, and nothing is written, until it is said what becomes of the files.
    fs::write(bench.path("target/a"), "mine").unwrap();
    let refused = bench.run(restoring(&bench, &newer, Existing::Refuse));
    assert_eq!(refused.code, Some(1));
    let why = RestoreAnswer::Refused {
        why: Refused::TargetNotEmpty,
    };
    assert_eq!((answer(&refused), read("a").as_str()), (&why, "mine"));
    let kept = bench.run(restoring(&bench, &newer, Existing::Keep));
    assert_eq!(
        (kept.code, read("a").as_str()),
        (Some(0), "mine"),
        "{}",
        kept.message
    );
    let replaced = bench.run(restoring(&bench, &newer, Existing::Replace));
    assert_eq!(
        (replaced.code, read("a").as_str()),
        (Some(0), "changed"),
        "{}",
        replaced.message
    );
}

#[test]
fn an_absent_snapshot_and_another_source_are_not_restored() {
    let bench = Bench::new();
    let mut taken = bench.back_up(0..1).remove(0);
    fs::create_dir(bench.path("target")).unwrap();
    let why = RestoreAnswer::Refused {
        why: Refused::SnapshotNotFound,
    };
    let Operation::Restore { mut item } = restoring(&bench, &taken, Existing::Refuse) else {
        panic!("a restore");
    };
    item.source.path = "/pvc/another".to_owned();
    let another = bench.run(Operation::Restore { item });
    assert_eq!((another.code, answer(&another)), (Some(1), &why));
    taken.snapshot_id = "0".repeat(64);
    // One with its own begin would be its new record.
    taken.start_time -= jiff::SignedDuration::from_secs(5);
    let absent = bench.run(restoring(&bench, &taken, Existing::Refuse));
    assert_eq!((absent.code, answer(&absent)), (Some(1), &why));
    assert!(
        absent.message.contains("there is no snapshot"),
        "{}",
        absent.message
    );
}
