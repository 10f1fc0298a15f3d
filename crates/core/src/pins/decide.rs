//! Whether a snapshot is to be pinned or unpinned in its repository now.

use jiff::Timestamp;

/// What the repository's record said when it was last read. Never read is not pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// It is to be kept, whoever said so.
    pub pinned: bool,
    /// We said so.
    pub ours: bool,
}

/// Why nothing may be written about it, whatever is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Nothing is recorded that could be pinned: it has not succeeded, or is a row of the catalog.
    NothingRecorded,
    /// Its snapshot was found gone.
    Vanished,
    /// Another live Snapshot records the same id, and would not know the one that pinning gives it.
    Shared,
}

/// Facts about one live Snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// `spec.pin`.
    pub wanted: bool,
    /// As last read.
    pub seen: Seen,
    /// What stands in the way.
    pub hold: Option<Hold>,
    /// It failed; tried again then.
    pub next_attempt_at: Option<Timestamp>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is as it is to be, or nothing can be done: the word for it.
    Settled(PinReason),
    /// There is nothing to say either.
    Nothing,
    /// Not before this moment.
    Wait(Timestamp),
    /// A Job that pins, or takes our pin back.
    Job {
        /// Pin.
        on: bool,
    },
}

/// The word of the condition `Pinned`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PinReason {
    /// We pinned it.
    Pinned,
    /// Another program or a person did, in the repository itself.
    PinnedInRepository,
    /// Nobody did.
    NotPinned,
    /// A Job is at it.
    PinJobRunning,
    /// The last Job failed.
    PinJobFailed,
    /// Another Snapshot records the same snapshot.
    SharedSnapshot,
}

impl PinReason {
    /// Every word, for tests and the docs.
    pub const ALL: [Self; 6] = [
        Self::Pinned,
        Self::PinnedInRepository,
        Self::NotPinned,
        Self::PinJobRunning,
        Self::PinJobFailed,
        Self::SharedSnapshot,
    ];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pinned => "Pinned",
            Self::PinnedInRepository => "PinnedInRepository",
            Self::NotPinned => "NotPinned",
            Self::PinJobRunning => "PinJobRunning",
            Self::PinJobFailed => "PinJobFailed",
            Self::SharedSnapshot => "SharedSnapshot",
        }
    }

    /// What it says of a snapshot that the repository's record was last read of.
    #[must_use]
    pub fn of(seen: Seen) -> Self {
        match (seen.pinned, seen.ours) {
            (_, true) => Self::Pinned,
            (true, false) => Self::PinnedInRepository,
            (false, false) => Self::NotPinned,
        }
    }
}

/// Decides. First match wins:
/// 1. Nothing that could be pinned: nothing.
/// 2. As wanted: anybody's pin is a pin, and without a wish only ours has to go.
/// 3. Recorded by another live Snapshot too: nothing is written.
/// 4. Failed a moment ago: wait.
/// 5. A Job.
#[must_use]
pub fn decide(facts: &Facts, now: Timestamp) -> Step {
    let Facts {
        wanted,
        seen,
        hold,
        next_attempt_at,
    } = *facts;
    match hold {
        Some(Hold::NothingRecorded | Hold::Vanished) => return Step::Nothing,
        Some(Hold::Shared) | None => {}
    }
    let as_wanted = if wanted { seen.pinned } else { !seen.ours };
    if as_wanted {
        return Step::Settled(PinReason::of(seen));
    }
    match hold {
        Some(Hold::Shared) => Step::Settled(PinReason::SharedSnapshot),
        Some(Hold::NothingRecorded | Hold::Vanished) | None => match next_attempt_at {
            Some(at) if at > now => Step::Wait(at),
            Some(_) | None => Step::Job { on: wanted },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn step(wanted: bool, pinned: bool, ours: bool, hold: Option<Hold>, next: Option<i64>) -> Step {
        let facts = Facts {
            wanted,
            seen: Seen { pinned, ours },
            hold,
            next_attempt_at: next.map(at),
        };
        decide(&facts, at(100))
    }

    #[test]
    fn a_pin_that_is_wanted_and_not_there_is_written_and_ours_is_taken_back() {
        assert_eq!(step(true, false, false, None, None), Step::Job { on: true });
        assert_eq!(step(false, true, true, None, None), Step::Job { on: false });
        assert_eq!(
            step(true, true, true, None, None),
            Step::Settled(PinReason::Pinned)
        );
        assert_eq!(
            step(false, false, false, None, None),
            Step::Settled(PinReason::NotPinned)
        );
    }

    #[test]
    fn anothers_pin_is_enough_and_is_never_taken_back() {
        for wanted in [true, false] {
            assert_eq!(
                step(wanted, true, false, None, None),
                Step::Settled(PinReason::PinnedInRepository)
            );
        }
    }

    #[test]
    fn nothing_is_written_about_what_is_shared_gone_or_not_there() {
        for (wanted, pinned, ours) in [(true, false, false), (false, true, true)] {
            assert_eq!(
                step(wanted, pinned, ours, Some(Hold::Shared), None),
                Step::Settled(PinReason::SharedSnapshot)
            );
            for hold in [Hold::NothingRecorded, Hold::Vanished] {
                assert_eq!(step(wanted, pinned, ours, Some(hold), None), Step::Nothing);
            }
        }
        assert_eq!(
            step(true, true, true, Some(Hold::Shared), None),
            Step::Settled(PinReason::Pinned),
            "what is as it is to be is said"
        );
    }

    #[test]
    fn one_that_failed_waits() {
        assert_eq!(step(true, false, false, None, Some(101)), Step::Wait(at(101)));
        assert_eq!(step(true, false, false, None, Some(100)), Step::Job { on: true });
    }

    #[test]
    fn each_word_is_said_once() {
        let words: std::collections::BTreeSet<&str> = PinReason::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(words.len(), PinReason::ALL.len());
    }
}
