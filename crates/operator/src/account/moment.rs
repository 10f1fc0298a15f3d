//! The ledger and the quotas, as the gate asks them.
//!
//! **Promises.** What is used and what is under way are of one moment: read under one lock. A BackupJob counts as
//! recorded only after everything that was seen of it is in the ledger.

use super::Account;
use super::gate::{Books, JobSeen, Moment};
use super::ledger::Item;
use super::world::Kind;
use holdfast_core::quota::gate::in_flight;
use holdfast_core::quota::reservations::Reservations;

impl Books for Account {
    fn moment(&self, namespace: &str, reservations: &Reservations) -> Moment {
        let live = self.world.namespaces();
        let (figures, in_flight) = self.book.read(|ledger| {
            let figures = ledger
                .figures(namespace)
                .plus(super::publish::stranded(ledger, &live, namespace));
            (figures, in_flight(ledger, reservations, namespace))
        });
        let quotas = self.world.quotas(namespace);
        Moment {
            quotas: quotas.iter().map(|view| view.quota.clone()).collect(),
            knowledge: self.knowledge(namespace, figures),
            in_flight,
        }
    }

    fn has_job_named(&self, namespace: &str, name: &str) -> bool {
        self.world.has_job_named(namespace, name)
    }

    fn jobs_silent_for(&self) -> Option<std::time::Duration> {
        self.pulse.silent_for(&Kind::Job)
    }

    fn job(&self, uid: &str) -> JobSeen {
        let seen = self.world.has_job(uid);
        let recorded = self.book.read(|ledger| ledger.get(uid).is_some());
        let owed = !self.arrears.has_looked() || self.arrears.owes(&Item::Job(uid.into()));
        match (recorded, seen, owed) {
            (true, _, _) | (false, true, false) => JobSeen::Recorded,
            (false, true, true) => JobSeen::Seen,
            (false, false, _) => JobSeen::Not,
        }
    }
}
