//! Acknowledgements: parsed strictly, clamped once, in force once recorded.

use crate::support::*;
use holdfast_core::deletion::ack::{parse, render};
use holdfast_core::deletion::*;

#[test]
fn case_18_an_acknowledgement_covers_up_to_its_second_and_not_one_later() {
    let mut pending = members(11, 100);
    pending[10].deleted_at = t(101);
    let mut lane = lane_with_threshold(1, pending);
    acknowledge(&mut lane.repositories[0], 100);
    let plan = decide(&lane);
    assert_eq!(fired(&plan).len(), 10);
    assert!(of(&plan, "m0010").verdict.is_held());
    assert_eq!(
        of(&plan, "m0000").verdict,
        Verdict::Delete(DeleteReason::Acknowledged)
    );
}

#[test]
fn case_19_covered_members_do_not_count() {
    let mut lane = lane(vec![member("a", 100), member("b", 200), member("c", 300)]);
    acknowledge(&mut lane.repositories[0], 200);
    assert_eq!(decide(&lane).repositories[0].count, 1);
}

#[test]
fn case_22_design_a_value_a_little_ahead_is_clamped_once_and_covers_only_what_was_pending() {
    let mut lane = lane(members(10, 100));
    lane.repositories[0].acknowledgement = Some(t(1_250).to_string());
    let plan = decide(&lane);
    let AcknowledgementChange::Record(record) = &plan.repositories[0].acknowledgement else {
        panic!("recorded first: {plan:?}")
    };
    assert_eq!(record.effective, now(), "min(value, max(now, newest pending))");
    assert!(plan.fire.is_none(), "records before acts");
    assert_eq!(held(&plan), 10);

    lane.repositories[0].recorded_acknowledgement = Some(record.clone());
    let later = wave(&lane, &Settings::default(), t(5_000));
    assert_eq!(fired(&later).len(), 10);
    assert_eq!(
        later.repositories[0].acknowledgement,
        AcknowledgementChange::Keep,
        "later passes use the record"
    );
    lane.members = members(10, 4_000);
    assert_eq!(
        held(&wave(&lane, &Settings::default(), t(5_000))),
        10,
        "it does not cover next month's wave"
    );
}

#[test]
fn case_22_an_api_server_clock_ahead_of_ours_does_not_leave_pending_members_uncovered() {
    let mut lane = lane(members(10, 1_030));
    lane.repositories[0].acknowledgement = Some(t(1_330).to_string());
    let plan = decide(&lane);
    let AcknowledgementChange::Record(record) = &plan.repositories[0].acknowledgement else {
        panic!()
    };
    assert_eq!(record.effective, t(1_030));
    lane.repositories[0].acknowledgement = Some(t(1_030).to_string());
    let plan = decide(&lane);
    let AcknowledgementChange::Record(record) = &plan.repositories[0].acknowledgement else {
        panic!()
    };
    assert_eq!(record.effective, t(1_030));
}

#[test]
fn case_22_garbage_is_ignored_and_flagged_and_absent_is_neither() {
    let mut lane = lane(members(10, 100));
    lane.repositories[0].acknowledgement = Some("yes".into());
    let plan = decide(&lane);
    assert_eq!(
        plan.repositories[0].invalid_acknowledgement.as_deref(),
        Some("yes")
    );
    assert_eq!(plan.repositories[0].acknowledgement, AcknowledgementChange::Keep);
    assert_eq!(held(&plan), 10, "still armed");
    lane.repositories[0].acknowledgement = None;
    assert_eq!(decide(&lane).repositories[0].invalid_acknowledgement, None);
}

#[test]
fn an_edited_acknowledgement_is_not_in_force_until_it_is_recorded_anew() {
    let mut lane = lane(members(10, 100));
    acknowledge(&mut lane.repositories[0], 100);
    assert_eq!(fired(&decide(&lane)).len(), 10);
    lane.repositories[0].acknowledgement = Some(t(50).to_string());
    let plan = decide(&lane);
    assert_eq!(held(&plan), 10);
    assert!(matches!(
        plan.repositories[0].acknowledgement,
        AcknowledgementChange::Record(_)
    ));
    lane.repositories[0].acknowledgement = Some("oops".into());
    let plan = decide(&lane);
    assert_eq!((held(&plan), plan.fire), (10, None));
    assert_eq!(
        plan.repositories[0].acknowledgement,
        AcknowledgementChange::Forget
    );
}

#[test]
fn a_record_never_covers_more_than_the_annotation_says() {
    let mut lane = lane(members(10, 100));
    acknowledge(&mut lane.repositories[0], 50);
    lane.repositories[0]
        .recorded_acknowledgement
        .as_mut()
        .unwrap()
        .effective = t(900);
    assert_eq!(held(&decide(&lane)), 10);
}

#[test]
fn only_strict_rfc_3339_is_read() {
    let moment = t(0);
    assert_eq!(moment.to_string(), "2027-01-15T08:00:00Z");
    for text in [
        "2027-01-15T08:00:00Z",
        "2027-01-15t08:00:00z",
        "2027-01-15T08:00:00+00:00",
        "2027-01-15T08:00:00-00:00",
        "2027-01-15T10:00:00+02:00",
        "2027-01-15T02:30:00-05:30",
        "2027-01-15T08:00:00.000Z",
        "2027-01-15T08:00:00.000000000Z",
    ] {
        assert_eq!(parse(text), Some(moment), "{text}");
    }
    for text in [
        "",
        "true",
        "1800000000",
        "2027-01-15",
        "2027-01-15T08:00Z",
        "2027-01-15T08:00:00",
        "2027-01-15 08:00:00Z",
        " 2027-01-15T08:00:00Z",
        "2027-01-15T08:00:00Z ",
        "2027-01-15T08:00:00+02",
        "2027-01-15T08:00:00+0200",
        "2027-01-15T08:00:00.Z",
        "2027-01-15T08:00:00.0000000000Z",
        "2027-01-15T08:00:00,5Z",
        "2027-01-15T08:00:00+02:00[Europe/Berlin]",
        "20270115T080000Z",
        "+002027-01-15T08:00:00Z",
        "2027-02-30T08:00:00Z",
        "2027-01-15T25:00:00Z",
        "2027-01-15T08:00:00+99:00",
        "２027-01-15T08:00:00Z",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}

#[test]
fn the_value_to_copy_is_one_that_is_read_back() {
    assert_eq!(render(t(0)), "2027-01-15T08:00:00Z");
    assert_eq!(parse(&render(t(7))), Some(t(7)));
}

/// What is pinned to one object is not covered, and so counts, whatever another object's acknowledgement says.
#[test]
fn an_acknowledgement_does_not_cover_what_is_pinned_to_another_object() {
    let mut elsewhere = member("a", 100);
    elsewhere.pin = Some(other());
    let mut lane = lane_with_threshold(2, vec![elsewhere, member("b", 200)]);
    lane.repositories.push(repository(other()));
    acknowledge(&mut lane.repositories[0], 150);
    let plan = decide(&lane);
    assert_eq!(of(&plan, "a").verdict.wait(), Some(Wait::RepositoryMismatch));
    assert!(of(&plan, "b").verdict.is_held(), "{:?}", of(&plan, "b"));
    assert!(plan.repositories.iter().all(|repository| repository.count == 2));
}

/// In a manifest that is applied again and again, with a Repository that is made anew, it would release every wave.
#[test]
fn case_22_a_value_further_ahead_than_clocks_differ_is_refused_and_stays_refused() {
    let mut lane = lane(members(10, 100));
    for (ahead, refused) in [(300, false), (301, true), (1_000_000, true)] {
        lane.repositories[0].acknowledgement = Some(t(1_000 + ahead).to_string());
        let plan = decide(&lane);
        assert_eq!(
            plan.repositories[0].invalid_acknowledgement.is_some(),
            refused,
            "{ahead}"
        );
        let recorded = matches!(
            plan.repositories[0].acknowledgement,
            AcknowledgementChange::Record(_)
        );
        assert_eq!(recorded, !refused, "{ahead}");
        assert_eq!(held(&plan), 10);
    }
    // Its time comes, and it was refused before: it covers nothing that nobody had seen.
    lane.repositories[0].refused_acknowledgement = lane.repositories[0].acknowledgement.clone();
    lane.members = members(10, 1_000_900);
    let later = wave(&lane, &Settings::default(), t(1_001_500));
    assert!(later.repositories[0].invalid_acknowledgement.is_some());
    assert_eq!(later.repositories[0].acknowledgement, AcknowledgementChange::Keep);
    assert_eq!((held(&later), later.fire), (10, None));
    // Another value is another decision.
    lane.repositories[0].acknowledgement = Some(t(1_000_900).to_string());
    let asked = wave(&lane, &Settings::default(), t(1_001_500));
    assert!(matches!(
        asked.repositories[0].acknowledgement,
        AcknowledgementChange::Record(_)
    ));
}

/// What was recorded before a release that refuses such values stays in force.
#[test]
fn a_recorded_value_is_in_force_however_far_ahead_it_was() {
    let mut lane = lane(members(10, 100));
    lane.repositories[0].acknowledgement = Some(t(50_000).to_string());
    lane.repositories[0].recorded_acknowledgement = Some(RecordedAcknowledgement {
        value: t(50_000).to_string(),
        effective: t(100),
        seen_at: t(900),
    });
    assert_eq!(fired(&decide(&lane)).len(), 10);
}
