//! Model check of a deletion lane (`docs/design.md` section 8, promises 1 to 4).
//!
//! **Promises.** Every order of what a scenario allows is gone through: deletions at any time, acknowledgements that
//! are early, late, garbage or in the future, thresholds edited, the schedule deleted and created again, views that
//! lag by kind, crashes between any two requests, a former leader that goes on writing, movers killed half-way, and
//! deletions that an engine loses at once or later. The decision is `holdfast_core::deletion::wave` itself. Wrong
//! rules and wrong orders of acts, put in its place one by one, are each found; and so is each thing the promises
//! rest on, once it is taken away.
//!
//! **Assumes.** The order of acts is that of the wave controller, told again in [`pass`] and [`acts`].

mod acts;
mod drain;
mod facts;
mod model;
mod mover;
mod oracle;
mod pass;
mod people;
mod plan;
mod promises;
mod watch;
mod world;
mod wrong;

use model::{Clearing, Model, Slip};
use stateright::{Checker, HasDiscoveries, Model as _};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;
use world::{Budget, Mask};

/// States that one scenario must have at least.
const ENOUGH: usize = 1_000_000;

fn budget(deeds: u8, crashes: u8, faults: u8, stale: u8) -> Budget {
    Budget {
        deeds,
        crashes,
        faults,
        stale,
    }
}

fn with(mut model: Model, change: impl FnOnce(&mut Model)) -> Model {
    change(&mut model);
    model
}

/// Goes through a whole scenario; answers with the number of its states, and adds what was seen to be possible.
fn explore(name: &str, model: Model, possible: &mut BTreeSet<&'static str>) -> usize {
    let started = Instant::now();
    let seen = model.seen.clone();
    let checker = model.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!(
        "model check: {name}: {states} distinct states, depth {}, {:.1} s; {} conflicts, {} batches stopped by the live proof, {} states drained",
        checker.max_depth(),
        started.elapsed().as_secs_f64(),
        seen.conflicts.load(Ordering::Relaxed),
        seen.disproven.load(Ordering::Relaxed),
        seen.drained.load(Ordering::Relaxed),
    );
    assert!(checker.is_done(), "{name} was not gone through whole");
    for (property, path) in checker.discoveries() {
        assert!(
            !property.starts_with(char::is_numeric),
            "{name}: broken: {property}: {:?}",
            path.into_actions()
        );
        possible.insert(property);
    }
    states
}

/// The acts that lead a model to break this promise.
fn breaks(model: Model, promise: char) -> Option<String> {
    let properties = model.properties().into_iter().map(|property| property.name);
    let wanted: BTreeSet<&'static str> = properties.filter(|name| name.starts_with(promise)).collect();
    let checker = model
        .checker()
        .finish_when(HasDiscoveries::AnyOf(wanted.clone()))
        .spawn_bfs()
        .join();
    let mut discoveries = checker.discoveries().into_iter();
    let (_, path) = discoveries.find(|(name, _)| wanted.contains(name))?;
    Some(format!("{:?}", path.into_actions()))
}

/// Members deleted at the start, and later: small beginnings, each enough for some mistakes.
const BEGINNINGS: [(Mask, Mask); 5] = [
    (0b0010, 0b0001),
    (0b1100, 0),
    (0b0000, 0b1000),
    (0b0110, 0b0001),
    (0b0101, 0b1000),
];

fn breaks_somewhere(promise: char, change: impl Fn(&mut Model)) -> Option<String> {
    BEGINNINGS.into_iter().find_map(|(deleting, deletable)| {
        let model = Model::new(deleting, deletable, budget(1, 0, 1, 0));
        breaks(with(model, &change), promise)
    })
}

#[test]
fn promises_1_to_4_hold_over_a_million_states() {
    let plain = Model::new;
    let prunes = |model| with(model, |m| m.deeds.prune = true);
    let scenarios = [
        (
            "people and movers",
            // Thresholds are edited in the others.
            with(plain(0b0000, 0b1111, budget(1, 0, 1, 0)), |m| {
                m.deeds.threshold = false
            }),
        ),
        (
            "two deeds in a growing wave",
            plain(0b0111, 0b1000, budget(2, 0, 0, 0)),
        ),
        (
            "a wave, a crash, a mover that dies",
            plain(0b1111, 0, budget(1, 1, 1, 0)),
        ),
        (
            "a crash in a growing wave",
            plain(0b0011, 0b0100, budget(1, 1, 0, 0)),
        ),
        (
            "old views and another leader",
            plain(0b0010, 0b0100, budget(1, 1, 0, 1)),
        ),
        (
            "prunes beside a wave",
            prunes(plain(0b1010, 0b0101, budget(1, 0, 0, 0))),
        ),
        (
            "prunes and a crash",
            prunes(plain(0b1010, 0b0101, budget(0, 1, 0, 0))),
        ),
        (
            "the API server's clock is ahead",
            with(plain(0b1100, 0b0011, budget(1, 0, 0, 0)), |m| m.skew = 1),
        ),
        (
            "the next leader's watches hang, and the latch is cleared after a live list",
            with(plain(0b1100, 0, budget(1, 1, 0, 2)), |m| {
                m.hangs = true;
                m.clearing = Clearing::AfterLiveList;
            }),
        ),
    ];
    let mut states = Vec::new();
    let mut possible = BTreeSet::new();
    for (name, model) in scenarios {
        states.push(explore(
            name,
            with(model, |m| m.drain_one_in = 1000),
            &mut possible,
        ));
    }
    let most = states.iter().max().copied().unwrap_or_default();
    println!(
        "model check: {} distinct states in {} scenarios, {most} in the largest",
        states.iter().sum::<usize>(),
        states.len()
    );
    assert!(most >= ENOUGH, "only {most} distinct states");
    for property in promises::reachable() {
        assert!(possible.contains(property.name), "never: {}", property.name);
    }
}

#[test]
fn eight_wrong_rules_and_some_more_are_each_found() {
    let mut found = 0;
    for (name, promise, rule) in wrong::RULES.into_iter().chain(wrong::MORE) {
        let acts = breaks_somewhere(promise, |model| {
            model.decide = rule;
            // Each state, for those that only keep a wave from draining.
            model.drain_one_in = u64::from(name.ends_with("releases nobody"));
        });
        let acts = acts.unwrap_or_else(|| panic!("not found: {name}"));
        println!("model check: wrong rule: {name}: breaks promise {promise}: {acts}");
        found += 1;
    }
    println!("model check: {found} wrong rules, each found");
    assert!(wrong::RULES.len() >= 8);
}

/// Where the wrong rules and orders are found, the right ones break nothing.
#[test]
fn the_right_rules_break_nothing_where_the_wrong_ones_are_found() {
    for (deleting, deletable) in BEGINNINGS {
        let model = Model::new(deleting, deletable, budget(1, 0, 1, 0));
        let name = format!("control {deleting:04b} {deletable:04b}");
        explore(&name, with(model, |m| m.drain_one_in = 100), &mut BTreeSet::new());
    }
}

#[test]
fn wrong_orders_of_acts_are_each_found() {
    for (slip, promise) in [
        (Slip::NoLiveProof, '1'),
        (Slip::CountFromTheWatch, '1'),
        (Slip::BlindClaim, '1'),
        (Slip::LatchNotRecorded, '0'),
        (Slip::NoReadBack, '4'),
    ] {
        let acts = breaks_somewhere(promise, |model| model.slip = slip);
        let acts = acts.unwrap_or_else(|| panic!("not found: {slip:?}"));
        println!("model check: wrong order: {slip:?}: breaks promise {promise}: {acts}");
    }
}

/// What the promises rest on: without it the model finds a way, so that nobody takes it for granted.
#[test]
fn what_the_promises_rest_on() {
    let late = with(Model::new(0b0001, 0b0010, budget(0, 1, 0, 0)), |m| {
        m.late_create = true;
        m.thresholds = [9, 9];
        m.clock_max = 3;
    });
    let hangs = with(Model::new(0b1100, 0, budget(1, 1, 0, 1)), |m| m.hangs = true);
    let appears = with(Model::new(0b0100, 0, budget(1, 0, 0, 0)), |m| m.appears = true);
    for (name, promise, model) in [
        (
            "a guarded CREATE arrives before the next leader begins",
            '3',
            late,
        ),
        ("the next leader's watch of Snapshots does not hang", '2', hangs),
        (
            "a live Snapshot of the same id is known when its sharer fires",
            '1',
            appears,
        ),
    ] {
        let acts = breaks(model, promise).unwrap_or_else(|| panic!("not needed: {name}"));
        println!("model check: without \"{name}\": breaks promise {promise}: {acts}");
    }
}
