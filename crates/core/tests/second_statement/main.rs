//! The rules of `docs/design.md` 3.3 and 3.4 stated a second time, in another shape, from the design alone.
//!
//! **Promises.** The decision in `holdfast_core::deletion` is a chain of rules of which the first that matches
//! wins. Here the same rules are a table without an order ([`rows`]), a set of members that count, and a list of
//! independent obstacles ([`statement`]). Written without looking at the first.
//!
//! **Assumes** nothing of `holdfast_core::deletion` but its types.

#![allow(clippy::unwrap_used)]

mod columns;
mod rows;
mod statement;

use columns::Columns;
use holdfast_core::deletion::Rule;

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
    const ASKERS: [Asker; 4] = [Asker::External, Asker::Prune, Asker::PolicyWent, Asker::Replaced];
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
