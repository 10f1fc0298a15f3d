//! What each step does to the world, and promise 8.9 where a job is admitted.

use super::steps::Step;
use super::world::{HARD_COUNT, HARD_SIZE, NAMESPACES, Run, World, charged, driver, key, scope};
use crate::support::{DIMENSIONS, PLATFORM, app, strategy, t};
use holdfast_core::quota::Deletion;
use holdfast_core::quota::enumerate::{Fold, approve, judge, waiting};
use holdfast_core::quota::gate::{
    Decision, Knowledge, NameExists, Operation, Quota, Request, decide, in_flight,
};
use holdfast_core::quota::ledger::Change;
use holdfast_core::quota::record::{JobEntry, State};
use holdfast_core::quota::reservations::Reservation;
use holdfast_core::quota::runs::{DriverRun, Phase, ResultLookup, RunFact};
use holdfast_core::quota::transitions::{
    BackupFact, Evidence, Left, WriteOff, backup_gone, namespace_seen, overdue, purge, write_off,
};
use std::collections::BTreeMap;
use std::time::Duration;

impl World {
    fn create(&mut self, namespace: usize, kind: usize, application: usize, dry_run: bool) {
        let (kind, in_force) = driver(kind);
        let namespace_name = NAMESPACES[namespace];
        let uid = format!("j{:04}", self.made);
        self.made += 1;
        let request = Request {
            namespace: namespace_name.into(),
            uid: uid.clone(),
            application: app(&format!("app-{application}")),
            name_exists: NameExists::NotKnown,
            operation: Operation::Create,
            dry_run,
        };
        let quota = Quota {
            name: "q".into(),
            hard: BTreeMap::from([
                (DIMENSIONS.count.to_owned(), HARD_COUNT.to_string()),
                (DIMENSIONS.size.to_owned(), HARD_SIZE.to_string()),
            ]),
            ..Quota::default()
        };
        let knowledge = if self.now < self.refuses_until {
            Knowledge::TakingOver
        } else {
            Knowledge::Current(self.ledger.figures(namespace_name))
        };
        let flying = in_flight(&self.ledger, &self.reservations, namespace_name);
        let decision = decide(DIMENSIONS, &request, &[quota], &knowledge, &flying);
        let Decision::Admit(_) = decision else { return };
        // Promise 8.9, by the world's own counts.
        let (size, count) = charged(&self.written, namespace_name);
        let going_on = self.going_on(namespace_name);
        assert!(
            count + going_on < HARD_COUNT,
            "admitted over {HARD_COUNT}: {count} charged and {going_on} going on"
        );
        assert!(size < HARD_SIZE, "admitted at {size} of {HARD_SIZE}");
        assert_eq!(decision.reserves(&request), !dry_run);
        if dry_run {
            return;
        }
        self.admitted += 1;
        self.reservations.reserve(Reservation {
            uid: uid.clone(),
            namespace: namespace_name.into(),
            application: request.application.clone(),
            at: Duration::from_secs(self.now as u64),
        });
        let fact = RunFact {
            job: JobEntry {
                uid: uid.clone(),
                name: uid.clone(),
                created_at: Some(t(self.now)),
            },
            namespace: namespace_name.into(),
            namespace_uid: Some(format!("n{}", self.namespace_uid[namespace])),
            strategy: Some(strategy(kind)),
            in_force,
            application: request.application,
            phase: Phase::None,
            started_at: None,
            driver: DriverRun::NotKnown,
            result: ResultLookup::NotLooked,
        };
        self.runs.insert(
            uid,
            Run {
                fact,
                job: true,
                over: false,
                owed: false,
            },
        );
    }

    fn finish(&mut self, uid: &str, at: usize, claim: i64, shown: bool) {
        // One that time had ended before is counted again when it is seen, and not before.
        let counted = self.now < self.latest_end(&self.runs[uid]);
        let run = self.runs.get_mut(uid).unwrap();
        run.fact.started_at.get_or_insert(t(self.now));
        run.over = true;
        run.owed = counted;
        let fact = run.fact.clone();
        let kind = fact.strategy.as_ref().unwrap().kind.clone();
        let key = key(&fact.namespace, &kind, at);
        self.store.insert(key.clone(), claim.max(1));
        let backup = BackupFact {
            uid: format!("b-{uid}"),
            name: fact.job.name.clone(),
            namespace: fact.namespace.clone(),
            namespace_uid: fact.namespace_uid.clone(),
            created_at: t(self.now),
            strategy: fact.strategy.clone().unwrap(),
            in_force: fact.in_force,
            application: fact.application.clone(),
            uri: (kind != "Tape").then(|| format!("s3://b/{key}")),
            driver_metadata: BTreeMap::new(),
            size_bytes: Some(claim),
        };
        let backup_uid = backup.uid.clone();
        self.backups.insert(backup_uid.clone(), backup);
        self.runs.get_mut(uid).unwrap().fact.phase = Phase::Succeeded;
        self.changed.insert(uid.to_owned(), self.now);
        if shown {
            self.see_backup(&backup_uid);
        } else {
            self.unseen.insert(backup_uid, self.now);
        }
    }

    fn list(&mut self, whole: bool) {
        let mut fold = Fold::begin(&self.ledger, scope(), t(self.now));
        for (n, (key, bytes)) in self.store.iter().enumerate() {
            if !whole && n == 1 {
                return;
            }
            fold.object(key, *bytes);
        }
        let complete = fold.finish(t(self.now));
        let outcome = judge(&self.ledger, &complete, t(self.now));
        self.write(outcome.changes);
        self.now += 1;
    }

    /// A driver says how a deletion that it was asked for came out; deleting takes the bytes first.
    fn evidence(&mut self, name: &str) {
        let record = self.written[name].clone();
        let evidence = match (record.state, record.in_force.capabilities.deletion) {
            (State::PendingPurge, Deletion::Confirmed) => Evidence::ReadBack,
            (State::PendingPurge, _) if self.now % 3 == 0 => Evidence::Failed,
            // It speaks also about what nobody asked it to delete; that must change nothing.
            _ => Evidence::Succeeded,
        };
        if record.state == State::PendingPurge && evidence != Evidence::Failed {
            if let Some(at) = record.subject.identity().and_then(|identity| identity.location()) {
                self.store.remove(&at.key);
            }
            self.proofs += 1;
        }
        let change = purge(&self.ledger, name, evidence, t(self.now));
        if record.state != State::PendingPurge && record.reason.as_str().starts_with("Purge") {
            // Late success is as true as any.
            if let (Some(_), Some(at)) = (&change, record.subject.identity().and_then(|i| i.location())) {
                self.store.remove(&at.key);
            }
        }
        self.write(change.into_iter().collect());
    }

    fn wait(&mut self, seconds: i64) {
        self.keep_watch(self.now + seconds);
        self.now += seconds;
        let now = Duration::from_secs(self.now as u64);
        for old in self.reservations.expire(now, Some(now)) {
            if self.waits_for_its_backup(&old.uid) {
                self.reservations.reserve(Reservation { at: now, ..old });
            }
        }
        let due: Vec<Change> = self
            .ledger
            .timed()
            .flat_map(|record| overdue(PLATFORM, &self.ledger, record, t(self.now)))
            .collect();
        self.write(due);
    }

    pub fn step(&mut self, step: Step) {
        self.now += 1;
        self.keep_watch(self.now);
        match step {
            Step::Create {
                namespace,
                kind,
                app,
                dry_run,
            } => self.create(namespace, kind, app, dry_run),
            Step::SeeJob(n) => {
                if let Some(uid) = self.nth_run(n) {
                    self.see_job(&uid);
                }
            }
            Step::Begin(n) => {
                let now = t(self.now);
                if let Some(uid) = self.nth_open(n) {
                    let run = self.runs.get_mut(&uid).unwrap();
                    if run.job && !run.over && run.fact.started_at.is_none() {
                        run.fact.phase = Phase::Running;
                        run.fact.started_at = Some(now);
                        self.see_job(&uid);
                    }
                }
            }
            Step::Finish {
                job,
                key,
                claim,
                shown,
            } => {
                if let Some(uid) = self.nth_open(job) {
                    self.finish(&uid, key, claim, shown);
                }
            }
            Step::Fail(n) => {
                if let Some(uid) = self.nth_open(n) {
                    let run = self.runs.get_mut(&uid).unwrap();
                    if run.job && !run.over {
                        run.over = true;
                        run.fact.phase = Phase::Failed;
                    }
                }
            }
            Step::DeleteJob { job, shown } => {
                if let Some(uid) = self.nth_open(job) {
                    let run = self.runs.get_mut(&uid).unwrap();
                    if run.job {
                        run.job = false;
                        // A pod goes with its job; any other run goes on.
                        run.over |= run.fact.strategy.as_ref().unwrap().kind == "Job";
                        // What nobody had taken up never begins.
                        run.over |= run.fact.started_at.is_none();
                        if shown {
                            self.see_job_gone(&uid);
                        } else {
                            self.changed.insert(uid, self.now);
                        }
                    }
                }
            }
            Step::Claim { backup, claim } => {
                if let Some(uid) = self.nth_backup(backup) {
                    self.backups.get_mut(&uid).unwrap().size_bytes = Some(claim);
                    self.see_backup(&uid);
                }
            }
            Step::Move { backup, key: to } => {
                if let Some(uid) = self.nth_backup(backup) {
                    let fact = self.backups.get_mut(&uid).unwrap();
                    fact.uri = Some(format!(
                        "s3://b/{}",
                        key(&fact.namespace, &fact.strategy.kind, to)
                    ));
                    self.see_backup(&uid);
                }
            }
            Step::DeleteBackup { backup, shown, kept } => {
                if let Some(uid) = self.nth_backup(backup) {
                    self.backups.remove(&uid);
                    if shown {
                        let left = if kept { Left::Kept } else { Left::Deleted };
                        self.write(backup_gone(&self.ledger, &uid, left, t(self.now)));
                    }
                }
            }
            Step::Evidence(n) => {
                let asked: Vec<&String> = self
                    .written
                    .iter()
                    .filter(|(_, record)| record.state == State::PendingPurge)
                    .map(|(name, _)| name)
                    .collect();
                let name = match asked.get(n % asked.len().max(1)) {
                    Some(name) if n % 4 != 0 => Some((*name).clone()),
                    Some(_) | None => self.nth_record(n),
                };
                if let Some(name) = name {
                    self.evidence(&name);
                }
            }
            Step::Prune(n) => {
                if let Some(key) = self.store.keys().nth(n % self.store.len().max(1)).cloned() {
                    self.store.remove(&key);
                }
            }
            Step::List { whole } => self.list(whole),
            Step::Approve => {
                // The administrator looked: approves only what is really gone.
                if let Some(held) = waiting(&self.ledger, &scope()) {
                    let there = |name: &String| {
                        let at = self.written[name]
                            .subject
                            .identity()
                            .and_then(|i| i.location())
                            .cloned();
                        at.is_some_and(|at| self.store.contains_key(&at.key))
                    };
                    if !held.names.iter().any(there) {
                        self.write(approve(&self.ledger, &scope(), &held.token, t(self.now)).unwrap());
                    }
                }
            }
            Step::WriteOff(n) => {
                if let Some(name) = self.nth_record(n)
                    && let WriteOff::Done(change) = write_off(&self.ledger, &name, "jane", t(self.now))
                {
                    self.write(vec![change]);
                }
            }
            Step::Die(after) => self.dies_after = Some(after),
            Step::Wait(seconds) => self.wait(seconds),
            Step::Remake(n) => {
                self.namespace_uid[n] += 1;
                let uid = format!("n{}", self.namespace_uid[n]);
                self.write(namespace_seen(&self.ledger, NAMESPACES[n], &uid));
            }
        }
        if !self.alive() {
            self.check_indexes();
            self.start();
        }
    }
}
