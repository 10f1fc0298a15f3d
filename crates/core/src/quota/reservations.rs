//! Admitted BackupJobs that no record stands for yet (`docs/design.md` 4.4).
//!
//! **Promises.** What was admitted counts from the answer on, until its record is written, or until nobody has seen
//! the job for 90 seconds (another admission plugin may have refused it after us) although the watch of jobs told
//! something when it would have been there: what a dead watch does not show proves nothing. A question about one
//! namespace costs what that namespace has reserved, whatever others have.
//!
//! **Assumes.** One leader holds them, in memory; after a takeover the gate refuses for as long as they could live.
//! Times are of a clock that never goes back.

use super::record::Application;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an admitted job may stay unseen.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// How long the API server may take to create what was admitted; later it does not (its own limit of a request).
pub const ARRIVES: Duration = Duration::from_secs(60);

/// An admitted BackupJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// UID of the job, as it is in the admission request's object.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// What it backs up.
    pub application: Application,
    /// When it was admitted.
    pub at: Duration,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reservations {
    by_uid: BTreeMap<String, Reservation>,
    by_namespace: BTreeMap<String, BTreeSet<String>>,
}

impl Reservations {
    /// Reserves; a second admission of the same object renews the first.
    pub fn reserve(&mut self, reservation: Reservation) {
        // An object's namespace never changes.
        let of_namespace = self
            .by_namespace
            .entry(reservation.namespace.clone())
            .or_default();
        of_namespace.insert(reservation.uid.clone());
        self.by_uid.insert(reservation.uid.clone(), reservation);
    }

    fn remove(&mut self, uid: &str) -> Option<Reservation> {
        let removed = self.by_uid.remove(uid)?;
        if let Some(of_namespace) = self.by_namespace.get_mut(&removed.namespace) {
            of_namespace.remove(uid);
            if of_namespace.is_empty() {
                self.by_namespace.remove(&removed.namespace);
            }
        }
        Some(removed)
    }

    /// The job's record is written, or its result is: the reservation has done its work.
    pub fn settle(&mut self, uid: &str) -> bool {
        self.remove(uid).is_some()
    }

    /// Ends those that nobody has seen for too long, and returns them. `told`: when the watch of jobs last told
    /// something; only after a job would have been there its absence from the watch proves anything.
    pub fn expire(&mut self, now: Duration, told: Option<Duration>) -> Vec<Reservation> {
        let is_proof = |at: Duration| told.is_some_and(|told| told >= at.saturating_add(ARRIVES));
        let old: Vec<String> = self
            .by_uid
            .values()
            .filter(|reservation| now.saturating_sub(reservation.at) >= PATIENCE && is_proof(reservation.at))
            .map(|reservation| reservation.uid.clone())
            .collect();
        old.iter().filter_map(|uid| self.remove(uid)).collect()
    }

    /// Those of a namespace.
    pub fn of_namespace<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a Reservation> {
        let uids = self.by_namespace.get(namespace).into_iter().flatten();
        uids.filter_map(|uid| self.by_uid.get(uid))
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Reservation> {
        self.by_uid.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_job_that_a_dead_watch_does_not_show_goes_on_counting() {
        let mut desk = Reservations::default();
        desk.reserve(Reservation {
            uid: "u".to_owned(),
            namespace: "a".to_owned(),
            application: Application::default(),
            at: at(100),
        });
        assert!(
            desk.expire(at(5_000), None).is_empty(),
            "the watch never told anything"
        );
        assert!(
            desk.expire(at(5_000), Some(at(159))).is_empty(),
            "the job may have come after the watch fell silent"
        );
        assert!(
            desk.expire(at(189), Some(at(189))).is_empty(),
            "it may be on its way"
        );
        assert_eq!(desk.expire(at(190), Some(at(160))).len(), 1);
        assert!(desk.is_empty());
    }
}
