//! The ledger: what objects and time do to records.
//!
//! **Promises.** One pass over one item: facts, decision ([`holdfast_core::quota::transitions`], `runs`, `driver`),
//! writes in the order they were decided. A write that something overtook is decided again. What happened while
//! nobody looked is found by comparing records with objects ([`first_look`]).
//!
//! **Assumes.** The world is complete: before that nothing is decided.

pub mod arrears;
mod first_look;
mod write;

use super::Account;
use super::world::Kind;
use super::world::views::{BackupView, JobView, StrategyRef};
use crate::context::Error;
use crate::runtime::queue::Next;
pub use first_look::{first_look, gone_backups};
use holdfast_api::{Backup, names};
use holdfast_core::quota::driver::{self, RunState};
use holdfast_core::quota::runs::{self, DriverRun, Phase, Platform, ResultLookup, RunFact};
use holdfast_core::quota::transitions::{self, BackupFact, Left};
use holdfast_core::quota::{Change, InForce, JobEntry, Ledger, Location, Record, State};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::events::EventType;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
pub(super) use write::carry_out;

/// The platform's group, by which built-in rows are chosen.
const PLATFORM: Platform<'static> = Platform(names::STRATEGY_GROUP);

/// How soon it is looked again whether a list has ended.
const LISTS_AGAIN: Duration = Duration::from_secs(1);

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// A Backup, by UID.
    Backup(Arc<str>),
    /// A BackupJob, by UID.
    Job(Arc<str>),
    /// A record, by name: time, a driver's objects, or a hand that deleted it.
    Record(Arc<str>),
    /// A namespace.
    Namespace(String),
    /// What a strategy declares.
    Strategy(StrategyRef),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backup(uid) => write!(f, "Backup {uid}"),
            Self::Job(uid) => write!(f, "BackupJob {uid}"),
            Self::Record(name) => write!(f, "record {name}"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Strategy(strategy) => write!(f, "{} {}", strategy.kind.kind, strategy.name),
        }
    }
}

/// One pass over one item.
///
/// # Errors
/// [`Error`].
pub async fn pass(account: &Account, item: &Item) -> Result<Next, Error> {
    if !account.world.is_complete() || !account.arrears.has_looked() {
        // The first look comes to everything.
        return Ok(Next::After(LISTS_AGAIN));
    }
    let began = std::time::Instant::now();
    let next = match item {
        Item::Backup(uid) => backup(account, uid).await?,
        Item::Job(uid) => job(account, uid).await?,
        Item::Record(name) => record(account, name).await?,
        Item::Namespace(name) => namespace(account, name).await?,
        Item::Strategy(strategy) => {
            declaration(account, strategy).await;
            Next::Settled
        }
    };
    if next == Next::Settled
        && let Some(added_up) = account.arrears.settle(item, began)
    {
        account.touch(added_up);
    }
    Ok(next)
}

/// What is read of a Backup.
fn backup_fact(account: &Account, view: &BackupView) -> BackupFact {
    BackupFact {
        uid: view.uid.to_string(),
        name: view.name.to_string(),
        namespace: view.namespace.to_string(),
        namespace_uid: account
            .world
            .namespace(&view.namespace)
            .map(|namespace| namespace.uid),
        created_at: view.created_at,
        strategy: view.strategy.kind.clone(),
        in_force: account.world.in_force(&view.strategy).0,
        application: (*view.application).clone(),
        uri: view.uri.as_deref().map(str::to_owned),
        driver_metadata: view.driver_metadata(),
        size_bytes: view.size_bytes,
    }
}

/// What is read of a BackupJob and its run.
fn run_fact(account: &Account, view: &JobView, result: ResultLookup) -> RunFact {
    let strategy = account.world.strategy_of(view);
    let nobody = StrategyRef {
        kind: holdfast_core::quota::StrategyKind {
            group: String::new(),
            kind: String::new(),
        },
        name: String::new(),
    };
    let in_force: InForce = account.world.in_force(strategy.as_ref().unwrap_or(&nobody)).0;
    let driver = match (account.world.driver_run(&view.namespace, &view.name), view.phase) {
        (RunState::NotKnown, _) => DriverRun::NotKnown,
        (RunState::Over, Phase::Failed) => DriverRun::Over,
        // The driver is done, the platform is not: its Backup may be on its way, and counts until then.
        (
            RunState::Over,
            Phase::None | Phase::Pending | Phase::Running | Phase::Succeeded | Phase::Unknown,
        )
        | (RunState::Running, _) => DriverRun::Running,
    };
    RunFact {
        job: JobEntry {
            uid: view.uid.to_string(),
            name: view.name.to_string(),
            created_at: view.created_at,
        },
        namespace: view.namespace.to_string(),
        namespace_uid: account
            .world
            .namespace(&view.namespace)
            .map(|namespace| namespace.uid),
        strategy: strategy.map(|strategy| strategy.kind),
        in_force,
        application: (*view.application).clone(),
        phase: view.phase,
        started_at: view.started_at,
        driver,
        result,
    }
}

async fn backup(account: &Account, uid: &str) -> Result<Next, Error> {
    let now = account.clock.now();
    let steps = match account.world.backup(uid) {
        Some(view) => {
            let fact = backup_fact(account, &view);
            if fact.size_is_nonsense() {
                let note = "status.artifact.sizeBytes is negative and counts as unknown; correct it";
                warn_backup(account, &view, "SizeIsNonsense", note).await;
            }
            account
                .book
                .decide(|ledger| transitions::backup_seen(ledger, &fact, now))
        }
        None if account.world.has_backup(uid) => return Ok(Next::Settled),
        // The list began anew this moment: whether it is gone is asked again when it has ended.
        None if !account.world.is_synced(&Kind::Backup) => return Ok(Next::After(LISTS_AGAIN)),
        None => account
            .book
            .decide(|ledger| transitions::backup_gone(ledger, uid, Left::Deleted, now)),
    };
    let moved: Vec<String> = steps.iter().map(|step| step.change.name().to_owned()).collect();
    write::carry_out(account, steps).await?;
    // What its driver did before the Backup was seen to go counts too.
    moved
        .into_iter()
        .for_each(|name| account.items.add(Item::Record(name.into())));
    Ok(Next::Settled)
}

async fn job(account: &Account, uid: &str) -> Result<Next, Error> {
    let now = account.clock.now();
    let Some(view) = account.world.job(uid) else {
        if account.world.has_job(uid) {
            return Ok(Next::Settled);
        }
        if !account.world.is_synced(&Kind::Job) {
            return Ok(Next::After(LISTS_AGAIN));
        }
        let over = account.book.read(|ledger| {
            let run = ledger.get(uid)?;
            let job = run.job.as_ref()?;
            Some(account.world.driver_run(run.namespace(), &job.name) == RunState::Over)
        });
        let steps = account.book.decide(|ledger| {
            let change = match over {
                Some(true) => runs::run_over(ledger, uid),
                Some(false) | None => runs::run_gone(PLATFORM, ledger, uid, now),
            };
            change.into_iter().collect()
        });
        write::carry_out(account, steps).await?;
        return Ok(Next::Settled);
    };
    let fact = run_fact(account, &view, ResultLookup::NotLooked);
    let steps = account
        .book
        .decide(|ledger| runs::run_seen(PLATFORM, ledger, &fact, now));
    if !steps.is_empty() || fact.phase != Phase::Succeeded || !is_in_flight(account, uid) {
        write::carry_out(account, steps).await?;
        return Ok(Next::Settled);
    }
    // It says that it succeeded, and no record has its Backup: the watch may still bring it.
    if result_exists(account, &view).await? {
        return Ok(Next::After(Duration::from_secs(2)));
    }
    let fact = run_fact(account, &view, ResultLookup::Absent);
    let steps = account
        .book
        .decide(|ledger| runs::run_seen(PLATFORM, ledger, &fact, now));
    write::carry_out(account, steps).await?;
    Ok(Next::Settled)
}

fn is_in_flight(account: &Account, uid: &str) -> bool {
    account
        .book
        .read(|ledger| ledger.get(uid).is_some_and(|run| run.state == State::InFlight))
}

/// Whether a Backup exists, live, that the run can have made.
async fn result_exists(account: &Account, job: &JobView) -> Result<bool, Error> {
    let api: Api<PartialObjectMeta<Backup>> = Api::namespaced(account.client.clone(), &job.namespace);
    let name = job.backup.as_deref().unwrap_or(&job.name);
    let found = match api.get_opt(name).await {
        Ok(found) => found,
        // Without the kind there is no Backup.
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => return Err(error.into()),
    };
    Ok(found.is_some_and(|backup| {
        let created = backup.metadata.creation_timestamp.map(|time| time.0);
        job.created_at
            .is_none_or(|job| created.is_none_or(|backup| backup >= job))
    }))
}

async fn record(account: &Account, name: &str) -> Result<Next, Error> {
    if let Some(lost) = account.book.lost(name) {
        write::restore(account, lost).await?;
        return Ok(Next::Settled);
    }
    let now = account.clock.now();
    let Some(record) = account.book.read(|ledger| ledger.get(name).cloned()) else {
        return Ok(Next::Settled);
    };
    let proof = proof(account, &record);
    let steps = account.book.decide(|ledger| {
        let proven = proof.and_then(|evidence| transitions::purge(ledger, name, evidence, now));
        let overdue = || {
            ledger
                .get(name)
                .and_then(|record| transitions::overdue(PLATFORM, record, now))
        };
        proven.or_else(overdue).into_iter().collect()
    });
    write::carry_out(account, steps).await?;
    Ok(Next::Settled)
}

/// Records that time has ended, or that their driver's objects prove something about.
#[must_use]
pub fn due(account: &Account) -> Vec<Arc<str>> {
    let now = account.clock.now();
    account.book.read(|ledger| {
        let due = ledger.timed().filter(|record| {
            transitions::overdue(PLATFORM, record, now).is_some() || proof(account, record).is_some()
        });
        due.map(|record| record.name.as_str().into()).collect()
    })
}

/// What the driver's objects prove about a record.
fn proof(account: &Account, record: &Record) -> Option<transitions::Evidence> {
    let location = record.subject.identity()?.location()?;
    let facts = account.world.driver_facts(location)?;
    driver::evidence(record, facts, account.clock.now())
}

/// Names of the records at a location that a driver's objects speak of.
#[must_use]
pub fn at_location(ledger: &Ledger, at: &Location) -> Vec<Arc<str>> {
    let velero = holdfast_core::quota::StrategyKind {
        group: names::STRATEGY_GROUP.to_owned(),
        kind: "Velero".to_owned(),
    };
    ledger
        .at(&velero, at)
        .map(|record| record.name.as_str().into())
        .collect()
}

async fn namespace(account: &Account, name: &str) -> Result<Next, Error> {
    let Some(view) = account.world.namespace(name) else {
        return Ok(Next::Settled);
    };
    let steps = account
        .book
        .decide(|ledger| transitions::namespace_seen(ledger, name, &view.uid));
    write::carry_out(account, steps).await?;
    Ok(Next::Settled)
}

/// A declaration that cannot be read is not in force, and its author is told.
async fn declaration(account: &Account, strategy: &StrategyRef) {
    let (_, error) = account.world.in_force(strategy);
    let (Some(view), Some(error)) = (account.world.strategy(strategy), error) else {
        return;
    };
    let about = ObjectReference {
        api_version: Some(view.api_version),
        kind: Some(strategy.kind.kind.clone()),
        name: Some(strategy.name.clone()),
        uid: Some(view.uid),
        ..ObjectReference::default()
    };
    let note = format!("{}: {error}. What is built in is in force.", names::CAPABILITIES);
    let _ = account
        .events
        .publish(
            &about,
            EventType::Warning,
            "CapabilitiesUnreadable",
            &note,
            "ReadCapabilities",
        )
        .await;
}

async fn warn_backup(account: &Account, view: &BackupView, reason: &str, note: &str) {
    let about = ObjectReference {
        api_version: Some(format!("{}/{}", names::BACKUPS_GROUP, names::BACKUPS_VERSION)),
        kind: Some("Backup".to_owned()),
        name: Some(view.name.to_string()),
        namespace: Some(view.namespace.to_string()),
        uid: Some(view.uid.to_string()),
        ..ObjectReference::default()
    };
    let _ = account
        .events
        .publish(&about, EventType::Warning, reason, note, "Account")
        .await;
}

/// Whether a change moves a record into a state that it was not in.
fn is_transition(before: Option<&Record>, change: &Change) -> bool {
    match change {
        Change::Write(record) => {
            before.is_none_or(|before| (before.state, before.reason) != (record.state, record.reason))
        }
        Change::Remove { .. } => false,
    }
}
