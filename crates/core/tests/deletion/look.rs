//! The second look, and what came back.

use crate::support::t;
use holdfast_core::deletion::DeleteReason;
use holdfast_core::deletion::look::{Again, Beside, Reappeared, judge, next, over, scheduled};
use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;

#[test]
fn one_batch_is_looked_at_after_ten_minutes_and_before_its_day_is_over() {
    let batch = [t(0)];
    assert_eq!(next(&batch, None), Some(t(10 * MINUTE)));
    assert_eq!(
        next(&batch, Some(t(-5))),
        Some(t(10 * MINUTE)),
        "an older listing proves nothing"
    );
    assert_eq!(
        next(&batch, Some(t(9 * MINUTE))),
        Some(t(10 * MINUTE)),
        "too soon"
    );
    assert_eq!(next(&batch, Some(t(10 * MINUTE))), Some(t(23 * HOUR)));
    assert_eq!(next(&batch, Some(t(19 * HOUR))), Some(t(23 * HOUR)));
    assert_eq!(
        next(&batch, Some(t(20 * HOUR))),
        None,
        "any whole listing late in the day will do"
    );
    assert_eq!(next(&[], None), None);
}

#[test]
fn the_first_look_counts_from_the_end_of_the_last_writer_beside_the_batch() {
    let (batch, now) = (t(100), t(1_000));
    assert_eq!(over(batch, &[], now), batch);
    assert_eq!(
        over(batch, &[Beside::Ended(t(50))], now),
        batch,
        "it ended before"
    );
    assert_eq!(
        over(batch, &[Beside::Ended(t(400)), Beside::Ended(t(300))], now),
        t(400),
        "the last"
    );
    assert_eq!(
        over(batch, &[Beside::Ended(t(400)), Beside::Runs], now),
        now,
        "one that runs has not ended"
    );
    assert_eq!(over(batch, &[Beside::Ended(t(9_000))], now), now);
    // One that runs puts the look off for as long as it does, and ten minutes more.
    let due = |at: i64, beside: &[Beside]| next(&[over(batch, beside, t(at))], None);
    assert_eq!(due(1_000, &[Beside::Runs]), Some(t(1_000 + 10 * MINUTE)));
    assert_eq!(
        due(2_000, &[Beside::Ended(t(1_700))]),
        Some(t(1_700 + 10 * MINUTE))
    );
}

#[test]
fn many_batches_share_looks_about_one_in_ten_minutes() {
    // A batch every 30 s for an hour; looks are done when they are due, from then on as the rule says.
    let mut confirmed: Vec<Timestamp> = Vec::new();
    let (mut looks, mut due) = (Vec::new(), None::<Timestamp>);
    for second in 0..(2 * HOUR) {
        let now = t(second);
        if second < HOUR && second % 30 == 0 {
            confirmed.push(now);
            due = Some(scheduled(due, now));
        }
        if due.is_some_and(|at| at <= now) {
            looks.push(second);
            due = next(&confirmed, Some(now));
            assert!(due.is_none_or(|at| at > now), "{second}: {due:?}");
        }
    }
    assert!(looks.len() <= 8, "{looks:?}");
    assert!(looks.windows(2).all(|w| w[1] - w[0] >= 9 * MINUTE), "{looks:?}");
    for at in confirmed {
        let first = looks
            .iter()
            .map(|l| t(*l))
            .find(|l| *l >= at + jiff::SignedDuration::from_mins(10));
        assert!(
            first.is_some_and(|l| l <= at + jiff::SignedDuration::from_mins(20)),
            "{at}"
        );
    }
}

#[test]
fn every_batch_of_a_busy_day_is_looked_at_late() {
    let confirmed: Vec<Timestamp> = (0..23).map(|hour| t(hour * HOUR)).collect();
    let looked = Some(t(22 * HOUR + 11 * MINUTE));
    // That look was late for those of the first two hours; the next late one is for the third.
    assert_eq!(next(&confirmed, looked), Some(t(26 * HOUR)));
}

fn found(count: usize) -> Reappeared {
    Reappeared {
        count,
        found_at: t(100),
        held: false,
        next_attempt_at: None,
    }
}

#[test]
fn fewer_than_the_threshold_are_deleted_again_and_at_the_threshold_they_are_held() {
    let now = t(200);
    assert_eq!(
        judge(&found(9), 10, None, now),
        Again::Delete(DeleteReason::BelowThreshold)
    );
    assert_eq!(judge(&found(10), 10, None, now), Again::Held);
    assert_eq!(
        judge(&found(10), 0, None, now),
        Again::Delete(DeleteReason::BreakerDisabled)
    );
    let fewer = Reappeared {
        held: true,
        ..found(3)
    };
    assert_eq!(judge(&fewer, 10, None, now), Again::Held, "a hold latches");
}

#[test]
fn an_acknowledgement_covers_what_was_found_before_it() {
    let now = t(200);
    assert_eq!(judge(&found(50), 10, Some(t(99)), now), Again::Held);
    assert_eq!(
        judge(&found(50), 10, Some(t(100)), now),
        Again::Delete(DeleteReason::Acknowledged)
    );
}

#[test]
fn a_failed_try_backs_off() {
    let failed = Reappeared {
        next_attempt_at: Some(t(260)),
        ..found(1)
    };
    assert_eq!(judge(&failed, 10, None, t(200)), Again::Later(t(260)));
    assert_eq!(
        judge(&failed, 10, None, t(260)),
        Again::Delete(DeleteReason::BelowThreshold)
    );
}

#[test]
fn a_writer_beside_a_batch_puts_its_looks_off_by_half_a_day_at_most() {
    let half = 12 * HOUR;
    assert_eq!(over(t(0), &[Beside::Runs], t(half - 1)), t(half - 1));
    for now in [half, half + 1, 23 * HOUR] {
        assert_eq!(over(t(0), &[Beside::Runs], t(now)), t(half), "{now}");
        assert_eq!(over(t(0), &[Beside::Ended(t(now))], t(now)), t(half), "{now}");
        // Before the memory is gone there is a look after it.
        let first = next(&[over(t(0), &[Beside::Runs], t(now))], None);
        assert!(first.is_some_and(|at| at < t(24 * HOUR)), "{first:?}");
    }
}
