//! Random histories of everything that can happen, with deaths between any two writes, and after each step the
//! promises 8.7 to 8.9 of `docs/design.md`.
//!
//! The world keeps its own truth (what lies in the store, which runs go on) and its own sums, so that a promise is
//! never checked with the code that is to keep it.

use crate::support::{GROUP, PLATFORM, app, deleting, strategy, t};
use holdfast_core::quota::Deletion;
use holdfast_core::quota::capability::{self, InForce};
use holdfast_core::quota::enumerate::{Fold, Layout, Scope, approve, judge, waiting};
use holdfast_core::quota::gate::{
    Decision, Knowledge, NameExists, Operation, Quota, Request, decide, in_flight,
};
use holdfast_core::quota::ledger::{Change, Ledger};
use holdfast_core::quota::record::{JobEntry, Record, State};
use holdfast_core::quota::reservations::{Reservation, Reservations};
use holdfast_core::quota::runs::{
    DriverRun, Phase, ResultLookup, RunFact, run_gone, run_seen, runs_gone_since,
};
use holdfast_core::quota::transitions::{
    BackupFact, Evidence, Left, WriteOff, backup_gone, backup_seen, gone_since, namespace_seen, overdue,
    purge, write_off,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NAMESPACES: [&str; 2] = ["tenant-acme", "tenant-beta"];
/// Limits that are in force all the time; sizes are small beside them.
const HARD_COUNT: i64 = 6;
const HARD_SIZE: i64 = 400;

#[derive(Debug, Clone)]
enum Step {
    /// Somebody asks for a backup.
    Create {
        namespace: usize,
        kind: usize,
        app: usize,
        dry_run: bool,
    },
    /// The watch shows a job.
    SeeJob(usize),
    /// A run begins.
    Begin(usize),
    /// A run ends well: bytes, then a Backup, then `Succeeded`.
    Finish {
        job: usize,
        key: usize,
        claim: i64,
        shown: bool,
    },
    /// A run fails.
    Fail(usize),
    /// A BackupJob is deleted; the watch may miss it.
    DeleteJob { job: usize, shown: bool },
    /// A Backup's size changes.
    Claim { backup: usize, claim: i64 },
    /// A Backup names another place.
    Move { backup: usize, key: usize },
    /// A Backup is deleted; the watch may miss it.
    DeleteBackup { backup: usize, shown: bool, kept: bool },
    /// A driver speaks about a deletion; what it says is true.
    Evidence(usize),
    /// A driver, or somebody, deletes bytes behind our back.
    Prune(usize),
    /// The store is listed.
    List { whole: bool },
    /// An administrator allows what waits.
    Approve,
    /// An administrator writes a record off.
    WriteOff(usize),
    /// The operator dies after this many writes of the next step, and starts again.
    Die(usize),
    /// Time passes.
    Wait(i64),
    /// A namespace is made again under its name.
    Remake(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let index = 0_usize..12;
    let key = 0_usize..4;
    prop_oneof![
        6 => (0_usize..2, 0_usize..5, 0_usize..2, prop::bool::weighted(0.1))
            .prop_map(|(namespace, kind, app, dry_run)| Step::Create { namespace, kind, app, dry_run }),
        4 => index.clone().prop_map(Step::SeeJob),
        3 => index.clone().prop_map(Step::Begin),
        6 => (index.clone(), key.clone(), -5_i64..100, any::<bool>())
            .prop_map(|(job, key, claim, shown)| Step::Finish { job, key, claim, shown }),
        1 => index.clone().prop_map(Step::Fail),
        2 => (index.clone(), any::<bool>()).prop_map(|(job, shown)| Step::DeleteJob { job, shown }),
        2 => (index.clone(), -5_i64..100).prop_map(|(backup, claim)| Step::Claim { backup, claim }),
        1 => (index.clone(), key.clone()).prop_map(|(backup, key)| Step::Move { backup, key }),
        4 => (index.clone(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(backup, shown, kept)| Step::DeleteBackup { backup, shown, kept }),
        3 => index.clone().prop_map(Step::Evidence),
        2 => index.clone().prop_map(Step::Prune),
        5 => prop::bool::weighted(0.85).prop_map(|whole| Step::List { whole }),
        1 => Just(Step::Approve),
        2 => index.prop_map(Step::WriteOff),
        2 => (0_usize..4).prop_map(Step::Die),
        3 => prop_oneof![1_i64..60, 1000_i64..100_000].prop_map(Step::Wait),
        1 => (0_usize..2).prop_map(Step::Remake),
    ]
}

/// A run as it really is.
#[derive(Debug, Clone)]
struct Run {
    fact: RunFact,
    /// Its BackupJob is there.
    job: bool,
    /// It has ended, well or not.
    over: bool,
}

#[derive(Default)]
struct World {
    now: i64,
    /// What lies in the store: key to bytes.
    store: BTreeMap<String, i64>,
    backups: BTreeMap<String, BackupFact>,
    runs: BTreeMap<String, Run>,
    made: usize,
    namespace_uid: [usize; 2],
    /// What was written to the API server.
    written: BTreeMap<String, Record>,
    ledger: Ledger,
    reservations: Reservations,
    /// After so many more writes the operator is dead.
    dies_after: Option<usize>,
    /// A new leader refuses until then.
    refuses_until: i64,
    admitted: usize,
    proofs: usize,
}

fn driver(kind: usize) -> (&'static str, InForce) {
    match kind {
        0 => ("Etcd", capability::in_force(GROUP, GROUP, "Etcd", None).0),
        1 => ("Velero", capability::in_force(GROUP, GROUP, "Velero", None).0),
        2 => ("Job", capability::in_force(GROUP, GROUP, "Job", None).0),
        3 => ("Ours", deleting(Deletion::Confirmed)),
        _ => ("Tape", capability::in_force(GROUP, GROUP, "Tape", None).0),
    }
}

/// A key of a driver, in the part of a namespace.
fn key(namespace: &str, kind: &str, key: usize) -> String {
    format!("{namespace}/{kind}/k{key}")
}

fn scope() -> Scope {
    Scope {
        store: "s".into(),
        place: "s3://b".into(),
        prefix: String::new(),
        layout: Layout::parse("{namespace}/{application}/{artifact...}", None).unwrap(),
        strategy_kinds: BTreeSet::new(),
    }
}

/// What is charged, by the words of the design and not by the code's sums.
fn charged(records: &BTreeMap<String, Record>, namespace: &str) -> (i64, i64) {
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
    fn nth_run(&self, n: usize) -> Option<String> {
        (!self.runs.is_empty()).then(|| self.runs.keys().nth(n % self.runs.len()).unwrap().clone())
    }

    fn nth_backup(&self, n: usize) -> Option<String> {
        (!self.backups.is_empty()).then(|| self.backups.keys().nth(n % self.backups.len()).unwrap().clone())
    }

    fn nth_record(&self, n: usize) -> Option<String> {
        (!self.written.is_empty()).then(|| self.written.keys().nth(n % self.written.len()).unwrap().clone())
    }

    fn alive(&self) -> bool {
        self.dies_after != Some(0)
    }

    /// Writes changes one by one; the operator may die between two.
    fn write(&mut self, changes: Vec<Change>) {
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
                    self.written.insert(record.name.clone(), (**record).clone());
                }
                Change::Remove { name, .. } => {
                    self.justify(old.as_ref(), None);
                    self.written.remove(name);
                }
            }
            self.ledger.apply(&change);
        }
    }

    /// Promise 8.7: what one write takes from `used` must be gone in truth, measured, or written off.
    fn justify(&self, old: Option<&Record>, new: Option<&Record>) {
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

    fn see_job(&mut self, uid: &str) {
        let run = &self.runs[uid];
        if !run.job {
            return;
        }
        let mut fact = run.fact.clone();
        // A live read, made when the job says Succeeded and no record has its Backup.
        let has_backup = self
            .backups
            .values()
            .any(|backup| backup.namespace == fact.namespace && backup.name == fact.job.name);
        if fact.phase == Phase::Succeeded && !has_backup {
            fact.result = ResultLookup::Absent;
        }
        self.write(run_seen(PLATFORM, &self.ledger, &fact, t(self.now)));
        if self.alive() {
            self.reservations.settle(uid);
        }
    }

    fn see_backup(&mut self, uid: &str) {
        let fact = self.backups[uid].clone();
        self.write(backup_seen(&self.ledger, &fact, t(self.now)));
    }

    /// A new leader: the ledger from what was written, and every object again.
    fn start(&mut self) {
        self.dies_after = None;
        self.ledger = Ledger::of(self.written.values().cloned());
        self.reservations = Reservations::default();
        self.refuses_until = self.now + 60;
        self.resync();
    }

    fn resync(&mut self) {
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
            let change = run_gone(PLATFORM, &self.ledger, &uid, t(self.now));
            self.write(change.into_iter().collect());
        }
    }

    /// Runs of a namespace that go on in truth, or whose result no record has yet.
    fn going_on(&self, namespace: &str) -> i64 {
        let recorded = |run: &Run| {
            self.written.values().any(|record| {
                record.namespace() == namespace
                    && record
                        .backups
                        .values()
                        .any(|backup| backup.name == run.fact.job.name)
            })
        };
        self.runs
            .values()
            .filter(|run| run.fact.namespace == namespace && !run.over && !recorded(run))
            .filter(|run| self.now < self.latest_end(run))
            .count() as i64
    }

    /// When a run stops counting by the words of the design.
    fn latest_end(&self, run: &Run) -> i64 {
        let second = |at: Option<jiff::Timestamp>| at.map(|at| at.as_second() - t(0).as_second());
        let deadline = if run.fact.strategy.as_ref().unwrap().kind == "Etcd" {
            1200
        } else {
            86_400
        };
        match second(run.fact.started_at) {
            Some(started) => started + deadline,
            // Its job's deletion, unless it was missed, comes later than its creation.
            None => second(run.fact.job.created_at).unwrap() + deadline,
        }
    }

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
                (
                    crate::support::DIMENSIONS.count.to_owned(),
                    HARD_COUNT.to_string(),
                ),
                (crate::support::DIMENSIONS.size.to_owned(), HARD_SIZE.to_string()),
            ]),
            ..Quota::default()
        };
        let knowledge = if self.now < self.refuses_until {
            Knowledge::TakingOver
        } else {
            Knowledge::Current(self.ledger.figures(namespace_name))
        };
        let flying = in_flight(&self.ledger, &self.reservations, namespace_name);
        let decision = decide(
            crate::support::DIMENSIONS,
            &request,
            &[quota],
            &knowledge,
            &flying,
        );
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
            },
        );
    }

    fn finish(&mut self, uid: &str, at: usize, claim: i64, shown: bool) {
        let run = self.runs.get_mut(uid).unwrap();
        if run.over || run.fact.started_at.is_none() {
            return;
        }
        run.over = true;
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
        if shown {
            self.see_backup(&backup_uid);
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
        // Watches show a job within a minute.
        if seconds >= 60 {
            for uid in self.runs.keys().cloned().collect::<Vec<_>>() {
                self.see_job(&uid);
            }
        }
        self.now += seconds;
        self.reservations.expire(Duration::from_secs(self.now as u64));
        let due: Vec<Change> = self
            .ledger
            .timed()
            .filter_map(|record| overdue(PLATFORM, record, t(self.now)))
            .collect();
        self.write(due);
    }

    fn step(&mut self, step: Step) {
        self.now += 1;
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
                if let Some(uid) = self.nth_run(n) {
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
                if let Some(uid) = self.nth_run(job) {
                    self.finish(&uid, key, claim, shown);
                }
            }
            Step::Fail(n) => {
                if let Some(uid) = self.nth_run(n) {
                    let run = self.runs.get_mut(&uid).unwrap();
                    if run.job && !run.over {
                        run.over = true;
                        run.fact.phase = Phase::Failed;
                    }
                }
            }
            Step::DeleteJob { job, shown } => {
                if let Some(uid) = self.nth_run(job) {
                    let run = self.runs.get_mut(&uid).unwrap();
                    if run.job {
                        run.job = false;
                        // A pod goes with its job; any other run goes on.
                        run.over |= run.fact.strategy.as_ref().unwrap().kind == "Job";
                        if shown {
                            let change = run_gone(PLATFORM, &self.ledger, &uid, t(self.now));
                            self.write(change.into_iter().collect());
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
                if let Some(name) = self.nth_record(n) {
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
            self.start();
        }
    }

    /// Promise 8.8: never negative, and the same as counted from scratch.
    fn check(&self) {
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
        assert_eq!(self.ledger, Ledger::of(self.written.values().cloned()), "indexes");
    }
}

/// What random histories have to have come to, or the test would show nothing.
#[derive(Debug, Default)]
struct Seen {
    admitted: usize,
    proofs: usize,
    states: BTreeMap<&'static str, usize>,
    reasons: BTreeMap<&'static str, usize>,
}

fn run_history(steps: Vec<Step>, seen: &mut Seen) {
    let mut world = World::default();
    for step in steps {
        world.step(step);
        world.check();
        for record in world.written.values() {
            *seen.states.entry(record.state.as_str()).or_default() += 1;
            *seen.reasons.entry(record.reason.as_str()).or_default() += 1;
        }
    }
    // With everything shown once more, nothing is left to write: the end does not depend on the deaths.
    world.dies_after = None;
    world.resync();
    world.check();
    let before = world.written.clone();
    world.resync();
    assert_eq!(world.written, before, "seeing the same again changes nothing");
    for backup in world.backups.values() {
        assert!(
            world.ledger.of_backup(&backup.uid).next().is_some() || refuses(&world, backup),
            "{backup:?} is nowhere"
        );
    }
    seen.admitted += world.admitted;
    seen.proofs += world.proofs;
}

/// A Backup without a record of its own: what it names was released or written off since.
fn refuses(world: &World, backup: &BackupFact) -> bool {
    world
        .ledger
        .get(&backup.identity().record_name())
        .is_some_and(|record| !record.state.is_charged())
}

#[test]
fn promise_7_8_9_hold_after_every_step_of_random_histories() {
    let cases: u32 = std::env::var("HOLDFAST_QUOTA_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(20_000);
    let seen = std::cell::RefCell::new(Seen::default());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&prop::collection::vec(step(), 1..60), |steps| {
            run_history(steps, &mut seen.borrow_mut());
            Ok(())
        })
        .unwrap();
    let seen = seen.into_inner();
    assert!(
        seen.admitted > cases as usize && seen.proofs > cases as usize / 50,
        "{seen:?}"
    );
    for state in [
        State::InFlight,
        State::Attributed,
        State::PendingPurge,
        State::Retained,
        State::Released,
        State::WrittenOff,
    ] {
        assert!(
            seen.states.contains_key(state.as_str()),
            "no history came to {state:?}: {seen:?}"
        );
    }
    for reason in holdfast_core::quota::Reason::ALL {
        let by_others = reason.as_str() == "NewerVersion";
        assert_eq!(
            seen.reasons.contains_key(reason.as_str()),
            !by_others,
            "{reason:?}: {:?}",
            seen.reasons
        );
    }
}
