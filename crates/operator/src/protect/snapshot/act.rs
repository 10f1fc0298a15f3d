//! Carrying out a step: the pin is recorded before the Job is created.

use super::copies;
use super::decide::Step;
use super::observe::{Blocked, Facts, Possible};
use super::{pins, result};
use crate::context::{Context, Error};
use crate::jobs::build::{Mover, Storage};
use crate::jobs::create::{Created, create_job};
use crate::jobs::job_name;
use crate::jobs::outcome::{JobFact, Read, refused_pod};
use crate::jobs::privileged::{self, Task};
use crate::jobs::projection::{self, Projection};
use crate::protect::policy;
use crate::protect::wave::writers;
use crate::runtime::queue::Next;
use crate::runtime::{diff, write};
use crate::world::keys;
use crate::world::views::{SnapshotStatusView, SnapshotView};
use holdfast_api::mover::MoverDefaults;
use holdfast_api::shared::{Identity, Origin};
use holdfast_api::snapshot::{JobStatus, Resolved, ResolvedSource, RunFailure, Snapshot, SnapshotPhase};
use holdfast_api::{conditions, names};
use holdfast_core::deletion::silence::Begin;
use holdfast_protocol::SOURCE_DIR;
use holdfast_protocol::work::{BackupItem, Operation, WorkDocument};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Api;
use kube::runtime::events::EventType;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds after which a backup is ended when nothing else is said: 48 hours.
const DEADLINE_SECONDS: i64 = 48 * 3600;

/// Why a Snapshot is not run that a tool makes again.
const MADE_AGAIN: &str = "MadeAgainAfterPrune";

/// Carries out one step and says when to look again.
pub async fn carry_out(ctx: &Context, facts: &Facts, step: Step, now: Timestamp) -> Result<Next, Error> {
    let view = &facts.view;
    match step {
        Step::AddFinalizer => {
            add_finalizer(ctx, view).await?;
            Ok(Next::Settled)
        }
        Step::Begin(origin) => {
            write_status(ctx, view, |status| {
                status.phase = Some(SnapshotPhase::Pending);
                status.origin = Some(origin);
            })
            .await?;
            Ok(Next::Settled)
        }
        Step::MadeAgain(pruned_at) => {
            let policy = view.policy().map(|key| key.to_string()).unwrap_or_default();
            let message = format!(
                "Retention of SnapshotPolicy {policy} pruned a Snapshot of this name at {pruned_at}. One that a tool makes again right after is not run: it would be pruned again, or push out another one. Remove it from what the tool applies; for a new backup, make a Snapshot of another name."
            );
            write_status(ctx, view, |status| {
                status.phase = Some(SnapshotPhase::Failed);
                status.origin = Some(Origin::Manual);
                status.failure = Some(RunFailure {
                    class: MADE_AGAIN.to_owned(),
                    message: message.clone(),
                });
                let generation = view.metadata.generation;
                kstatus(
                    status,
                    generation,
                    (false, false, true),
                    MADE_AGAIN,
                    &message,
                    now,
                );
            })
            .await?;
            Ok(Next::Settled)
        }
        Step::Done { found_again } => {
            if found_again {
                write_status(ctx, view, |status| {
                    let message = "The status is there again.";
                    let generation = view.metadata.generation;
                    conditions::set(
                        &mut status.conditions,
                        conditions::STATUS_LOST,
                        false,
                        "StatusFound",
                        message,
                        generation,
                        now,
                    );
                })
                .await?;
                return Ok(Next::Settled);
            }
            pins::pass(ctx, view, now).await
        }
        Step::StatusLost => {
            let message = "This Snapshot was not made by a person and has no status, as after a restore by another tool. It is not run and nothing is touched until its status is restored.";
            write_status(ctx, view, |status| {
                let generation = view.metadata.generation;
                conditions::set(
                    &mut status.conditions,
                    conditions::STATUS_LOST,
                    true,
                    conditions::STATUS_LOST,
                    message,
                    generation,
                    now,
                );
            })
            .await?;
            Ok(Next::Settled)
        }
        Step::Wait(d) => Ok(Next::After(to_std(d))),
        Step::Blocked(why) => blocked(ctx, view, &why, now).await,
        Step::Start(run) => start(ctx, view, &run, now).await,
        Step::Running(job) => running(ctx, view, &job, now).await,
        Step::Record(job) => {
            result::record(ctx, view, &job.job, &job.read, now).await?;
            Ok(Next::Settled)
        }
    }
}

fn to_std(d: SignedDuration) -> Duration {
    Duration::try_from(d)
        .unwrap_or_default()
        .max(Duration::from_millis(200))
}

/// Writes a status if it changes, against the judged resourceVersion.
pub(super) async fn write_status(
    ctx: &Context,
    view: &SnapshotView,
    change: impl FnOnce(&mut SnapshotStatusView),
) -> Result<(), Error> {
    let before = view.status.clone().unwrap_or_default();
    let mut status = before.clone();
    change(&mut status);
    let Some(patch) = diff::merge_patch(&before, &status) else {
        return Ok(());
    };
    ctx.leadership.guard()?;
    let key = view.key();
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    write::patch_status(&api, &key.name, version, patch).await?;
    Ok(())
}

async fn add_finalizer(ctx: &Context, view: &SnapshotView) -> Result<(), Error> {
    ctx.leadership.guard()?;
    let key = view.key();
    let mut finalizers = view.metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(names::FINALIZER.to_owned());
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    write::patch(
        &api,
        &key.name,
        version,
        json!({ "metadata": { "finalizers": finalizers } }),
    )
    .await?;
    Ok(())
}

/// Sets the three kstatus conditions.
pub(super) fn kstatus(
    status: &mut SnapshotStatusView,
    generation: Option<i64>,
    (ready, reconciling, stalled): (bool, bool, bool),
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let all = conditions::Kstatus {
        ready,
        reconciling,
        stalled,
    };
    all.set(&mut status.conditions, reason, message, generation, now);
}

async fn blocked(ctx: &Context, view: &SnapshotView, why: &Blocked, now: Timestamp) -> Result<Next, Error> {
    let generation = view.metadata.generation;
    // It was to begin once, and a copy may have been made for a Job that never was.
    if view.phase() == Some(SnapshotPhase::Running) {
        copies::withdraw(ctx, view).await?;
    }
    let (reason, message) = (why.reason(), why.message());
    let stalled = matches!(why, Blocked::InvalidSpec(_) | Blocked::NoPolicy);
    write_status(ctx, view, |status| {
        kstatus(
            status,
            generation,
            (false, !stalled, stalled),
            reason,
            &message,
            now,
        );
        let list = &mut status.conditions;
        match why {
            Blocked::MissingCredentialsSecret(_) | Blocked::NoConsent(_) => {
                conditions::set(
                    list,
                    conditions::CREDENTIALS_AVAILABLE,
                    false,
                    reason,
                    &message,
                    generation,
                    now,
                );
            }
            Blocked::SourcePvcMissing(_) => {
                conditions::set(
                    list,
                    conditions::SOURCE_PVC_AVAILABLE,
                    false,
                    reason,
                    &message,
                    generation,
                    now,
                );
            }
            Blocked::PrivilegedMoverNotPermitted(_) => {
                let kind = conditions::MOVER_PERMITTED;
                conditions::set(list, kind, false, reason, &message, generation, now);
            }
            Blocked::InvalidSpec(_)
            | Blocked::NoPolicy
            | Blocked::PolicyNotFound(_)
            | Blocked::PolicyInvalid(..)
            | Blocked::PolicySuspended(_)
            | Blocked::PolicyDeleting(_)
            | Blocked::RepositoryNotFound(_)
            | Blocked::NamespaceNotAllowed(_)
            | Blocked::RepositoryNotReady(_)
            | Blocked::NoIdentity(..)
            | Blocked::MissingForBackend(_) => {}
        }
    })
    .await?;
    let conditions = view.status.as_ref().map(|s| s.conditions.as_slice());
    let said = conditions::get(conditions.unwrap_or_default(), conditions::READY);
    if matches!(why, Blocked::PrivilegedMoverNotPermitted(_)) && said.is_none_or(|c| c.reason != reason) {
        let _ = ctx
            .event_snapshot(view, EventType::Warning, reason, &message, "AnnotateNamespace")
            .await;
    }
    Ok(if why.is_polled() {
        Next::After(Duration::from_secs(10))
    } else {
        Next::Settled
    })
}

async fn start(ctx: &Context, view: &SnapshotView, run: &Possible, now: Timestamp) -> Result<Next, Error> {
    let key = view.key();
    let name = job_name(&key.name);
    let source = policy::source_of(&run.identity, &run.claim);
    let pin = Resolved {
        repository: Some(keys::pin_to(&run.repository.key)),
        unique_id: run.repository.unique_id().map(str::to_owned),
        sources: vec![ResolvedSource {
            pvc: run.claim.clone(),
            source_path: source.path.clone(),
        }],
        identity: Some(Identity {
            username: source.username.clone(),
            hostname: source.hostname.clone(),
            source_path: source.path.clone(),
        }),
    };
    let generation = view.metadata.generation;
    let message = format!("Job {}/{name} backs up claim {}.", key.namespace, run.claim);
    // Recorded before the Job exists, so that a crash in between leaves a pin without a Job, never the reverse.
    let recorded = view.phase() == Some(SnapshotPhase::Running)
        && view.status.as_ref().and_then(|s| s.resolved.as_ref()) == Some(&pin);
    if !recorded {
        // Begun before, of another repository: what was copied of that one goes.
        if view.phase() == Some(SnapshotPhase::Running) {
            copies::withdraw(ctx, view).await?;
        }
        write_status(ctx, view, |status| {
            status.phase = Some(SnapshotPhase::Running);
            status.job = Some(JobStatus { name: name.clone() });
            status.resolved = Some(pin);
            let list = &mut status.conditions;
            let there = "Everything the run needs is there.";
            let credentials = conditions::CREDENTIALS_AVAILABLE;
            if run.projects {
                // Said when the copy is there.
                conditions::clear(list, credentials);
            } else {
                conditions::set(list, credentials, true, "Available", there, generation, now);
            }
            conditions::set(
                list,
                conditions::SOURCE_PVC_AVAILABLE,
                true,
                "Available",
                there,
                generation,
                now,
            );
            if run.privileged {
                let agreed = "The namespace agreed to privileged movers.";
                let kind = conditions::MOVER_PERMITTED;
                conditions::set(list, kind, true, "Permitted", agreed, generation, now);
            } else {
                conditions::clear(list, conditions::MOVER_PERMITTED);
            }
            kstatus(status, generation, (false, true, false), "Running", &message, now);
        })
        .await?;
        // The event of this write brings the object back with the version that is recorded.
        return Ok(Next::Settled);
    }
    let failure = run.snapshot.spec.failure_policy.clone().unwrap_or_default();
    let mut mover = Mover {
        name,
        namespace: key.namespace.clone(),
        op: names::OP_BACKUP,
        owner_uid: view.uid().to_owned(),
        works_for: key.name.clone(),
        owner: Some(OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: "Snapshot".to_owned(),
            name: key.name.clone(),
            uid: view.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(false),
        }),
        document: WorkDocument {
            version: holdfast_protocol::VERSION,
            cluster: ctx.cluster.clone(),
            repository: super::super::repository::access(&run.repository),
            operation: Operation::Backup {
                items: vec![BackupItem {
                    uid: view.uid().to_owned(),
                    read_from: format!("{SOURCE_DIR}/{}", run.claim),
                    source,
                    tags: run.snapshot.spec.tags.clone(),
                }],
            },
            results: None,
        },
        image: ctx.settings.mover_image.clone(),
        pull_policy: ctx.settings.mover_pull_policy.clone(),
        settings: settings(run),
        storage: Storage::of(&run.repository),
        secret: run.repository.spec.encryption.password_secret_ref.name.clone(),
        secret_key: run.repository.spec.encryption.password_secret_ref.key.clone(),
        sources: vec![run.claim.clone()],
        backoff_limit: failure.backoff_limit.unwrap_or(2),
        active_deadline_seconds: failure.active_deadline_seconds.unwrap_or(DEADLINE_SECONDS),
        labels: BTreeMap::new(),
        annotations: BTreeMap::from([(
            names::WRITES_TO.to_owned(),
            run.repository.unique_id().unwrap_or_default().to_owned(),
        )]),
    };
    let copy = run.projects.then(|| {
        let (place, job) = (&mover.namespace, &mover.name);
        Projection::of(ctx, &run.repository, place, job, view.uid())
    });
    if let Some(copy) = &copy {
        copy.apply(&mut mover);
    }
    // Before the lane is held: the Secrets of one run keep no other waiting.
    if let (Some(copy), Some(owner)) = (&copy, &mover.owner)
        && let Some(hold) = projection::ensure(ctx, copy, owner).await?
    {
        copies::say_hold(ctx, view, &hold, now).await?;
        return Ok(Next::After(Duration::from_secs(10)));
    }
    // Held until CREATE: a batch that asks meanwhile counts this writer, or this writer finds that batch.
    let gate = ctx.gates.lane(run.repository.unique_id().unwrap_or_default());
    let held = gate.lock().await;
    match writers::may_begin(ctx, &run.repository).await? {
        Begin::Now => {}
        Begin::AfterBatch => {
            let message = format!(
                "A delete Job runs on {}, whose engine deletes safely only alone. The run starts when it has ended, ahead of the next one.",
                run.repository.key
            );
            write_status(ctx, view, |status| {
                let all = (false, true, false);
                kstatus(status, generation, all, writers::HELD_BACK, &message, now);
            })
            .await?;
            return Ok(Next::After(Duration::from_secs(10)));
        }
    }
    let job = if run.privileged {
        privileged::job(&mover, Task::Read)?
    } else {
        mover.job()?
    };
    let created = create_job(ctx, &mover.namespace, job).await;
    drop(held);
    let (reason, message) = match created {
        Ok(Created::Yes(job)) => {
            if let Some(copy) = &copy {
                projection::ensure(ctx, copy, &projection::owned_by(&job)).await?;
            }
            return Ok(Next::Settled);
        }
        Ok(Created::Exists) => match copies::own_job(ctx, view).await? {
            // Its own, which the watch has not shown yet.
            Some(owner) => {
                if let Some(copy) = &copy {
                    projection::ensure(ctx, copy, &owner).await?;
                }
                return Ok(Next::After(Duration::from_secs(2)));
            }
            None => (
                "JobNameTaken",
                format!(
                    "Job {}/{} exists and is not of this Snapshot; the run starts when it is gone.",
                    mover.namespace, mover.name
                ),
            ),
        },
        Ok(Created::NoPlace) => (
            "NoPlaceToRun",
            format!("Namespace {} takes no new Jobs.", mover.namespace),
        ),
        Err(error) if error.is_refusal() => (
            "JobRefused",
            format!("The API server does not take Job {}: {error}", mover.name),
        ),
        Err(error) => return Err(error),
    };
    if let Some(copy) = &copy {
        projection::withdraw_unused(ctx, copy).await?;
    }
    // The phase and the pin stay: what is said is that nothing runs yet, and why.
    write_status(ctx, view, |status| {
        kstatus(status, generation, (false, true, false), reason, &message, now);
    })
    .await?;
    Ok(Next::After(Duration::from_secs(10)))
}

/// How the pod is: what the policy says over what the repository says.
fn settings(run: &Possible) -> MoverDefaults {
    let defaults = run.repository.mover_defaults();
    match &run.policy.spec.mover {
        None => defaults,
        Some(recipe) => recipe.over(&defaults),
    }
}

async fn running(ctx: &Context, view: &SnapshotView, job: &JobFact, now: Timestamp) -> Result<Next, Error> {
    let generation = view.metadata.generation;
    let list = view.status.as_ref().map(|s| s.conditions.as_slice());
    let was_held_back = conditions::get(list.unwrap_or_default(), conditions::READY)
        .is_some_and(|c| c.reason == writers::HELD_BACK);
    let is_suspended = job.job.is_suspended_for_batch();
    if !is_suspended {
        writers::let_go(ctx, &job.job).await?;
    }
    if copies::follow(ctx, view, &job.job, now).await? {
        // Its own event brings it back.
        return Ok(Next::After(Duration::from_secs(5)));
    }
    if is_suspended {
        let repository = view.pin().map(|key| key.to_string()).unwrap_or_default();
        let message = format!(
            "A delete Job needs {repository} to itself, so Job {}, which had not started, is suspended. It goes on when that has ended, ahead of the next one.",
            job.job.key()
        );
        write_status(ctx, view, |status| {
            let all = (false, true, false);
            kstatus(status, generation, all, writers::HELD_BACK, &message, now);
        })
        .await?;
        return Ok(Next::After(Duration::from_secs(20)));
    }
    let message = match &job.read {
        Read::Unreadable(why) | Read::Silent(why) => format!("Job {} runs; {why}.", job.job.key()),
        Read::Outcome { .. } => format!("Job {} runs.", job.job.key()),
    };
    let age = job
        .job
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|t| now.duration_since(t.0));
    // A container that does not start is worth a word, but not for the seconds that every start takes.
    if was_held_back || age.is_some_and(|a| a > SignedDuration::from_secs(20)) {
        let refused = refused_pod(&ctx.client, job).await?;
        let (reason, message) = match &refused {
            Some(refused) => ("JobRefused", refused),
            None => ("Running", &message),
        };
        write_status(ctx, view, |status| {
            kstatus(status, generation, (false, true, false), reason, message, now);
        })
        .await?;
    }
    Ok(Next::After(Duration::from_secs(20)))
}
