//! Model check of a deletion lane (`docs/design.md` section 8, promises 1 to 4).
//!
//! **Promises.** Every order of what a scenario allows is gone through: deletions at any time, acknowledgements that
//! are early, late, garbage or in the future, thresholds edited, the schedule deleted and created again, views that
//! lag by kind, crashes between any two requests, a former leader that goes on writing, movers killed half-way, and
//! deletions that an engine loses at once or later. The decision is `holdfast_core::deletion::wave` itself. Wrong
//! rules and wrong orders of acts, put in its place one by one, are each found.
//!
//! **Assumes.** The order of acts is that of the wave controller, told again in [`pass`].

#![allow(clippy::unwrap_used)]

mod drain;
mod facts;
mod model;
mod oracle;
mod pass;
mod world;
mod wrong;

use model::{Deeds, Model, Slip};
use stateright::{Checker, HasDiscoveries, Model as _};
use std::sync::atomic::Ordering;
use std::time::Instant;
use world::Budget;

fn budget(deeds: u8, crashes: u8, faults: u8, stale: u8) -> Budget {
    Budget {
        deeds,
        crashes,
        faults,
        stale,
    }
}

/// Explores a scenario whole; answers with the number of its states.
fn explore(name: &str, model: Model) -> usize {
    let started = Instant::now();
    let seen = model.seen.clone();
    let checker = model.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!(
        "model check: {name}: {states} distinct states, depth {}, {:.1} s; {} conflicts, {} batches disproven live, {} states drained",
        checker.max_depth(),
        started.elapsed().as_secs_f64(),
        seen.conflicts.load(Ordering::Relaxed),
        seen.disproven.load(Ordering::Relaxed),
        seen.drained.load(Ordering::Relaxed),
    );
    for (property, path) in checker.discoveries() {
        println!("  {property}: {:?}", path.into_actions());
    }
    checker.assert_properties();
    states
}

#[test]
fn size() {
    for (name, b) in [
        ("none", budget(0, 0, 0, 0)),
        ("1 deed", budget(1, 0, 0, 0)),
        ("1 crash", budget(0, 1, 0, 0)),
        ("1 fault", budget(0, 0, 1, 0)),
        ("1 stale", budget(0, 0, 0, 1)),
    ] {
        let model = Model::new(0, 15, b);
        explore(name, Model { drain_one_in: 0, ..model });
    }
}
