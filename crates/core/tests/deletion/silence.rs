//! The repository to itself.

use crate::support::*;
use holdfast_core::deletion::silence::{Begin, Turn, Writers, begin, go_on, turn};
use holdfast_core::deletion::*;

fn writers(running: usize, queued: usize) -> Writers {
    Writers {
        running,
        queued,
        ..Writers::default()
    }
}

#[test]
fn a_batch_waits_ten_minutes_for_running_writers_and_then_runs_beside_them() {
    let mut w = writers(2, 0);
    assert_eq!(turn(&w, t(0)), Turn::AfterWriters(t(600)), "it begins to wait");
    w.waiting_since = Some(t(0));
    assert_eq!(turn(&w, t(599)), Turn::AfterWriters(t(600)));
    assert_eq!(turn(&w, t(600)), Turn::BesideWriters);
    w.running = 0;
    assert_eq!(turn(&w, t(1)), Turn::Alone);
}

#[test]
fn writers_that_were_held_back_go_first_for_five_minutes() {
    let mut w = writers(0, 1);
    w.batch_ended = Some(t(0));
    assert_eq!(turn(&w, t(0)), Turn::WritersFirst(t(300)));
    assert_eq!(turn(&w, t(299)), Turn::WritersFirst(t(300)));
    assert_eq!(
        turn(&w, t(300)),
        Turn::Alone,
        "one that cannot begin holds nobody up"
    );
    w.queued = 0;
    assert_eq!(turn(&w, t(1)), Turn::Alone);
    w.running = 1;
    w.waiting_since = Some(t(0));
    assert_eq!(
        turn(&w, t(10)),
        Turn::AfterWriters(t(600)),
        "begun: it is waited for as any other"
    );
}

#[test]
fn a_writer_with_a_job_that_has_not_started_is_waited_for_only_right_after_a_batch() {
    let mut w = Writers {
        not_started: 1,
        ..Writers::default()
    };
    assert_eq!(turn(&w, t(0)), Turn::Alone, "it is suspended instead");
    w.batch_ended = Some(t(0));
    assert_eq!(turn(&w, t(299)), Turn::WritersFirst(t(300)), "it was held back");
    assert_eq!(
        turn(&w, t(300)),
        Turn::Alone,
        "one that cannot start holds nobody up"
    );
    w.running = 1;
    w.waiting_since = Some(t(0));
    assert_eq!(turn(&w, t(300)), Turn::AfterWriters(t(600)));
    assert_eq!(turn(&w, t(600)), Turn::BesideWriters);
}

#[test]
fn a_suspended_writer_goes_first_after_the_batch_and_goes_on_when_none_is_left() {
    let mut w = Writers {
        suspended: 1,
        ..Writers::default()
    };
    assert_eq!(
        turn(&w, t(0)),
        Turn::Alone,
        "suspended for a batch that a crash kept from firing"
    );
    w.batch_ended = Some(t(0));
    assert_eq!(turn(&w, t(1)), Turn::WritersFirst(t(300)));
    assert!(go_on(false, false));
    assert!(!go_on(true, false), "a batch is live");
    assert!(!go_on(false, true), "a batch is about to fire");
    assert!(!go_on(true, true));
}

#[test]
fn a_clock_that_was_set_back_makes_no_wait_longer() {
    let mut w = writers(1, 1);
    w.waiting_since = Some(t(9_000));
    w.batch_ended = Some(t(9_000));
    assert_eq!(turn(&w, t(0)), Turn::WritersFirst(t(300)));
    w.queued = 0;
    assert_eq!(turn(&w, t(0)), Turn::AfterWriters(t(600)));
}

#[test]
fn a_writer_begins_unless_a_batch_is_live_and_its_engine_minds() {
    assert_eq!(begin(true, true), Begin::AfterBatch);
    assert_eq!(begin(true, false), Begin::Now);
    assert_eq!(begin(false, true), Begin::Now);
}

#[test]
fn a_plan_waits_for_writers_says_so_and_looks_again() {
    let mut lane = lane(members(2, 100));
    lane.writers = Some(writers(1, 0));
    let plan = decide(&lane);
    assert_eq!(plan.fire, None);
    assert_eq!(of(&plan, "m0000").not_yet, Some(Wait::WritersRunning(t(1600))));
    assert_eq!(
        of(&plan, "m0000").waits_for().map(Wait::reason),
        Some("WritersRunning")
    );
    assert!(plan.waits_for_writers());
    assert_eq!(plan.wake_at, Some(t(1015)), "their end is no event of the lane");
    lane.writers = Some(Writers {
        waiting_since: Some(t(400)),
        ..writers(1, 0)
    });
    assert_eq!(fired(&decide(&lane)).len(), 2, "beside them");
    lane.writers = Some(writers(0, 0));
    assert_eq!(fired(&decide(&lane)).len(), 2);
    lane.writers = None;
    assert!(!decide(&lane).waits_for_writers());
}

#[test]
fn what_is_held_or_backs_off_does_not_wait_for_writers() {
    let mut lane = lane(members(12, 100));
    lane.writers = Some(writers(1, 0));
    assert!(!decide(&lane).waits_for_writers(), "the breaker is asked first");
}

#[test]
fn no_batch_fires_beside_maintenance_however_long_it_runs() {
    let mut lane = lane(members(2, 0));
    lane.maintenance = true;
    let plan = wave(&lane, &Settings::default(), t(1_000_000));
    assert!(plan.fire.is_none() && plan.waits_for_writers());
    assert_eq!(of(&plan, "m0000").not_yet, Some(Wait::MaintenanceRunning));
    assert!(plan.wake_at.is_some(), "looked at again without an event");
    lane.maintenance = false;
    assert!(wave(&lane, &Settings::default(), t(1_000_000)).fire.is_some());
}
