//! The built mover pins and unpins, and what happens between its write and the operator's record of it.

use crate::support::{Bench, batch, source};
use holdfast_protocol::outcome::{OperationResult, TakenSnapshot};
use holdfast_protocol::work::{BatchMember, EngineKind, Operation, PinItem};

/// With each engine that can run.
fn each(test: impl Fn(&Bench)) {
    test(&Bench::with(EngineKind::Restic));
    if std::env::var_os("KOPIA_BIN").is_some_and(|name| !name.is_empty()) {
        test(&Bench::with(EngineKind::Kopia));
    } else {
        println!("skipped: no kopia (KOPIA_BIN names none)");
    }
}

fn pin(bench: &Bench, taken: &TakenSnapshot, on: bool) -> (String, bool, bool) {
    let item = PinItem {
        uid: taken.uid.clone(),
        snapshot_id: taken.snapshot_id.clone(),
        source: source(),
        start_time: Some(taken.start_time),
        on,
    };
    let run = bench.run(Operation::Pin { item });
    assert_eq!(run.code, Some(0), "{}", run.message);
    match &run.outcome().result {
        OperationResult::Pinned {
            uid,
            snapshot_id,
            pinned,
            ours,
        } => {
            assert_eq!(*uid, taken.uid);
            (snapshot_id.clone(), *pinned, *ours)
        }
        other => panic!("no pin: {other:?}"),
    }
}

fn member(taken: &TakenSnapshot) -> BatchMember {
    BatchMember {
        uid: taken.uid.clone(),
        snapshot_id: taken.snapshot_id.clone(),
        source: source(),
        start_time: Some(taken.start_time),
        justified_by: None,
        seen_here: true,
    }
}

#[test]
fn a_pin_whose_new_id_was_never_recorded_is_found_by_the_next_pin_and_by_the_deletion() {
    each(|bench| {
        let taken = bench.back_up(0..2);
        let (id, pinned, ours) = pin(bench, &taken[0], true);
        assert!(pinned && ours);
        assert_ne!(id, taken[0].snapshot_id);
        // The operator went before it recorded the new id: all it knows is the old one.
        assert_eq!(pin(bench, &taken[0], true), (id.clone(), true, true));
        let mut pruned = member(&taken[0]);
        pruned.justified_by = Some(0);
        let run = bench.run(Operation::DeleteBatch {
            members: vec![pruned],
            kept: vec![vec![taken[1].snapshot_id.clone()]],
        });
        assert_eq!((run.letters(), run.code), ("P", Some(1)), "pinned: not pruned");
        let run = bench.run(batch(vec![member(&taken[0])]));
        assert_eq!((run.letters(), run.code), ("D", Some(0)), "{}", run.stdout);
        // The other one is there, and can be pinned and unpinned.
        let (id, ..) = pin(bench, &taken[1], true);
        let (newer, pinned, ours) = pin(bench, &taken[1], false);
        assert!(!pinned && !ours && newer != id);
    });
}
