//! What the end of a run leaves in the status.

use super::record::{Ended, Was, apply};
use holdfast_api::maintenance::{MaintenanceStatus, RunStatus};
use holdfast_core::maintenance::{Effort, Reason};
use jiff::Timestamp;

fn t(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn scheduled() -> MaintenanceStatus {
    let run = |at| RunStatus {
        next_scheduled_at: Some(t(at)),
        ..RunStatus::default()
    };
    MaintenanceStatus {
        quick: Some(run(900)),
        full: Some(run(950)),
        ..MaintenanceStatus::default()
    }
}

fn was(effort: Effort) -> Was {
    Was {
        effort,
        request: None,
    }
}

fn made(owner: Option<&str>) -> Ended {
    Ended::Made {
        freed: 10,
        marked: 20,
        stored: Some(30),
        owner: owner.map(str::to_owned),
    }
}

#[test]
fn a_full_run_is_a_quick_one_too_and_not_the_other_way_round() {
    let mut status = scheduled();
    apply(&mut status, &was(Effort::Full), &made(None), t(1_000));
    let (quick, full) = (status.quick.unwrap(), status.full.unwrap());
    assert_eq!(
        (quick.last_handled_at, full.last_handled_at),
        (Some(t(900)), Some(t(950)))
    );
    assert_eq!((quick.last_run_at, full.last_run_at), (None, Some(t(1_000))));
    assert_eq!(full.last_content_reclaimed_bytes, Some(10));
    assert_eq!(full.last_content_marked_bytes, Some(20));
    assert_eq!((status.stored_bytes, status.ownership), (Some(30), None));

    let mut status = scheduled();
    apply(&mut status, &was(Effort::Quick), &made(None), t(1_000));
    assert_eq!(status.full.unwrap().last_handled_at, None);
}

#[test]
fn a_slot_that_is_not_due_stays_due() {
    let mut status = scheduled();
    apply(&mut status, &was(Effort::Full), &made(None), t(920));
    assert_eq!(status.full.unwrap().last_handled_at, None);
    assert_eq!(status.quick.unwrap().last_handled_at, Some(t(900)));
}

#[test]
fn failures_count_and_pause_and_a_success_forgets_them() {
    let mut status = scheduled();
    let failed = Ended::Failed(Reason::MaintenanceFailed, "why".into());
    for (n, at) in [(1, 1_600), (2, 2_200)] {
        apply(&mut status, &was(Effort::Full), &failed, t(1_000));
        let full = status.full.clone().unwrap();
        assert_eq!(
            (full.consecutive_failures, full.next_attempt_at),
            (n, Some(t(at)))
        );
        assert_eq!(
            (full.last_error.as_deref(), full.last_handled_at),
            (Some("why"), None)
        );
    }
    apply(&mut status, &was(Effort::Full), &made(None), t(3_000));
    let full = status.full.unwrap();
    assert_eq!(
        (full.consecutive_failures, full.next_attempt_at, full.last_error),
        (0, None, None)
    );
}

#[test]
fn what_a_person_asked_for_is_answered_once_and_not_tried_again() {
    let mut status = scheduled();
    let asked = Was {
        effort: Effort::Full,
        request: Some("2026-01-31T12:00:00Z".into()),
    };
    let failed = Ended::Failed(Reason::MaintenanceFailed, "why".into());
    apply(&mut status, &asked, &failed, t(1_000));
    let run = status.manual_run.clone().unwrap();
    assert_eq!((run.succeeded, run.message.as_str()), (false, "why"));
    assert_eq!(status.full.as_ref().unwrap().next_attempt_at, None);
    apply(&mut status, &asked, &made(None), t(1_000));
    assert!(status.manual_run.unwrap().succeeded);
}

#[test]
fn the_owner_is_who_the_repository_says_and_ours_since_we_claimed_it() {
    let mut status = scheduled();
    apply(
        &mut status,
        &was(Effort::Quick),
        &Ended::NotOwner("they".into()),
        t(1_000),
    );
    let theirs = status.ownership.clone().unwrap();
    assert_eq!((theirs.owner.as_str(), theirs.claimed_at), ("they", None));
    assert_eq!(
        status.quick.as_ref().unwrap().last_run_at,
        None,
        "nothing was done"
    );
    assert_eq!(status.quick.as_ref().unwrap().last_handled_at, Some(t(900)));
    for now in [2_000, 3_000] {
        apply(&mut status, &was(Effort::Quick), &made(Some("we")), t(now));
        let ours = status.ownership.clone().unwrap();
        assert_eq!((ours.owner.as_str(), ours.claimed_at), ("we", Some(t(2_000))));
    }
}
