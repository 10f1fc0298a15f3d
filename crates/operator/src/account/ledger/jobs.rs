//! What BackupJobs do to the ledger: facts about a run and how it ended.
//!
//! **Promises.** A run that says it succeeded is not settled before its Backup is recorded or a live read found none:
//! until then its reservation is all that may count it.

use super::{LISTS_AGAIN, PLATFORM, write};
use crate::account::Account;
use crate::account::world::Kind;
use crate::account::world::views::{JobView, StrategyRef};
use crate::context::Error;
use crate::runtime::queue::Next;
use holdfast_api::Backup;
use holdfast_core::quota::driver::RunState;
use holdfast_core::quota::runs::{self, DriverRun, Phase, ResultLookup, RunEnd, RunFact};
use holdfast_core::quota::{InForce, JobEntry, State};
use jiff::{SignedDuration, Timestamp};
use kube::api::Api;
use kube::core::PartialObjectMeta;
use std::time::Duration;

/// How soon it is looked again whether the watch has brought a Backup that exists.
const RESULT_AGAIN: Duration = Duration::from_secs(2);
/// A run that was never recorded ended within this time of its job's creation; older ones were before the ledger.
const YOUNG: SignedDuration = SignedDuration::from_mins(10);

/// What is read of a BackupJob and its run.
pub(super) fn run_fact(account: &Account, view: &JobView, result: ResultLookup) -> RunFact {
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
        (RunState::Completed, Phase::Failed) => DriverRun::Completed,
        (RunState::Failed, Phase::Failed) => DriverRun::Failed,
        // The driver is done, the platform is not: its Backup may be on its way, and counts until then.
        (
            RunState::Completed | RunState::Failed,
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

/// One pass over one BackupJob.
pub(super) async fn job(account: &Account, uid: &str) -> Result<Next, Error> {
    let now = account.clock.now();
    let Some(view) = account.world.job(uid) else {
        if account.world.has_job(uid) {
            return Ok(Next::Settled);
        }
        if !account.world.is_synced(&Kind::Job) {
            return Ok(Next::After(LISTS_AGAIN));
        }
        return job_gone(account, uid, now).await;
    };
    let fact = run_fact(account, &view, ResultLookup::NotLooked);
    let steps = account
        .book
        .decide(|ledger| runs::run_seen(PLATFORM, ledger, &fact, now));
    let looks_for_it = is_in_flight(account, uid) || is_unexplained(account, &view, now);
    if !steps.is_empty() || fact.phase != Phase::Succeeded || !looks_for_it {
        write::carry_out(account, steps).await?;
        return Ok(Next::Settled);
    }
    // It says that it succeeded, and no record has its Backup: the watch may still bring it.
    let name = view.backup.as_deref().unwrap_or(&view.name);
    if result_exists(account, &view.namespace, name, view.created_at).await? {
        return Ok(Next::After(RESULT_AGAIN));
    }
    let lookup = if account.arrears.is_new(view.created_at) {
        ResultLookup::AbsentOfNewJob
    } else {
        ResultLookup::Absent
    };
    let fact = run_fact(account, &view, lookup);
    let steps = account
        .book
        .decide(|ledger| runs::run_seen(PLATFORM, ledger, &fact, now));
    write::carry_out(account, steps).await?;
    Ok(Next::Settled)
}

/// A BackupJob is gone: its run goes on, until its driver says how it ended.
async fn job_gone(account: &Account, uid: &str, now: Timestamp) -> Result<Next, Error> {
    let run = account.book.read(|ledger| {
        let run = ledger.get(uid)?;
        Some((run.namespace().to_owned(), run.job.clone()?))
    });
    let state = run.as_ref().map_or(RunState::NotKnown, |(namespace, job)| {
        account.world.driver_run(namespace, &job.name)
    });
    let begun = account.world.begun(uid);
    let steps = match (state, &run) {
        (RunState::Completed, Some((namespace, job))) => {
            // The watch of Backups may be behind those of jobs and drivers.
            if is_unrecorded(account, namespace, job)
                && result_exists(account, namespace, &job.name, job.created_at).await?
            {
                return Ok(Next::After(RESULT_AGAIN));
            }
            account
                .book
                .decide(|ledger| runs::run_over(ledger, uid, RunEnd::Completed, now))
        }
        (RunState::Failed, _) => account
            .book
            .decide(|ledger| runs::run_over(ledger, uid, RunEnd::Failed, now)),
        (RunState::Completed | RunState::NotKnown | RunState::Running, _) => account.book.decide(|ledger| {
            let change = runs::run_gone(PLATFORM, ledger, uid, begun, now);
            change.into_iter().collect()
        }),
    };
    write::carry_out(account, steps).await?;
    account.world.forget_begun(uid);
    Ok(Next::Settled)
}

fn is_unrecorded(account: &Account, namespace: &str, job: &JobEntry) -> bool {
    account
        .book
        .read(|ledger| !ledger.has_result_of(namespace, &job.name, job.created_at))
}

/// Whether a job that succeeded has neither a record nor a result, although it is so young that it was not before the
/// ledger began: its reservation is all that counts it.
pub(super) fn is_unexplained(account: &Account, view: &JobView, now: Timestamp) -> bool {
    let is_young = view
        .created_at
        .is_none_or(|created| now.duration_since(created) < YOUNG);
    is_young
        && account.book.read(|ledger| {
            ledger.get(&view.uid).is_none()
                && !ledger.has_result_of(&view.namespace, &view.name, view.created_at)
        })
}

fn is_in_flight(account: &Account, uid: &str) -> bool {
    account
        .book
        .read(|ledger| ledger.get(uid).is_some_and(|run| run.state == State::InFlight))
}

/// Whether a Backup exists, live, that a run of a job of this age can have made.
async fn result_exists(
    account: &Account,
    namespace: &str,
    name: &str,
    job_created_at: Option<Timestamp>,
) -> Result<bool, Error> {
    let api: Api<PartialObjectMeta<Backup>> = Api::namespaced(account.client.clone(), namespace);
    let found = match api.get_opt(name).await {
        Ok(found) => found,
        // Without the kind there is no Backup.
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => return Err(error.into()),
    };
    Ok(found.is_some_and(|backup| {
        let created = backup.metadata.creation_timestamp.map(|time| time.0);
        job_created_at.is_none_or(|job| created.is_none_or(|backup| backup >= job))
    }))
}

#[cfg(test)]
mod tests;
