//! What BackupJobs do to records: a run is recorded when it is seen, and counted until it is over
//! (`docs/design.md` 4.1).
//!
//! **Promises.** A run whose BackupJob was deleted goes on counting. A job that no controller ever takes up stops
//! counting after a day. A run whose Backup is recorded is never counted beside it. A run that wrote bytes, or that had
//! begun when its BackupJob was deleted and was never seen to fail, is charged when it ends, Backup or not.
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
    /// It is over, and wrote bytes.
    Completed,
    /// It is over, and came to nothing.
    Failed,
}

/// Whether the run's Backup exists, when the job says `Succeeded` and no record has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResultLookup {
    /// Nobody looked; the watch may still bring it.
    NotLooked,
    /// A live read found no Backup that this run can have made.
    Absent,
    /// The same, and the job was created while this ledger was kept: not having its record is no sign that it was
    /// before the ledger began, but that it ended before anybody looked.
    AbsentOfNewJob,
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
    if fact.phase == Phase::Succeeded {
        return match (recorded, fact.result) {
            // Watches of two kinds are not ordered: the Backup may be on its way.
            (_, ResultLookup::NotLooked) => Vec::new(),
            (Some(run), ResultLookup::Absent | ResultLookup::AbsentOfNewJob) => {
                left_behind(ledger, run, Some(run), Wrote::Something, now)
            }
            (None, ResultLookup::AbsentOfNewJob) => left_behind(ledger, &seen, None, Wrote::Something, now),
            // A result that was deleted before anybody looked: what is counted begins with the ledger.
            (None, ResultLookup::Absent) => Vec::new(),
        };
    }
    let ended = match (fact.phase, fact.driver) {
        (_, DriverRun::Completed) => {
            return recorded
                .map(|run| left_behind(ledger, run, Some(run), Wrote::ItsOwn, now))
                .unwrap_or_default();
        }
        (_, DriverRun::Failed) => Some(RemoveReason::RunOver),
        (Phase::Failed, DriverRun::NotKnown) => Some(RemoveReason::RunFailed),
        (_, DriverRun::NotKnown | DriverRun::Running) => limit_passed(platform, &seen, now),
    };
    match (recorded, ended) {
        (Some(run), Some(reason)) => vec![remove(run, reason)],
        (None, Some(_)) => Vec::new(),
        (Some(run), None) if *run == seen => Vec::new(),
        (_, None) => vec![Change::Write(Box::new(seen))],
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

/// Who says that a run without a Backup wrote something of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrote {
    /// The driver's own object, which stands for these bytes and no others.
    ItsOwn,
    /// Nobody: where runs write over one key, it may be what another record stands for.
    Something,
}

/// What a run that wrote bytes, or may have, leaves when no Backup records it. `recorded`: its record, which goes.
fn left_behind(
    ledger: &Ledger,
    run: &Record,
    recorded: Option<&Record>,
    wrote: Wrote,
    now: Timestamp,
) -> Vec<Change> {
    let Some(left) = what_is_left(ledger, run, wrote, now) else {
        let reason = match run.subject.strategy() {
            Some(_) => RemoveReason::Replaced,
            None => RemoveReason::RunOver,
        };
        return recorded.map(|run| remove(run, reason)).into_iter().collect();
    };
    let mut changes = Vec::new();
    if ledger.get(&left.name).is_none() {
        changes.push(Change::Write(Box::new(left)));
    }
    changes.extend(recorded.map(|run| remove(run, RemoveReason::Replaced)));
    changes
}

/// The record of it; none if its driver is not known, or if it wrote over what is charged already.
fn what_is_left(ledger: &Ledger, run: &Record, wrote: Wrote, now: Timestamp) -> Option<Record> {
    let strategy = run.subject.strategy().cloned()?;
    let over_another = match (run.in_force.capabilities.identity, wrote) {
        (IdentityKind::Shared, Wrote::Something) => ledger.of_namespace(run.namespace()).any(|other| {
            other.state.is_charged()
                && other.application == run.application
                && other.subject.strategy() == Some(&strategy)
        }),
        (IdentityKind::Shared, Wrote::ItsOwn) | (IdentityKind::Unique | IdentityKind::Unknown, _) => false,
    };
    if over_another {
        return None;
    }
    let identity = Identity {
        namespace: run.namespace().to_owned(),
        strategy,
        thing: Thing::OfBackup(run.name.clone()),
    };
    Some(Record {
        name: identity.record_name(),
        subject: Subject::Artifact(identity),
        times: Times {
            recorded_at: Some(now),
            deleted_at: Some(now),
            ..run.times
        },
        ..run.moved(State::Retained, Reason::NoBackupRecorded)
    })
}

/// A BackupJob is gone. Its run goes on, unless it was a pod that the job owned. `begun`: when it had begun, if its
/// last state said so.
#[must_use]
pub fn run_gone(
    platform: Platform<'_>,
    ledger: &Ledger,
    job_uid: &str,
    begun: Option<Timestamp>,
    now: Timestamp,
) -> Option<Change> {
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
                started_at: run.times.started_at.or(begun),
                ..run.times
            },
            ..run.moved(State::InFlight, Reason::JobDeleted)
        }))
    })
}

/// How a run ended whose BackupJob is gone, as the driver's own object says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunEnd {
    /// It wrote bytes, and a live read found no Backup that records them.
    Completed,
    /// It came to nothing.
    Failed,
}

/// The driver's own object says that the run of a BackupJob that is gone is over.
#[must_use]
pub fn run_over(ledger: &Ledger, job_uid: &str, end: RunEnd, now: Timestamp) -> Vec<Change> {
    let in_flight = |record: &&Record| record.state == State::InFlight;
    let Some(run) = ledger.get(job_uid).filter(in_flight) else {
        return Vec::new();
    };
    let has_result = run
        .job
        .as_ref()
        .is_some_and(|job| ledger.has_result_of(run.namespace(), &job.name, job.created_at));
    match end {
        RunEnd::Completed if has_result => vec![remove(run, RemoveReason::Recorded)],
        RunEnd::Completed => left_behind(ledger, run, Some(run), Wrote::ItsOwn, now),
        RunEnd::Failed => vec![remove(run, RemoveReason::RunOver)],
    }
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

/// What time alone does to a run. One that had begun when its BackupJob was deleted may have ended well, and nobody
/// will say: its driver's bytes are charged. One whose BackupJob is there is spoken of by it.
#[must_use]
pub fn overdue(platform: Platform<'_>, ledger: &Ledger, run: &Record, now: Timestamp) -> Vec<Change> {
    let Some(reason) = limit_passed(platform, run, now) else {
        return Vec::new();
    };
    let unseen = run.reason == Reason::JobDeleted && run.times.started_at.is_some();
    match what_is_left(ledger, run, Wrote::Something, now).filter(|_| unseen) {
        Some(left) => vec![
            Change::Write(Box::new(left)),
            remove(run, RemoveReason::DeadlinePassed),
        ],
        None => vec![remove(run, reason)],
    }
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
