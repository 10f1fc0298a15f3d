//! What retention, the limit on failed runs and the backoff promise.

#![allow(clippy::unwrap_used)]

use holdfast_core::backoff::{MEMBER, REPOSITORY};
use holdfast_core::retention::again::{MOST, Pruned, made_again, remember};
use holdfast_core::retention::history::{FailedRun, beyond_limit};
use holdfast_core::retention::stamp::is_left_over;
use holdfast_core::retention::{Completed, Keep, Retained, retain};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

fn at(text: &str) -> Timestamp {
    format!("{text}Z").parse().unwrap()
}

fn snapshot(name: &str, ended_at: &str) -> Completed {
    Completed {
        uid: format!("uid-{name}"),
        id: format!("id-{name}"),
        group: "source".into(),
        ended_at: at(ended_at),
        pinned: false,
        vanished: false,
    }
}

fn kept(retained: &Retained) -> Vec<&str> {
    retained
        .keep
        .iter()
        .map(|uid| uid.trim_start_matches("uid-"))
        .collect()
}

fn days(count: i64) -> Vec<Completed> {
    (0..count)
        .map(|n| {
            let ended_at = at("2026-01-01T12:00:00") + SignedDuration::from_hours(24 * n);
            Completed {
                ended_at,
                ..snapshot(&format!("{n:03}"), "2026-01-01T12:00:00")
            }
        })
        .collect()
}

#[test]
fn without_a_policy_or_with_one_that_keeps_nothing_nothing_is_pruned() {
    let zero = Keep {
        latest: Some(0),
        daily: Some(0),
        ..Keep::default()
    };
    for policy in [None, Some(&Keep::default()), Some(&zero)] {
        let retained = retain(&days(5), policy);
        assert_eq!((retained.keep.len(), retained.prune.len()), (5, 0));
    }
}

#[test]
fn keep_latest_keeps_the_newest_and_prunes_oldest_first() {
    let retained = retain(
        &days(5),
        Some(&Keep {
            latest: Some(2),
            ..Keep::default()
        }),
    );
    assert_eq!(kept(&retained), ["004", "003"]);
    assert_eq!(retained.prune, ["uid-000", "uid-001", "uid-002"]);
    assert_eq!(retained.justification["source"], ["id-003", "id-004"]);
}

#[test]
fn a_tie_is_broken_by_id_and_not_by_the_order_of_the_list() {
    let mut same = vec![
        snapshot("b", "2026-01-01T00:00:00"),
        snapshot("a", "2026-01-01T00:00:00"),
    ];
    let policy = Keep {
        latest: Some(1),
        ..Keep::default()
    };
    let first = retain(&same, Some(&policy));
    same.reverse();
    assert_eq!(first, retain(&same, Some(&policy)));
}

#[test]
fn pinned_snapshots_are_always_kept_and_vanished_ones_neither_count_nor_go() {
    let mut all = days(5);
    all[0].pinned = true;
    all[4].vanished = true;
    let retained = retain(
        &all,
        Some(&Keep {
            latest: Some(1),
            ..Keep::default()
        }),
    );
    assert_eq!(kept(&retained), ["003", "000"]);
    assert_eq!(retained.prune, ["uid-001", "uid-002"]);
    assert_eq!(retained.justification["source"], ["id-000", "id-003"]);
}

#[test]
fn each_source_and_repository_has_a_history_of_its_own() {
    let mut all = days(4);
    all[0].group = "other".into();
    let retained = retain(
        &all,
        Some(&Keep {
            latest: Some(1),
            ..Keep::default()
        }),
    );
    assert_eq!(kept(&retained), ["003", "000"]);
    assert!(
        !retained.justification.contains_key("other"),
        "nothing of it is pruned"
    );
}

#[test]
fn an_id_that_is_kept_for_one_object_is_kept_for_all() {
    let mut all = days(3);
    all[0].id = all[2].id.clone();
    let retained = retain(
        &all,
        Some(&Keep {
            latest: Some(1),
            ..Keep::default()
        }),
    );
    assert_eq!(retained.prune, ["uid-001"]);
}

#[test]
fn periods_are_those_that_exist_so_an_outage_does_not_empty_the_history() {
    let mut all = days(3);
    all.push(snapshot("late", "2026-03-01T00:00:00"));
    let retained = retain(
        &all,
        Some(&Keep {
            daily: Some(3),
            ..Keep::default()
        }),
    );
    assert_eq!(kept(&retained), ["late", "002", "001"]);
}

#[test]
fn each_period_keeps_its_newest_in_utc() {
    let all = [
        snapshot("a", "2024-12-29T23:59:59"),
        snapshot("b", "2024-12-30T00:00:00"),
        snapshot("c", "2024-12-31T23:59:59"),
        snapshot("d", "2025-01-01T00:00:00"),
        snapshot("e", "2025-01-01T00:30:00"),
        snapshot("f", "2025-01-01T01:00:00"),
    ];
    let keep = |policy: Keep| kept(&retain(&all, Some(&policy))).join("");
    let ten = Some(10);
    assert_eq!(
        keep(Keep {
            hourly: ten,
            ..Keep::default()
        }),
        "fecba"
    );
    assert_eq!(
        keep(Keep {
            daily: ten,
            ..Keep::default()
        }),
        "fcba"
    );
    assert_eq!(
        keep(Keep {
            weekly: ten,
            ..Keep::default()
        }),
        "fa",
        "ISO week 1 of 2025 begins on 30 December"
    );
    assert_eq!(
        keep(Keep {
            monthly: ten,
            ..Keep::default()
        }),
        "fc"
    );
    assert_eq!(
        keep(Keep {
            annual: ten,
            ..Keep::default()
        }),
        "fc"
    );
    assert_eq!(
        keep(Keep {
            annual: ten,
            latest: Some(2),
            ..Keep::default()
        }),
        "fec",
        "the union"
    );
}

#[test]
fn a_year_of_dailies_under_a_usual_policy() {
    let policy = Keep {
        daily: Some(7),
        weekly: Some(4),
        monthly: Some(12),
        ..Keep::default()
    };
    let retained = retain(&days(365), Some(&policy));
    // Two of the four weeks and one of the twelve months end within the seven days.
    assert_eq!(retained.keep.len(), 7 + 2 + 11);
}

#[test]
fn a_stamp_that_was_left_over_is_taken_off() {
    let now = at("2026-01-01T00:02:00");
    assert!(!is_left_over(Some(at("2026-01-01T00:01:00")), now));
    assert!(is_left_over(Some(at("2026-01-01T00:00:59")), now));
    assert!(is_left_over(Some(at("2026-01-01T00:03:01")), now));
    assert!(is_left_over(None, now));
}

#[test]
fn a_name_that_was_pruned_and_is_made_again_is_known_for_a_day() {
    let pruned = at("2026-01-10T12:00:00");
    let remembered = remember(&[], &["before".to_owned()], pruned);
    let again = |name: &str, created: &str| made_again(&remembered, name, at(created));
    assert_eq!(again("before", "2026-01-10T12:03:00"), Some(pruned));
    assert_eq!(
        again("before", "2026-01-10T11:59:59"),
        Some(pruned),
        "clocks differ"
    );
    assert_eq!(again("other", "2026-01-10T12:03:00"), None);
    assert_eq!(again("before", "2026-01-11T12:00:00"), None, "a person, by now");
    assert_eq!(
        again("before", "2026-01-09T12:00:00"),
        None,
        "it was there before"
    );
    let later = remember(&remembered, &["next".to_owned()], at("2026-01-10T13:00:00"));
    assert_eq!(later.len(), 2);
    assert_eq!(
        remember(&later, &["next".to_owned()], at("2026-01-10T14:00:00")),
        later,
        "nothing is written twice"
    );
    assert_eq!(remember(&later, &[], at("2026-01-12T00:00:00")), []);
}

#[test]
fn what_is_remembered_is_bounded_and_what_goes_now_is_in_it() {
    let names = |from: usize, count: usize| -> Vec<String> {
        (from..from + count).map(|n| format!("s{n}")).collect()
    };
    let now = at("2026-01-10T12:00:00");
    let many = remember(&[], &names(0, MOST + 50), now);
    assert_eq!(many.len(), MOST);
    let more = remember(&many, &names(1_000, 30), now);
    assert_eq!(more.len(), MOST);
    let known = |name: &String| more.iter().any(|one: &Pruned| one.name == *name);
    assert!(names(1_000, 30).iter().all(known));
}

#[test]
fn failed_runs_beyond_the_limit_go_oldest_first() {
    let run = |n: u8| FailedRun {
        uid: format!("uid-{n:02}"),
        at: at(&format!("2026-01-01T00:{n:02}:00")),
    };
    let runs: Vec<FailedRun> = (0..12).map(run).collect();
    assert_eq!(beyond_limit(&runs, None), ["uid-00", "uid-01"]);
    assert_eq!(beyond_limit(&runs, Some(11)), ["uid-00"]);
    assert_eq!(beyond_limit(&runs, Some(0)).len(), 12);
    assert!(beyond_limit(&runs, Some(u32::MAX)).is_empty());
}

#[test]
fn the_backoff_doubles_from_a_minute_to_an_hour() {
    let minutes: Vec<i64> = (0..9).map(|n| MEMBER.pause(n).as_mins()).collect();
    assert_eq!(minutes, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
    let seconds: Vec<i64> = (0..8).map(|n| REPOSITORY.pause(n).as_secs()).collect();
    assert_eq!(seconds, [0, 15, 30, 60, 120, 240, 480, 600]);
    assert_eq!(MEMBER.pause(u32::MAX).as_mins(), 60);
    let now = at("2026-01-01T00:00:00.5");
    assert_eq!(MEMBER.next(2, now), at("2026-01-01T00:02:00"));
    assert_eq!(
        MEMBER.next(1, Timestamp::MAX).as_second(),
        Timestamp::MAX.as_second()
    );
    assert!(MEMBER.waits(at("2026-01-01T01:00:00"), now));
    assert!(!MEMBER.waits(now, now));
    assert!(
        !MEMBER.waits(at("2027-01-01T00:00:00"), now),
        "by a clock that was wrong"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pruning_again_after_a_prune_prunes_nothing(
        hours in prop::collection::vec((0_i64..5000, any::<bool>()), 0..60),
        latest in 0_u32..5, daily in 0_u32..5, weekly in 0_u32..5, monthly in 0_u32..5,
    ) {
        let policy = Keep {
            latest: Some(latest), daily: Some(daily), weekly: Some(weekly), monthly: Some(monthly), ..Keep::default()
        };
        let all: Vec<Completed> = hours.iter().enumerate().map(|(n, (hour, pinned))| Completed {
            ended_at: at("2026-01-01T00:00:00") + SignedDuration::from_hours(*hour),
            pinned: *pinned && n % 5 == 0,
            ..snapshot(&n.to_string(), "2026-01-01T00:00:00")
        }).collect();
        let retained = retain(&all, Some(&policy));
        prop_assert_eq!(retained.keep.len() + retained.prune.len(), all.len());
        prop_assert!(all.is_empty() || !retained.keep.is_empty(), "something is always kept");
        prop_assert!(all.iter().filter(|s| s.pinned).all(|s| retained.keep.contains(&s.uid)));
        let rest: Vec<Completed> = all.into_iter().filter(|s| retained.keep.contains(&s.uid)).collect();
        prop_assert!(retain(&rest, Some(&policy)).prune.is_empty());
    }
}
