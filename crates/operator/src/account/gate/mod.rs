//! The gate: who may begin a backup (`docs/design.md` 4.4).
//!
//! **Promises.** One question at a time is decided and reserved, under one lock, by the one replica that leads; a
//! replica whose lease is not certainly valid answers nothing. A dry run leaves no trace. Only BackupJobs are asked
//! about: no restore, no Backup and no delete ever comes here. The decision itself is [`decide`]'s, in `core`.
//!
//! **Assumes.** [`Books`] tell of one moment. What was admitted is settled only after the ledger holds its record. The
//! server closes every connection when the leadership is lost, and hangs up after each answer given without it.

mod answer;
mod bundle;
mod drain;
mod live;
mod plans;
mod takeover;

pub use answer::PATH;
pub use bundle::publish as publish_bundle;
pub use live::{KubeNames, NameError, Names};
pub use plans::{Plans, Refused, run as tell_plans};
pub use takeover::{Listed, run as take_over};

use super::DIMENSIONS;
use crate::runtime::leader::Leadership;
use crate::runtime::metrics::Metrics;
use holdfast_core::quota::gate::{
    Decision, InFlight, Knowledge, NameExists, Operation, Quota, Request, decide,
};
use holdfast_core::quota::reservations::{Reservation, Reservations};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What is known of a namespace at one moment.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Its quotas.
    pub quotas: Vec<Quota>,
    /// What is stored, and how far that can be trusted.
    pub knowledge: Knowledge,
    /// Runs under way, recorded or reserved.
    pub in_flight: Vec<InFlight>,
}

/// The ledger and the quotas, as the gate asks them.
pub trait Books: Send + Sync + 'static {
    /// Everything that a decision reads, all of it of the same moment: a run that ends between two looks would be
    /// counted neither as a run nor as a result.
    fn moment(&self, namespace: &str, reservations: &Reservations) -> Moment;

    /// Whether a BackupJob of this name has been seen; a hint only, asked live before it counts.
    fn has_job_named(&self, namespace: &str, name: &str) -> bool;

    /// What is known of a BackupJob.
    fn job(&self, uid: &str) -> JobSeen;

    /// How long ago the watch of BackupJobs last told something; `None`: never.
    fn jobs_silent_for(&self) -> Option<Duration>;
}

/// What is known of a BackupJob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSeen {
    /// The ledger has its record, or had it: its reservation has done its work.
    Recorded,
    /// It was seen, and no record was written yet.
    Seen,
    /// It was not seen.
    Not,
}

/// What decisions are counted by.
pub trait Count: Send + Sync + 'static {
    /// One answer: its word, and how long it took inside the operator.
    fn answered(&self, reason: &'static str, took: Duration);
    /// How many reservations there are now.
    fn reserved(&self, reservations: usize);
}

impl Count for Metrics {
    fn answered(&self, reason: &'static str, took: Duration) {
        self.quota.answered(reason, took);
    }

    fn reserved(&self, reservations: usize) {
        self.quota.reserved(reservations);
    }
}

/// See the module.
pub struct Gate {
    books: Arc<dyn Books>,
    names: Arc<dyn Names>,
    leadership: Leadership,
    count: Arc<dyn Count>,
    plans: Plans,
    /// Reservations, by the clock that never goes back since the process began.
    desk: Mutex<Reservations>,
    began: Instant,
    closed: AtomicBool,
    /// The term of leadership for which it was read live what the last leader admitted.
    taken_over: AtomicU64,
}

impl Gate {
    /// A gate with nothing reserved.
    #[must_use]
    pub fn new(
        books: Arc<dyn Books>,
        names: Arc<dyn Names>,
        leadership: Leadership,
        count: Arc<dyn Count>,
        plans: Plans,
    ) -> Arc<Self> {
        Arc::new(Self {
            books,
            names,
            leadership,
            count,
            plans,
            desk: Mutex::default(),
            began: Instant::now(),
            closed: AtomicBool::new(false),
            taken_over: AtomicU64::new(0),
        })
    }

    /// Whether questions are answered: we lead, and are not about to end.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire) && self.leadership.is_leader()
    }

    /// Decides about one request and reserves what is admitted.
    ///
    /// # Errors
    /// [`NameError`] when a name that may exist cannot be looked up: then nothing is decided.
    pub async fn ask(&self, mut request: Request, name: &str) -> Result<Decision, NameError> {
        if let Some(decision) = self.at_once(&request, name) {
            return Ok(decision);
        }
        if request.operation == Operation::Create && self.names.exists(&request.namespace, name).await? {
            request.name_exists = NameExists::Yes;
        }
        // Decided anew: it took a moment to look.
        Ok(self.decide_and_reserve(&request))
    }

    /// The answer if it does not depend on whether the name exists: that is asked live, which takes a moment.
    fn at_once(&self, request: &Request, name: &str) -> Option<Decision> {
        let mut desk = self.desk();
        self.settle_of_namespace(&mut desk, &request.namespace);
        let decision = self.decision(request, &desk);
        match decision {
            Decision::Admit(_) if !self.books.has_job_named(&request.namespace, name) => {
                self.reserve(&mut desk, request, &decision);
                Some(decision)
            }
            Decision::Admit(_) | Decision::Refuse { .. } | Decision::AlreadyExists => None,
        }
    }

    fn decide_and_reserve(&self, request: &Request) -> Decision {
        let mut desk = self.desk();
        self.settle_of_namespace(&mut desk, &request.namespace);
        let decision = self.decision(request, &desk);
        self.reserve(&mut desk, request, &decision);
        decision
    }

    /// Settles those of these reservations that the ledger has: they are its own to count, or a run that has just ended
    /// would count twice.
    fn settle(&self, desk: &mut Reservations, these: Vec<String>) {
        for uid in these {
            if self.books.job(&uid) == JobSeen::Recorded {
                desk.settle(&uid);
            }
        }
    }

    fn settle_of_namespace(&self, desk: &mut Reservations, namespace: &str) {
        let these = desk.of_namespace(namespace).map(|one| one.uid.clone()).collect();
        self.settle(desk, these);
    }

    fn decision(&self, request: &Request, desk: &Reservations) -> Decision {
        let moment = self.books.moment(&request.namespace, desk);
        let knowledge = self.trusted(moment.knowledge);
        decide(DIMENSIONS, request, &moment.quotas, &knowledge, &moment.in_flight)
    }

    fn reserve(&self, desk: &mut Reservations, request: &Request, decision: &Decision) {
        if decision.reserves(request) {
            desk.reserve(Reservation {
                uid: request.uid.clone(),
                namespace: request.namespace.clone(),
                application: request.application.clone(),
                at: self.now(),
            });
            self.count.reserved(desk.len());
        }
    }

    /// Whether a request like this one would be admitted now; reserves nothing.
    #[must_use]
    pub fn has_room(&self, request: &Request) -> bool {
        let desk = self.desk();
        match self.decision(request, &desk) {
            Decision::Admit(_) | Decision::AlreadyExists => true,
            Decision::Refuse { .. } => false,
        }
    }

    /// Ends reservations whose job nobody has seen for too long, although the watch would have shown it. One that was
    /// seen and has no record yet goes on: its record could not be written, and it must be counted all the same.
    pub fn expire(&self) {
        let now = self.now();
        let silent_for = self.books.jobs_silent_for();
        let told = silent_for.map(|silent_for| now.saturating_sub(silent_for));
        let mut desk = self.desk();
        for old in desk.expire(now, told) {
            match self.books.job(&old.uid) {
                JobSeen::Seen => desk.reserve(Reservation { at: now, ..old }),
                JobSeen::Recorded => {}
                JobSeen::Not => tracing::info!(
                    namespace = old.namespace,
                    job = old.uid,
                    "an admitted BackupJob was never seen: something after the gate refused it; its reservation ends"
                ),
            }
        }
        self.count.reserved(desk.len());
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn desk(&self) -> MutexGuard<'_, Reservations> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
