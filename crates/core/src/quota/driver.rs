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
    /// Every one is over, and at least one wrote what it was to write, or a part of it.
    Completed,
    /// Every one is over, and none came to anything.
    Failed,
}

impl RunState {
    /// With one more object of the same run.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Running, _) | (_, Self::Running) => Self::Running,
            (Self::Completed, _) | (_, Self::Completed) => Self::Completed,
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::NotKnown, Self::NotKnown) => Self::NotKnown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::capability::{CAREFUL, DeclaredBy, InForce};
    use super::super::identity::StrategyKind;
    use super::super::record::{Application, Reason, Size, Subject, Times};
    use super::*;
    use std::collections::BTreeMap;

    const THEN: Timestamp = Timestamp::UNIX_EPOCH;

    fn record(state: State) -> Record {
        Record {
            name: "r".to_owned(),
            subject: Subject::Run {
                namespace: "a".to_owned(),
                strategy: None::<StrategyKind>,
            },
            state,
            reason: Reason::DeletionRequested,
            size: Size::UNKNOWN,
            in_force: InForce {
                capabilities: CAREFUL,
                from: DeclaredBy::Unknown,
            },
            backups: BTreeMap::new(),
            application: Application::default(),
            job: None,
            namespace_uid: None,
            shared_across_namespaces: false,
            written_off_by: None,
            times: Times::default(),
            listing: None,
        }
    }

    fn proves(request: Request, own_record: OwnRecord, now: Timestamp) -> Option<Evidence> {
        let facts = DriverFacts { request, own_record };
        evidence(&record(State::PendingPurge), facts, now)
    }

    #[test]
    fn absence_proves_nothing_unless_it_was_seen_to_begin_after_a_request_or_lasts() {
        let gone = OwnRecord::Gone(THEN);
        for never in [OwnRecord::NeverSeen, OwnRecord::Exists] {
            assert_eq!(proves(Request::None, never, THEN), None);
            assert_eq!(proves(Request::Asked, never, THEN), None);
        }
        assert_eq!(
            proves(Request::Asked, gone, THEN),
            Some(Evidence::DriverRecordGone)
        );
        assert_eq!(
            proves(Request::None, gone, THEN),
            None,
            "it may be made again from the bucket"
        );
        assert_eq!(
            proves(Request::None, gone, THEN + RESYNC),
            Some(Evidence::DriverRecordGone)
        );
    }

    #[test]
    fn a_success_counts_once_the_drivers_own_record_is_gone_and_a_failure_always() {
        let gone = OwnRecord::Gone(THEN);
        assert_eq!(proves(Request::Succeeded, OwnRecord::Exists, THEN), None);
        assert_eq!(proves(Request::Succeeded, gone, THEN), Some(Evidence::Succeeded));
        assert_eq!(
            proves(Request::Succeeded, OwnRecord::NeverSeen, THEN),
            Some(Evidence::Succeeded)
        );
        for own in [OwnRecord::NeverSeen, OwnRecord::Exists, gone] {
            assert_eq!(
                proves(Request::Failed, own, THEN + RESYNC),
                Some(Evidence::Failed)
            );
        }
    }

    #[test]
    fn only_what_was_asked_to_go_can_be_proven_gone() {
        let facts = DriverFacts {
            request: Request::Succeeded,
            own_record: OwnRecord::Gone(THEN),
        };
        for state in State::ALL {
            let asked = matches!(state, State::PendingPurge | State::Retained);
            assert_eq!(
                evidence(&record(*state), facts, THEN).is_some(),
                asked,
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_success_is_final_and_a_failure_is_not() {
        let seen = |all: &[Option<usize>]| all.iter().fold(Request::None, |request, one| request.with(*one));
        assert_eq!(seen(&[None]), Request::Asked);
        assert_eq!(seen(&[None, Some(2)]), Request::Failed);
        assert_eq!(seen(&[None, Some(2), None]), Request::Failed);
        assert_eq!(seen(&[Some(2), Some(0)]), Request::Succeeded);
        assert_eq!(seen(&[Some(0), Some(1), None]), Request::Succeeded);
    }

    #[test]
    fn a_run_is_over_only_when_every_object_of_it_is_and_wrote_bytes_when_one_did() {
        use RunState::{Completed, Failed, NotKnown, Running};
        let run = |all: &[RunState]| all.iter().fold(NotKnown, |state, one| state.with(*one));
        assert_eq!(run(&[]), NotKnown);
        assert_eq!(run(&[Failed, Failed]), Failed);
        assert_eq!(run(&[Failed, Completed, Failed]), Completed);
        assert_eq!(run(&[Completed, Running, Failed]), Running);
    }
}
