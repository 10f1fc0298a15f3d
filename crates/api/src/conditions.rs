//! Conditions: their types, their reasons, and how a status keeps them.
//!
//! **Promises.** `lastTransitionTime` changes only when the status changes; setting a condition to what it is
//! already reports no change, so that nothing is written and no event is sent twice.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// kstatus: the object does what its spec asks for.
pub const READY: &str = "Ready";
/// kstatus: work is under way.
pub const RECONCILING: &str = "Reconciling";
/// kstatus: nothing will change without a person.
pub const STALLED: &str = "Stalled";
/// Repository: connect or create came out.
pub const BOOTSTRAPPED: &str = "Bootstrapped";
/// Repository: a wave is held.
pub const MASS_DELETION_HELD: &str = "MassDeletionHeld";
/// Repository: snapshots that were confirmed deleted are in it again.
pub const DELETED_SNAPSHOTS_REAPPEARED: &str = "DeletedSnapshotsReappeared";
/// Repository: its delete Jobs cannot start or connect.
pub const DELETION_JOBS_FAILING: &str = "DeletionJobsFailing";
/// Repository: other objects point to the same physical repository.
pub const SHARED_REPOSITORY: &str = "SharedRepository";
/// SnapshotPolicy: retention would prune as many as the threshold and waits for a person.
pub const MASS_PRUNE_HELD: &str = "MassPruneHeld";
/// SnapshotPolicy: the specs ask for another identity than its snapshots bear, and a person has not allowed the change.
pub const IDENTITY_CHANGE_HELD: &str = "IdentityChangeHeld";
/// Repository: of what was let go while its data stayed something is not remembered, so nothing is adopted.
pub const KEPT_MEMORY_INCOMPLETE: &str = "KeptMemoryIncomplete";
/// SnapshotPolicy: another policy claims the same identity, so neither adopts.
pub const ADOPTION_CONTESTED: &str = "AdoptionContested";
/// SnapshotPolicy: there is something to adopt, and something is not known that would have to be.
pub const ADOPTION_HELD: &str = "AdoptionHeld";
/// Snapshot: held by the breaker (and by nothing else).
pub const DELETION_HELD: &str = "DeletionHeld";
/// Snapshot: its deletion waits, and what will end the wait.
pub const DELETION_BLOCKED: &str = "DeletionBlocked";
/// Snapshot: its snapshot is not in the repository although nobody deleted it; it no longer counts.
pub const VANISHED: &str = "Vanished";
/// Snapshot: its record in the repository says that it is to be kept; Unknown while a Job is at it.
pub const PINNED: &str = "Pinned";
/// Snapshot: restored without its status by another tool; not run until it has one.
pub const STATUS_LOST: &str = "StatusLost";
/// Snapshot: Secret and ServiceAccount are there.
pub const CREDENTIALS_AVAILABLE: &str = "CredentialsAvailable";
/// Snapshot: the source claim exists.
pub const SOURCE_PVC_AVAILABLE: &str = "SourcePvcAvailable";
/// On Snapshot and Restore: the namespace agreed to the mover that was asked for.
pub const MOVER_PERMITTED: &str = "MoverPermitted";
/// Restore: what its source and target name is there.
pub const RESTORE_REFERENT_AVAILABLE: &str = "RestoreReferentAvailable";

/// SnapshotSchedule: the repositories of its policies disagree about what it leaves to them.
pub const TIMEZONE_DEFAULT_AMBIGUOUS: &str = "TimezoneDefaultAmbiguous";
/// SnapshotSchedule: it selects more policies than one schedule runs.
pub const FANOUT_CAPPED: &str = "FanoutCapped";
/// Maintenance: the repository says that we maintain it.
pub const LEASE_OWNED: &str = "LeaseOwned";
/// Repository: a probe reached it.
pub const BACKEND_REACHABLE: &str = "BackendReachable";
/// Repository: a Maintenance is of it.
pub const MAINTENANCE_CONFIGURED: &str = "MaintenanceConfigured";

/// Longest condition message the API server takes, in bytes.
pub const MESSAGE_LIMIT: usize = 32_768;

/// Status of one condition, or `None` when it is absent.
#[must_use]
pub fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == kind)
}

/// Whether a condition is present and `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    get(conditions, kind).is_some_and(|c| c.status == "True")
}

/// Sets one condition. Returns whether anything changed; `lastTransitionTime` moves only with the status.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let mut message = message.to_owned();
    if message.len() > MESSAGE_LIMIT {
        let mut end = MESSAGE_LIMIT;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
    }
    let status = if status { "True" } else { "False" };
    // The API keeps whole seconds; a finer value would differ from what is read back.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    match conditions.iter_mut().find(|c| c.type_ == kind) {
        Some(c) => {
            let changed = c.status != status
                || c.reason != reason
                || c.message != message
                || c.observed_generation != generation;
            if c.status != status {
                c.last_transition_time = Time(now);
            }
            c.status = status.to_owned();
            c.reason = reason.to_owned();
            c.message = message;
            c.observed_generation = generation;
            changed
        }
        None => {
            conditions.push(Condition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                observed_generation: generation,
                last_transition_time: Time(now),
            });
            true
        }
    }
}

/// Makes a condition that was just set say `Unknown`.
pub fn set_unknown(
    conditions: &mut Vec<Condition>,
    kind: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let was_unknown = get(conditions, kind).is_some_and(|c| c.status == "Unknown");
    let since = get(conditions, kind).map(|c| c.last_transition_time.clone());
    let changed = set(conditions, kind, false, reason, message, generation, now);
    if let Some(condition) = conditions.iter_mut().find(|c| c.type_ == kind) {
        "Unknown".clone_into(&mut condition.status);
        let moved = Timestamp::from_second(now.as_second()).unwrap_or(now);
        condition.last_transition_time = match since {
            Some(since) if was_unknown => since,
            Some(_) | None => Time(moved),
        };
    }
    changed
}

/// The three conditions that kstatus reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kstatus {
    /// [`READY`].
    pub ready: bool,
    /// [`RECONCILING`].
    pub reconciling: bool,
    /// [`STALLED`].
    pub stalled: bool,
}

impl Kstatus {
    /// Sets all three, with one reason and one sentence.
    pub fn set(
        self,
        conditions: &mut Vec<Condition>,
        reason: &str,
        message: &str,
        generation: Option<i64>,
        now: Timestamp,
    ) {
        for (kind, status) in [
            (READY, self.ready),
            (RECONCILING, self.reconciling),
            (STALLED, self.stalled),
        ] {
            set(conditions, kind, status, reason, message, generation, now);
        }
    }
}

/// Removes one condition. Returns whether it was there.
pub fn clear(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|c| c.type_ != kind);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let t0 = Timestamp::from_second(100).expect("time");
        let t1 = Timestamp::from_second(200).expect("time");
        let mut list = Vec::new();
        assert!(set(&mut list, READY, false, "A", "a", Some(1), t0));
        assert!(
            !set(&mut list, READY, false, "A", "a", Some(1), t1),
            "no change, nothing to write"
        );
        assert!(set(&mut list, READY, false, "B", "a", Some(1), t1));
        assert_eq!(list[0].last_transition_time.0, t0);
        assert!(set(&mut list, READY, true, "B", "a", Some(1), t1));
        assert_eq!(list[0].last_transition_time.0, t1);
    }
}
