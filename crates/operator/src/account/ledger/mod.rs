//! The ledger: what objects and time do to records.
//!
//! **Promises.** One pass over one item: facts, decision ([`holdfast_core::quota::transitions`], `runs`, `driver`),
//! writes in the order they were decided. A write that something overtook is decided again. What happened while
//! nobody looked is found by comparing records with objects ([`first_look`]).
//!
//! **Assumes.** The world is complete: before that nothing is decided.

pub mod arrears;
mod first_look;
mod jobs;
mod write;

use super::Account;
use super::world::Kind;
use super::world::views::{BackupView, StrategyRef};
use crate::context::Error;
use crate::runtime::queue::Next;
pub use first_look::{first_look, gone_backups};
use holdfast_api::names;
use holdfast_core::quota::driver;
use holdfast_core::quota::runs::Platform;
use holdfast_core::quota::transitions::{self, BackupFact, Left};
use holdfast_core::quota::{Change, Ledger, Location, Record};
use k8s_openapi::api::core::v1::ObjectReference;
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
        Item::Job(uid) => jobs::job(account, uid).await?,
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
        match (proven, ledger.get(name)) {
            (Some(change), _) => vec![change],
            (None, Some(record)) => transitions::overdue(PLATFORM, ledger, record, now),
            (None, None) => Vec::new(),
        }
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
            !transitions::overdue(PLATFORM, ledger, record, now).is_empty()
                || proof(account, record).is_some()
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
