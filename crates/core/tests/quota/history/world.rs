//! The world: what really lies in the store and really runs, and an operator that writes and may die.

use crate::support::{GROUP, PLATFORM, deleting, t};
use holdfast_core::quota::Deletion;
use holdfast_core::quota::capability::{self, IdentityKind, InForce};
use holdfast_core::quota::enumerate::{Layout, Scope};
use holdfast_core::quota::ledger::{Change, Ledger};
use holdfast_core::quota::record::{Reason, Record, RemoveReason, State};
use holdfast_core::quota::reservations::Reservations;
use holdfast_core::quota::runs::{Phase, ResultLookup, RunFact, run_gone, run_seen, runs_gone_since};
use holdfast_core::quota::transitions::{BackupFact, Left, backup_gone, backup_seen, gone_since};
use std::collections::{BTreeMap, BTreeSet};

pub const NAMESPACES: [&str; 2] = ["tenant-acme", "tenant-beta"];
/// Limits that are in force all the time; sizes are small beside them.
pub const HARD_COUNT: i64 = 6;
pub const HARD_SIZE: i64 = 400;

/// A run as it really is.
#[derive(Debug, Clone)]
pub struct Run {
    pub fact: RunFact,
    /// Its BackupJob is there.
    pub job: bool,
    /// It has ended, well or not.
    pub over: bool,
    /// It has ended well, and no record has had what it wrote.
    pub owed: bool,
}

#[derive(Default)]
pub struct World {
    pub now: i64,
    /// What lies in the store: key to bytes.
    pub store: BTreeMap<String, i64>,
    pub backups: BTreeMap<String, BackupFact>,
    pub runs: BTreeMap<String, Run>,
    /// Backups that the watch has not shown, and since when they exist.
    pub unseen: BTreeMap<String, i64>,
    /// Jobs that ended or went and that the watch has not shown like that, and since when.
    pub changed: BTreeMap<String, i64>,
    /// When this operator began.
    pub began: i64,
    pub made: usize,
    pub namespace_uid: [usize; 2],
    /// What was written to the API server.
    pub written: BTreeMap<String, Record>,
    pub ledger: Ledger,
    pub reservations: Reservations,
    /// After so many more writes the operator is dead.
    pub dies_after: Option<usize>,
    /// A new leader refuses until then.
    pub refuses_until: i64,
    pub admitted: usize,
    pub proofs: usize,
    pub reasons: BTreeSet<Reason>,
}

pub fn driver(kind: usize) -> (&'static str, InForce) {
    match kind {
        0 => ("Etcd", capability::in_force(GROUP, GROUP, "Etcd", None).0),
        1 => ("Velero", capability::in_force(GROUP, GROUP, "Velero", None).0),
        2 => ("Job", capability::in_force(GROUP, GROUP, "Job", None).0),
        3 => ("CNPG", capability::in_force(GROUP, GROUP, "CNPG", None).0),
        4 => ("Ours", deleting(Deletion::Confirmed)),
        _ => ("Tape", capability::in_force(GROUP, GROUP, "Tape", None).0),
    }
}

/// A key of a driver, in the part of a namespace.
pub fn key(namespace: &str, kind: &str, key: usize) -> String {
    format!("{namespace}/{kind}/k{key}")
}

pub fn scope() -> Scope {
    Scope {
        store: "s".into(),
        place: "s3://b".into(),
        prefix: String::new(),
        layout: Layout::parse("{namespace}/{application}/{artifact...}", None).unwrap(),
        strategy_kinds: BTreeSet::new(),
    }
}

/// What is charged, by the words of the design and not by the code's sums.
pub fn charged(records: &BTreeMap<String, Record>, namespace: &str) -> (i64, i64) {
    let mut sums = (0, 0);
    for record in records.values().filter(|record| record.namespace() == namespace) {
        match record.state {
            State::Attributed | State::PendingPurge | State::Retained | State::Unknown => {
                sums.0 += record.size.bytes.unwrap_or(0);
                sums.1 += 1;
            }
            State::InFlight | State::Released | State::WrittenOff => {}
        }
    }
    sums
}

impl World {
    pub fn nth_run(&self, n: usize) -> Option<String> {
        (!self.runs.is_empty()).then(|| self.runs.keys().nth(n % self.runs.len()).unwrap().clone())
    }

    /// A run that has not ended, if there is one.
    pub fn nth_open(&self, n: usize) -> Option<String> {
        let open: Vec<&String> = self
            .runs
            .iter()
            .filter(|(_, run)| !run.over)
            .map(|(uid, _)| uid)
            .collect();
        (!open.is_empty()).then(|| open[n % open.len()].clone())
    }

    pub fn nth_backup(&self, n: usize) -> Option<String> {
        (!self.backups.is_empty()).then(|| self.backups.keys().nth(n % self.backups.len()).unwrap().clone())
    }

    pub fn nth_record(&self, n: usize) -> Option<String> {
        (!self.written.is_empty()).then(|| self.written.keys().nth(n % self.written.len()).unwrap().clone())
    }

    pub fn alive(&self) -> bool {
        self.dies_after != Some(0)
    }

    /// Writes changes one by one; the operator may die between two.
    pub fn write(&mut self, changes: Vec<Change>) {
        for change in changes {
            if !self.alive() {
                return;
            }
            if let Some(left) = &mut self.dies_after {
                *left -= 1;
            }
            let old = self.written.get(change.name()).cloned();
            match &change {
                Change::Write(record) => {
                    self.justify(old.as_ref(), Some(record));
                    self.pay(record);
                    self.reasons.insert(record.reason);
                    self.written.insert(record.name.clone(), (**record).clone());
                }
                Change::Remove { name, reason } => {
                    self.justify(old.as_ref(), None);
                    let ended_unseen = *reason == RemoveReason::DeadlinePassed && self.is_stood_for(name);
                    if *reason == RemoveReason::Replaced || ended_unseen {
                        self.runs.get_mut(name).unwrap().owed = false;
                    }
                    self.written.remove(name);
                }
            }
            self.ledger.apply(&change);
        }
    }

    /// Promise 8.7: what one write takes from `used` must be gone in truth, measured, or written off.
    pub fn justify(&self, old: Option<&Record>, new: Option<&Record>) {
        let bytes = |record: Option<&Record>| {
            record
                .filter(|record| record.state.is_charged())
                .map(|record| record.size.bytes.unwrap_or(0))
        };
        let (Some(before), Some(old)) = (bytes(old), old) else {
            return;
        };
        let after = bytes(new);
        if after.is_some_and(|after| after >= before) {
            return;
        }
        let new = new.unwrap_or_else(|| panic!("a charged record was deleted: {old:?}"));
        let location = old.subject.identity().and_then(|identity| identity.location());
        let stored = location.and_then(|at| self.store.get(&at.key));
        match new.state {
            State::WrittenOff => assert!(
                old.backups.is_empty(),
                "written off under a living Backup: {old:?}"
            ),
            State::Released => assert_eq!(stored, None, "released although it is there: {old:?}"),
            State::Attributed | State::PendingPurge | State::Retained => {
                assert_eq!(
                    new.size.bytes,
                    stored.copied(),
                    "lowered without a measurement: {old:?} {new:?}"
                );
            }
            State::InFlight | State::Unknown => panic!("{old:?} became {new:?}"),
        }
    }

    /// What this record stands for is counted from now on, whatever becomes of it.
    fn pay(&mut self, record: &Record) {
        let left_behind = record.reason == Reason::NoBackupRecorded;
        for run in self.runs.values_mut().filter(|run| run.owed) {
            let job = &run.fact.job;
            let of_backup = record.namespace() == run.fact.namespace
                && record.backups.values().any(|backup| backup.name == job.name);
            let of_run = left_behind && record.job.as_ref().is_some_and(|of| of.uid == job.uid);
            run.owed = !of_backup && !of_run;
        }
    }

    /// Where runs write over one key, what is charged of the application may stand for this run's bytes too.
    fn is_stood_for(&self, uid: &str) -> bool {
        let fact = &self.runs[uid].fact;
        fact.in_force.capabilities.identity == IdentityKind::Shared
            && self.written.values().any(|record| {
                record.state.is_charged()
                    && record.namespace() == fact.namespace
                    && record.application == fact.application
                    && record.subject.strategy() == fact.strategy.as_ref()
            })
    }

    fn has_backup(&self, run: &Run) -> bool {
        self.backups
            .values()
            .any(|backup| backup.namespace == run.fact.namespace && backup.name == run.fact.job.name)
    }

    /// Its job says Succeeded, its Backup is there, and no record has either: nothing counts it but its reservation.
    pub fn waits_for_its_backup(&self, uid: &str) -> bool {
        let run = &self.runs[uid];
        let job = &run.fact.job;
        let has_result = self
            .ledger
            .has_result_of(&run.fact.namespace, &job.name, job.created_at);
        let recorded = self.ledger.get(uid).is_some() || has_result;
        run.fact.phase == Phase::Succeeded && self.has_backup(run) && !recorded
    }

    pub fn see_job(&mut self, uid: &str) {
        let run = &self.runs[uid];
        if !run.job {
            return;
        }
        let mut fact = run.fact.clone();
        // A live read, made when the job says Succeeded and no record has its Backup.
        if fact.phase == Phase::Succeeded && !self.has_backup(run) {
            let is_new = fact
                .job
                .created_at
                .is_some_and(|created| created >= t(self.began));
            fact.result = if is_new {
                ResultLookup::AbsentOfNewJob
            } else {
                ResultLookup::Absent
            };
        }
        self.write(run_seen(PLATFORM, &self.ledger, &fact, t(self.now)));
        // Where runs write over one key, what is charged of the application may stand for it.
        let one_key = fact.in_force.capabilities.identity == IdentityKind::Shared;
        if self.alive() && fact.result != ResultLookup::NotLooked && one_key {
            self.runs.get_mut(uid).unwrap().owed = false;
        }
        if self.alive() && !self.waits_for_its_backup(uid) {
            self.reservations.settle(uid);
        }
    }

    pub fn see_job_gone(&mut self, uid: &str) {
        let run = &self.runs[uid];
        if !run.job {
            let change = run_gone(PLATFORM, &self.ledger, uid, run.fact.started_at, t(self.now));
            self.write(change.into_iter().collect());
        }
    }

    pub fn see_backup(&mut self, uid: &str) {
        self.unseen.remove(uid);
        let fact = self.backups[uid].clone();
        self.write(backup_seen(&self.ledger, &fact, t(self.now)));
    }

    /// Watches show a job and a Backup within a minute.
    pub fn keep_watch(&mut self, until: i64) {
        let late = self.unseen.iter().filter(|(_, since)| until - **since >= 60);
        let late: Vec<String> = late.map(|(uid, _)| uid.clone()).collect();
        for uid in late {
            if self.backups.contains_key(&uid) {
                self.see_backup(&uid);
            } else {
                self.unseen.remove(&uid);
            }
        }
        let late = self.changed.iter().filter(|(_, since)| until - **since >= 60);
        let late: Vec<String> = late.map(|(uid, _)| uid.clone()).collect();
        for uid in late {
            self.changed.remove(&uid);
            self.see_job(&uid);
            self.see_job_gone(&uid);
        }
        let unseen: Vec<String> = NAMESPACES
            .iter()
            .flat_map(|namespace| self.reservations.of_namespace(namespace))
            .filter(|reservation| until - reservation.at.as_secs() as i64 >= 60)
            .map(|reservation| reservation.uid.clone())
            .collect();
        for uid in unseen {
            self.see_job(&uid);
        }
    }

    /// A new leader: the ledger from what was written, and every object again.
    pub fn start(&mut self) {
        self.dies_after = None;
        self.began = self.now;
        // Admitted, carried out and deleted again before any record: with the operator goes the last that knew of it.
        let forgotten: Vec<String> = self
            .runs
            .iter()
            .filter(|(uid, run)| run.owed && !self.written.contains_key(*uid) && !self.has_backup(run))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in forgotten {
            self.runs.get_mut(&uid).unwrap().owed = false;
        }
        self.ledger = Ledger::of(self.written.values().cloned());
        self.reservations = Reservations::default();
        self.refuses_until = self.now + 60;
        self.resync();
    }

    pub fn resync(&mut self) {
        let backups: BTreeSet<String> = self.backups.keys().cloned().collect();
        for uid in &backups {
            self.see_backup(uid);
        }
        for uid in gone_since(&self.ledger, &backups) {
            self.write(backup_gone(&self.ledger, &uid, Left::Deleted, t(self.now)));
        }
        let jobs: BTreeSet<String> = self
            .runs
            .iter()
            .filter(|(_, run)| run.job)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in &jobs {
            self.see_job(uid);
        }
        for uid in runs_gone_since(&self.ledger, &jobs) {
            let change = run_gone(PLATFORM, &self.ledger, &uid, None, t(self.now));
            self.write(change.into_iter().collect());
        }
    }

    /// Runs of a namespace that go on in truth, or whose result no record has yet.
    pub fn going_on(&self, namespace: &str) -> i64 {
        self.runs
            .values()
            .filter(|run| run.fact.namespace == namespace)
            .filter(|run| run.owed || (!run.over && self.now < self.latest_end(run)))
            .count() as i64
    }

    /// When a run stops counting by the words of the design.
    pub fn latest_end(&self, run: &Run) -> i64 {
        let second = |at: Option<jiff::Timestamp>| at.map(|at| at.as_second() - t(0).as_second());
        let deadline = match run.fact.strategy.as_ref().unwrap().kind.as_str() {
            "Etcd" => 1200,
            "CNPG" => 1800,
            _ => 86_400,
        };
        match second(run.fact.started_at) {
            Some(started) => started + deadline,
            // Its job's deletion, unless it was missed, comes later than its creation.
            None => second(run.fact.job.created_at).unwrap() + deadline,
        }
    }

    /// Promise 8.8: never negative, and the same as counted from scratch.
    pub fn check(&self) {
        for namespace in NAMESPACES {
            let figures = self.ledger.figures(namespace);
            assert_eq!(figures, self.ledger.recount(namespace));
            assert_eq!(
                (figures.used_size(), figures.used_count()),
                charged(&self.written, namespace)
            );
            assert_eq!(figures.used_size(), figures.attributed() + figures.retained());
            assert!(figures.attributed() >= 0 && figures.retained() >= figures.pending_purge());
            assert!(figures.pending_purge() >= 0 && figures.unreported() <= figures.used_count());
        }
    }

    /// The ledger that was kept up to date is the one that is built from what was written.
    pub fn check_indexes(&self) {
        assert_eq!(self.ledger, Ledger::of(self.written.values().cloned()));
    }
}
