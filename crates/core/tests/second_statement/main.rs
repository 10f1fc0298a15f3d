//! The rules of `docs/design.md` 3.3 and 3.4 stated a second time, in another shape, from the design alone.
//!
//! **Promises.** The decision in `holdfast_core::deletion` is a chain of rules of which the first that matches
//! wins. Here the same rules are a table without an order ([`rows`]), a set of members that count, and a list of
//! independent obstacles ([`statement`]). It was written before the first was looked at; they are compared over
//! every combination of the facts that are read together ([`space`]).
//!
//! **Assumes** nothing of `holdfast_core::deletion` but its types.
//!
//! Where the design was read in two ways, none of which deletes more than the other, the comparison made both say:
//! * Rule 3 is about members without a recorded snapshot; with one, a mover of its own only keeps it from firing.
//! * An owner that is not known is waited for where it could keep the data (rule 6). Where it could not, the
//!   breaker is asked, so that such members are held with the others, and none of them rides.
//! * An effective policy Retain, Orphan or unknown goes before what our own stamp says of Delete (rule 5), and a
//!   latched prune goes through rule 6 like an external deletion.
//! * A stamp without a readable time counts for nothing, also one written again by a later pass.
//! * Covered goes before switched off as the reason for a deletion.

#![allow(clippy::unwrap_used)]

mod axes;
mod columns;
mod compare;
mod rows;
mod space;
mod statement;
mod wrong;

use columns::Columns;
use holdfast_core::deletion::{Rule, wave};

/// Every rule of the design has a row.
#[test]
fn every_rule_has_a_row() {
    for rule in [
        Rule::InFlight,
        Rule::Skip,
        Rule::ApiGoingAway,
        Rule::NothingRecorded,
        Rule::Namespace,
        Rule::OwnStamp,
        Rule::ScheduleGuard,
        Rule::Policy,
        Rule::SharedOrUnknown,
        Rule::Breaker,
    ] {
        assert!(rows::ROWS.iter().any(|row| row.rule == rule), "{}", rule.name());
    }
}

/// Every combination of columns matches exactly one row; `the_row` panics otherwise.
#[test]
fn every_combination_has_exactly_one_row() {
    use columns::{Asker, Home, Others, Room, Run, Schedule, Store};
    use holdfast_core::deletion::Policy;
    const RUNS: [Run; 5] = [
        Run::Nothing,
        Run::Written,
        Run::Running,
        Run::Unread,
        Run::Unclear,
    ];
    const HOMES: [Home; 3] = [Home::Stays, Home::TornDown, Home::OptedIn];
    const ROOMS: [Room; 3] = [Room::Fine, Room::None, Room::Unclear];
    const ASKERS: [Asker; 6] = [
        Asker::External,
        Asker::Prune,
        Asker::LatchedPrune,
        Asker::PolicyWent,
        Asker::Replaced,
        Asker::VoidPrune,
    ];
    const POLICIES: [Policy; 4] = [Policy::Delete, Policy::Retain, Policy::Orphan, Policy::Unknown];
    const SCHEDULES: [Schedule; 4] = [
        Schedule::Silent,
        Schedule::Keeps,
        Schedule::Unclear,
        Schedule::Unreadable,
    ];
    const OTHERS: [Others; 3] = [Others::None, Others::Live, Others::Unclear];
    const STORES: [Store; 4] = [Store::Here, Store::Gone, Store::Unreadable, Store::Other];
    let mut number = 0;
    for flags in 0..8 {
        for run in RUNS {
            for home in HOMES {
                for room in ROOMS {
                    for asker in ASKERS {
                        for policy in POLICIES {
                            for schedule in SCHEDULES {
                                for others in OTHERS {
                                    for store in STORES {
                                        number += 1;
                                        rows::the_row(&Columns {
                                            riding: flags & 1 != 0,
                                            skip: flags & 2 != 0,
                                            uninstall: flags & 4 != 0,
                                            run,
                                            home,
                                            room,
                                            asker,
                                            policy,
                                            schedule,
                                            others,
                                            store,
                                        });
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    println!("{number} combinations of columns, each in exactly one row");
}

/// The decision says the same as the second statement over every block of the space and a sample of all of it.
#[test]
fn the_decision_and_the_second_statement_agree() {
    const SAMPLES: u64 = 500_000;
    let mut found = Vec::new();
    if let Some(every) = every() {
        println!("one of {every} combinations, as HOLDFAST_EVERY says");
        found.extend(compare::over_some(SAMPLES / every, every, wave).into_values());
        assert!(found.is_empty(), "{} kinds of difference", found.len());
        return;
    }
    let mut number = 0;
    for block in space::BLOCKS {
        println!("{:>9} combinations: {}", block.len(), block.name);
        number += block.len();
        found.extend(compare::over(block, wave).into_values());
    }
    println!(
        "{SAMPLES:>9} combinations of all {} axes, of {:.1e}",
        axes::AXES,
        space::everything()
    );
    found.extend(compare::over_some(SAMPLES, u64::MAX, wave).into_values());
    println!("{:>9} combinations", number + SAMPLES);
    for (difference, times) in &found {
        println!(
            "rule {}: {} ({times} times), first at: {}",
            difference.rule.number(),
            difference.what,
            compare::describe(&difference.point)
        );
    }
    assert!(found.is_empty(), "{} kinds of difference", found.len());
}

/// `HOLDFAST_EVERY`: of how many combinations one is compared, for `cargo xtask mutants`, which compares hundreds of
/// wrong decisions and has no time for all of them. Looking at fewer can only find less.
fn every() -> Option<u64> {
    let value = std::env::var("HOLDFAST_EVERY").ok()?;
    Some(value.parse().expect("HOLDFAST_EVERY is a number of at least 1"))
}

/// The comparison can fail: each decision that is wrong in one rule is found, at the rule it breaks.
#[test]
fn ten_wrong_rules_are_each_caught() {
    const { assert!(wrong::WRONG.len() >= 10) };
    let mut missed = Vec::new();
    for (name, rule, decide) in wrong::WRONG {
        let found = compare::over_some(20_000, 97, *decide);
        let caught: Vec<_> = found.values().filter(|(d, _)| d.rule == *rule).collect();
        let Some((first, _)) = caught.first() else {
            missed.push(*name);
            continue;
        };
        println!(
            "{name}: {} kinds of difference, such as: {}, at {}",
            found.len(),
            first.what,
            compare::describe(&first.point)
        );
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
