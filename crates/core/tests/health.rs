//! Whether a repository can be reached.
#![allow(clippy::unwrap_used)]

use holdfast_core::health::{
    Due, FIRST_DEADLINE, LONGEST_DEADLINE, Probe, due, is_usable, longer, next_attempt,
};
use jiff::{SignedDuration, Timestamp};

fn t(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn every(seconds: i64) -> Probe {
    Probe {
        interval: SignedDuration::from_secs(seconds),
        ..Probe::default()
    }
}

#[test]
fn it_is_asked_once_in_an_interval_and_sooner_when_somebody_asks() {
    let probe = every(600);
    assert_eq!(due(probe, None, false, t(1_000)), Due::Now, "never asked before");
    assert_eq!(due(probe, Some(t(1_000)), false, t(1_000)), Due::At(t(1_600)));
    assert_eq!(due(probe, Some(t(1_000)), false, t(1_600)), Due::Now);
    assert_eq!(
        due(probe, Some(t(1_000)), true, t(1_010)),
        Due::At(t(1_030)),
        "no storm"
    );
    assert_eq!(due(probe, Some(t(1_000)), true, t(1_030)), Due::Now);
    assert_eq!(
        due(probe, Some(t(9_000)), false, t(1_000)),
        Due::Now,
        "a clock set back"
    );
    let off = Probe {
        enabled: false,
        ..probe
    };
    assert_eq!(due(off, None, false, t(1_000)), Due::Never);
    assert_eq!(due(off, None, true, t(1_000)), Due::Now);
}

#[test]
fn as_many_failures_as_the_threshold_make_it_degraded_and_an_alert_never_does() {
    let probe = every(600);
    assert!(is_usable(probe, 2) && !is_usable(probe, 3));
    let alert = Probe {
        degrades: false,
        ..probe
    };
    assert!(is_usable(alert, 100));
}

#[test]
fn recovery_is_seen_within_one_interval_however_often_it_failed() {
    for failures in 1..50 {
        for seconds in [30, 60, 600, 1_800] {
            let next = next_attempt(every(seconds), failures, t(0));
            assert!(
                next > t(0) && next <= t(seconds.min(600)),
                "{failures} {seconds} {next}"
            );
        }
    }
    assert_eq!(next_attempt(every(1_800), 1, t(0)), t(15), "soon after the first");
}

#[test]
fn what_takes_minutes_is_given_them() {
    let mut deadline = FIRST_DEADLINE;
    let mut tries = 0;
    while deadline < 25 * 60 {
        deadline = longer(deadline);
        tries += 1;
    }
    assert!(
        tries <= 4,
        "a connection of 25 minutes succeeds at the latest in the fifth try"
    );
    assert_eq!(longer(LONGEST_DEADLINE), LONGEST_DEADLINE);
    assert_eq!(longer(0), FIRST_DEADLINE);
}
