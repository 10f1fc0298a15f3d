//! The Jobs of a Restore: how they are named and built, and what their ends mean.

use super::decide::Written;
use crate::context::Context;
use crate::jobs::build::{BuildError, Mover, Storage};
use crate::jobs::outcome::{JobFact, Read};
use crate::jobs::privileged::{self, Task};
use crate::jobs::{job_name, short_hash};
use crate::protect::repository;
use crate::world::keys::{self, ObjectKey, RepositoryKey};
use crate::world::views::{JobState, JobView, RepositoryView};
use holdfast_api::mover::{MoverDefaults, MoverSpec};
use holdfast_api::restore::{Resolution, ResolvedRestore, RestoreOptions};
use holdfast_api::shared::Identity;
use holdfast_api::{Restore, names};
use holdfast_core::restore::Reason;
use holdfast_protocol::RESTORE_DIR;
use holdfast_protocol::outcome::{FailureClass, OperationResult};
use holdfast_protocol::restore::{Existing, Found, How, Refused, RestoreAnswer, RestoreItem};
use holdfast_protocol::work::{Operation, ResultsEndpoint, Source, WorkDocument};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;

/// Seconds after which a restore is ended when nothing else is said: 48 hours.
const DEADLINE_SECONDS: i64 = 48 * 3600;
/// Seconds that looking up a snapshot may take.
const ASK_SECONDS: i64 = 1_800;

/// UID of the claim it fills, if it does.
fn filling(restore: &Restore) -> Option<&str> {
    let target = restore.status.as_ref()?.target.as_ref()?;
    target.pvc_ref.as_ref()?.uid.as_deref()
}

fn attempts(restore: &Restore) -> u32 {
    restore.status.as_ref().and_then(|s| s.attempts).unwrap_or(0)
}

/// Part of a name: what was begun for a spec does not answer for another.
fn generation(restore: &Restore) -> String {
    match restore.metadata.generation.unwrap_or(1) {
        ..=1 => String::new(),
        n => format!("-g{n}"),
    }
}

/// Whether everything was written, and only the volume has to be handed over.
#[must_use]
pub fn is_written(restore: &Restore) -> bool {
    let timing = restore.status.as_ref().and_then(|s| s.timing.as_ref());
    timing.is_some_and(|t| t.end_time.is_some())
}

/// Whether its movers read a copy of the credentials.
#[must_use]
pub fn projects(restore: &Restore) -> bool {
    let asked = restore.spec.credential_projection.as_ref();
    asked.is_some_and(|projection| projection.enabled)
}

/// Name of the Job that counts: when everything is written the one that did it, whatever the spec is by now.
#[must_use]
pub fn current(restore: &Restore) -> String {
    let recorded = restore.status.as_ref().and_then(|s| s.job.as_ref());
    match recorded.filter(|_| is_written(restore)) {
        Some(job) => job.name.clone(),
        None => name(restore),
    }
}

/// Whether a Job of this Restore runs that is not the one that counts. One that is being deleted may still write, and
/// nothing else may begin; to a Restore that has ended it is nothing to do.
#[must_use]
pub fn is_left_over(job: &JobView, wanted: Option<&str>) -> bool {
    let runs = match job.state() {
        JobState::Waiting | JobState::Active => true,
        JobState::Succeeded | JobState::Failed => false,
    };
    let going = job.metadata.deletion_timestamp.is_some();
    runs && match wanted {
        Some(wanted) => job.key().name != wanted,
        None => !going,
    }
}

/// Name of the Job of the stage it is in: one for each generation of the spec, claim, stage and attempt.
#[must_use]
pub fn name(restore: &Restore) -> String {
    let resolved = restore.status.as_ref().and_then(|s| s.resolved.as_ref());
    let resolved = resolved.is_some_and(|r| r.resolution == Resolution::Snapshot);
    let mut name = format!("{}-restore", ObjectKey::of(restore).name);
    if let (Some(uid), true) = (filling(restore), restore.spec.target.populator.is_some()) {
        name.push_str(&format!("-{}", short_hash(uid)));
    }
    if !resolved {
        name.push_str("-find");
    }
    name.push_str(&generation(restore));
    match attempts(restore) {
        0 => {}
        n => name.push_str(&format!("-{n}")),
    }
    job_name(&name)
}

/// Name of the claim that is filled in the place of another.
#[must_use]
pub fn prime(restore: &Restore) -> String {
    let uid = filling(restore).unwrap_or_default();
    let name = format!("{}{uid}{}", names::PRIME_PREFIX, generation(restore));
    match attempts(restore) {
        0 => name,
        n => format!("{name}-{n}"),
    }
}

/// Name of the claim that the mover writes to.
#[must_use]
pub fn target(restore: &Restore) -> String {
    let target = &restore.spec.target;
    match (&target.pvc, &target.pvc_ref) {
        (Some(new), _) => new.name.clone(),
        (None, Some(there)) => there.name.clone(),
        (None, None) => prime(restore),
    }
}

/// Under which name its progress is told.
#[must_use]
pub fn run(restore: &Restore) -> String {
    let uid = restore.metadata.uid.clone().unwrap_or_default();
    format!("{uid}-{}", short_hash(&name(restore)))
}

/// The mover of the stage it is in.
#[must_use]
pub fn mover(ctx: &Context, restore: &Restore, repository: &RepositoryView, operation: Operation) -> Mover {
    let key = ObjectKey::of(restore);
    let failure = restore.spec.failure_policy.clone().unwrap_or_default();
    let (op, deadline) = match &operation {
        Operation::Resolve { .. } => (names::OP_RESOLVE, ASK_SECONDS),
        Operation::Restore { .. }
        | Operation::Backup { .. }
        | Operation::Bootstrap { .. }
        | Operation::DeleteBatch { .. }
        | Operation::Pin { .. }
        | Operation::Maintain { .. }
        | Operation::List {} => (
            names::OP_RESTORE,
            failure.active_deadline_seconds.unwrap_or(DEADLINE_SECONDS),
        ),
    };
    let uid = restore.metadata.uid.clone().unwrap_or_default();
    let endpoint = ctx
        .endpoint
        .read()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clone();
    let password = &repository.spec.encryption.password_secret_ref;
    Mover {
        name: name(restore),
        namespace: key.namespace.clone(),
        op,
        owner_uid: uid.clone(),
        works_for: key.name.clone(),
        owner: Some(OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: "Restore".to_owned(),
            name: key.name,
            uid,
            controller: Some(true),
            block_owner_deletion: Some(false),
        }),
        document: WorkDocument {
            version: holdfast_protocol::VERSION,
            cluster: ctx.cluster.clone(),
            repository: repository::access(repository),
            operation,
            results: endpoint.map(|endpoint| ResultsEndpoint {
                address: endpoint.address,
                server_name: endpoint.server_name,
                ca: endpoint.ca,
                scan: run(restore),
            }),
        },
        image: ctx.settings.mover_image.clone(),
        pull_policy: ctx.settings.mover_pull_policy.clone(),
        settings: settings(restore, repository),
        storage: Storage::of(repository),
        secret: password.name.clone(),
        secret_key: password.key.clone(),
        sources: Vec::new(),
        backoff_limit: failure.backoff_limit.unwrap_or(2),
        active_deadline_seconds: deadline,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

/// How the pods are: what the Restore says over what the repository says.
fn settings(restore: &Restore, repository: &RepositoryView) -> MoverDefaults {
    let defaults = repository.mover_defaults();
    match &restore.spec.mover {
        None => defaults,
        Some(recipe) => recipe.over(&defaults),
    }
}

/// Whether the mover that writes is to be a privileged one.
#[must_use]
pub fn is_privileged(restore: &Restore) -> bool {
    restore
        .spec
        .mover
        .as_ref()
        .is_some_and(MoverSpec::asks_for_privileges)
}

/// The Job of a mover: one that writes is what the Restore asks for, one that looks up a snapshot is never privileged.
///
/// # Errors
/// [`BuildError`].
pub fn built(restore: &Restore, mover: &Mover, target: Option<&str>) -> Result<Job, BuildError> {
    match target {
        Some(claim) if is_privileged(restore) => privileged::job(mover, Task::Set(claim)),
        Some(_) | None => mover.reading_job(target),
    }
}

/// What the mover that writes is told.
#[must_use]
pub fn item(restore: &Restore, resolved: &ResolvedRestore) -> RestoreItem {
    let identity = resolved.identity.clone().unwrap_or(Identity {
        username: String::new(),
        hostname: String::new(),
        source_path: String::new(),
    });
    let uid = restore.metadata.uid.clone().unwrap_or_default();
    let snapshot_id = resolved.kopia_snapshot_id.clone().unwrap_or_default();
    // What was begun of one snapshot is not gone on with from another.
    let of = format!("{} {snapshot_id}", filling(restore).unwrap_or_default());
    RestoreItem {
        uid: format!("{uid}-{}", short_hash(&of)),
        snapshot_id,
        source: Source {
            username: identity.username,
            hostname: identity.hostname,
            path: identity.source_path,
        },
        start_time: resolved.start_time,
        to: RESTORE_DIR.to_owned(),
        how: how(restore.spec.options.as_ref()),
    }
}

/// How files are written; without options nothing is overwritten.
#[must_use]
pub fn how(options: Option<&RestoreOptions>) -> How {
    let Some(options) = options else {
        return How {
            existing: Existing::Refuse,
            delete_others: false,
            owners: true,
            sparse: true,
            all_or_fail: false,
        };
    };
    let existing = if options.skip_existing == Some(true) {
        Existing::Keep
    } else if options.overwrite_files == Some(true) || options.enable_file_deletion {
        Existing::Replace
    } else {
        Existing::Refuse
    };
    How {
        existing,
        delete_others: options.enable_file_deletion,
        owners: options.skip_owners != Some(true),
        sparse: options.write_sparse_files.unwrap_or(true),
        all_or_fail: !options.ignore_permission_errors,
    }
}

/// What the end of a Job means.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is this snapshot.
    Resolved(Found),
    /// None fits.
    Nothing {
        /// Snapshots of the identity.
        of_identity: u64,
        /// Names that have snapshots of the path where the identity has none.
        others: Vec<String>,
    },
    /// Snapshots of these paths.
    Ambiguous(Vec<String>),
    /// Everything is written.
    Written(Written),
    /// The snapshot is not there any more.
    Gone,
    /// The repository could not be reached.
    Unreachable(String),
    /// Anything else.
    Failed(Reason, String),
}

/// Reads the end of a Job.
#[must_use]
pub fn answer(job: &JobFact) -> Answer {
    let outcome = match &job.read {
        Read::Unreadable(why) | Read::Silent(why) => {
            let message = format!("The mover left no result: {why}. The target may hold part of the files.");
            return Answer::Failed(Reason::RestoreFailed, message);
        }
        Read::Outcome { outcome, .. } => outcome,
    };
    let OperationResult::Restore(answer) = &outcome.result else {
        return match &outcome.error {
            Some(failure) => match failure.class {
                FailureClass::BackendUnreachable => Answer::Unreachable(failure.message.clone()),
                FailureClass::RepositoryReplaced => {
                    Answer::Failed(Reason::RepositoryReplaced, failure.message.clone())
                }
                FailureClass::InvalidPassword
                | FailureClass::RepositoryNotInitialized
                | FailureClass::SourceUnreadable
                | FailureClass::InvalidWork
                | FailureClass::OperationFailed
                | FailureClass::Unknown => Answer::Failed(Reason::RestoreFailed, failure.message.clone()),
            },
            None => Answer::Failed(
                Reason::RestoreFailed,
                "The mover answered something else than was asked; are operator and mover of one release?"
                    .into(),
            ),
        };
    };
    match answer {
        RestoreAnswer::Resolved {
            found: Some(found), ..
        } => Answer::Resolved(found.clone()),
        RestoreAnswer::Resolved {
            found: None,
            of_identity,
            paths,
            others,
        } if paths.is_empty() => Answer::Nothing {
            of_identity: *of_identity,
            others: others.clone(),
        },
        RestoreAnswer::Resolved {
            found: None, paths, ..
        } => Answer::Ambiguous(paths.clone()),
        RestoreAnswer::Restored {
            files,
            bytes,
            not_set,
            ..
        } => Answer::Written(Written {
            files: *files,
            bytes: *bytes,
            not_set: not_set.clone(),
            failed: outcome.error.as_ref().map(|f| f.message.clone()),
        }),
        RestoreAnswer::Refused { why } => {
            let message = outcome
                .error
                .as_ref()
                .map(|f| f.message.clone())
                .unwrap_or_default();
            match why {
                Refused::SnapshotNotFound => Answer::Gone,
                Refused::TargetNotEmpty => Answer::Failed(Reason::TargetNotEmpty, message),
                Refused::TargetIsRepository => Answer::Failed(Reason::TargetIsRepository, message),
                Refused::Unknown => Answer::Failed(Reason::RestoreFailed, message),
            }
        }
    }
}

/// Whether the newest pod refused: another try of the same Job would find the same.
#[must_use]
pub fn refused(job: &JobFact) -> bool {
    match &job.read {
        Read::Outcome { outcome, .. } => matches!(
            outcome.result,
            OperationResult::Restore(RestoreAnswer::Refused { .. })
        ),
        Read::Unreadable(_) | Read::Silent(_) => false,
    }
}

/// What is recorded of a snapshot that was found.
#[must_use]
pub fn pin(
    found: &Found,
    repository: Option<&RepositoryKey>,
    job: &JobFact,
    now: Timestamp,
) -> ResolvedRestore {
    let unique_id = match &job.read {
        Read::Outcome { outcome, .. } => outcome.unique_id.clone(),
        Read::Unreadable(_) | Read::Silent(_) => None,
    };
    ResolvedRestore {
        resolution: Resolution::Snapshot,
        kopia_snapshot_id: Some(found.snapshot_id.clone()),
        snapshot_ref: None,
        repository: repository.map(keys::pin_to),
        unique_id,
        identity: Some(Identity {
            username: found.source.username.clone(),
            hostname: found.source.hostname.clone(),
            source_path: found.source.path.clone(),
        }),
        // As the API server would keep it.
        start_time: Some(found.start_time),
        size_bytes: found.size_bytes.map(|n| i64::try_from(n).unwrap_or(i64::MAX)),
        pinned_at: now,
    }
}
