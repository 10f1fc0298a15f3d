//! When a lane is to be looked at again without an event.
//!
//! **Promises.** What time alone ends is looked at when it ends; what could not be read, soon; nothing else.
//!
//! **Assumes.** Every other change arrives as an event that marks the lane dirty.

use super::verdict::{Verdict, Wait};
use jiff::Timestamp;

/// Collects the earliest moment worth another look.
pub(crate) struct Wakes {
    now: Timestamp,
    recheck: Timestamp,
    at: Option<Timestamp>,
}

impl Wakes {
    pub(crate) fn new(now: Timestamp, recheck: Timestamp) -> Self {
        Self {
            now,
            recheck,
            at: None,
        }
    }

    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        self.at
    }

    pub(crate) fn at(&mut self, time: Timestamp) {
        if time > self.now {
            self.at = Some(self.at.map_or(time, |at| at.min(time)));
        }
    }

    pub(crate) fn waits(&mut self, verdict: Verdict, not_yet: Option<Wait>) {
        match verdict.wait().or(not_yet) {
            Some(Wait::QuietWindow(until) | Wait::BackingOff(until) | Wait::RepositoryBackingOff(until)) => {
                self.at(until);
            }
            // The Jobs of others end by themselves, and that is no event of this lane.
            Some(Wait::WritersRunning(until) | Wait::WritersFirst(until)) => {
                self.at(until.min(self.recheck));
            }
            // Something that could not be read, or that other lanes change: worth a look without an event.
            Some(
                Wait::ForeignManager
                | Wait::CacheCold
                | Wait::OwnMoverUnknown
                | Wait::PlaceUnknown
                | Wait::OwnerUnknown
                | Wait::SharingUnknown
                | Wait::RepositoryUnreadable
                | Wait::RepositoryMismatch
                | Wait::NamespaceUnreadable
                | Wait::JobCapReached
                | Wait::MaintenanceRunning,
            ) => self.at(self.recheck),
            // An event ends these.
            Some(
                Wait::OwnMoverRunning
                | Wait::OwnResultUnread
                | Wait::PolicyUnreadable
                | Wait::CascadeUnreadable
                | Wait::SharedWithPending
                | Wait::SourceNotRecorded
                | Wait::RepositoryNotConnected
                | Wait::RepositorySuspended
                | Wait::DeletionsPaused
                | Wait::MemberTooLarge
                | Wait::BatchLive
                | Wait::JobNotStarted
                | Wait::Withdrawing
                | Wait::NextBatch
                | Wait::RidesAlone,
            )
            | None => {}
        }
    }
}
