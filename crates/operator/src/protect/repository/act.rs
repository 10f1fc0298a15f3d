//! Carrying out a step: records before acts.

use super::decide::{self, Reason, Step};
use super::health;
use super::observe::Facts;
use super::report::{self, Said};
use crate::context::{Context, Error};
use crate::jobs::build::{Mover, Storage, repository_path};
use crate::jobs::create::{Created, create};
use crate::jobs::outcome::JobFact;
use crate::jobs::outcome::Read;
use crate::jobs::{job_name, name_repository};
use crate::protect::catalog::{self, due};
use crate::protect::wave::again;
use crate::runtime::queue::Next;
use crate::runtime::write;
use crate::world::views::RepositoryView;
use holdfast_api::names;
use holdfast_api::repository::{ConnectionStatus, Engine, RepositoryPhase, S3Backend, StorageStats};
use holdfast_core::health as core_health;
use holdfast_protocol::outcome::OperationResult;
use holdfast_protocol::work::{
    BucketAccess, EngineKind, Operation, RepositoryAccess, ResultsEndpoint, WorkDocument,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, PropagationPolicy};
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds that a listing Job may take: one of 10,000 snapshots reads as many objects. Less than what it posts is
/// remembered for (`runtime::results::SCAN_LIFE`).
const LIST_DEADLINE_SECONDS: i64 = 1_500;

/// Carries out one step and says when to look again.
pub async fn carry_out(ctx: &Context, facts: &Facts, step: Step, now: Timestamp) -> Result<Next, Error> {
    let view = &facts.view;
    match step {
        Step::Settle(reason, message, again) => {
            let said = Said { reason, message };
            report::write(ctx, facts, &said, now, |_| {}).await?;
            Ok(again.map_or(Next::Settled, |d| Next::After(to_std(d))))
        }
        Step::Connect { create } => connect(ctx, facts, create, now).await,
        Step::Recycle(job) => {
            remove(ctx, &job).await?;
            Ok(Next::Settled)
        }
        Step::Record {
            unique_id,
            snapshots,
            created,
        } => {
            let message = if created {
                "The repository was created."
            } else {
                "The repository is connected."
            };
            let said = Said {
                reason: Reason::Connected,
                message: message.into(),
            };
            let inputs = facts.inputs.clone();
            let was_away = view.status.phase == Some(RepositoryPhase::Degraded);
            let before = view.status.connection.as_ref().and_then(|c| c.inputs.as_ref());
            let changed = before != Some(&inputs);
            report::write(ctx, facts, &said, now, |status| {
                let catalog = status.catalog.take().unwrap_or_default();
                status.catalog = Some(due::connected(catalog, snapshots, changed, now));
                status.unique_id = Some(unique_id);
                // What was slow once is given the same time again.
                let deadline_seconds = status.connection.take().and_then(|c| c.deadline_seconds);
                status.connection = Some(ConnectionStatus {
                    failures: 0,
                    next_attempt_at: None,
                    deadline_seconds,
                    inputs: Some(inputs),
                });
                health::reached(status, &facts.view, now);
                status.storage_stats = Some(StorageStats {
                    snapshot_count: i64::try_from(snapshots).ok(),
                    last_observed_at: Some(now),
                    total_size: status.storage_stats.as_ref().and_then(|s| s.total_size),
                });
            })
            .await?;
            health::well(ctx, view, was_away).await;
            remove_bootstrap(ctx, facts).await?;
            Ok(Next::Settled)
        }
        Step::Failed(reason, message, at) => {
            let failures = view.status.connection.as_ref().map_or(0, |c| c.failures) + 1;
            let inputs = facts.inputs.clone();
            let same = view.status.connection.as_ref().and_then(|c| c.inputs.as_ref()) == Some(&inputs);
            let usable = view.unique_id().is_some()
                && same
                && reason.is_not_reached()
                && core_health::is_usable(decide::probe(view), failures);
            let said = if usable {
                let message = decide::CONNECTED.to_owned();
                Said {
                    reason: Reason::Connected,
                    message,
                }
            } else {
                Said {
                    reason,
                    message: message.clone(),
                }
            };
            let slow = matches!(
                reason,
                Reason::BootstrapDeadlineExceeded | Reason::ProbeDeadlineExceeded
            );
            let seconds = decide::deadline(view);
            report::write(ctx, facts, &said, now, |status| {
                status.connection = Some(ConnectionStatus {
                    failures,
                    next_attempt_at: Some(at),
                    deadline_seconds: Some(if slow {
                        core_health::longer(seconds)
                    } else {
                        seconds
                    })
                    .filter(|seconds| *seconds != core_health::FIRST_DEADLINE),
                    inputs: Some(inputs),
                });
                health::not_reached(status, &facts.view, (reason, &message), now);
            })
            .await?;
            health::count(ctx, view, reason, failures, usable);
            remove_bootstrap(ctx, facts).await?;
            Ok(Next::After(Duration::from_secs(10)))
        }
        Step::List(request) => list(ctx, facts, &request, now).await,
        Step::Listed(job) => listed(ctx, facts, &job).await,
    }
}

fn to_std(d: SignedDuration) -> Duration {
    Duration::try_from(d)
        .unwrap_or_default()
        .max(Duration::from_millis(500))
}

/// How movers reach the repository of this object.
#[must_use]
pub fn access(view: &RepositoryView) -> RepositoryAccess {
    RepositoryAccess {
        engine: match view.spec.engine {
            Engine::Kopia => EngineKind::Kopia,
            // A value of a newer release is refused before any Job is made (`holdfast_api::validate`).
            Engine::Restic | Engine::Unknown => EngineKind::Restic,
        },
        path: match view.s3() {
            None => repository_path(view.filesystem().map_or("/", |f| f.path.as_str())),
            Some(_) => String::new(),
        },
        bucket: view.s3().map(bucket),
        password_key: view.spec.encryption.password_secret_ref.key.clone(),
        unique_id: view.unique_id().map(str::to_owned),
        user: None,
    }
}

fn bucket(s3: &S3Backend) -> BucketAccess {
    let tls = s3.tls.clone().unwrap_or_default();
    BucketAccess {
        name: s3.bucket.clone(),
        prefix: s3.prefix.clone(),
        endpoint: s3.endpoint.clone(),
        region: s3.region.clone(),
        disable_tls: tls.disable_tls,
        insecure_skip_verify: tls.insecure_skip_verify,
        private_ca: tls.ca_bundle_ref.is_some(),
    }
}

fn mover(ctx: &Context, facts: &Facts, op: &'static str, operation: Operation) -> Mover {
    let view = &facts.view;
    let cluster = if view.key.namespace().is_none() {
        "cluster-"
    } else {
        ""
    };
    let what = if op == names::OP_LIST { "list" } else { "bootstrap" };
    Mover {
        name: job_name(&format!("{cluster}{}-{what}", view.key.name())),
        namespace: facts.place.clone(),
        op,
        owner_uid: view.uid().to_owned(),
        works_for: name_repository(&view.key),
        owner: view.key.namespace().map(|_| owner(view)),
        document: WorkDocument {
            version: holdfast_protocol::VERSION,
            cluster: ctx.cluster.clone(),
            repository: access(view),
            operation,
            results: None,
        },
        image: ctx.settings.mover_image.clone(),
        pull_policy: ctx.settings.mover_pull_policy.clone(),
        settings: view.mover_defaults(),
        storage: Storage::of(view),
        secret: view.spec.encryption.password_secret_ref.name.clone(),
        secret_key: view.spec.encryption.password_secret_ref.key.clone(),
        sources: Vec::new(),
        backoff_limit: 0,
        active_deadline_seconds: decide::deadline(view),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

fn owner(view: &RepositoryView) -> OwnerReference {
    OwnerReference {
        api_version: names::API_VERSION.to_owned(),
        kind: view.key.kind().to_owned(),
        name: view.key.name().to_owned(),
        uid: view.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

async fn connect(ctx: &Context, facts: &Facts, may_create: bool, now: Timestamp) -> Result<Next, Error> {
    let mut mover = mover(
        ctx,
        facts,
        names::OP_BOOTSTRAP,
        Operation::Bootstrap { create: may_create },
    );
    mover
        .annotations
        .insert(names::CONNECTION_INPUTS.into(), facts.inputs.clone());
    let name = mover.name.clone();
    let created = match create(ctx, &mover).await {
        Ok(created) => created,
        // A quota or a webhook: said where people look, and tried again.
        Err(error) if error.is_refusal() => {
            let said = Said {
                reason: Reason::BootstrapJobFailed,
                message: format!("The API server does not take Job {}/{name}: {error}", facts.place),
            };
            report::write(ctx, facts, &said, now, |_| {}).await?;
            return Ok(Next::After(Duration::from_secs(30)));
        }
        Err(error) => return Err(error),
    };
    // A probe changes nothing before it has an answer.
    let probes = facts.view.unique_id().is_some()
        && facts
            .view
            .status
            .connection
            .as_ref()
            .and_then(|c| c.inputs.as_ref())
            == Some(&facts.inputs);
    if probes && matches!(created, Created::Yes(_)) {
        return Ok(Next::After(Duration::from_secs(10)));
    }
    let said = match created {
        Created::Yes(_) => Said {
            reason: Reason::Connecting,
            message: format!("Job {}/{name} connects.", facts.place),
        },
        // Ours is seen by the next event; a foreign one never becomes ours.
        Created::Exists => Said {
            reason: Reason::Connecting,
            message: format!(
                "Job {}/{name} exists already. If it is not of this repository, remove it: its name is needed.",
                facts.place
            ),
        },
        Created::NoPlace => Said {
            reason: Reason::NoPlaceToRun,
            message: format!(
                "Namespace {} takes no new Jobs: it is missing or being deleted.",
                facts.place
            ),
        },
    };
    report::write(ctx, facts, &said, now, |_| {}).await?;
    Ok(Next::After(Duration::from_secs(10)))
}

async fn remove_bootstrap(ctx: &Context, facts: &Facts) -> Result<(), Error> {
    match &facts.bootstrap {
        Some(job) => remove(ctx, job).await,
        None => Ok(()),
    }
}

async fn remove(ctx: &Context, job: &JobFact) -> Result<(), Error> {
    if job.job.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    ctx.leadership.guard()?;
    let key = job.job.key();
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let uid = job.job.metadata.uid.as_deref().unwrap_or_default();
    Ok(write::delete(&api, &key.name, uid, None, PropagationPolicy::Background).await?)
}

/// Names the scan of a listing Job: new for each thing that is asked for.
fn scan_name(facts: &Facts, request: &due::Request) -> String {
    let hash = crate::jobs::short_hash(&format!("{request:?}"));
    format!("{}-{hash}", facts.view.uid())
}

async fn list(ctx: &Context, facts: &Facts, request: &due::Request, now: Timestamp) -> Result<Next, Error> {
    let catalog = facts.view.status.catalog.clone().unwrap_or_default();
    if request.is_second_look(&catalog)
        && let Some(at) = again::put_off(ctx, &facts.view, now).await?
    {
        return Ok(Next::After(
            Duration::try_from(at.duration_since(now)).unwrap_or_default(),
        ));
    }
    let endpoint = ctx
        .endpoint
        .read()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clone();
    let Some(endpoint) = endpoint else {
        return Ok(Next::After(Duration::from_secs(2)));
    };
    let mut mover = mover(ctx, facts, names::OP_LIST, Operation::List {});
    mover.active_deadline_seconds = LIST_DEADLINE_SECONDS;
    let scan = scan_name(facts, request);
    mover.document.results = Some(ResultsEndpoint {
        address: endpoint.address,
        server_name: endpoint.server_name,
        ca: endpoint.ca,
        scan: scan.clone(),
    });
    let said = [
        (names::SCAN_REQUEST, &request.asked),
        (names::SCAN_DUE, &request.due),
    ];
    for (name, value) in said {
        if let Some(value) = value {
            mover.annotations.insert(name.into(), value.clone());
        }
    }
    // Expected before it can arrive.
    if ctx.results.expect(&scan, &facts.place).is_err() {
        return Ok(Next::After(Duration::from_secs(30)));
    }
    create(ctx, &mover).await?;
    Ok(Next::After(Duration::from_secs(10)))
}

async fn listed(ctx: &Context, facts: &Facts, job: &JobFact) -> Result<Next, Error> {
    let said = |name| job.job.annotation(name).map(str::to_owned);
    let request = due::Request {
        asked: said(names::SCAN_REQUEST),
        due: said(names::SCAN_DUE),
    };
    let scan = scan_name(facts, &request);
    let listing = match &job.read {
        Read::Outcome { outcome, .. } => match (&outcome.result, &outcome.error) {
            (
                OperationResult::Listed {
                    snapshots,
                    chunks,
                    digest,
                },
                None,
            ) => ctx
                .results
                .finish(&scan, *chunks, *snapshots, digest)
                .map_err(|void| void.to_string()),
            (_, Some(failure)) => Err(failure.message.clone()),
            (_, None) => Err("the mover answered something else than was asked".to_owned()),
        },
        Read::Unreadable(why) | Read::Silent(why) => Err(why.clone()),
    };
    ctx.results.forget(&scan);
    // A Job without a time began never: nothing is removed on its account.
    let began = job.job.metadata.creation_timestamp.as_ref();
    let began = began.map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    match listing {
        Ok(rows) => catalog::arrived(ctx, &facts.view, began, &request, &rows).await?,
        Err(why) => catalog::void(ctx, &facts.view, &request, &why).await?,
    }
    remove(ctx, job).await?;
    Ok(Next::Settled)
}
