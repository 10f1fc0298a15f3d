//! Delete Jobs that leave no answer.

use crate::support::*;
use holdfast_core::deletion::split::{Follows, Silent, answered, silent};
use holdfast_core::deletion::*;

/// Batches of these members, oldest first, one of which no mover survives: how many Jobs end silently until every
/// other member is deleted and the poisonous one answers for itself.
fn play(count: usize, poison: usize) -> (u32, Vec<usize>) {
    let mut waiting: Vec<usize> = (0..count).collect();
    let mut record = Silent::default();
    let (mut silent_jobs, mut sizes) = (0, Vec::new());
    let (mut alone, mut first) = (false, false);
    while waiting != [poison] || !alone {
        let most = record.most_members.map_or(200, |most| most as usize).min(200);
        // Once it is known it rides alone, after the others here.
        let batch: Vec<usize> = if alone {
            waiting
                .iter()
                .copied()
                .filter(|m| *m != poison)
                .take(most)
                .collect()
        } else {
            waiting.iter().copied().take(most).collect()
        };
        assert!(!batch.is_empty());
        sizes.push(batch.len());
        if batch.contains(&poison) {
            silent_jobs += 1;
            let follows = silent(record, batch.len(), alone);
            record = follows.record();
            first = true;
            alone |= matches!(follows, Follows::Alone(_));
        } else {
            waiting.retain(|m| !batch.contains(m));
            record = answered(record, first);
            first = false;
        }
        assert!(sizes.len() < 100, "never ends: {sizes:?}");
    }
    (silent_jobs, sizes)
}

#[test]
fn one_that_no_mover_survives_is_found_and_all_others_are_deleted() {
    for (count, poison) in [
        (1, 0),
        (2, 0),
        (2, 1),
        (3, 2),
        (200, 0),
        (200, 99),
        (200, 199),
        (450, 260),
    ] {
        let (silent_jobs, sizes) = play(count, poison);
        assert!(
            silent_jobs <= 18,
            "{count} members: {silent_jobs} silent Jobs: {sizes:?}"
        );
    }
}

#[test]
fn two_answers_in_a_row_make_batches_large_again() {
    let small = Silent {
        times: 1,
        most_members: Some(50),
    };
    let kept = answered(small, true);
    assert_eq!(
        kept,
        Silent {
            times: 0,
            most_members: Some(50)
        }
    );
    assert_eq!(answered(kept, false), Silent::default());
}

#[test]
fn a_size_is_tried_twice_before_it_is_halved() {
    let first = silent(Silent::default(), 200, false);
    assert_eq!(
        first,
        Follows::Again(Silent {
            times: 1,
            most_members: None
        })
    );
    let second = silent(first.record(), 200, false);
    assert_eq!(
        second,
        Follows::Halved(Silent {
            times: 0,
            most_members: Some(100)
        })
    );
    let odd = silent(
        Silent {
            times: 1,
            most_members: Some(3),
        },
        3,
        false,
    );
    assert_eq!(odd.record().most_members, Some(2), "two of them cover the whole");
}

#[test]
fn one_alone_answers_for_itself_after_two_ends_and_at_once_when_it_is_known() {
    let small = Silent {
        times: 0,
        most_members: Some(1),
    };
    let once = silent(small, 1, false);
    assert_eq!(
        once,
        Follows::Again(Silent {
            times: 1,
            most_members: Some(1)
        })
    );
    assert!(matches!(silent(once.record(), 1, false), Follows::Alone(_)));
    assert!(matches!(silent(Silent::default(), 1, true), Follows::Alone(_)));
}

#[test]
fn a_batch_is_no_larger_than_what_was_halved_and_a_known_one_rides_alone() {
    let mut lane = lane(members(5, 100));
    lane.most_members = Some(2);
    assert_eq!(fired(&decide(&lane)), ["m0000", "m0001"]);
    lane.most_members = None;
    lane.members[0].rides_alone = true;
    let plan = decide(&lane);
    assert_eq!(fired(&plan), ["m0000"]);
    assert_eq!(of(&plan, "m0001").not_yet, Some(Wait::NextBatch));
    lane.members[0].rides_alone = false;
    lane.members[2].rides_alone = true;
    let plan = decide(&lane);
    assert_eq!(fired(&plan), ["m0000", "m0001", "m0003", "m0004"]);
    assert_eq!(of(&plan, "m0002").not_yet, Some(Wait::RidesAlone));
}
