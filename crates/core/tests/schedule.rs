//! What schedules promise: dialect, spread, time zones, missed slots, names.

#![allow(clippy::unwrap_used)]

use holdfast_core::schedule::cron::substitute;
use holdfast_core::schedule::{
    Concurrency, ScheduleError, ScheduleFacts, SchedulePlan, ScheduleWait, Timetable, decide, snapshot_name,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

const UID: &str = "5f2b6c1e-0d4a-4c58-9a6f-0a1b2c3d4e5f";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn timetable(cron: &str, zone: Option<&str>, jitter: i64) -> Timetable {
    Timetable::new(cron, zone, SignedDuration::from_secs(jitter), UID).unwrap()
}

/// The next `count` slots.
fn slots(timetable: &Timetable, after: &str, count: usize) -> Vec<String> {
    let mut after = at(after);
    (0..count)
        .map(|_| {
            after = timetable.next_after(after).unwrap();
            after.to_string()
        })
        .collect()
}

fn facts() -> ScheduleFacts {
    ScheduleFacts {
        created_at: at("2026-01-01T00:00:00Z"),
        suspend: false,
        run_on_create: false,
        starting_deadline: None,
        concurrency: Concurrency::Forbid,
        policy_ready: true,
        active: 0,
        unreadable: 0,
        parked: 0,
        pinned: Some(at("2026-01-02T03:00:00Z")),
        last: None,
        timetable_changed: false,
    }
}

fn daily(facts: &ScheduleFacts, now: &str) -> SchedulePlan {
    decide(facts, &timetable("0 3 * * *", None, 0), at(now)).unwrap()
}

#[test]
fn five_fields_with_names_and_steps() {
    assert_eq!(
        slots(
            &timetable("*/20 22-23 * * MON", None, 0),
            "2026-01-01T00:00:00Z",
            2
        ),
        ["2026-01-05T22:00:00Z", "2026-01-05T22:20:00Z"]
    );
    assert_eq!(
        slots(&timetable("0 0 1 jan *", None, 0), "2026-01-01T00:00:00Z", 1),
        ["2027-01-01T00:00:00Z"]
    );
    assert_eq!(
        slots(&timetable("0 0 * * 7", None, 0), "2026-01-01T00:00:00Z", 1),
        ["2026-01-04T00:00:00Z"]
    );
    assert_eq!(
        slots(&timetable("0 0 29 2 *", None, 0), "2026-01-01T00:00:00Z", 1),
        ["2028-02-29T00:00:00Z"]
    );
}

#[test]
fn what_is_not_five_fields_is_refused_with_a_sentence() {
    for (pattern, part) in [
        ("", "found 0"),
        ("@daily", "found 1"),
        ("* * * *", "found 4"),
        ("0 0 3 * * *", "found 6"),
        ("61 * * * *", "61 * * * *"),
        ("x * * * *", "spec.schedule.cron"),
        ("H(0-60) * * * *", "minute"),
        ("* H(5-2) * * *", "hour"),
        ("* * H(0-3) * *", "day of month"),
        ("* * * H/0 *", "month"),
        ("* * * * HH", "day of week"),
        ("H( * * * *", "minute"),
        ("H-5 * * * *", "minute"),
    ] {
        let error = Timetable::new(pattern, None, SignedDuration::ZERO, UID)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{pattern:?}: {error}");
    }
}

#[test]
fn a_pattern_that_never_comes_due_says_so() {
    let never = timetable("0 0 30 2 *", None, 0);
    assert_eq!(
        never.next_after(at("2026-01-01T00:00:00Z")),
        Err(ScheduleError::Never("0 0 30 2 *".to_owned()))
    );
    assert!(
        timetable("0 0 30 2 *", None, 60)
            .next_after(at("2026-01-01T00:00:00Z"))
            .is_err()
    );
}

#[test]
fn time_zone_and_jitter_are_checked() {
    let refuse = |zone, jitter| Timetable::new("0 3 * * *", zone, jitter, UID).unwrap_err();
    assert_eq!(
        refuse(Some("Mars/Base"), SignedDuration::ZERO),
        ScheduleError::TimeZone("Mars/Base".to_owned())
    );
    assert_eq!(
        refuse(None, SignedDuration::from_hours(25)),
        ScheduleError::Jitter
    );
    assert_eq!(refuse(None, SignedDuration::from_secs(-1)), ScheduleError::Jitter);
}

#[test]
fn h_draws_values_that_never_change_for_an_object() {
    assert_eq!(
        substitute("H H H H H", UID).unwrap(),
        "36 21 26 1 0",
        "contract across releases"
    );
    assert_eq!(
        substitute("H/15 H(0-6) * * *", UID).unwrap(),
        substitute("H/15 H(0-6) * * *", UID).unwrap()
    );
    assert_ne!(
        substitute("H H * * *", UID).unwrap(),
        substitute("H H * * *", "another").unwrap()
    );
    assert_eq!(
        substitute("0 3 * MAR THU", UID).unwrap(),
        "0 3 * MAR THU",
        "an H inside a name is none"
    );
    assert!(substitute("H,30 * * * *", UID).unwrap().ends_with(",30 * * * *"));
}

#[test]
fn a_fixed_time_runs_once_on_the_days_a_clock_changes() {
    let berlin = timetable("30 2 * * *", Some("Europe/Berlin"), 0);
    // Forward on 29 March 2026 at 02:00: 02:30 does not exist and runs right after the gap.
    assert_eq!(
        slots(&berlin, "2026-03-28T00:00:00Z", 3),
        [
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:30:00Z"
        ]
    );
    // Back on 25 October 2026 at 03:00: 02:30 comes twice and runs once.
    assert_eq!(
        slots(&berlin, "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    );
}

#[test]
fn an_interval_goes_on_through_the_days_a_clock_changes() {
    let berlin = timetable("*/30 * * * *", Some("Europe/Berlin"), 0);
    assert_eq!(
        slots(&berlin, "2026-10-25T00:15:00Z", 4),
        [
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z"
        ]
    );
    assert_eq!(
        slots(&berlin, "2026-03-29T00:15:00Z", 3),
        [
            "2026-03-29T00:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:30:00Z"
        ]
    );
}

#[test]
fn every_moment_has_one_slot_within_its_jitter_even_if_that_is_longer_than_the_interval() {
    let spread = timetable("0 * * * *", None, 6 * 3600);
    let found = slots(&spread, "2026-01-01T00:00:00Z", 240);
    let first = at(&found[0]);
    let last = at(found.last().unwrap());
    let hours = last.duration_since(first).as_hours();
    assert!((230..=250).contains(&hours), "240 slots in {hours} hours");
    assert!(found.windows(2).all(|pair| at(&pair[0]) < at(&pair[1])));
}

#[test]
fn the_first_sight_pins_and_does_not_run() {
    let plan = daily(
        &ScheduleFacts {
            pinned: None,
            ..facts()
        },
        "2026-01-02T02:00:00Z",
    );
    assert_eq!((plan.run, plan.pin), (None, at("2026-01-02T03:00:00Z")));
    assert_eq!(plan.wake_at, Some(plan.pin));
}

#[test]
fn run_on_create_runs_once_under_the_name_of_the_creation() {
    let new = ScheduleFacts {
        pinned: None,
        run_on_create: true,
        ..facts()
    };
    let plan = daily(&new, "2026-01-01T00:00:02Z");
    assert_eq!(
        (plan.run, plan.pin),
        (Some(new.created_at), at("2026-01-01T03:00:00Z"))
    );
    let again = ScheduleFacts {
        last: plan.run,
        ..new.clone()
    };
    assert_eq!(daily(&again, "2026-01-01T00:00:03Z").run, None);
    let edited = ScheduleFacts {
        timetable_changed: true,
        ..new
    };
    assert_eq!(daily(&edited, "2026-01-01T00:00:03Z").run, None);
}

#[test]
fn a_due_slot_runs_and_several_missed_ones_run_once() {
    let plan = daily(&facts(), "2026-01-02T03:00:00Z");
    assert_eq!(
        (plan.run, plan.pin),
        (Some(at("2026-01-02T03:00:00Z")), at("2026-01-03T03:00:00Z"))
    );
    let plan = daily(&facts(), "2026-01-09T12:00:00Z");
    assert_eq!(
        (plan.run, plan.pin),
        (Some(at("2026-01-02T03:00:00Z")), at("2026-01-10T03:00:00Z"))
    );
    let before = daily(&facts(), "2026-01-02T02:59:59Z");
    assert_eq!((before.run, before.pin), (None, at("2026-01-02T03:00:00Z")));
}

#[test]
fn a_slot_that_ran_before_a_crash_only_moves_the_pin() {
    let ran = ScheduleFacts {
        last: facts().pinned,
        ..facts()
    };
    let plan = daily(&ran, "2026-01-02T03:00:10Z");
    assert_eq!((plan.run, plan.pin), (None, at("2026-01-03T03:00:00Z")));
}

#[test]
fn a_slot_older_than_the_deadline_is_passed_over() {
    let strict = ScheduleFacts {
        starting_deadline: Some(SignedDuration::from_secs(60)),
        ..facts()
    };
    assert!(daily(&strict, "2026-01-02T03:01:00Z").run.is_some());
    let plan = daily(&strict, "2026-01-02T03:01:01Z");
    assert_eq!((plan.run, plan.missed), (None, Some(at("2026-01-02T03:00:00Z"))));
    assert_eq!(plan.pin, at("2026-01-03T03:00:00Z"));
}

#[test]
fn forbid_waits_for_the_active_run_and_allow_does_not() {
    let busy = ScheduleFacts { active: 1, ..facts() };
    let plan = daily(&busy, "2026-01-02T03:00:00Z");
    assert_eq!((plan.run, plan.wait), (None, Some(ScheduleWait::RunActive)));
    assert_eq!(
        (plan.pin, plan.wake_at),
        (at("2026-01-02T03:00:00Z"), None),
        "the slot stays, an event ends it"
    );
    let allow = ScheduleFacts {
        concurrency: Concurrency::Allow,
        unreadable: 1,
        ..busy.clone()
    };
    assert!(daily(&allow, "2026-01-02T03:00:00Z").run.is_some());
    let deadline = ScheduleFacts {
        starting_deadline: Some(SignedDuration::from_secs(60)),
        ..busy
    };
    let plan = daily(&deadline, "2026-01-02T03:00:30Z");
    assert_eq!(
        plan.wake_at,
        Some(at("2026-01-02T03:01:01Z")),
        "then it is passed over"
    );
}

#[test]
fn nothing_runs_while_something_cannot_be_read() {
    for (what, wait) in [
        (
            ScheduleFacts {
                unreadable: 1,
                ..facts()
            },
            ScheduleWait::BlockedOnUnreadableRun,
        ),
        (
            ScheduleFacts {
                concurrency: Concurrency::Unknown,
                ..facts()
            },
            ScheduleWait::ConcurrencyUnreadable,
        ),
        (
            ScheduleFacts {
                policy_ready: false,
                ..facts()
            },
            ScheduleWait::PolicyNotReady,
        ),
    ] {
        let plan = daily(&what, "2026-01-02T03:00:00Z");
        assert_eq!((plan.run, plan.wait), (None, Some(wait)));
        assert!(!wait.reason().is_empty());
    }
}

#[test]
fn a_suspended_schedule_passes_its_slots_over() {
    let suspended = ScheduleFacts {
        suspend: true,
        ..facts()
    };
    let plan = daily(&suspended, "2026-01-02T03:00:00Z");
    assert_eq!((plan.run, plan.missed), (None, facts().pinned));
    assert_eq!(
        (plan.pin, plan.wait),
        (at("2026-01-03T03:00:00Z"), Some(ScheduleWait::Suspended))
    );
}

#[test]
fn an_edited_timetable_pins_anew() {
    let edited = ScheduleFacts {
        timetable_changed: true,
        ..facts()
    };
    let plan = daily(&edited, "2026-01-05T00:00:00Z");
    assert_eq!((plan.run, plan.pin), (None, at("2026-01-05T03:00:00Z")));
}

#[test]
fn a_snapshot_is_named_by_its_slot() {
    let slot = at("2026-01-02T03:04:05Z");
    assert_eq!(snapshot_name("nightly", slot), "nightly-20260102030405");
    let long = "a".repeat(47) + "-.b";
    let name = snapshot_name(&long, slot);
    assert!(name.len() <= 63 && name.ends_with("-20260102030405"), "{name}");
    assert_ne!(name, snapshot_name(&("a".repeat(47) + "-.c"), slot));
    assert_eq!(snapshot_name(&"a".repeat(48), slot).len(), 63);
    assert!(snapshot_name(&"a".repeat(253), slot).len() <= 63);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn h_always_draws_inside_the_field(uid in ".{0,40}", from in 0_u32..60, to in 0_u32..60, step in 1_u32..70) {
        let (from, to) = (from.min(to), from.max(to));
        for pattern in [
            "H H H H H".to_owned(),
            format!("H/{step} H/{step} H/{step} H/{step} H/{step}"),
            format!("H({from}-{to}) * * * *"),
            format!("H({from}-{to})/{step} * * * *"),
        ] {
            let timetable = Timetable::new(&pattern, None, SignedDuration::ZERO, &uid);
            prop_assert!(timetable.is_ok(), "{} {:?}", pattern, timetable.err());
            if pattern.starts_with("H(") {
                let slot = timetable.unwrap().next_after(at("2026-01-01T00:00:00Z")).unwrap();
                let minute = u32::try_from(slot.as_second() / 60 % 60).unwrap();
                prop_assert!((from..=to).contains(&minute));
            }
        }
    }

    #[test]
    fn slots_go_on_for_ever_and_are_the_same_for_every_replica(start in 0_i64..400_000_000, jitter in 0_i64..7200) {
        let one = timetable("H */2 * * *", Some("America/New_York"), jitter);
        let two = timetable("H */2 * * *", Some("America/New_York"), jitter);
        let mut after = Timestamp::from_second(1_700_000_000 + start).unwrap();
        for _ in 0..20 {
            let slot = one.next_after(after).unwrap();
            prop_assert!(slot > after && slot.duration_since(after).as_hours() <= 6);
            prop_assert_eq!(slot, two.next_after(after).unwrap());
            // From anywhere before it, the next slot is never later than this one.
            let between = after + (slot.duration_since(after) / 2);
            prop_assert_eq!(two.next_after(between).unwrap(), slot);
            after = slot;
        }
    }
}

#[test]
fn while_the_repository_is_away_one_run_waits_and_not_one_for_each_slot() {
    for concurrency in [Concurrency::Allow, Concurrency::Forbid] {
        let parked = ScheduleFacts {
            concurrency,
            parked: 1,
            active: 1,
            ..facts()
        };
        let plan = daily(&parked, "2026-01-02T03:00:00Z");
        assert!(plan.run.is_none(), "{concurrency:?}");
        assert_eq!(
            plan.pin,
            at("2026-01-02T03:00:00Z"),
            "and goes on when it is back"
        );
    }
}
