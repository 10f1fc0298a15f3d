//! What BackupJobs do to records: a run is recorded when it is seen, and counted until it is over
//! (`docs/design.md` 4.1).
//!
//! **Promises.** A run whose BackupJob was deleted goes on counting. A job that no controller ever takes up stops
//! counting after a day. A run whose Backup is recorded is never counted beside it.
//!
//! **Assumes.** A Backup has the name of its BackupJob, and is created before the job says `Succeeded`; watches of
//! two kinds may show them in the other order.

use super::capability::{IdentityKind, InForce, built_in};
use super::identity::{Identity, StrategyKind, Thing};
use super::ledger::{Change, Ledger};
use super::record::{Application, JobEntry, Reason, Record, RemoveReason, Size, State, Subject, Times};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// After this long a run without a deadline of its driver's no longer counts.
pub const RUN_LIMIT: SignedDuration = SignedDuration::from_hours(24);

/// Phase of a BackupJob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Absent or empty: nobody has taken it up.
    None,
    /// Taken up.
    Pending,
    /// Under way.
    Running,
    /// A Backup was created.
    Succeeded,
    /// It failed, or was given up.
    Failed,
    /// A word we do not know: as if it were under way.
    Unknown,
}

/// What the driver's own object says about the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DriverRun {
    /// Nobody looked, or there is none to look at.
    NotKnown,
    /// It runs.
    Running,
    /// It is over.
    Over,
}

/// Whether the run's Backup exists, when the job says `Succeeded` and no record has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResultLookup {
    /// Nobody looked; the watch may still bring it.
    NotLooked,
    /// A live read found no Backup that this run can have made.
    Absent,
}

/// What is read of a BackupJob and its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFact {
    /// The job.
    pub job: JobEntry,
    /// Its namespace.
    pub namespace: String,
    /// UID of the namespace, if it is known.
    pub namespace_uid: Option<String>,
    /// The strategy that its BackupClass names, if that could be resolved.
    pub strategy: Option<StrategyKind>,
    /// What that driver does.
    pub in_force: InForce,
    /// What is backed up.
    pub application: Application,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.startedAt`.
    pub started_at: Option<Timestamp>,
    /// What the driver's own object says.
    pub driver: DriverRun,
    /// Whether its Backup was looked for.
    pub result: ResultLookup,
}

/// The platform's group of strategies, by which the built-in table is chosen.
#[derive(Debug, Clone, Copy)]
pub struct Platform<'a>(pub &'a str);

/// A BackupJob was seen, for the first time or again.
#[must_use]
pub fn run_seen(platform: Platform<'_>, ledger: &Ledger, fact: &RunFact, now: Timestamp) -> Vec<Change> {
    let recorded = ledger
        .get(&fact.job.uid)
        .filter(|record| record.state == State::InFlight);
    if ledger.has_result_of(&fact.namespace, &fact.job.name, fact.job.created_at) {
        return recorded
            .map(|run| remove(run, RemoveReason::Recorded))
            .into_iter()
            .collect();
    }
    let seen = seen(recorded, fact, now);
    let ended = match (fact.phase, fact.driver) {
        (_, DriverRun::Over) if fact.phase != Phase::Succeeded => Some(RemoveReason::RunOver),
        (Phase::Failed, DriverRun::NotKnown | DriverRun::Over) => Some(RemoveReason::RunFailed),
        (Phase::Failed, DriverRun::Running)
        | (
            Phase::None | Phase::Pending | Phase::Running | Phase::Succeeded | Phase::Unknown,
            DriverRun::NotKnown | DriverRun::Running | DriverRun::Over,
        ) => limit_passed(platform, &seen, now),
    };
    match (recorded, ended, fact.phase) {
        (Some(run), _, Phase::Succeeded) => succeeded(run, fact, now),
        // A result that was deleted before anybody looked: what is counted begins with the ledger.
        (None, _, Phase::Succeeded) => Vec::new(),
        (Some(run), Some(reason), _) => vec![remove(run, reason)],
        (None, Some(_), _) => Vec::new(),
        (Some(run), None, _) if *run == seen => Vec::new(),
        (_, None, _) => vec![Change::Write(Box::new(seen))],
    }
}

/// The run's record as it is with this fact.
fn seen(recorded: Option<&Record>, fact: &RunFact, now: Timestamp) -> Record {
    let times = recorded.map(|run| run.times).unwrap_or_else(|| Times {
        recorded_at: Some(now),
        admitted_at: Some(fact.job.created_at.unwrap_or(now)),
        ..Times::default()
    });
    Record {
        name: fact.job.uid.clone(),
        subject: Subject::Run {
            namespace: fact.namespace.clone(),
            strategy: fact
                .strategy
                .clone()
                .or_else(|| recorded.and_then(|run| run.subject.strategy().cloned())),
        },
        state: State::InFlight,
        reason: Reason::Admitted,
        size: Size::UNKNOWN,
        in_force: fact.in_force,
        backups: BTreeMap::new(),
        application: fact.application.clone(),
        job: Some(fact.job.clone()),
        namespace_uid: fact.namespace_uid.clone(),
        shared_across_namespaces: false,
        written_off_by: None,
        times: Times {
            started_at: fact.started_at.or(times.started_at),
            ..times
        },
        listing: None,
    }
}

/// A run that says it succeeded, and whose Backup no record has.
fn succeeded(run: &Record, fact: &RunFact, now: Timestamp) -> Vec<Change> {
    match fact.result {
        // Watches of two kinds are not ordered: the Backup may be on its way.
        ResultLookup::NotLooked => Vec::new(),
        ResultLookup::Absent => {
            let Some(strategy) = run.subject.strategy().cloned() else {
                return vec![remove(run, RemoveReason::RunOver)];
            };
            match fact.in_force.capabilities.identity {
                // It wrote over what another Backup already stands for.
                IdentityKind::Shared => vec![remove(run, RemoveReason::Replaced)],
                IdentityKind::Unique | IdentityKind::Unknown => {
                    let identity = Identity {
                        namespace: fact.namespace.clone(),
                        strategy,
                        thing: Thing::OfBackup(fact.job.uid.clone()),
                    };
                    let left = Record {
                        name: identity.record_name(),
                        subject: Subject::Artifact(identity),
                        times: Times {
                            recorded_at: Some(now),
                            deleted_at: Some(now),
                            ..run.times
                        },
                        ..run.moved(State::Retained, Reason::NoBackupRecorded)
                    };
                    vec![Change::Write(Box::new(left)), remove(run, RemoveReason::Replaced)]
                }
            }
        }
    }
}

/// A BackupJob is gone. Its run goes on, unless it was a pod that the job owned.
#[must_use]
pub fn run_gone(platform: Platform<'_>, ledger: &Ledger, job_uid: &str, now: Timestamp) -> Option<Change> {
    let run = ledger
        .get(job_uid)
        .filter(|record| record.state == State::InFlight)?;
    let dies = run
        .subject
        .strategy()
        .and_then(|kind| built_in(platform.0, &kind.group, &kind.kind))
        .is_some_and(|row| row.dies_with_job);
    if dies {
        return Some(remove(run, RemoveReason::DiedWithJob));
    }
    (run.reason != Reason::JobDeleted).then(|| {
        Change::Write(Box::new(Record {
            times: Times {
                deleted_at: Some(now),
                ..run.times
            },
            ..run.moved(State::InFlight, Reason::JobDeleted)
        }))
    })
}

/// The driver's own object says that a run is over, whatever became of its BackupJob.
#[must_use]
pub fn run_over(ledger: &Ledger, job_uid: &str) -> Option<Change> {
    let run = ledger
        .get(job_uid)
        .filter(|record| record.state == State::InFlight)?;
    Some(remove(run, RemoveReason::RunOver))
}

/// UIDs of runs whose BackupJob a complete list does not have: deleted while nobody looked.
#[must_use]
pub fn runs_gone_since(ledger: &Ledger, listed: &std::collections::BTreeSet<String>) -> Vec<String> {
    ledger
        .timed()
        .filter(|record| record.state == State::InFlight && !listed.contains(&record.name))
        .map(|record| record.name.clone())
        .collect()
}

/// What time alone does to a run.
#[must_use]
pub fn overdue(platform: Platform<'_>, run: &Record, now: Timestamp) -> Option<Change> {
    limit_passed(platform, run, now).map(|reason| remove(run, reason))
}

/// When a run stops counting if nothing else ends it, and why.
#[must_use]
pub fn limit(platform: Platform<'_>, run: &Record) -> Option<(Timestamp, RemoveReason)> {
    let driver = run
        .subject
        .strategy()
        .and_then(|kind| built_in(platform.0, &kind.group, &kind.kind))
        .and_then(|row| row.deadline_seconds)
        .map_or(RUN_LIMIT, SignedDuration::from_secs);
    let since = |at: Timestamp, limit: SignedDuration| at.checked_add(limit).unwrap_or(Timestamp::MAX);
    match (run.times.started_at, run.reason, run.times.deleted_at) {
        (Some(started), _, _) => Some((since(started, driver), RemoveReason::DeadlinePassed)),
        // What had not begun when its job was deleted can hardly begin later, but its driver may have been asked.
        (None, Reason::JobDeleted, Some(deleted)) => {
            Some((since(deleted, driver), RemoveReason::DeadlinePassed))
        }
        (None, _, _) => {
            let admitted = run.times.admitted_at.or(run.times.recorded_at)?;
            Some((since(admitted, RUN_LIMIT), RemoveReason::NeverTakenUp))
        }
    }
}

fn limit_passed(platform: Platform<'_>, run: &Record, now: Timestamp) -> Option<RemoveReason> {
    limit(platform, run)
        .filter(|(at, _)| *at <= now)
        .map(|(_, reason)| reason)
}

fn remove(run: &Record, reason: RemoveReason) -> Change {
    Change::Remove {
        name: run.name.clone(),
        reason,
    }
}
