//! Schedules over random clocks: jumps, restarts, zones whose clocks change.

#![allow(clippy::unwrap_used)]

use holdfast_core::schedule::{
    Concurrency, Runs, ScheduleFacts, ScheduleWait, Timetable, Turn, decide, snapshot_name,
};
use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Zones whose clocks change in every way there is: at midnight, by half an hour, in the south, not at all.
const ZONES: [&str; 10] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Havana",
    "America/St_Johns",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "Asia/Kolkata",
];

fn zone() -> impl Strategy<Value = &'static str> {
    prop::sample::select(ZONES.to_vec())
}

fn cron() -> impl Strategy<Value = String> {
    let field = |max: u32| {
        prop_oneof![
            3 => Just("*".to_owned()),
            3 => (0..=max).prop_map(|n| n.to_string()),
            1 => Just("H".to_owned()),
            1 => (2..=max).prop_map(|n| format!("*/{n}")),
            1 => (0..=max, 0..=max).prop_map(|(a, b)| format!("{},{}", a.min(b), a.max(b))),
            1 => (0..=max, 0..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        ]
    };
    let day = prop_oneof![
        6 => Just("*".to_owned()),
        1 => (1..=28_u32).prop_map(|n| n.to_string()),
    ];
    let weekday = prop_oneof![6 => Just("*".to_owned()), 1 => (0..=6_u32).prop_map(|n| n.to_string())];
    (field(59), field(23), day, weekday).prop_map(|(m, h, d, w)| format!("{m} {h} {d} * {w}"))
}

/// What happens between two looks at the schedule.
#[derive(Debug, Clone)]
enum Step {
    /// The clock goes on (or back) by so many seconds.
    Clock(i64),
    /// The Snapshots are created, and the process ends before it records that.
    Crash,
    /// Runs that wait begin.
    Begin,
    /// Runs that have begun end; their objects are pruned.
    End,
    /// Somebody suspends the schedule, or lets it go on.
    Suspend(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_i64..7_200).prop_map(Step::Clock),
        2 => (86_400_i64..30 * 86_400).prop_map(Step::Clock),
        1 => (-90_000_i64..-1).prop_map(Step::Clock),
        2 => Just(Step::Crash),
        3 => Just(Step::Begin),
        3 => Just(Step::End),
        1 => any::<bool>().prop_map(Step::Suspend),
    ]
}

/// A schedule with its status and its Snapshots, as the API server has them.
struct Cluster {
    facts: ScheduleFacts,
    timetable: Timetable,
    now: Timestamp,
    /// Snapshots that are there, by name; whether the run has begun.
    there: BTreeMap<String, bool>,
    /// How often a Snapshot of this name was created.
    made: BTreeMap<String, u32>,
    /// The slots that ran, in this order.
    slots: Vec<Timestamp>,
    crash: bool,
}

impl Cluster {
    fn runs(&self, own: &str) -> Runs {
        let others = || self.there.iter().filter(|(name, _)| *name != own);
        let count = |begun: bool| u32::try_from(others().filter(|(_, b)| **b == begun).count()).unwrap();
        Runs {
            begun: count(true),
            parked: count(false),
            unreadable: 0,
        }
    }

    /// One pass: decided, applied, recorded; or not recorded. Whether a new Snapshot was made.
    fn pass(&mut self) -> Result<bool, TestCaseError> {
        let due = self.facts.pinned.unwrap_or(self.facts.created_at);
        self.facts.policies = vec![self.runs(&snapshot_name("s", due))];
        let plan = decide(&self.facts, &self.timetable, self.now).unwrap();
        prop_assert!(plan.wake_at.is_some() || plan.wait.is_some(), "asleep for ever");
        let mut new = false;
        if let Some(slot) = plan.run {
            prop_assert!(slot <= self.now, "before its time");
            prop_assert!(!self.facts.suspend);
            if let Some(deadline) = self.facts.starting_deadline {
                prop_assert!(self.now.duration_since(slot) <= deadline, "too late");
            }
            let runs = self.facts.policies[0];
            match plan.turns[0] {
                Turn::Run => {}
                Turn::Replace => self.there.retain(|_, begun| !*begun),
                Turn::Wait(wait) => prop_assert!(false, "runs and waits: {wait:?}"),
            }
            let others = runs.begun + runs.parked;
            match self.facts.concurrency {
                Concurrency::Forbid => prop_assert_eq!(others, 0),
                Concurrency::Allow | Concurrency::Replace => prop_assert_eq!(runs.parked, 0),
                Concurrency::Unknown => prop_assert!(false),
            }
            let name = snapshot_name("s", slot);
            if !self.there.contains_key(&name) {
                self.there.insert(name.clone(), false);
                *self.made.entry(name).or_default() += 1;
                new = true;
                if let Some(last) = self.slots.last() {
                    prop_assert!(*last < slot, "slots go forward only");
                }
                self.slots.push(slot);
            }
            if self.crash {
                self.crash = false;
                return Ok(new);
            }
            self.facts.last = Some(slot);
        }
        if plan.wait.is_none() {
            prop_assert!(plan.pin > self.now || plan.run.is_some(), "a due slot is left");
        }
        self.facts.pinned = Some(plan.pin);
        Ok(new)
    }

    /// Passes until nothing changes, at one moment: what became due since then runs once, however much that was.
    fn settle(&mut self) -> Result<u32, TestCaseError> {
        let mut new = 0;
        for _ in 0..6 {
            new += u32::from(self.pass()?);
        }
        Ok(new)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_slot_runs_at_most_once_and_a_stretch_of_missed_ones_once(
        cron in cron(),
        zone in zone(),
        jitter in prop_oneof![Just(0_i64), 1_i64..7_200],
        concurrency in prop::sample::select(vec![Concurrency::Forbid, Concurrency::Allow, Concurrency::Replace]),
        deadline in prop::option::of(0_i64..10_000),
        run_on_create in any::<bool>(),
        start in 1_760_000_000_i64..1_830_000_000,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let now = Timestamp::from_second(start).unwrap();
        let timetable = Timetable::new(&cron, Some(zone), SignedDuration::from_secs(jitter), "uid").unwrap();
        // A pattern may be one that never comes due.
        prop_assume!(timetable.next_after(now).is_ok());
        let mut cluster = Cluster {
            facts: ScheduleFacts {
                created_at: now,
                suspend: false,
                run_on_create,
                starting_deadline: deadline.map(SignedDuration::from_secs),
                concurrency,
                policies: Vec::new(),
                pinned: None,
                last: None,
                timetable_changed: false,
            },
            timetable,
            now,
            there: BTreeMap::new(),
            made: BTreeMap::new(),
            slots: Vec::new(),
            crash: false,
        };
        prop_assert_eq!(cluster.settle()?, u32::from(run_on_create));
        for step in steps {
            match step {
                Step::Clock(seconds) => {
                    cluster.now += SignedDuration::from_secs(seconds);
                    let new = cluster.settle()?;
                    prop_assert!(new <= 1, "{new} runs for one stretch");
                    if seconds < 0 {
                        prop_assert_eq!(new, 0, "a clock that goes back makes nothing due");
                    }
                }
                Step::Crash => cluster.crash = true,
                Step::Begin => cluster.there.values_mut().for_each(|begun| *begun = true),
                Step::End => {
                    cluster.there.retain(|_, begun| !*begun);
                    // What waited for the end runs now, late and once.
                    prop_assert!(cluster.settle()? <= 1);
                }
                Step::Suspend(suspend) => cluster.facts.suspend = suspend,
            }
        }
        // Nothing is parked twice, and nothing was made twice.
        prop_assert!(cluster.there.values().filter(|begun| !**begun).count() <= 1);
        let twice: Vec<_> = cluster.made.iter().filter(|(_, count)| **count > 1).collect();
        prop_assert!(twice.is_empty(), "{twice:?}");
    }

    /// Against the calendar itself: a fixed time comes once on each day of its zone, whatever the clocks do.
    #[test]
    fn a_fixed_time_comes_once_a_day_through_gaps_and_folds(
        zone in zone(), hour in 0_i8..24, minute in 0_i8..60, day in 0_i32..700,
    ) {
        let tz = TimeZoneDatabase::bundled().get(zone).unwrap();
        let timetable = Timetable::new(&format!("{minute} {hour} * * *"), Some(zone), SignedDuration::ZERO, "uid").unwrap();
        let first = Date::constant(2025, 3, 1).checked_add(day.days()).unwrap();
        let mut after = moment(&tz, first, Time::constant(hour, minute, 0, 0)) - SignedDuration::from_secs(1);
        for n in 0..40 {
            let slot = timetable.next_after(after).unwrap();
            let date = first.checked_add(n.days()).unwrap();
            prop_assert_eq!(slot, moment(&tz, date, Time::constant(hour, minute, 0, 0)), "{} {}", zone, date);
            after = slot;
        }
    }

    /// An interval goes on through them: no quarter of an hour is missing, and none comes twice.
    #[test]
    fn every_quarter_of_an_hour_comes_once(zone in zone(), start in 1_740_000_000_i64..1_800_000_000) {
        let timetable = Timetable::new("*/15 * * * *", Some(zone), SignedDuration::ZERO, "uid").unwrap();
        let mut after = timetable.next_after(Timestamp::from_second(start).unwrap()).unwrap();
        for _ in 0..400 {
            let slot = timetable.next_after(after).unwrap();
            prop_assert_eq!(slot.duration_since(after), SignedDuration::from_mins(15), "{} after {}", zone, after);
            after = slot;
        }
    }
}

/// When a wall clock first shows this time on this day; where it is skipped, the moment after the gap.
fn moment(tz: &TimeZone, date: Date, time: Time) -> Timestamp {
    let wall = date.to_datetime(time);
    let ambiguous = tz.to_ambiguous_zoned(wall);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
            ambiguous.earlier().unwrap().timestamp()
        }
        AmbiguousOffset::Gap { .. } => {
            let before = ambiguous.earlier().unwrap().timestamp();
            tz.following(before - SignedDuration::from_hours(1))
                .next()
                .unwrap()
                .timestamp()
        }
    }
}

#[test]
fn a_machine_that_was_off_for_twenty_days_runs_once_and_then_daily_again() {
    let timetable = Timetable::new("0 3 * * *", None, SignedDuration::ZERO, "uid").unwrap();
    let on: Timestamp = "2026-01-21T12:00:00Z".parse().unwrap();
    let mut facts = ScheduleFacts {
        created_at: "2025-12-01T00:00:00Z".parse().unwrap(),
        suspend: false,
        run_on_create: false,
        starting_deadline: None,
        concurrency: Concurrency::Forbid,
        policies: vec![Runs::default()],
        pinned: Some("2026-01-01T03:00:00Z".parse().unwrap()),
        last: Some("2025-12-31T03:00:00Z".parse().unwrap()),
        timetable_changed: false,
    };
    let plan = decide(&facts, &timetable, on).unwrap();
    assert_eq!((plan.run, plan.missed), (facts.pinned, None));
    facts.last = plan.run;
    facts.pinned = Some(plan.pin);
    let plan = decide(&facts, &timetable, on).unwrap();
    assert_eq!(
        (plan.run, plan.pin),
        (None, "2026-01-22T03:00:00Z".parse().unwrap())
    );
}

#[test]
fn while_a_backend_is_away_one_run_waits_whatever_the_concurrency_policy() {
    for (concurrency, waits) in [
        (Concurrency::Forbid, ScheduleWait::RunActive),
        (Concurrency::Allow, ScheduleWait::RunParked),
        (Concurrency::Replace, ScheduleWait::ReplacementHeld),
    ] {
        let timetable = Timetable::new("*/5 * * * *", None, SignedDuration::ZERO, "uid").unwrap();
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut facts = ScheduleFacts {
            created_at: start,
            suspend: false,
            run_on_create: false,
            starting_deadline: None,
            concurrency,
            policies: vec![Runs::default()],
            pinned: Some(start),
            last: None,
            timetable_changed: false,
        };
        let mut runs = 0;
        for minute in 0..24 * 60 {
            let now = start + SignedDuration::from_mins(minute);
            let plan = decide(&facts, &timetable, now).unwrap();
            if let Some(slot) = plan.run {
                runs += 1;
                facts.last = Some(slot);
                // It waits for its repository from here on.
                facts.policies = vec![Runs {
                    parked: 1,
                    ..Runs::default()
                }];
            } else if plan.wait.is_some() {
                assert_eq!(plan.wait, Some(waits));
            }
            facts.pinned = Some(plan.pin);
        }
        assert_eq!(runs, 1, "{concurrency:?}");
    }
}
