//! Tests of what a schedule observes.

use super::observe::duration;
use jiff::SignedDuration;

#[test]
fn durations_are_read_as_people_write_them() {
    assert_eq!(duration("90s"), Some(SignedDuration::from_secs(90)));
    assert_eq!(duration("1h30m"), Some(SignedDuration::from_secs(5400)));
    assert_eq!(duration("5"), None);
    assert_eq!(duration(""), None);
    assert_eq!(duration("5d"), None);
}
