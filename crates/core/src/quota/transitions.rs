//! What Backups, drivers and administrators do to records (`docs/design.md` 4.1).
//!
//! **Promises.** The new record is written before the old one goes. Seeing the same object again changes nothing.
//! Deleting a Backup releases nothing by itself.
//!
//! **Assumes.** Backups and BackupJobs are shown in any order, again after a restart, and their disappearance either
//! by an event or by comparing records with a complete list ([`gone_since`]).

use super::capability::{Capabilities, DeclaredBy, Deletion, InForce};
use super::identity::{self, Identity, StrategyKind};
use super::ledger::{Change, Ledger};
use super::record::{Application, BackupEntry, Reason, Record, RemoveReason, Size, State, Subject, Times};
use super::runs::Platform;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How long a driver has to say how a deletion came out, before a person is asked to look.
pub const PURGE_PATIENCE: SignedDuration = SignedDuration::from_hours(24);
/// How long a released record stays, so that releasing is not done twice.
pub const REMEMBERED: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What is read of a Backup. Its phase is not: whatever it says, bytes may exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupFact {
    /// UID.
    pub uid: String,
    /// Name, the same as its BackupJob's.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID of the namespace, if it is known.
    pub namespace_uid: Option<String>,
    /// When the API server created it.
    pub created_at: Timestamp,
    /// Who wrote the bytes.
    pub strategy: StrategyKind,
    /// What that driver does, now.
    pub in_force: InForce,
    /// What was backed up.
    pub application: Application,
    /// `status.artifact.uri`.
    pub uri: Option<String>,
    /// `spec.driverMetadata`.
    pub driver_metadata: BTreeMap<String, String>,
    /// `status.artifact.sizeBytes`, as it is.
    pub size_bytes: Option<i64>,
}

impl BackupFact {
    /// What it refers to.
    #[must_use]
    pub fn identity(&self) -> Identity {
        identity::of_backup(
            &self.namespace,
            &self.strategy,
            &self.uid,
            self.uri.as_deref(),
            &self.driver_metadata,
        )
    }

    /// Its size is negative: worth a warning, and otherwise unknown.
    #[must_use]
    pub fn size_is_nonsense(&self) -> bool {
        self.size_bytes.is_some_and(|bytes| bytes < 0)
    }
}

/// A Backup was seen, for the first time or again.
#[must_use]
pub fn backup_seen(ledger: &Ledger, fact: &BackupFact, now: Timestamp) -> Vec<Change> {
    let identity = fact.identity();
    let name = identity.record_name();
    let mut changes = Vec::new();
    if let Some(record) = seen_at(ledger, fact, identity, &name, now)
        && ledger.get(&name) != Some(&record)
    {
        changes.push(Change::Write(Box::new(record)));
    }
    flag_shared(ledger, fact, &name, &mut changes);
    // A Backup that names another place now leaves the old one behind, with whatever is there.
    let elsewhere = ledger.of_backup(&fact.uid).filter(|old| old.name != name);
    for old in elsewhere.filter(|old| old.state != State::Unknown) {
        changes.push(Change::Write(Box::new(without_backup(
            old,
            &fact.uid,
            Left::Moved,
            now,
        ))));
    }
    for run in ledger.runs_named(&fact.namespace, &fact.name) {
        let created = run.job.as_ref().and_then(|job| job.created_at);
        if created.is_none_or(|created| created <= fact.created_at) {
            changes.push(Change::Remove {
                name: run.name.clone(),
                reason: RemoveReason::Recorded,
            });
        }
    }
    changes
}

/// What the record of the artifact says with this Backup; `None` when it is not touched.
fn seen_at(
    ledger: &Ledger,
    fact: &BackupFact,
    identity: Identity,
    name: &str,
    now: Timestamp,
) -> Option<Record> {
    let Some(record) = ledger.get(name) else {
        return Some(first_seen(fact, identity, name, now));
    };
    let known = record.backups.contains_key(&fact.uid);
    let before = record.backups.get(&fact.uid);
    let size = with_claim(record.size, before, fact);
    let renewed = match record.state {
        State::Unknown | State::InFlight => return None,
        State::Attributed => Record {
            size,
            ..record.clone()
        },
        State::PendingPurge | State::Retained => Record {
            size,
            times: Times {
                deleted_at: None,
                ..record.times
            },
            ..record.moved(State::Attributed, Reason::BackupSeen)
        },
        State::Released | State::WrittenOff => {
            // Another Backup stands for new bytes, unless a listing that began after it was made did not have them.
            let listed_since = record.reason == Reason::NoLongerListed
                && record
                    .listing
                    .as_ref()
                    .is_some_and(|entry| entry.judged > fact.created_at);
            if let Some(before) = before {
                // What it claims from now on is noted and not charged: its bytes are gone, or written off. Otherwise the
                // next Backup over this artifact would be charged with it, depending on which was seen first.
                let noted = entry(Some(before), fact);
                return (noted != *before).then(|| {
                    let mut record = record.clone();
                    record.backups.insert(fact.uid.clone(), noted);
                    record
                });
            }
            if listed_since {
                // It is noted all the same: as long as it lives, the record is not forgotten.
                let mut noted = record.clone();
                noted.backups.insert(fact.uid.clone(), entry(None, fact));
                return Some(noted);
            }
            Record {
                size: with_claim(Size::UNKNOWN, None, fact),
                written_off_by: None,
                times: Times {
                    attributed_at: Some(now),
                    deleted_at: None,
                    released_at: None,
                    ..record.times
                },
                ..record.moved(State::Attributed, Reason::BackupSeen)
            }
        }
    };
    let mut renewed = Record {
        namespace_uid: fact.namespace_uid.clone().or(renewed.namespace_uid),
        in_force: written(renewed.in_force, fact.in_force),
        ..renewed
    };
    if !known {
        // What listings have seen was another run's bytes.
        renewed.listing = None;
        renewed.times.last_backup_at = Some(now);
        renewed.in_force = more_careful(renewed.in_force, fact.in_force);
    }
    renewed.backups.insert(fact.uid.clone(), entry(before, fact));
    Some(renewed)
}

/// A size with what this Backup claims, as far as it has not claimed as much before.
fn with_claim(size: Size, before: Option<&BackupEntry>, fact: &BackupFact) -> Size {
    let claimed = before.and_then(|entry| entry.claimed);
    match Size::claim(fact.size_bytes) {
        Some(claim) if claimed.is_none_or(|before| claim > before) => size.with_claim(claim),
        Some(_) | None => size,
    }
}

fn entry(before: Option<&BackupEntry>, fact: &BackupFact) -> BackupEntry {
    BackupEntry {
        name: fact.name.clone(),
        created_at: Some(fact.created_at),
        claimed: before
            .and_then(|entry| entry.claimed)
            .max(Size::claim(fact.size_bytes)),
    }
}

fn first_seen(fact: &BackupFact, identity: Identity, name: &str, now: Timestamp) -> Record {
    Record {
        name: name.to_owned(),
        subject: Subject::Artifact(identity),
        state: State::Attributed,
        reason: Reason::BackupSeen,
        size: with_claim(Size::UNKNOWN, None, fact),
        in_force: fact.in_force,
        backups: BTreeMap::from([(fact.uid.clone(), entry(None, fact))]),
        application: fact.application.clone(),
        job: None,
        namespace_uid: fact.namespace_uid.clone(),
        shared_across_namespaces: false,
        written_off_by: None,
        times: Times {
            recorded_at: Some(now),
            attributed_at: Some(now),
            last_backup_at: Some(now),
            ..Times::default()
        },
        listing: None,
    }
}

/// What a record whose status was never written says of its driver is nobody's word: it stands in for what follows.
fn written(recorded: InForce, seen: InForce) -> InForce {
    match recorded.from {
        DeclaredBy::Unwritten => seen,
        DeclaredBy::BuiltIn | DeclaredBy::Annotation | DeclaredBy::Unknown => recorded,
    }
}

/// Of two Backups over one artifact, the driver that proves less decides what deleting the last one means.
fn more_careful(one: InForce, other: InForce) -> InForce {
    fn proof(capabilities: Capabilities) -> u8 {
        match capabilities.deletion {
            Deletion::Unknown => 0,
            Deletion::None => 1,
            Deletion::RecordOnly => 2,
            Deletion::Requested => 3,
            Deletion::Confirmed => 4,
        }
    }
    if proof(other.capabilities) < proof(one.capabilities) {
        other
    } else {
        one
    }
}

/// Flags the record of `name` and those of other namespaces at the same place and key.
fn flag_shared(ledger: &Ledger, fact: &BackupFact, name: &str, changes: &mut Vec<Change>) {
    let identity = fact.identity();
    let Some(location) = identity.location() else {
        return;
    };
    let others: Vec<&Record> = ledger
        .at(&identity.strategy, location)
        .filter(|other| other.name != name && other.state.is_charged() && other.state != State::Unknown)
        .collect();
    if others.is_empty() {
        return;
    }
    let written = changes.iter_mut().find_map(|change| match change {
        Change::Write(record) if record.name == name => Some(record),
        Change::Write(_) | Change::Remove { .. } => None,
    });
    match (written, ledger.get(name)) {
        (Some(record), _) => record.shared_across_namespaces = true,
        (None, Some(record))
            if record.state.is_charged()
                && record.state != State::Unknown
                && !record.shared_across_namespaces =>
        {
            changes.push(flagged(record));
        }
        (None, _) => {}
    }
    for other in others.into_iter().filter(|other| !other.shared_across_namespaces) {
        changes.push(flagged(other));
    }
}

fn flagged(record: &Record) -> Change {
    Change::Write(Box::new(Record {
        shared_across_namespaces: true,
        ..record.clone()
    }))
}

/// How a Backup left a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It was deleted.
    Deleted,
    /// It was let go, and whoever let it go says that the data was kept.
    Kept,
    /// It names another place now.
    Moved,
}

/// A Backup is gone.
#[must_use]
pub fn backup_gone(ledger: &Ledger, uid: &str, left: Left, now: Timestamp) -> Vec<Change> {
    ledger
        .of_backup(uid)
        .filter(|record| record.state != State::Unknown)
        .map(|record| Change::Write(Box::new(without_backup(record, uid, left, now))))
        .collect()
}

fn without_backup(record: &Record, uid: &str, left: Left, now: Timestamp) -> Record {
    let mut rest = record.clone();
    rest.backups.remove(uid);
    if !rest.backups.is_empty() {
        return rest;
    }
    match record.state {
        State::Attributed => {
            let (state, reason) = after_last(record.in_force.capabilities.deletion, left);
            rest.times.deleted_at = Some(now);
            rest.moved(state, reason)
        }
        State::InFlight
        | State::PendingPurge
        | State::Retained
        | State::Released
        | State::WrittenOff
        | State::Unknown => rest,
    }
}

/// Where an artifact goes when its last Backup has left it.
#[must_use]
pub fn after_last(deletion: Deletion, left: Left) -> (State, Reason) {
    match (left, deletion) {
        (Left::Kept, _) => (State::Retained, Reason::KeptOnPurpose),
        (Left::Moved, _) => (State::Retained, Reason::BackupMoved),
        (Left::Deleted, Deletion::Confirmed) => (State::PendingPurge, Reason::AwaitingReadBack),
        (Left::Deleted, Deletion::Requested) => (State::PendingPurge, Reason::DeletionRequested),
        (Left::Deleted, Deletion::None) => (State::Retained, Reason::NotPurged),
        (Left::Deleted, Deletion::RecordOnly) => (State::Retained, Reason::RecordOnlyDeleted),
        (Left::Deleted, Deletion::Unknown) => (State::Retained, Reason::CapabilityUnknown),
    }
}

/// UIDs of Backups that records refer to and a complete list of Backups, begun after the records were read, does not
/// have: deleted while nobody looked.
#[must_use]
pub fn gone_since(ledger: &Ledger, listed: &BTreeSet<String>) -> Vec<String> {
    let mut gone: Vec<String> = ledger
        .backup_uids()
        .filter(|uid| !listed.contains(*uid))
        .map(str::to_owned)
        .collect();
    gone.sort_unstable();
    gone
}

/// What is known about a deletion that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The driver's object says that the deletion succeeded, without errors.
    Succeeded,
    /// The driver's own record of the backup, seen before, is gone after the request.
    DriverRecordGone,
    /// We read the place back, connected to the right repository, and it is not there.
    ReadBack,
    /// The driver's object says that it failed.
    Failed,
}

/// Evidence about a deletion came in. It changes only records whose deletion was asked for.
#[must_use]
pub fn purge(ledger: &Ledger, name: &str, evidence: Evidence, now: Timestamp) -> Option<Change> {
    let record = ledger.get(name)?;
    let asked = match (record.state, record.reason) {
        (State::PendingPurge, _) | (State::Retained, Reason::PurgeFailed | Reason::PurgeUnproven) => true,
        (State::Retained | State::InFlight | State::Attributed, _)
        | (State::Released | State::WrittenOff | State::Unknown, _) => false,
    };
    if !asked {
        return None;
    }
    let proven = match (evidence, record.in_force.capabilities.deletion) {
        (Evidence::ReadBack, _) => Some(Reason::ReadBack),
        (Evidence::Succeeded | Evidence::DriverRecordGone, Deletion::Requested) => Some(Reason::PurgeProven),
        // Who promises to confirm is held to it.
        (
            Evidence::Succeeded | Evidence::DriverRecordGone,
            Deletion::Confirmed | Deletion::None | Deletion::RecordOnly | Deletion::Unknown,
        ) => return None,
        (Evidence::Failed, _) => None,
    };
    let next = match proven {
        Some(reason) => released(record, reason, now),
        None => record.moved(State::Retained, Reason::PurgeFailed),
    };
    (next != *record).then(|| Change::Write(Box::new(next)))
}

pub(super) fn released(record: &Record, reason: Reason, now: Timestamp) -> Record {
    Record {
        times: Times {
            released_at: Some(now),
            ..record.times
        },
        ..record.moved(State::Released, reason)
    }
}

/// What became of one record that was to be written off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOff {
    /// It is to be written.
    Done(Change),
    /// It is not charged already.
    Already(State),
    /// It cannot be, and this sentence says why.
    Refused(String),
}

/// An administrator writes a record off: it is not charged from then on, and no listing charges it again.
#[must_use]
pub fn write_off(ledger: &Ledger, name: &str, who: &str, now: Timestamp) -> WriteOff {
    let Some(record) = ledger.get(name) else {
        return WriteOff::Refused(format!("there is no artifact {name}: look at the list again"));
    };
    match record.state {
        State::PendingPurge | State::Retained => WriteOff::Done(Change::Write(Box::new(Record {
            written_off_by: Some(who.to_owned()),
            times: Times {
                released_at: Some(now),
                ..record.times
            },
            ..record.moved(State::WrittenOff, Reason::WrittenOff)
        }))),
        State::Released | State::WrittenOff => WriteOff::Already(record.state),
        State::Attributed => WriteOff::Refused(format!(
            "{name} has a Backup that refers to it: delete the Backup first, then what is left can be written off"
        )),
        State::InFlight => WriteOff::Refused(format!(
            "{name} is a run under way, which is not charged: wait until it is over"
        )),
        State::Unknown => WriteOff::Refused(format!(
            "{name} was written by a newer version of Holdfast: update Holdfast"
        )),
    }
}

/// A namespace was seen: one that was made again under the same name inherits its records.
#[must_use]
pub fn namespace_seen(ledger: &Ledger, namespace: &str, uid: &str) -> Vec<Change> {
    ledger
        .of_namespace(namespace)
        .filter(|record| record.state != State::Unknown && record.namespace_uid.as_deref() != Some(uid))
        .map(|record| {
            Change::Write(Box::new(Record {
                namespace_uid: Some(uid.to_owned()),
                ..record.clone()
            }))
        })
        .collect()
}

/// What time alone does to one record ([`Ledger::timed`]); runs are in [`super::runs::overdue`].
#[must_use]
pub fn overdue(platform: Platform<'_>, ledger: &Ledger, record: &Record, now: Timestamp) -> Vec<Change> {
    let passed = |since: Option<Timestamp>, limit: SignedDuration| {
        since.is_some_and(|since| now.duration_since(since) >= limit)
    };
    match record.state {
        State::PendingPurge if passed(record.times.deleted_at, PURGE_PATIENCE) => vec![Change::Write(
            Box::new(record.moved(State::Retained, Reason::PurgeUnproven)),
        )],
        State::Released if record.backups.is_empty() && passed(record.times.released_at, REMEMBERED) => {
            vec![Change::Remove {
                name: record.name.clone(),
                reason: RemoveReason::Forgotten,
            }]
        }
        State::InFlight => super::runs::overdue(platform, ledger, record, now),
        State::PendingPurge
        | State::Released
        | State::Attributed
        | State::Retained
        | State::WrittenOff
        | State::Unknown => Vec::new(),
    }
}
