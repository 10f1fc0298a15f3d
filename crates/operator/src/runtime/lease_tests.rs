use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> Settings {
    Settings::new(15 * SECOND, 10 * SECOND, 2 * SECOND, 2 * SECOND).expect("the defaults are safe")
}

fn held(holder: &str, renewed: &str, version: &str) -> Option<Record> {
    Some(Record {
        holder: Some(holder.into()),
        acquired: None,
        renewed: Some(renewed.parse().expect("a time")),
        transitions: 3,
        duration: Some(15 * SECOND),
        version: Some(version.into()),
    })
}

fn step(view: &View, now: Instant) -> Step {
    decide("me", view, false, &settings(), now)
}

#[test]
fn one_attempt_takes_less_than_half_the_renew_deadline() {
    let settings = settings();
    assert_eq!(settings.attempt_timeout(), 3 * SECOND);
    assert!(settings.attempt_timeout() * 2 + settings.retry_period() <= settings.renew_deadline());
}

#[test]
fn settings_that_cannot_be_safe_are_refused() {
    assert_eq!(
        Settings::new(10 * SECOND, 10 * SECOND, SECOND, SECOND),
        Err(BadSettings::DeadlineNotBelowDuration)
    );
    for (renew, retry) in [
        (Duration::ZERO, SECOND),
        (SECOND, Duration::ZERO),
        (5 * SECOND, SECOND),
    ] {
        assert_eq!(
            Settings::new(15 * SECOND, 10 * SECOND, renew, retry),
            Err(BadSettings::PeriodTooLong)
        );
    }
}

#[test]
fn the_first_process_on_a_cluster_does_not_wait() {
    let now = Instant::now();
    let mut view = View::default();
    assert_eq!(step(&view, now), Step::Read);
    view.observe(None, now);
    assert_eq!(step(&view, now), Step::Create);
    let record = written("me", Step::Create, None, &settings(), Timestamp::UNIX_EPOCH).expect("a write");
    assert_eq!(
        (record.holder.as_deref(), record.transitions, record.version),
        (Some("me"), 0, None)
    );
}

#[test]
fn taken_over_only_after_the_whole_duration_of_silence() {
    let start = Instant::now();
    let mut view = View::default();
    view.observe(held("other", "2026-01-01T00:00:00Z", "7"), start);
    let ripe = start + 15 * SECOND;
    assert_eq!(step(&view, start + 14 * SECOND), Step::Wait(ripe));
    view.observe(held("other", "2026-01-01T00:00:00Z", "8"), start + 14 * SECOND);
    assert_eq!(
        step(&view, ripe),
        Step::TakeOver,
        "an edit that is no renewal changes nothing"
    );
    let record = written(
        "me",
        Step::TakeOver,
        view.record(),
        &settings(),
        Timestamp::UNIX_EPOCH,
    )
    .expect("a write");
    assert_eq!(record.transitions, 4);
    assert_eq!(
        record.version.as_deref(),
        Some("8"),
        "the version that was judged"
    );
}

#[test]
fn never_taken_over_while_it_is_renewed() {
    let start = Instant::now();
    let mut view = View::default();
    for beat in 0..60_u32 {
        let now = start + 2 * SECOND * beat;
        view.observe(held("other", &format!("2026-01-01T00:00:{beat:02}Z"), "7"), now);
        assert!(matches!(step(&view, now + 14 * SECOND), Step::Wait(_)));
    }
}

#[test]
fn a_clock_an_hour_off_is_harmless_in_both_directions() {
    // The holder's clock says an hour ago, and an hour from now: neither makes its lease old, nor young for ever.
    for renewed in ["2026-01-01T11:00:00Z", "2026-01-01T13:00:00Z"] {
        let start = Instant::now();
        let mut view = View::default();
        view.observe(held("other", renewed, "7"), start);
        assert!(matches!(step(&view, start), Step::Wait(_)));
        assert!(matches!(step(&view, start + 14 * SECOND), Step::Wait(_)));
        assert_eq!(step(&view, start + 15 * SECOND), Step::TakeOver);
    }
}

#[test]
fn a_holder_with_a_longer_duration_is_given_it() {
    let start = Instant::now();
    let mut view = View::default();
    let mut record = held("other", "2026-01-01T00:00:00Z", "7").expect("held");
    record.duration = Some(60 * SECOND);
    view.observe(Some(record), start);
    assert!(matches!(step(&view, start + 59 * SECOND), Step::Wait(_)));
    assert_eq!(step(&view, start + 60 * SECOND), Step::TakeOver);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let now = Instant::now();
    for holder in [None, Some(String::new())] {
        let mut record = held("other", "2026-01-01T00:00:00Z", "7").expect("held");
        record.holder = holder;
        let mut view = View::default();
        view.observe(Some(record), now);
        assert_eq!(step(&view, now), Step::TakeOver);
    }
}

#[test]
fn ours_is_renewed_even_after_our_own_clock_ran_out() {
    let now = Instant::now();
    let mut view = View::default();
    view.observe(held("me", "2026-01-01T00:00:00Z", "7"), now);
    assert_eq!(step(&view, now + 60 * SECOND), Step::Renew);
    let record = written(
        "me",
        Step::Renew,
        view.record(),
        &settings(),
        Timestamp::UNIX_EPOCH,
    )
    .expect("a write");
    assert_eq!((record.transitions, record.version.as_deref()), (3, Some("7")));
}

#[test]
fn a_removed_lease_goes_to_its_holder_first() {
    let start = Instant::now();
    let mut view = View::default();
    view.observe(held("other", "2026-01-01T00:00:00Z", "7"), start);
    view.observe(None, start + SECOND);
    view.observe(None, start + 3 * SECOND);
    assert_eq!(step(&view, start + 3 * SECOND), Step::Wait(start + 16 * SECOND));
    assert_eq!(
        decide("me", &view, true, &settings(), start + 3 * SECOND),
        Step::Create
    );
    assert_eq!(step(&view, start + 16 * SECOND), Step::Create);
}
