//! The acknowledgement of a wave (`docs/design.md` 3.4): read strictly, clamped once, in force once recorded.
//!
//! **Promises.** A value a little ahead of us covers only what was pending when it was first seen. One that is further
//! ahead than clocks differ, or that cannot be read, is ignored and reported, and stays so until the annotation
//! changes: in a manifest that is applied again it would release every wave to come. Nothing is covered by a value
//! that is not recorded.
//!
//! **Assumes.** The annotation is read live before a batch fires.

use super::facts::{RecordedAcknowledgement, RepositoryFacts};
use super::plan::AcknowledgementChange;
use jiff::{SignedDuration, Timestamp};

/// How far a value may be ahead of every clock we know of.
pub const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// What an acknowledgement annotation comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Deletions up to and including this moment are covered.
    pub in_force: Option<Timestamp>,
    /// What to write.
    pub change: AcknowledgementChange,
    /// The annotation cannot be read, or is too far ahead.
    pub invalid: bool,
}

/// Compares the annotation with the record. `newest_pending` is the newest deletion time of this repository
/// object's members that count.
#[must_use]
pub fn read(
    repository: &RepositoryFacts,
    newest_pending: Option<Timestamp>,
    now: Timestamp,
) -> Acknowledgement {
    let recorded = repository.recorded_acknowledgement.as_ref();
    let without = |invalid| Acknowledgement {
        in_force: None,
        change: if recorded.is_some() {
            AcknowledgementChange::Forget
        } else {
            AcknowledgementChange::Keep
        },
        invalid,
    };
    let Some(value) = repository.acknowledgement.as_deref() else {
        return without(false);
    };
    // Parsed even when recorded: a record of something unreadable is not one of ours.
    let Some(parsed) = parse(value) else {
        return without(true);
    };
    match recorded {
        Some(record) if record.value == value => Acknowledgement {
            in_force: Some(record.effective.min(parsed)),
            change: AcknowledgementChange::Keep,
            invalid: false,
        },
        Some(_) | None
            if is_ahead(parsed, newest_pending, now)
                || repository.refused_acknowledgement.as_deref() == Some(value) =>
        {
            without(true)
        }
        Some(_) | None => Acknowledgement {
            in_force: None,
            change: AcknowledgementChange::Record(RecordedAcknowledgement {
                value: value.to_owned(),
                effective: clamp(parsed, newest_pending, now),
                seen_at: now,
            }),
            invalid: false,
        },
    }
}

/// `min(value, max(now, newest deletion time pending))`: whichever clock is ahead, what is pending now can be
/// covered and what comes later cannot.
#[must_use]
pub fn clamp(value: Timestamp, newest_pending: Option<Timestamp>, now: Timestamp) -> Timestamp {
    value.min(newest_pending.map_or(now, |newest| newest.max(now)))
}

/// Whether a value is further ahead than clocks differ: nobody has seen what it would cover.
#[must_use]
pub fn is_ahead(value: Timestamp, newest_pending: Option<Timestamp>, now: Timestamp) -> bool {
    value.duration_since(clamp(value, newest_pending, now)) > AHEAD
}

/// Reads an RFC 3339 time: `YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)` and nothing else. A missing offset, a
/// space, or a bracketed zone is not one: guessing what a person meant could cover too much.
#[must_use]
pub fn parse(value: &str) -> Option<Timestamp> {
    let bytes = value.as_bytes();
    let (head, rest) = (bytes.get(..19)?, bytes.get(19..)?);
    let pattern = b"dddd-dd-ddTdd:dd:dd";
    let matches = |text: &[u8], pattern: &[u8]| {
        text.len() == pattern.len()
            && text.iter().zip(pattern).all(|(byte, want)| match want {
                b'd' => byte.is_ascii_digit(),
                b'T' => matches!(byte, b'T' | b't'),
                other => byte == other,
            })
    };
    if !matches(head, pattern) {
        return None;
    }
    let offset = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 || digits > 9 {
                return None;
            }
            fraction.get(digits..)?
        }
    };
    let zulu = matches!(offset, b"Z" | b"z");
    let signed = matches!(offset.first(), Some(b'+' | b'-')) && matches(offset.get(1..)?, b"dd:dd");
    if zulu || signed { value.parse().ok() } else { None }
}

/// The value as it is to be copied: UTC, whole seconds, ending in `Z`.
#[must_use]
pub fn render(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
