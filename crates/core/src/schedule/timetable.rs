//! The slots of one schedule: cron in a time zone, spread by jitter.
//!
//! **Promises.** Jitter is drawn from the schedule's UID and the moment it spreads, so every replica agrees. A
//! pattern with a fixed time runs once on the day a clock goes back and once on the day it goes forward.
//!
//! **Assumes.** Time zones are those compiled in, not those of the machine.

use super::cron::{self, ScheduleError};
use crate::hash::fnv1a;
use croner::Cron;
use jiff::{SignedDuration, Timestamp, tz::TimeZone, tz::TimeZoneDatabase};

/// Longest jitter.
pub const MAX_JITTER: SignedDuration = SignedDuration::from_hours(24);

/// When a schedule runs.
#[derive(Debug, Clone)]
pub struct Timetable {
    cron: Cron,
    pattern: String,
    timezone: TimeZone,
    jitter_seconds: u64,
    uid: String,
}

impl Timetable {
    /// Reads a schedule's timing. No time zone is UTC.
    ///
    /// # Errors
    /// [`ScheduleError`] with the field that cannot be used.
    pub fn new(
        pattern: &str,
        timezone: Option<&str>,
        jitter: SignedDuration,
        uid: &str,
    ) -> Result<Self, ScheduleError> {
        if jitter.is_negative() || jitter > MAX_JITTER {
            return Err(ScheduleError::Jitter);
        }
        let timezone = match timezone {
            None => TimeZone::UTC,
            Some(name) => TimeZoneDatabase::bundled()
                .get(name)
                .map_err(|_| ScheduleError::TimeZone(name.to_owned()))?,
        };
        Ok(Self {
            cron: cron::parse(pattern, uid)?,
            pattern: pattern.to_owned(),
            timezone,
            jitter_seconds: u64::try_from(jitter.as_secs()).unwrap_or(0),
            uid: uid.to_owned(),
        })
    }

    /// The first slot after `after`.
    ///
    /// # Errors
    /// [`ScheduleError::Never`] when there is none.
    pub fn next_after(&self, after: Timestamp) -> Result<Timestamp, ScheduleError> {
        let never = || ScheduleError::Never(self.pattern.clone());
        // A slot is its moment and up to the whole jitter later: moments before `after` may still be ahead of it.
        let back = SignedDuration::from_secs(i64::try_from(self.jitter_seconds).unwrap_or(0));
        let mut moment = after
            .checked_sub(back)
            .map_err(|_| never())?
            .to_zoned(self.timezone.clone());
        let mut best: Option<Timestamp> = None;
        loop {
            moment = match self.cron.find_next_occurrence(&moment, false) {
                Ok(moment) => moment,
                Err(_) => return best.ok_or_else(never),
            };
            let at = moment.timestamp();
            if best.is_some_and(|best| at >= best) {
                return best.ok_or_else(never);
            }
            let slot = at.checked_add(self.offset(at)).map_err(|_| never())?;
            if slot > after {
                best = Some(best.map_or(slot, |best| best.min(slot)));
            }
            if self.jitter_seconds == 0 {
                return best.ok_or_else(never);
            }
        }
    }

    /// Whole seconds in `[0, jitter)`.
    fn offset(&self, at: Timestamp) -> SignedDuration {
        if self.jitter_seconds == 0 {
            return SignedDuration::ZERO;
        }
        let drawn = fnv1a(self.uid.bytes().chain(at.as_second().to_le_bytes())) % self.jitter_seconds;
        SignedDuration::from_secs(i64::try_from(drawn).unwrap_or(0))
    }
}
