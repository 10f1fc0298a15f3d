//! What is to be done for one lane: the answer of [`crate::deletion::wave()`].
//!
//! **Promises.** One [`Decision`] for each member, each with the rule that made it and a reason whose one word is
//! the same everywhere. At most one batch fires, none while another is live.
//!
//! **Assumes** that it is applied in this order, and that a failed step ends the pass (the next plan starts over):
//! 1. write the lane's own latch; for each repository: record or forget the acknowledgement, then *raise* the latch
//!    (`heldThrough`);
//! 2. members: mark held ones (one event per transition), write `DeletionBlocked`, release finalizers;
//! 3. withdraw the live batch, or fire: read live, plan again, [`Plan::confirm`], claim, create;
//! 4. forget the lane's own latch, clear those of the repositories, write the repositories' conditions.

use super::breaker::{Reached, is_at};
use super::facts::{LaneLatch, RecordedAcknowledgement, RepositoryKey};
use super::verdict::{DeleteReason, Rule, Verdict, Wait, Withdraw};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The plan for one lane at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One for each member of the lane, oldest deletion first, ties by UID.
    pub decisions: Vec<Decision>,
    /// One for each repository object of the lane, in the order of their keys.
    pub repositories: Vec<RepositoryPlan>,
    /// What to do with the lane's own memory of a hold.
    pub latch: LaneLatchChange,
    /// The batch to fire now.
    pub fire: Option<Batch>,
    /// The live batch must be withdrawn (Foreground deletion, until no pod is left) for this reason.
    pub withdraw: Option<Withdraw>,
    /// The earliest moment at which the answer could change by time alone, or at which something unknown is
    /// worth reading again. Always after the plan's `now`.
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    /// The decision on one member.
    #[must_use]
    pub fn decision(&self, uid: &str) -> Option<&Decision> {
        self.decisions.iter().find(|decision| decision.uid == uid)
    }

    /// The lane's threshold; none while nothing is decided.
    #[must_use]
    pub fn threshold(&self) -> Option<u32> {
        self.repositories.first()?.threshold
    }

    /// Whether a batch would fire now if nobody else wrote to the repository: its wait is to be recorded.
    #[must_use]
    pub fn waits_for_writers(&self) -> bool {
        let waits = |wait| {
            matches!(
                wait,
                Some(Wait::WritersRunning(_) | Wait::WritersFirst(_) | Wait::MaintenanceRunning)
            )
        };
        self.decisions.iter().any(|d| waits(d.not_yet))
    }

    /// Whether nothing has to be written, released, withdrawn or created.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.fire.is_none()
            && self.withdraw.is_none()
            && self.latch == LaneLatchChange::Keep
            && self.repositories.iter().all(RepositoryPlan::is_settled)
            && self
                .decisions
                .iter()
                .all(|d| !d.releases() && d.held_change == HeldChange::Keep)
    }
}

/// What is decided about one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// UID of the member.
    pub uid: String,
    /// The repository object it belongs to, when it is one of this lane.
    pub repository: Option<RepositoryKey>,
    /// It is pinned; one without a pin never shares a batch.
    pub pinned: bool,
    /// What becomes of it.
    pub verdict: Verdict,
    /// The rule of `docs/design.md` 3.3 that matched.
    pub rule: Rule,
    /// Why the verdict is not acted on in this plan; `None`: act now (a Delete without it rides in `fire`).
    pub not_yet: Option<Wait>,
    /// What to do with the condition `DeletionHeld`.
    pub held_change: HeldChange,
}

impl Decision {
    /// The finalizer is to be released now, without deleting anything.
    #[must_use]
    pub fn releases(&self) -> bool {
        self.not_yet.is_none() && self.verdict.keeps_data_and_ends()
    }

    /// What it waits for, to be written as `DeletionBlocked`; none for an end, for a held member (`DeletionHeld`
    /// is the breaker's alone) and for one that rides.
    #[must_use]
    pub fn waits_for(&self) -> Option<Wait> {
        match self.verdict {
            Verdict::Wait(wait) => Some(wait),
            Verdict::Held(_) | Verdict::InFlight => None,
            Verdict::Release(_) | Verdict::Orphan(_) | Verdict::Retain(_) | Verdict::Delete(_) => {
                self.not_yet
            }
        }
    }

    /// The word for condition, event, metric and docs: what it waits for if it waits, else the verdict's.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.waits_for()
            .map_or_else(|| self.verdict.reason(), Wait::reason)
    }
}

/// What to do with a member's condition `DeletionHeld`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeldChange {
    /// It is right as it is. The message tells the state when it was marked; the current one stands on the
    /// repository, or a growing wave would rewrite every member at every arrival.
    Keep,
    /// Set it to True, with the event `SnapshotDeletionHeld`. Only after the latch is recorded.
    Set,
    /// The member rides: set it to False with this reason, together with its claim (a member that
    /// [`Plan::confirm`] drops keeps it).
    Clear(DeleteReason),
}

/// What is to be written to one repository object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryPlan {
    /// Which object.
    pub key: RepositoryKey,
    /// What to do with `status.deletionProtection.acknowledgement`.
    pub acknowledgement: AcknowledgementChange,
    /// The annotation is not an RFC 3339 time, or too far ahead: event `InvalidMassDeletionAck` (once for each value), the
    /// breaker stays armed.
    pub invalid_acknowledgement: Option<String>,
    /// What to do with `status.deletionProtection.heldThrough`.
    pub held_through: LatchChange,
    /// The lane's threshold: the smallest that is not 0; 0 if the breaker is off. `None` while the caches are
    /// cold or another manager is alive: then no condition is written either.
    pub threshold: Option<u32>,
    /// The sliding window that is reached, if one is.
    pub window: Option<Reached>,
    /// Pending deletions of the lane that count against the threshold.
    pub count: usize,
    /// What is held on this object; none: `MassDeletionHeld` is False.
    pub hold: Option<Hold>,
}

impl RepositoryPlan {
    /// Whether neither acknowledgement nor latch has to be written.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.acknowledgement == AcknowledgementChange::Keep && self.held_through == LatchChange::Keep
    }

    /// Whether what is pending is at the threshold by itself.
    #[must_use]
    pub fn is_at_threshold(&self) -> bool {
        self.threshold
            .is_some_and(|threshold| is_at(self.count, threshold))
    }

    /// Status and reason of the condition `MassDeletionHeld`; none: leave it as it is.
    #[must_use]
    pub fn condition(&self) -> Option<(bool, &'static str)> {
        self.threshold?;
        Some(match (&self.hold, self.window) {
            (Some(_), Some(_)) if !self.is_at_threshold() => (true, "SlidingWindowExceeded"),
            (Some(_), _) => (true, "ThresholdExceeded"),
            (None, _) => (false, "BelowThreshold"),
        })
    }
}

/// What to do with the record of an acknowledgement. It is in force only once recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcknowledgementChange {
    /// It is right as it is.
    Keep,
    /// Write this one, before anything depends on it.
    Record(RecordedAcknowledgement),
    /// The annotation is gone or unreadable: remove the record.
    Forget,
}

/// What to do with the lane's own memory of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneLatchChange {
    /// It is right as it is.
    Keep,
    /// Write this one, before the first member is marked.
    Write(LaneLatch),
    /// No latched member is pending: remove it, last.
    Forget,
}

/// What to do with the latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatchChange {
    /// It is right as it is.
    Keep,
    /// Write this time before the first member is marked.
    Raise(Timestamp),
    /// No latched member is pending: remove it, last.
    Clear,
}

/// What a repository object holds back: the stuff of conditions and messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Members held that belong to this object.
    pub held: usize,
    /// The newest deletion time among them: the value to acknowledge.
    pub newest: Timestamp,
    /// Namespaces of the held members, with how many each.
    pub namespaces: BTreeMap<String, usize>,
    /// Since when.
    pub since: Timestamp,
}

/// A batch that may become one Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The repository object all members belong to.
    pub repository: RepositoryKey,
    /// UIDs, oldest deletion first, ties by UID; never empty.
    pub members: Vec<String>,
    /// Name of the Job, at most 63 characters; the same set has the same name.
    pub job_name: String,
}
