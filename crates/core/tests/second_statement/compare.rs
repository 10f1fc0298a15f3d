//! Goes through the combinations and says where a decision differs from the second statement.
//!
//! **Promises.** The decision is a parameter, so that a wrong one can be compared too. Each member of each lane
//! is compared, and the breaker's count.
//!
//! **Assumes.** Which of several obstacles a decision names first is left open by the design: any is right.

use super::axes::{NAMES, Point, build, now};
use super::space::{BLOCKS, Block, sample};
use super::statement::{Expected, expect};
use holdfast_core::deletion::{Lane, Plan, Rule, Settings};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// What is compared with the second statement.
pub type Decide = fn(&Lane, &Settings, Timestamp) -> Plan;

/// One difference.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The rule that should have decided.
    pub rule: Rule,
    /// What differs, without the point: equal for differences of one kind.
    pub what: String,
    /// The first point at which it was seen.
    pub point: Point,
}

/// The differences of a comparison, one of each kind, with how often each was seen.
pub type Differences = BTreeMap<String, (Difference, u64)>;

/// `point` as it is to be read: what is not plain.
pub fn describe(point: &Point) -> String {
    NAMES
        .iter()
        .zip(point)
        .filter(|(_, value)| **value != 0)
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether the live Job has to be withdrawn; none where the design leaves it open.
fn withdrawal(lane: &Lane, expected: &[Expected]) -> Option<bool> {
    let Some(batch) = lane.live.as_ref().filter(|batch| !batch.started) else {
        return Some(false);
    };
    let riders: Vec<&Expected> = lane
        .members
        .iter()
        .zip(expected)
        .filter(|(member, _)| batch.members.contains(&member.uid))
        .map(|(_, expected)| expected)
        .collect();
    let settled = |rider: &&Expected| rider.rule == Rule::Lane;
    if riders
        .iter()
        .any(|rider| !rider.verdict.deletes() && !settled(rider))
    {
        return Some(true);
    }
    let undisturbed = |rider: &&Expected| {
        let bound = ["JobNotStarted", "Withdrawing"];
        rider.verdict.deletes() && rider.obstacles.iter().all(|word| bound.contains(word))
    };
    (riders.len() == batch.members.len() && riders.iter().all(undisturbed)).then_some(false)
}

/// Compares at one point.
pub fn at(point: &Point, decide: Decide, differences: &mut Differences) {
    let (lane, settings) = build(point);
    let plan = decide(&lane, &settings, now());
    let mut note = |rule: Rule, what: String| {
        differences
            .entry(what.clone())
            .or_insert_with(|| {
                (
                    Difference {
                        rule,
                        what,
                        point: *point,
                    },
                    0,
                )
            })
            .1 += 1;
    };
    let (expected, counted) = expect(&lane, &settings, now());
    for repository in &plan.repositories {
        if repository.count != counted {
            note(
                Rule::Breaker,
                format!("the count is {}, not {counted}", repository.count),
            );
        }
    }
    assert_eq!(plan.decisions.len(), lane.members.len());
    if let Some(withdrawn) = withdrawal(&lane, &expected)
        && withdrawn != plan.withdraw.is_some()
    {
        note(Rule::InFlight, format!("the Job is withdrawn: {}", !withdrawn));
    }
    for (member, expected) in lane.members.iter().zip(expected) {
        let decision = plan.decision(&member.uid).unwrap();
        if (decision.verdict, decision.rule) != (expected.verdict, expected.rule) {
            note(
                expected.rule,
                format!(
                    "{:?} by {:?}, not {:?} by {:?}",
                    decision.verdict, decision.rule, expected.verdict, expected.rule
                ),
            );
            continue;
        }
        let waits = decision
            .waits_for()
            .filter(|_| decision.verdict.wait().is_none())
            .map(|wait| wait.reason());
        let fires = plan
            .fire
            .as_ref()
            .is_some_and(|batch| batch.members.contains(&member.uid));
        let obstacles = &expected.obstacles;
        let right = match waits {
            Some(word) => obstacles.contains(&word),
            None => obstacles.is_empty(),
        };
        if !right {
            note(
                expected.rule,
                format!(
                    "{} waits for {waits:?}, not one of {obstacles:?}",
                    decision.verdict.kind()
                ),
            );
        }
        if fires != (decision.verdict.deletes() && obstacles.is_empty()) {
            note(
                expected.rule,
                format!("{} fires: {fires}, with {obstacles:?}", decision.verdict.kind()),
            );
        }
    }
}

/// Calls `each` for every number below `end`, on all processors.
fn spread<T: Send>(end: u64, each: impl Fn(u64, &mut T) + Sync, fresh: impl Fn() -> T + Sync) -> Vec<T> {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                let (each, fresh) = (&each, &fresh);
                scope.spawn(move || {
                    let mut own = fresh();
                    let mut index = worker;
                    while index < end {
                        each(index, &mut own);
                        index += workers;
                    }
                    own
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

fn merge(parts: Vec<Differences>) -> Differences {
    let mut all = Differences::new();
    for (key, (difference, times)) in parts.into_iter().flatten() {
        all.entry(key).or_insert((difference, 0)).1 += times;
    }
    all
}

/// Compares over the whole of `block`.
pub fn over(block: &Block, decide: Decide) -> Differences {
    merge(spread(
        block.len(),
        |index, differences| at(&block.point(index), decide, differences),
        Differences::new,
    ))
}

/// Compares over every `step`-th point of every block and of a sample of everything.
pub fn over_some(samples: u64, step: u64, decide: Decide) -> Differences {
    let mut parts = Vec::new();
    for block in BLOCKS {
        parts.extend(spread(
            block.len() / step,
            |index, differences| at(&block.point(index * step), decide, differences),
            Differences::new,
        ));
    }
    parts.extend(spread(
        samples,
        |index, differences| at(&sample(index), decide, differences),
        Differences::new,
    ));
    merge(parts)
}
