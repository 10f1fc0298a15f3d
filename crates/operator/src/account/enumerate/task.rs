//! The task of one store: when it is due, list it, judge, write, tell.
//!
//! **Promises.** Nothing is listed or written unless this process leads and its ledger is complete. Only a listing
//! that reached the end changes records, through the same writes as everything else the ledger decides. One that
//! broke off goes on after the last whole page, unless the store is described otherwise by then.

use super::bucket::Bucket;
use super::reason::{StoreReason, Trouble};
use super::walk::{Step, Walk};
use super::{Stores, secrets, status};
use crate::account::Account;
use crate::account::ledger::carry_out;
use crate::context::Error;
use futures::StreamExt as _;
use holdfast_api::ledger::BackupStore;
use holdfast_api::ledger::scope::scope;
use holdfast_api::names;
use holdfast_api::shared::duration;
use holdfast_core::quota::enumerate::{self, Complete, Held, Scope};
use holdfast_core::quota::unaccounted::Told;
use holdfast_core::quota::{Change, Ledger, pace};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether this process leads.
const IDLE: Duration = Duration::from_secs(2);
/// Longest sleep: the clock may be set.
const LONGEST: Duration = Duration::from_secs(600);
/// How often progress is told.
const TOLD: Duration = Duration::from_secs(15);
/// A listing that is older than this is begun anew: its continuation may mean nothing to the server any more.
const STALE: SignedDuration = SignedDuration::from_hours(6);
/// Records written at once.
const AT_ONCE: usize = 8;
/// Times that one listing is judged when records change meanwhile.
const ROUNDS: u32 = 20;

/// A listing that broke off.
struct Broken {
    generation: Option<i64>,
    walk: Walk,
}

/// Follows one store until it is gone.
pub async fn follow(
    account: Arc<Account>,
    stores: Arc<Stores>,
    mut object: watch::Receiver<BackupStore>,
    end: CancellationToken,
) {
    let mut broken = None;
    // What we wrote ourselves, until the watch shows it too.
    let mut written: Option<BackupStore> = None;
    loop {
        let wait = if is_ready(&account) {
            let shown = object.borrow_and_update().clone();
            let now = newer(shown, written.as_ref());
            match pass(&account, &stores, &now, &mut broken, &end).await {
                Ok((then, wait)) => {
                    written = then.or(written);
                    wait
                }
                Err(error) => {
                    let store = now.metadata.name.as_deref().unwrap_or_default();
                    tracing::warn!(store, %error, "what was found of a store cannot be written; it is tried again");
                    Duration::from_secs(15)
                }
            }
        } else {
            broken = None;
            written = None;
            let name = object.borrow().metadata.name.clone();
            account.metrics.stores.forget(name.as_deref().unwrap_or_default());
            IDLE
        };
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            changed = object.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait.clamp(Duration::from_millis(100), LONGEST)) => {}
        }
    }
}

fn is_ready(account: &Account) -> bool {
    account.leadership.is_leader() && account.world.is_complete() && account.arrears.has_looked()
}

fn newer(shown: BackupStore, written: Option<&BackupStore>) -> BackupStore {
    let version = |object: &BackupStore| -> u64 {
        let version = object.metadata.resource_version.as_deref().unwrap_or_default();
        version.parse().unwrap_or(0)
    };
    match written {
        Some(written) if written.metadata.uid == shown.metadata.uid && version(written) > version(&shown) => {
            written.clone()
        }
        Some(_) | None => shown,
    }
}

type Passed = (Option<BackupStore>, Duration);

async fn pass(
    account: &Account,
    stores: &Stores,
    store: &BackupStore,
    broken: &mut Option<Broken>,
    end: &CancellationToken,
) -> Result<Passed, Error> {
    let now = account.clock.now();
    let name = store.metadata.name.as_deref().unwrap_or_default();
    let told = store.status.clone().unwrap_or_default();
    stores.learn(account, name, &told);
    if store.spec.suspend {
        *broken = None;
        let is_told = told
            .conditions
            .iter()
            .any(|c| c.reason == StoreReason::Suspended.as_str())
            && told.observed_generation == store.metadata.generation;
        if is_told {
            return Ok((None, LONGEST));
        }
        let written = status::tell(account, name, |status, generation| {
            status::suspended(status, generation, now);
        })
        .await?;
        return Ok((Some(written), LONGEST));
    }
    let annotation = |key: &str| store.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let interval = duration(&store.spec.interval).unwrap_or(SignedDuration::from_hours(6));
    let scope = match scope(store) {
        Ok(scope) => scope,
        Err(error) if told.observed_generation == store.metadata.generation && told.failures > 0 => {
            tracing::debug!(store = name, %error, "the layout is still unreadable");
            return Ok((None, LONGEST));
        }
        Err(error) => {
            let trouble = Trouble::new(StoreReason::BadSpec, error.to_string());
            return give_up(account, store, &trouble)
                .await
                .map(|then| (Some(then), LONGEST));
        }
    };
    if let Some(token) = annotation(names::APPROVE_RELEASE).filter(|token| !token.is_empty())
        && told
            .approved_release
            .as_ref()
            .is_none_or(|done| done.token != *token)
        && let Some(written) = release(account, name, &scope, token).await?
    {
        return Ok((Some(written), Duration::ZERO));
    }
    let past = pace::Past {
        complete_began: told.last_complete_listing.as_ref().map(|last| last.started_at),
        attempted: told.last_attempt_at,
        failures: told.failures,
        requested: annotation(names::LIST_REQUESTED_AT).and_then(|text| text.parse().ok()),
    };
    // What was described otherwise is looked at at once, also after failures.
    let is_new = told.observed_generation != store.metadata.generation;
    let due = if is_new {
        now
    } else {
        pace::next(&past, interval, now)
    };
    if due > now {
        let wait = due.duration_since(now);
        return Ok((None, Duration::try_from(wait).unwrap_or(IDLE)));
    }
    match list(account, name, store, scope, broken, end).await {
        Ok(Some(complete)) => {
            let versioned = versioned(account, store).await;
            let held = conclude(account, &complete).await?;
            let unaccounted = complete.unaccounted.iter();
            let told = Told {
                by_namespace: unaccounted
                    .map(|(namespace, sum)| (namespace.clone(), sum.bytes))
                    .collect(),
                names_all: complete.unaccounted_elsewhere.objects == 0,
            };
            stores.found(account, name, told);
            let now = account.clock.now();
            // Of the description that was listed, not of one that came meanwhile.
            let generation = store.metadata.generation;
            let written = status::tell(account, name, |status, _| {
                status::complete(status, &complete, held.as_ref(), versioned, generation, now);
                status.next_listing_at = now.checked_add(interval).ok();
            })
            .await?;
            let reason = match &held {
                Some(_) => StoreReason::ReleaseWaits,
                None => StoreReason::Listed,
            };
            account.metrics.stores.attempted(name, reason);
            tracing::info!(
                store = name,
                objects = complete.all.objects,
                bytes = complete.all.bytes,
                waits = held.is_some(),
                "a store was listed"
            );
            Ok((Some(written), IDLE))
        }
        // Told to stop, or another process leads now.
        Ok(None) => Ok((None, IDLE)),
        Err(trouble) => give_up(account, store, &trouble)
            .await
            .map(|then| (Some(then), IDLE)),
    }
}

async fn give_up(account: &Account, store: &BackupStore, trouble: &Trouble) -> Result<BackupStore, Error> {
    let name = store.metadata.name.as_deref().unwrap_or_default();
    let generation = store.metadata.generation;
    tracing::warn!(store = name, reason = trouble.reason.as_str(), error = %trouble, "a store was not listed");
    account.metrics.stores.attempted(name, trouble.reason);
    let now = account.clock.now();
    let written = status::tell(account, name, |status, _| {
        status::failed(status, trouble, generation, now);
        let past = pace::Past {
            complete_began: None,
            attempted: Some(now),
            failures: status.failures,
            requested: None,
        };
        status.next_listing_at = Some(pace::next(&past, SignedDuration::from_hours(1), now));
    })
    .await?;
    Ok(written)
}

async fn open(account: &Account, store: &BackupStore) -> Result<Bucket, Trouble> {
    let (keys, certificates) = secrets::read(account, &store.spec).await?;
    Bucket::open(&store.spec, keys, certificates.as_deref())
}

async fn versioned(account: &Account, store: &BackupStore) -> Option<bool> {
    open(account, store).await.ok()?.is_versioned().await
}

/// Lists to the end. `None`: this process is to stop.
async fn list(
    account: &Account,
    name: &str,
    store: &BackupStore,
    scope: Scope,
    broken: &mut Option<Broken>,
    end: &CancellationToken,
) -> Result<Option<Complete>, Trouble> {
    let bucket = open(account, store).await?;
    let now = account.clock.now();
    let generation = store.metadata.generation;
    let resumed = broken.take().filter(|broken| {
        broken.generation == generation && now.duration_since(broken.walk.started_at) < STALE
    });
    // Begun anew after it broke off again and again at the same place: the fault may be in the continuation.
    let failures = store.status.as_ref().map_or(0, |status| status.failures);
    let mut walk = match resumed.filter(|_| !failures.is_multiple_of(3)) {
        Some(broken) => broken.walk,
        None => account.book.read(|ledger| Walk::begin(ledger, scope, now)),
    };
    let mut last_told = Instant::now();
    loop {
        if end.is_cancelled() || !is_ready(account) {
            return Ok(None);
        }
        match walk.step(&bucket).await {
            Ok(Step::End) => return Ok(Some(walk.finish(account.clock.now()))),
            Ok(Step::More) => {}
            Err(trouble) => {
                *broken = Some(Broken { generation, walk });
                return Err(trouble);
            }
        }
        if last_told.elapsed() >= TOLD {
            last_told = Instant::now();
            let told = status::tell(account, name, |status, _| {
                status::under_way(status, walk.started_at, walk.last_key.as_deref(), walk.progress());
            });
            // Progress is for people; the listing goes on without.
            if let Err(error) = told.await {
                tracing::debug!(store = name, %error, "progress cannot be told");
            }
        }
    }
}

/// Judges a complete listing and writes what it leads to.
async fn conclude(account: &Account, complete: &Complete) -> Result<Option<Held>, Error> {
    let mut held = None;
    until_written(account, |ledger, now| {
        let outcome = enumerate::judge(ledger, complete, now);
        held = outcome.held;
        outcome.changes
    })
    .await?;
    Ok(held)
}

/// Carries out an approved release. `None`: the token is not what waits.
async fn release(
    account: &Account,
    name: &str,
    scope: &Scope,
    token: &str,
) -> Result<Option<BackupStore>, Error> {
    let waits = account.book.read(|ledger| enumerate::waiting(ledger, scope));
    let Some(waits) = waits.filter(|held| held.token == token) else {
        return Ok(None);
    };
    let now = account.clock.now();
    tracing::info!(
        store = name,
        records = waits.names.len(),
        bytes = waits.bytes,
        "an approved release is carried out"
    );
    // After a conflict, what is left has a token of its own: it goes on as long as all of it was approved.
    let approved: BTreeSet<&String> = waits.names.iter().collect();
    until_written(account, |ledger, now| {
        enumerate::waiting(ledger, scope)
            .filter(|left| left.names.iter().all(|name| approved.contains(name)))
            .and_then(|left| enumerate::approve(ledger, scope, &left.token, now))
            .unwrap_or_default()
    })
    .await?;
    let held = account.book.read(|ledger| enumerate::waiting(ledger, scope));
    let written = status::tell(account, name, |status, generation| {
        status::approved(status, token, held.as_ref(), generation, now);
    })
    .await?;
    Ok(Some(written))
}

/// Decides and writes until nothing overtakes it.
async fn until_written(
    account: &Account,
    mut decide: impl FnMut(&Ledger, Timestamp) -> Vec<Change>,
) -> Result<(), Error> {
    for round in 1..=ROUNDS {
        let now = account.clock.now();
        let steps = account.book.decide(|ledger| decide(ledger, now));
        match write_all(account, steps).await {
            Err(Error::Conflict) => tokio::time::sleep(Duration::from_millis(100) * round).await,
            done => return done,
        }
    }
    Err(Error::Conflict)
}

/// Writes changes of different records, some at once. A conflict is answered only after all were tried.
async fn write_all(account: &Account, steps: Vec<crate::account::book::Step>) -> Result<(), Error> {
    let mut done = futures::stream::iter(steps)
        .map(|step| carry_out(account, vec![step]))
        .buffer_unordered(AT_ONCE);
    let mut conflict = false;
    while let Some(one) = done.next().await {
        match one {
            Ok(()) => {}
            Err(Error::Conflict) => conflict = true,
            Err(error) => return Err(error),
        }
    }
    if conflict { Err(Error::Conflict) } else { Ok(()) }
}
