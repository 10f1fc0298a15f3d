//! What a driver's own objects prove about bytes and runs (`docs/design.md` 4.1: `requested` deletion).
//!
//! **Promises.** Bytes count as deleted only when the driver says that it deleted them, or when its own record of
//! them, which was seen before, is gone while their deletion was asked for. An object that was never seen proves
//! nothing by its absence, and neither does one whose kind was uninstalled.
//!
//! **Assumes.** What was seen of a request is remembered after the request is swept: drivers sweep requests that
//! succeeded at once. A success is final; the same driver says later of other requests that there is nothing to
//! delete, and calls that an error.

use super::record::{Record, State};
use super::transitions::Evidence;
use jiff::{SignedDuration, Timestamp};

/// After this long without the driver's own record, nothing in the bucket brings it back: Velero looks every minute.
pub const RESYNC: SignedDuration = SignedDuration::from_mins(10);

/// What was seen of the requests to delete one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Request {
    /// None was seen.
    #[default]
    None,
    /// One was seen, and nothing about how it came out.
    Asked,
    /// The last that was processed had errors.
    Failed,
    /// One was processed without errors.
    Succeeded,
}

impl Request {
    /// With what was seen of one more request: `None` is not processed, else the number of errors.
    #[must_use]
    pub fn with(self, processed: Option<usize>) -> Self {
        match (self, processed) {
            (Self::Succeeded, _) | (_, Some(0)) => Self::Succeeded,
            (_, Some(_)) => Self::Failed,
            (Self::None, None) => Self::Asked,
            (Self::Asked | Self::Failed, None) => self,
        }
    }
}

/// The driver's own record of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OwnRecord {
    /// It was not seen since we began to look.
    #[default]
    NeverSeen,
    /// It exists.
    Exists,
    /// It was seen, and is gone since then.
    Gone(Timestamp),
}

/// What is known of one thing from its driver's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DriverFacts {
    /// Requests to delete it.
    pub request: Request,
    /// The driver's own record of it.
    pub own_record: OwnRecord,
}

/// What the facts prove about a record whose deletion was asked for; `None`: nothing yet.
#[must_use]
pub fn evidence(record: &Record, facts: DriverFacts, now: Timestamp) -> Option<Evidence> {
    match record.state {
        State::PendingPurge | State::Retained => {}
        State::InFlight | State::Attributed | State::Released | State::WrittenOff | State::Unknown => {
            return None;
        }
    }
    match (facts.request, facts.own_record) {
        // Its own record goes last: while that exists, the success was another's.
        (Request::Succeeded, OwnRecord::Exists) => None,
        (Request::Succeeded, OwnRecord::NeverSeen | OwnRecord::Gone(_)) => Some(Evidence::Succeeded),
        // Its record went all the same: somebody took it away, which is not to delete the bytes.
        (Request::Failed, OwnRecord::NeverSeen | OwnRecord::Exists | OwnRecord::Gone(_)) => {
            Some(Evidence::Failed)
        }
        (Request::Asked, OwnRecord::Gone(_)) => Some(Evidence::DriverRecordGone),
        // The request was missed, or somebody took the record away by hand: then the driver makes it again from
        // what is in the bucket.
        (Request::None, OwnRecord::Gone(since)) => {
            (now.duration_since(since) >= RESYNC).then_some(Evidence::DriverRecordGone)
        }
        (Request::Asked | Request::None, OwnRecord::NeverSeen | OwnRecord::Exists) => None,
    }
}

/// What the driver's own object says about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    /// There is none.
    NotKnown,
    /// At least one is under way.
    Running,
    /// Every one is over.
    Over,
}

impl RunState {
    /// With one more object of the same run.
    #[must_use]
    pub fn with(self, over: bool) -> Self {
        match (self, over) {
            (_, false) | (Self::Running, true) => Self::Running,
            (Self::NotKnown | Self::Over, true) => Self::Over,
        }
    }
}
