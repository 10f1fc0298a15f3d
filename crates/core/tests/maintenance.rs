//! When maintenance runs, what it waits for, and who may.
#![allow(clippy::unwrap_used)]

use holdfast_core::maintenance::lease::{Found, Lease, Takeover, lease};
use holdfast_core::maintenance::{
    Choice, Effort, Facts, Lane, Means, Plan, Reason, Repository, Request, Track, decide,
};
use holdfast_core::schedule::Timetable;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

fn t(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn track(cron: &str) -> Track {
    Track {
        timetable: Timetable::new(cron, None, SignedDuration::ZERO, "uid").unwrap(),
        pinned: None,
        last: None,
        changed: false,
        next_attempt_at: None,
    }
}

/// Quick each hour, full each day at three; both pinned to their next slot after midnight.
fn facts() -> Facts {
    let mut facts = Facts {
        created_at: t("2026-11-29T12:30:00Z"),
        quick: track("0 * * * *"),
        full: track("0 3 * * *"),
        request: None,
        repository: Repository::Usable,
        another: false,
        lane: Lane::default(),
        quick_frees: false,
    };
    facts.quick.pinned = Some(t("2026-11-30T01:00:00Z"));
    facts.full.pinned = Some(t("2026-11-30T03:00:00Z"));
    facts
}

fn at(facts: &Facts, now: &str) -> Plan {
    decide(facts, t(now)).unwrap()
}

fn run(effort: Effort, slot: &str) -> Option<Choice> {
    Some(Choice {
        effort,
        slot: t(slot),
        asked: false,
    })
}

/// Something that happens to a lane.
type Change = fn(&mut Lane);

#[test]
fn a_new_one_runs_at_its_first_slots_and_not_before() {
    let mut new = facts();
    (new.quick.pinned, new.full.pinned) = (None, None);
    let plan = at(&new, "2026-11-30T00:10:00Z");
    assert_eq!((plan.run, plan.wait), (None, None));
    assert_eq!(plan.quick, t("2026-11-30T01:00:00Z"));
    assert_eq!(plan.full, t("2026-11-30T03:00:00Z"));
    assert_eq!(plan.wake_at, Some(plan.quick));
}

#[test]
fn what_was_missed_runs_once() {
    let facts = facts();
    let mut late = facts.clone();
    late.full.pinned = Some(t("2026-12-30T03:00:00Z"));
    let plan = at(&late, "2026-12-20T00:30:00Z");
    assert_eq!(plan.run, run(Effort::Quick, "2026-11-30T01:00:00Z"));
    assert_eq!(
        plan.quick,
        t("2026-11-30T01:00:00Z"),
        "pinned until it is handled"
    );
    late.quick.last = Some(t("2026-11-30T01:00:00Z"));
    let plan = at(&late, "2026-12-20T00:31:00Z");
    assert_eq!(
        (plan.run, plan.quick),
        (None, t("2026-12-20T01:00:00Z")),
        "no second one"
    );
}

#[test]
fn a_person_is_first_and_a_full_run_before_a_quick_one() {
    let mut facts = facts();
    let now = "2026-11-30T03:00:01Z";
    assert_eq!(at(&facts, now).run, run(Effort::Full, "2026-11-30T03:00:00Z"));
    facts.request = Some(Request {
        effort: Effort::Quick,
        at: t("2026-11-30T02:59:00Z"),
    });
    let asked = at(&facts, now).run.unwrap();
    assert!(asked.asked);
    assert_eq!(
        (asked.effort, asked.slot),
        (Effort::Quick, t("2026-11-30T02:59:00Z"))
    );
}

#[test]
fn a_failed_run_is_tried_again_after_a_pause_and_the_other_goes_on() {
    let mut facts = facts();
    facts.full.next_attempt_at = Some(t("2026-11-30T03:30:00Z"));
    let plan = at(&facts, "2026-11-30T03:10:00Z");
    assert_eq!(plan.run, run(Effort::Quick, "2026-11-30T01:00:00Z"));
    facts.quick.last = facts.quick.pinned;
    let plan = at(&facts, "2026-11-30T03:10:00Z");
    assert_eq!((plan.run, plan.wait), (None, Some(Reason::MaintenanceFailed)));
    assert_eq!(plan.wake_at, Some(t("2026-11-30T03:30:00Z")));
    let plan = at(&facts, "2026-11-30T03:30:00Z");
    assert_eq!(plan.run, run(Effort::Full, "2026-11-30T03:00:00Z"));
    // Written by a clock that was wrong: not waited for.
    facts.full.next_attempt_at = Some(t("2027-11-30T03:30:00Z"));
    assert!(at(&facts, "2026-11-30T03:10:00Z").run.is_some());
}

#[test]
fn what_frees_bytes_waits_while_deletions_are_in_doubt_and_the_rest_does_not() {
    let doubts: [(Change, Reason); 4] = [
        (|l| l.paused = true, Reason::DeletionsPaused),
        (|l| l.held = true, Reason::MassDeletionHeld),
        (|l| l.reappeared = true, Reason::DeletedSnapshotsReappeared),
        (
            |l| l.look_at = Some(t("2026-11-30T03:15:00Z")),
            Reason::SecondLookDue,
        ),
    ];
    let now = "2026-11-30T03:00:01Z";
    for (doubt, why) in doubts {
        let mut facts = facts();
        doubt(&mut facts.lane);
        let plan = at(&facts, now);
        assert_eq!(plan.wait, Some(why));
        assert_eq!(plan.run, run(Effort::Quick, "2026-11-30T01:00:00Z"), "{why:?}");
        facts.quick_frees = true;
        let plan = at(&facts, now);
        assert_eq!((plan.run, plan.wait), (None, Some(why)));
        facts.request = Some(Request {
            effort: Effort::Full,
            at: t(now),
        });
        assert_eq!(at(&facts, now).run, None, "not even when a person asks");
    }
}

#[test]
fn the_look_before_the_day_is_over_delays_nothing_yet() {
    let mut facts = facts();
    facts.lane.look_at = Some(t("2026-11-30T20:00:00Z"));
    let plan = at(&facts, "2026-11-30T03:00:01Z");
    assert_eq!(
        (plan.run.map(|r| r.effort), plan.wait),
        (Some(Effort::Full), None)
    );
}

#[test]
fn never_beside_a_delete_job_nor_beside_another_run() {
    let others: [(Change, Reason); 2] = [
        (|l| l.deleting = true, Reason::DeletionsRunning),
        (|l| l.other_running = true, Reason::OtherMaintenanceRunning),
    ];
    for (other, why) in others {
        let mut facts = facts();
        other(&mut facts.lane);
        let plan = at(&facts, "2026-11-30T03:00:01Z");
        assert_eq!((plan.run, plan.wait), (None, Some(why)));
    }
}

#[test]
fn without_a_repository_that_is_ours_nothing_runs_and_that_is_said_at_once() {
    let mut facts = facts();
    facts.repository = Repository::Not(Reason::BackendUnreachable);
    facts.another = true;
    let plan = at(&facts, "2026-11-30T00:10:00Z");
    assert_eq!((plan.run, plan.wait), (None, Some(Reason::BackendUnreachable)));
    facts.repository = Repository::Usable;
    let plan = at(&facts, "2026-11-30T03:10:00Z");
    assert_eq!((plan.run, plan.wait), (None, Some(Reason::AnotherMaintenance)));
}

#[test]
fn an_edited_schedule_begins_with_its_next_slot() {
    let mut facts = facts();
    facts.quick.changed = true;
    let plan = at(&facts, "2026-11-30T02:10:00Z");
    assert_eq!((plan.run, plan.quick), (None, t("2026-11-30T03:00:00Z")));
}

#[test]
fn only_force_writes_over_a_name() {
    use Takeover::{Force, Never, Prompt};
    for takeover in [Never, Prompt, Force] {
        assert_eq!(lease(Found::NotKept, "we", takeover), Lease::Ours);
        assert_eq!(lease(Found::Nobody, "we", takeover), Lease::Claim);
        assert_eq!(lease(Found::Somebody("we"), "we", takeover), Lease::Ours);
        let wanted = match takeover {
            Force => Lease::Claim,
            Never | Prompt => Lease::Yield,
        };
        assert_eq!(lease(Found::Somebody("they"), "we", takeover), wanted);
    }
}

#[test]
fn every_reason_has_a_word_of_its_own_and_a_sentence() {
    let words: BTreeSet<&str> = Reason::ALL.iter().map(|r| r.as_str()).collect();
    assert_eq!(words.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        assert!(reason.meaning().ends_with('.'), "{reason:?}");
        assert_eq!(format!("{reason:?}"), reason.as_str());
    }
    assert_eq!(Reason::LeftToOwner.means(), Means::Ready);
    assert_eq!(Reason::TakeoverNeeded.means(), Means::Stalled);
}
