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

/// Found by a random history: a run of a driver whose runs may write over one key, whose BackupJob and Backup were both
/// deleted unseen, ends by its deadline beside a charged record of its application.
#[test]
fn a_run_that_nobody_saw_end_is_stood_for_by_what_is_charged_of_its_application() {
    let create = |app, kind| Step::Create {
        namespace: 0,
        kind,
        app,
        dry_run: false,
    };
    let finish = |job, shown| Step::Finish {
        job,
        key: 0,
        claim: 31,
        shown,
    };
    let mut steps = vec![
        // Without any known size only one run of an application goes on at a time.
        create(1, 0),
        finish(0, true),
        create(0, 1),
        create(0, 1),
        Step::Begin(0),
        Step::DeleteJob { job: 0, shown: false },
        finish(1, true),
        finish(0, false),
        Step::DeleteBackup {
            backup: 1,
            shown: false,
            kept: true,
        },
        Step::Wait(98_143),
    ];
    steps.extend((0..world::HARD_COUNT).map(|_| create(0, 0)));
    run_history(steps, &mut Seen::default());
}
