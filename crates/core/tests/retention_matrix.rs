//! Which snapshots of some histories are kept by which counts, as tables for a person to read.
//!
//! **Promises.** A change of what retention keeps shows as a difference in a file under `snapshots/`: read it, then
//! accept it with `INSTA_UPDATE=always`.

#![allow(clippy::unwrap_used)]

use holdfast_core::retention::{Completed, Keep, Why, retain};
use jiff::{SignedDuration, Timestamp};
use std::fmt::Write as _;

/// The columns: a name and its counts.
fn policies() -> Vec<(&'static str, Keep)> {
    let none = Keep::default();
    vec![
        (
            "latest 3",
            Keep {
                latest: Some(3),
                ..none
            },
        ),
        (
            "hourly 24",
            Keep {
                hourly: Some(24),
                ..none
            },
        ),
        (
            "daily 14",
            Keep {
                daily: Some(14),
                ..none
            },
        ),
        (
            "weekly 4",
            Keep {
                weekly: Some(4),
                ..none
            },
        ),
        (
            "monthly 6",
            Keep {
                monthly: Some(6),
                ..none
            },
        ),
        (
            "annual 3",
            Keep {
                annual: Some(3),
                ..none
            },
        ),
        (
            "7d 4w 12m",
            Keep {
                daily: Some(7),
                weekly: Some(4),
                monthly: Some(12),
                ..none
            },
        ),
        (
            "all",
            Keep {
                latest: Some(2),
                hourly: Some(6),
                daily: Some(5),
                weekly: Some(3),
                monthly: Some(3),
                annual: Some(2),
            },
        ),
        (
            "zeros",
            Keep {
                latest: Some(0),
                daily: Some(0),
                ..none
            },
        ),
    ]
}

fn letter(why: Why) -> char {
    match why {
        Why::NoRetention => '*',
        Why::Latest => 'L',
        Why::Hourly => 'h',
        Why::Daily => 'd',
        Why::Weekly => 'w',
        Why::Monthly => 'm',
        Why::Annual => 'a',
        Why::Pinned => 'P',
        Why::SameSnapshot => '=',
    }
}

fn snapshot(name: &str, ended_at: Timestamp) -> Completed {
    Completed {
        uid: name.to_owned(),
        id: format!("id-{name}"),
        group: "source".into(),
        ended_at,
        pinned: false,
        vanished: false,
    }
}

/// `count` snapshots from `first` on, one each `hours`.
fn every(hours: i64, first: &str, count: i64) -> Vec<Completed> {
    let first: Timestamp = first.parse().unwrap();
    (0..count)
        .map(|n| {
            let at = first + SignedDuration::from_hours(hours * n);
            snapshot(&at.strftime("%Y-%m-%d %H:%M").to_string(), at)
        })
        .collect()
}

/// Rows are snapshots that some count keeps, newest first; cells say which count does, `.` that it is pruned.
fn matrix(history: &[Completed]) -> String {
    let columns: Vec<_> = policies()
        .into_iter()
        .map(|(name, keep)| (name, retain(history, Some(&keep))))
        .collect();
    let mut text = format!("{} snapshots\n\n{:<19}", history.len(), "");
    for (name, _) in &columns {
        write!(text, "{name:<11}").unwrap();
    }
    text.push('\n');
    let counts = columns.iter().filter(|(name, _)| *name != "zeros");
    let kept_by_some = |uid: &String| counts.clone().any(|(_, retained)| retained.keep.contains(uid));
    let everything = &retain(history, None).keep;
    for uid in everything.iter().filter(|uid| kept_by_some(uid)) {
        write!(text, "{uid:<19}").unwrap();
        for (_, retained) in &columns {
            let cell: String = match retained.why.get(uid) {
                Some(why) => why.iter().copied().map(letter).collect(),
                None => ".".into(),
            };
            write!(text, "{cell:<11}").unwrap();
        }
        text.push('\n');
    }
    write!(text, "{:<19}", "kept").unwrap();
    for (_, retained) in &columns {
        assert_eq!(retained.keep.len(), retained.why.len());
        write!(text, "{:<11}", retained.keep.len()).unwrap();
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[test]
fn a_year_and_a_month_of_dailies() {
    insta::assert_snapshot!(matrix(&every(24, "2025-01-01T02:00:00Z", 396)));
}

#[test]
fn hourlies_over_the_turn_of_a_year() {
    insta::assert_snapshot!(matrix(&every(1, "2025-12-30T22:30:00Z", 54)));
}

#[test]
fn a_machine_that_was_off_for_twenty_days() {
    let mut history = every(24, "2026-02-01T02:00:00Z", 20);
    history.extend(every(24, "2026-03-13T02:00:00Z", 2));
    insta::assert_snapshot!(matrix(&history));
}

#[test]
fn pinned_vanished_and_recorded_twice() {
    let mut history = every(24, "2026-02-01T02:00:00Z", 20);
    history[2].pinned = true;
    history[17].vanished = true;
    history[4].id = history[19].id.clone();
    insta::assert_snapshot!(matrix(&history));
}
