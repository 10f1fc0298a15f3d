//! Builders: Backups and runs of one namespace at a fixed time.

use holdfast_core::quota::capability::{self, CAREFUL};
use holdfast_core::quota::ledger::{Change, Ledger};
use holdfast_core::quota::record::{Application, JobEntry, Record};
use holdfast_core::quota::runs::{DriverRun, Phase, Platform, ResultLookup, RunFact};
use holdfast_core::quota::transitions::{BackupFact, Left, backup_gone, backup_seen};
use holdfast_core::quota::{Capabilities, DeclaredBy, Deletion, Dimensions, InForce, StrategyKind};
use jiff::Timestamp;
use std::collections::BTreeMap;

pub const GROUP: &str = "strategy.backups.cozystack.io";
pub const PLATFORM: Platform<'static> = Platform(GROUP);
pub const DIMENSIONS: Dimensions<'static> = Dimensions {
    size: "backups.cozystack.io/size",
    count: "backups.cozystack.io/count",
};
pub const MI: i64 = 1 << 20;
pub const GI: i64 = 1 << 30;
pub const NS: &str = "tenant-acme";

/// Second `n` of the tests' time.
pub fn t(n: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + n).unwrap()
}

pub fn strategy(kind: &str) -> StrategyKind {
    StrategyKind {
        group: GROUP.to_owned(),
        kind: kind.to_owned(),
    }
}

pub fn in_force(kind: &str) -> InForce {
    capability::in_force(GROUP, GROUP, kind, None).0
}

/// A driver that deletes in this way.
pub fn deleting(deletion: Deletion) -> InForce {
    InForce {
        capabilities: Capabilities { deletion, ..CAREFUL },
        from: DeclaredBy::Annotation,
    }
}

pub fn app(name: &str) -> Application {
    Application {
        group: "apps.cozystack.io".into(),
        kind: "Etcd".into(),
        name: name.into(),
    }
}

/// An Etcd Backup that names its object.
pub fn backup(name: &str, size: i64) -> BackupFact {
    BackupFact {
        uid: format!("uid-{name}"),
        name: name.into(),
        namespace: NS.into(),
        namespace_uid: Some("ns-1".into()),
        created_at: t(0),
        strategy: strategy("Etcd"),
        in_force: in_force("Etcd"),
        application: app("control"),
        uri: Some(format!("s3://shared-archive/{NS}/control/{name}.db")),
        driver_metadata: BTreeMap::new(),
        size_bytes: Some(size),
    }
}

pub fn run(name: &str, kind: &str) -> RunFact {
    RunFact {
        job: JobEntry {
            uid: format!("job-{name}"),
            name: name.into(),
            created_at: Some(t(0)),
        },
        namespace: NS.into(),
        namespace_uid: Some("ns-1".into()),
        strategy: Some(strategy(kind)),
        in_force: in_force(kind),
        application: app("control"),
        phase: Phase::Running,
        started_at: Some(t(0)),
        driver: DriverRun::NotKnown,
        result: ResultLookup::NotLooked,
    }
}

/// Applies changes as if each was written.
pub fn apply(ledger: &mut Ledger, changes: Vec<Change>) -> Vec<Change> {
    for change in &changes {
        ledger.apply(change);
    }
    changes
}

pub fn see(ledger: &mut Ledger, fact: &BackupFact, at: i64) -> Record {
    let changes = backup_seen(ledger, fact, t(at));
    apply(ledger, changes);
    of(ledger, fact)
}

pub fn delete(ledger: &mut Ledger, fact: &BackupFact, at: i64) -> Record {
    let changes = backup_gone(ledger, &fact.uid, Left::Deleted, t(at));
    apply(ledger, changes);
    of(ledger, fact)
}

/// The record of what a Backup refers to.
pub fn of(ledger: &Ledger, fact: &BackupFact) -> Record {
    ledger.get(&fact.identity().record_name()).unwrap().clone()
}

pub fn figures(ledger: &Ledger) -> (i64, i64, i64) {
    let figures = ledger.figures(NS);
    (figures.attributed(), figures.retained(), figures.used_count())
}
