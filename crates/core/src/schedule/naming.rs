//! The name of the Snapshot of a slot.
//!
//! **Promises.** At most 63 characters, because the mover's Job and its pods carry it too; the same schedule and
//! slot have the same name, so creating it twice is harmless.
//!
//! **Assumes.** Slots are whole seconds.

use crate::hash::fnv1a;
use jiff::{Timestamp, tz::TimeZone};

const MAX_NAME: usize = 63;

/// `<schedule>-<YYYYmmddHHMMSS of the slot, UTC>`. A name too long for that is cut and tagged with a hash of the
/// whole, so that two schedules with the same beginning differ.
#[must_use]
pub fn snapshot_name(schedule: &str, slot: Timestamp) -> String {
    let time = time_of(slot);
    let room = MAX_NAME - 1 - time.len();
    if schedule.len() <= room {
        return format!("{schedule}-{time}");
    }
    tagged(schedule, schedule, &time)
}

/// The name for one of several policies: `<schedule>-<policy>-<tag>-<YYYYmmddHHMMSS>`, cut before the tag, which is
/// drawn from both names whole.
#[must_use]
pub fn selected_name(schedule: &str, policy: &str, slot: Timestamp) -> String {
    // No name has a slash in it: other pairs are other texts.
    let whole = format!("{schedule}/{policy}");
    tagged(&format!("{schedule}-{policy}"), &whole, &time_of(slot))
}

fn time_of(slot: Timestamp) -> String {
    let time = TimeZone::UTC.to_datetime(slot);
    time.strftime("%Y%m%d%H%M%S").to_string()
}

/// `shown`, cut to what fits, with a hash of `whole` after it.
fn tagged(shown: &str, whole: &str, time: &str) -> String {
    let tag = format!("{:08x}", fnv1a(whole.bytes()) & 0xffff_ffff);
    // Names of objects are ASCII; whatever is not, is cut at a character all the same.
    let cut: String = shown
        .chars()
        .filter(char::is_ascii)
        .take(MAX_NAME - 2 - time.len() - tag.len())
        .collect();
    format!("{}-{tag}-{time}", cut.trim_end_matches(['-', '.']))
}
