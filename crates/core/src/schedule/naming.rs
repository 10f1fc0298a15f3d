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
    let time = TimeZone::UTC
        .to_datetime(slot)
        .strftime("%Y%m%d%H%M%S")
        .to_string();
    let room = MAX_NAME - 1 - time.len();
    if schedule.len() <= room {
        return format!("{schedule}-{time}");
    }
    // Names of objects are ASCII; whatever is not, is cut at a character all the same.
    let tag = format!("{:08x}", fnv1a(schedule.bytes()) & 0xffff_ffff);
    let cut: String = schedule
        .chars()
        .filter(char::is_ascii)
        .take(room - 1 - tag.len())
        .collect();
    format!("{}-{tag}-{time}", cut.trim_end_matches(['-', '.']))
}
