//! Between the object and the record that decisions are made on: one translation for the operator and the CLI.
//!
//! **Promises.** What is written is read back as the same record (of more than 100 Backups, the newest 100). An
//! object without a status, or with one that a newer version wrote, becomes a record that is charged or left alone,
//! never one that is released.

use super::artifact::{
    Artifact, ArtifactJob, ArtifactListing, ArtifactSpec, ArtifactState, ArtifactStatus, ArtifactStrategy,
    ArtifactTimes, CapabilitiesFrom, CapabilityWords, RecordedBackup, SizeSource,
};
use crate::backups::TypedRef;
use crate::names;
use holdfast_core::quota::amount;
use holdfast_core::quota::capability::{
    CAREFUL, Capabilities, DeclaredBy, Deletion, Enumerable, IdentityKind, InForce, Pruning, SizeReport,
};
use holdfast_core::quota::record::{
    Application, BackupEntry, JobEntry, ListingEntry, Reason, Record, Size, SizeSource as Source, State,
    Subject, Times,
};
use holdfast_core::quota::{Identity, Location, StrategyKind, Thing};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// Backups that a status names; one of them is enough to see that all are gone.
const BACKUPS_TOLD: usize = 100;

/// The object of a record: what is created (spec and labels), and the status that is written after it.
#[must_use]
pub fn artifact(record: &Record) -> Artifact {
    let identity = record.subject.identity();
    let location = identity.and_then(Identity::location);
    let newest = record.backups.iter().max_by_key(|(_, entry)| entry.created_at);
    Artifact {
        metadata: ObjectMeta {
            name: Some(record.name.clone()),
            labels: Some(BTreeMap::from([
                (names::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned()),
                (
                    names::ARTIFACT_NAMESPACE_LABEL.to_owned(),
                    record.namespace().to_owned(),
                ),
            ])),
            ..ObjectMeta::default()
        },
        spec: ArtifactSpec {
            namespace: record.namespace().to_owned(),
            strategy: record.subject.strategy().map(|strategy| ArtifactStrategy {
                api_group: strategy.group.clone(),
                kind: strategy.kind.clone(),
                name: None,
            }),
            place: location.map(|at| at.place.clone()),
            key: location.map(|at| at.key.clone()),
            backup_uid: identity.and_then(|identity| match &identity.thing {
                Thing::OfBackup(uid) => Some(uid.clone()),
                Thing::At(_) => None,
            }),
            recorded_for: newest.map(recorded),
            job: record.job.as_ref().map(|job| ArtifactJob {
                uid: job.uid.clone(),
                name: job.name.clone(),
                created_at: job.created_at,
            }),
            application_ref: TypedRef {
                api_group: Some(record.application.group.clone()),
                kind: record.application.kind.clone(),
                name: record.application.name.clone(),
            },
        },
        status: Some(status(record)),
    }
}

/// The status of a record.
#[must_use]
pub fn status(record: &Record) -> ArtifactStatus {
    let mut backups: Vec<(&String, &BackupEntry)> = record.backups.iter().collect();
    backups.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.created_at));
    let Capabilities {
        deletion,
        size,
        pruning,
        identity,
        grows_after_ready,
        enumerable,
    } = record.in_force.capabilities;
    ArtifactStatus {
        state: match record.state {
            State::InFlight => ArtifactState::InFlight,
            State::Attributed => ArtifactState::Attributed,
            State::PendingPurge => ArtifactState::PendingPurge,
            State::Retained => ArtifactState::Retained,
            State::Released => ArtifactState::Released,
            State::WrittenOff => ArtifactState::WrittenOff,
            State::Unknown => ArtifactState::Unknown,
        },
        reason: Some(record.reason.as_str().to_owned()),
        message: Some(record.reason.sentence().to_owned()),
        namespace_uid: record.namespace_uid.clone(),
        size: Some(
            record
                .size
                .bytes
                .map_or_else(|| "unknown".to_owned(), amount::bytes),
        ),
        size_bytes: record.size.bytes,
        size_source: match record.size.source {
            Source::Claim => SizeSource::Claim,
            Source::Measured => SizeSource::Measured,
            Source::Unknown => SizeSource::Unknown,
        },
        capabilities: Some(CapabilityWords {
            deletion: deletion.as_str().to_owned(),
            size: size.as_str().to_owned(),
            pruning: pruning.as_str().to_owned(),
            identity: identity.as_str().to_owned(),
            grows_after_ready,
            enumerable: enumerable.as_str().to_owned(),
        }),
        capabilities_from: match record.in_force.from {
            DeclaredBy::BuiltIn => CapabilitiesFrom::BuiltIn,
            DeclaredBy::Annotation => CapabilitiesFrom::Annotation,
            DeclaredBy::Unknown | DeclaredBy::Unwritten => CapabilitiesFrom::Unknown,
        },
        backup_count: u32::try_from(backups.len()).unwrap_or(u32::MAX),
        backups: backups.into_iter().take(BACKUPS_TOLD).map(recorded).collect(),
        shared_across_namespaces: record.shared_across_namespaces,
        written_off_by: record.written_off_by.clone(),
        times: {
            let Times {
                recorded_at,
                admitted_at,
                started_at,
                attributed_at,
                last_backup_at,
                deleted_at,
                released_at,
                last_seen_in_listing,
            } = record.times;
            ArtifactTimes {
                recorded_at,
                admitted_at,
                started_at,
                attributed_at,
                last_backup_at,
                deleted_at,
                released_at,
                last_seen_in_listing,
            }
        },
        listing: record.listing.as_ref().map(|entry| ArtifactListing {
            store: entry.store.clone(),
            judged: entry.judged,
            missed: entry.missed,
            found: entry.found,
        }),
    }
}

fn recorded((uid, entry): (&String, &BackupEntry)) -> RecordedBackup {
    RecordedBackup {
        uid: uid.clone(),
        name: entry.name.clone(),
        created_at: entry.created_at,
        claimed_bytes: entry.claimed,
    }
}

/// The record of an object, whatever its status says.
#[must_use]
pub fn record(artifact: &Artifact) -> Record {
    let spec = &artifact.spec;
    let created = artifact.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let subject = subject(spec);
    let is_written = artifact.status.is_some();
    let status = artifact
        .status
        .clone()
        .unwrap_or_else(|| unwritten(spec, &subject, created));
    let (state, reason) = state(&status);
    Record {
        name: artifact.metadata.name.clone().unwrap_or_default(),
        state,
        reason,
        size: Size {
            bytes: status.size_bytes.map(|bytes| bytes.max(0)),
            source: match status.size_source {
                SizeSource::Claim => Source::Claim,
                SizeSource::Measured => Source::Measured,
                SizeSource::Unknown => Source::Unknown,
            },
        },
        in_force: InForce {
            capabilities: capabilities(status.capabilities.as_ref()),
            from: match status.capabilities_from {
                CapabilitiesFrom::BuiltIn => DeclaredBy::BuiltIn,
                CapabilitiesFrom::Annotation => DeclaredBy::Annotation,
                CapabilitiesFrom::Unknown if is_written => DeclaredBy::Unknown,
                CapabilitiesFrom::Unknown => DeclaredBy::Unwritten,
            },
        },
        backups: status
            .backups
            .into_iter()
            .map(|backup| {
                let entry = BackupEntry {
                    name: backup.name,
                    created_at: backup.created_at,
                    claimed: backup.claimed_bytes,
                };
                (backup.uid, entry)
            })
            .collect(),
        application: Application::from(&spec.application_ref),
        job: spec.job.as_ref().map(|job| JobEntry {
            uid: job.uid.clone(),
            name: job.name.clone(),
            created_at: job.created_at,
        }),
        namespace_uid: status.namespace_uid,
        shared_across_namespaces: status.shared_across_namespaces,
        written_off_by: status.written_off_by,
        times: {
            let ArtifactTimes {
                recorded_at,
                admitted_at,
                started_at,
                attributed_at,
                last_backup_at,
                deleted_at,
                released_at,
                last_seen_in_listing,
            } = status.times;
            Times {
                recorded_at: recorded_at.or(created),
                admitted_at,
                started_at,
                attributed_at,
                last_backup_at,
                deleted_at,
                released_at,
                last_seen_in_listing,
            }
        },
        listing: status.listing.map(|entry| ListingEntry {
            store: entry.store,
            judged: entry.judged,
            missed: entry.missed,
            found: entry.found,
        }),
        subject,
    }
}

fn subject(spec: &ArtifactSpec) -> Subject {
    let strategy = spec.strategy.as_ref().map(|strategy| StrategyKind {
        group: strategy.api_group.clone(),
        kind: strategy.kind.clone(),
    });
    let thing = match (&spec.key, &spec.backup_uid) {
        (Some(key), _) => Some(Thing::At(Location {
            place: spec.place.clone().unwrap_or_default(),
            key: key.clone(),
        })),
        (None, Some(uid)) => Some(Thing::OfBackup(uid.clone())),
        (None, None) => None,
    };
    match (thing, strategy) {
        (Some(thing), Some(strategy)) => Subject::Artifact(Identity {
            namespace: spec.namespace.clone(),
            strategy,
            thing,
        }),
        (Some(_) | None, strategy) => Subject::Run {
            namespace: spec.namespace.clone(),
            strategy,
        },
    }
}

/// The status of a record whose second write never came.
fn unwritten(spec: &ArtifactSpec, subject: &Subject, created: Option<Timestamp>) -> ArtifactStatus {
    let times = ArtifactTimes {
        recorded_at: created,
        ..ArtifactTimes::default()
    };
    match subject {
        Subject::Run { .. } => ArtifactStatus {
            state: ArtifactState::InFlight,
            reason: Some(Reason::Admitted.as_str().to_owned()),
            times: ArtifactTimes {
                admitted_at: created,
                ..times
            },
            ..ArtifactStatus::default()
        },
        Subject::Artifact(_) => ArtifactStatus {
            state: match spec.recorded_for {
                Some(_) => ArtifactState::Attributed,
                None => ArtifactState::Retained,
            },
            reason: Some(
                match spec.recorded_for {
                    Some(_) => Reason::BackupSeen,
                    None => Reason::NoBackupRecorded,
                }
                .as_str()
                .to_owned(),
            ),
            // What it claims has not been counted: the size was to come with the status.
            backups: spec
                .recorded_for
                .iter()
                .map(|backup| RecordedBackup {
                    claimed_bytes: None,
                    ..backup.clone()
                })
                .collect(),
            times: ArtifactTimes {
                attributed_at: created,
                last_backup_at: created,
                ..times
            },
            ..ArtifactStatus::default()
        },
    }
}

/// A state, or a reason, of a newer version makes the whole a thing to leave alone.
fn state(status: &ArtifactStatus) -> (State, Reason) {
    let state = match status.state {
        ArtifactState::InFlight => State::InFlight,
        ArtifactState::Attributed => State::Attributed,
        ArtifactState::PendingPurge => State::PendingPurge,
        ArtifactState::Retained => State::Retained,
        ArtifactState::Released => State::Released,
        ArtifactState::WrittenOff => State::WrittenOff,
        ArtifactState::Unknown => State::Unknown,
    };
    match (state, status.reason.as_deref().and_then(Reason::parse)) {
        (State::Unknown, _) | (_, None) => (State::Unknown, Reason::NewerVersion),
        (state, Some(reason)) => (state, reason),
    }
}

fn capabilities(words: Option<&CapabilityWords>) -> Capabilities {
    let Some(words) = words else {
        return CAREFUL;
    };
    Capabilities {
        deletion: Deletion::parse(&words.deletion).unwrap_or(CAREFUL.deletion),
        size: SizeReport::parse(&words.size).unwrap_or(CAREFUL.size),
        pruning: Pruning::parse(&words.pruning).unwrap_or(CAREFUL.pruning),
        identity: IdentityKind::parse(&words.identity).unwrap_or(CAREFUL.identity),
        grows_after_ready: words.grows_after_ready,
        enumerable: Enumerable::parse(&words.enumerable).unwrap_or(CAREFUL.enumerable),
    }
}
