//! The cron dialect: five fields, names, and `H` for a value that differs from schedule to schedule.
//!
//! **Promises.** `H`, `H/15`, `H(0-29)` and `H(0-29)/10` become values drawn from the schedule's UID, the same for
//! ever. Anything else than five fields is refused with a sentence that names the field.
//!
//! **Assumes.** Days of the month drawn by `H` are 1 to 28, so that every month has them.

use crate::hash::fnv1a;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use std::fmt;

/// Why a schedule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Not five fields.
    #[error(
        "spec.schedule.cron needs five fields (minute, hour, day of month, month, day of week), found {0}"
    )]
    Fields(usize),
    /// A field's `H` cannot be read.
    #[error(
        "spec.schedule.cron: in the field {field}, {token:?} is not of the form H, H/n, H(a-b) or H(a-b)/n within {min} to {max}"
    )]
    Hash {
        /// Which field.
        field: Field,
        /// The token.
        token: String,
        /// Smallest value of the field.
        min: u32,
        /// Largest value that `H` may draw.
        max: u32,
    },
    /// The pattern is not cron.
    #[error("spec.schedule.cron {pattern:?} cannot be read: {reason}")]
    Cron {
        /// As written.
        pattern: String,
        /// What is wrong.
        reason: String,
    },
    /// The pattern never matches.
    #[error("spec.schedule.cron {0:?} never comes due")]
    Never(String),
    /// The time zone is not known.
    #[error("spec.schedule.timezone {0:?} is not an IANA time zone this release knows")]
    TimeZone(String),
    /// The jitter is not usable.
    #[error("spec.schedule.jitter must be between 0 and 24 hours")]
    Jitter,
}

/// The five fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31; `H` draws 1 to 28.
    DayOfMonth,
    /// 1 to 12.
    Month,
    /// 0 to 6, Sunday is 0.
    DayOfWeek,
}

impl Field {
    const ALL: [Self; 5] = [
        Self::Minute,
        Self::Hour,
        Self::DayOfMonth,
        Self::Month,
        Self::DayOfWeek,
    ];

    /// What `H` draws from.
    fn range(self) -> (u32, u32) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 28),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
        }
    }

    /// Each field draws from other bits, or minute and hour of a schedule would go together.
    fn rotation(self) -> u32 {
        match self {
            Self::Minute => 0,
            Self::Hour => 13,
            Self::DayOfMonth => 26,
            Self::Month => 39,
            Self::DayOfWeek => 52,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        })
    }
}

/// Reads a pattern for the schedule with this UID.
///
/// # Errors
/// [`ScheduleError`] with the field and what is wrong with it.
pub fn parse(pattern: &str, uid: &str) -> Result<Cron, ScheduleError> {
    let plain = substitute(pattern, uid)?;
    CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build()
        .parse(&plain)
        .map_err(|error| ScheduleError::Cron {
            pattern: pattern.to_owned(),
            reason: error.to_string(),
        })
}

/// Replaces every `H` by what the UID draws.
///
/// # Errors
/// [`ScheduleError`] when there are not five fields or an `H` cannot be read.
pub fn substitute(pattern: &str, uid: &str) -> Result<String, ScheduleError> {
    let fields: Vec<&str> = pattern.split_whitespace().collect();
    if fields.len() != Field::ALL.len() {
        return Err(ScheduleError::Fields(fields.len()));
    }
    let seed = fnv1a(uid.bytes());
    let mut plain = Vec::with_capacity(fields.len());
    for (field, text) in Field::ALL.into_iter().zip(fields) {
        let tokens: Result<Vec<String>, ScheduleError> = text
            .split(',')
            .map(|token| substitute_token(token, field, seed))
            .collect();
        plain.push(tokens?.join(","));
    }
    Ok(plain.join(" "))
}

fn substitute_token(token: &str, field: Field, seed: u64) -> Result<String, ScheduleError> {
    let Some(rest) = token.strip_prefix('H') else {
        return Ok(token.to_owned());
    };
    let (min, max) = field.range();
    let refused = || ScheduleError::Hash {
        field,
        token: token.to_owned(),
        min,
        max,
    };
    let (range, step) = match rest.split_once('/') {
        Some((range, step)) => (
            range,
            Some(step.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(refused)?),
        ),
        None => (rest, None),
    };
    let (from, to) = if range.is_empty() {
        (min, max)
    } else {
        let inner = range
            .strip_prefix('(')
            .and_then(|r| r.strip_suffix(')'))
            .ok_or_else(refused)?;
        let (from, to) = inner.split_once('-').ok_or_else(refused)?;
        let number = |text: &str| {
            text.parse::<u32>()
                .ok()
                .filter(|n| (min..=max).contains(n))
                .ok_or_else(refused)
        };
        (number(from)?, number(to)?)
    };
    if from > to {
        return Err(refused());
    }
    let size = to - from + 1;
    let draw = |among: u32| {
        let drawn = seed.rotate_right(field.rotation()) % u64::from(among);
        u32::try_from(drawn).unwrap_or(0)
    };
    Ok(match step {
        None => (from + draw(size)).to_string(),
        // A step longer than the range leaves one value.
        Some(step) if step >= size => (from + draw(size)).to_string(),
        Some(step) => format!("{}-{to}/{step}", from + draw(step)),
    })
}
