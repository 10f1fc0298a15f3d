//! Random histories of everything that can happen, with deaths between any two writes, and after each step the
//! promises 8.7 to 8.9 of `docs/design.md`.
//!
//! The world keeps its own truth (what lies in the store, which runs go on) and its own sums, so that a promise is
//! never checked with the code that is to keep it.

mod acts;
mod steps;
mod world;

use holdfast_core::quota::Reason;
use holdfast_core::quota::transitions::BackupFact;
use proptest::prelude::*;
use std::collections::BTreeSet;
use steps::{Step, step};
use world::World;

/// What random histories have come to; a test that never came anywhere would show nothing.
#[derive(Debug, Default)]
struct Seen {
    admitted: usize,
    proofs: usize,
    reasons: BTreeSet<Reason>,
}

fn run_history(steps: Vec<Step>, seen: &mut Seen) {
    let mut world = World::default();
    for step in steps {
        world.step(step);
        world.check();
    }
    // With everything shown once more, nothing is left to write: the end does not depend on the deaths.
    world.dies_after = None;
    world.resync();
    world.check();
    world.check_indexes();
    let before = world.written.clone();
    world.resync();
    assert_eq!(world.written, before, "seeing the same again changes nothing");
    for backup in world.backups.values() {
        assert!(
            world.ledger.of_backup(&backup.uid).next().is_some() || refuses(&world, backup),
            "{backup:?} is nowhere"
        );
    }
    seen.admitted += world.admitted;
    seen.proofs += world.proofs;
    seen.reasons.append(&mut world.reasons);
}

/// A Backup without a record of its own: what it names was released or written off since.
fn refuses(world: &World, backup: &BackupFact) -> bool {
    world
        .ledger
        .get(&backup.identity().record_name())
        .is_some_and(|record| !record.state.is_charged())
}

/// One of four parts of 15,000; they run beside each other.
fn part_of_histories() {
    let cases = 15_000;
    let seen = std::cell::RefCell::new(Seen::default());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&prop::collection::vec(step(), 1..80), |steps| {
            run_history(steps, &mut seen.borrow_mut());
            Ok(())
        })
        .unwrap();
    let seen = seen.into_inner();
    assert!(seen.admitted > 2 * cases as usize, "{seen:?}");
    assert!(seen.proofs > cases as usize / 50, "{seen:?}");
    let mut all: BTreeSet<Reason> = Reason::ALL.iter().copied().collect();
    all.remove(&Reason::NewerVersion);
    assert_eq!(
        seen.reasons, all,
        "histories came to every reason, and to no other"
    );
}

#[test]
fn promise_7_8_9_hold_after_every_step_of_random_histories_part_1() {
    part_of_histories();
}

#[test]
fn promise_7_8_9_hold_after_every_step_of_random_histories_part_2() {
    part_of_histories();
}

#[test]
fn promise_7_8_9_hold_after_every_step_of_random_histories_part_3() {
    part_of_histories();
}

#[test]
fn promise_7_8_9_hold_after_every_step_of_random_histories_part_4() {
    part_of_histories();
}
