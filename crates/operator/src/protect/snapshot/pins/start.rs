//! The Job that pins or unpins: what it needs, and its creation.

use super::super::act::write_status;
use super::super::allowed::allows;
use super::{AGAIN, live};
use crate::context::{Context, Error};
use crate::jobs::build::{Mover, Storage};
use crate::jobs::create::{Created, NOT_READ, SecretFact, create, secret};
use crate::jobs::job_name;
use crate::jobs::needs::{self, Needs};
use crate::protect::repository::access;
use crate::protect::wave;
use crate::runtime::queue::Next;
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::repository::RepositoryPhase;
use holdfast_api::snapshot::Snapshot;
use holdfast_api::{conditions, names};
use holdfast_protocol::work::{Operation, PinItem, WorkDocument};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Api;
use std::collections::BTreeMap;

/// Seconds after which a pin Job is ended: a delete Job may be waiting for it.
const DEADLINE_SECONDS: i64 = 600;

/// What stands in the way of a Job.
pub(super) struct Obstacle {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

async fn obstacle(
    ctx: &Context,
    view: &SnapshotView,
    repository: &RepositoryView,
) -> Result<Option<Obstacle>, Error> {
    let namespace = view.key().namespace;
    let because = |reason, message: String| Ok(Some(Obstacle { reason, message }));
    let key = &repository.key;
    let allowed = match &repository.allowed {
        None => key.namespace() == Some(namespace.as_str()),
        Some(allowed) => {
            let labels = ctx.world.namespace_view(&namespace).map(|n| n.labels);
            allows(allowed, &namespace, &labels.unwrap_or_default())
        }
    };
    if !allowed {
        return because(
            "NamespaceNotAllowed",
            format!("This namespace may not use {key} any more, so nothing is pinned or unpinned there."),
        );
    }
    if repository.spec.suspend {
        return because(
            "RepositorySuspended",
            format!("{key} is suspended: nothing is pinned or unpinned there until it is not."),
        );
    }
    if repository.status.phase != Some(RepositoryPhase::Ready)
        || repository.unique_id() != view.pinned_unique_id()
    {
        return because(
            "RepositoryNotReady",
            format!(
                "{key} is not ready, or is connected to another repository than this snapshot is in; its conditions say why."
            ),
        );
    }
    let password = &repository.spec.encryption.password_secret_ref;
    match secret(ctx, &namespace, &password.name, &password.key).await? {
        SecretFact::Usable(_) => {}
        SecretFact::Missing | SecretFact::NoKey => {
            let text = format!(
                "Secret {namespace}/{} with key {} {NOT_READ}. Create it; the mover runs there.",
                password.name, password.key
            );
            return because("MissingCredentialsSecret", text);
        }
    }
    if let Needs::Unmet(unmet) = needs::backend(ctx, &namespace, &namespace, repository).await? {
        return because(unmet.reason(), unmet.message());
    }
    Ok(None)
}

/// Says why there is no Job, or none that runs.
pub(super) async fn blocked(
    ctx: &Context,
    view: &SnapshotView,
    why: Obstacle,
    now: Timestamp,
) -> Result<Next, Error> {
    write_status(ctx, view, |status| {
        let kind = conditions::PINNED;
        let generation = view.metadata.generation;
        conditions::set(
            &mut status.conditions,
            kind,
            false,
            why.reason,
            &why.message,
            generation,
            now,
        );
    })
    .await?;
    Ok(Next::After(AGAIN))
}

/// Records that a Job is to come, then creates it.
pub(super) async fn start(
    ctx: &Context,
    view: &SnapshotView,
    on: bool,
    now: Timestamp,
) -> Result<Next, Error> {
    let Some(repository) = view.pin().and_then(|key| ctx.world.repository(&key)) else {
        let why = Obstacle {
            reason: "RepositoryNotFound",
            message: "The repository that it is in has no object any more. Create it; it is pinned or unpinned then."
                .to_owned(),
        };
        return blocked(ctx, view, why, now).await;
    };
    if let Some(why) = obstacle(ctx, view, &repository).await? {
        return blocked(ctx, view, why, now).await;
    }
    let name = job_name(&format!("{}-pin", view.key().name));
    let pin = view.status.as_ref().and_then(|s| s.pin.as_ref());
    if pin.and_then(|pin| pin.job.as_deref()) != Some(name.as_str()) {
        write_status(ctx, view, |status| {
            status.pin.get_or_insert_default().job = Some(name.clone());
        })
        .await?;
        // The event of this write brings the object back with the version that is recorded.
        return Ok(Next::Settled);
    }
    let unique_id = repository.unique_id().unwrap_or_default();
    // Held until CREATE: a batch that asks meanwhile finds this Job, or this Job finds that batch.
    let gate = ctx.gates.maintenance(unique_id);
    let _gate = gate.lock().await;
    if wave::is_deleting(ctx, unique_id).await? {
        let why = Obstacle {
            reason: wave::writers::HELD_BACK,
            message: format!(
                "A delete Job works on {} or waits for it, and nothing is pinned or unpinned beside one. It goes on when that has ended.",
                repository.key
            ),
        };
        return blocked(ctx, view, why, now).await;
    }
    if let Some(other) = live(ctx, unique_id).await? {
        let why = Obstacle {
            reason: "WaitingForPinJob",
            message: format!(
                "Job {other} pins or unpins another snapshot of {}; one at a time.",
                repository.key
            ),
        };
        return blocked(ctx, view, why, now).await;
    }
    if !is_still(ctx, view, on).await? {
        return Err(Error::Conflict);
    }
    let Some(mover) = mover(ctx, view, &repository, name, on) else {
        return Ok(Next::Settled);
    };
    let why = match create(ctx, &mover).await {
        Ok(Created::Yes(_)) => return Ok(Next::Settled),
        Ok(Created::Exists) => Obstacle {
            reason: "JobNameTaken",
            message: format!(
                "Job {}/{} exists; it goes on when that is gone.",
                mover.namespace, mover.name
            ),
        },
        Ok(Created::NoPlace) => Obstacle {
            reason: "NoPlaceToRun",
            message: format!("Namespace {} takes no new Jobs.", mover.namespace),
        },
        Err(error) if error.is_refusal() => Obstacle {
            reason: "JobRefused",
            message: format!("The API server does not take Job {}: {error}", mover.name),
        },
        Err(error) => return Err(error),
    };
    blocked(ctx, view, why, now).await
}

/// Whether the Snapshot is what was judged, live: a batch may have it as soon as it is being deleted.
async fn is_still(ctx: &Context, view: &SnapshotView, on: bool) -> Result<bool, Error> {
    let key = view.key();
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let Some(now) = api.get_opt(&key.name).await? else {
        return Ok(false);
    };
    let recorded = now.status.as_ref().and_then(|s| s.snapshot.as_ref());
    Ok(now.metadata.uid.as_deref() == Some(view.uid())
        && now.metadata.deletion_timestamp.is_none()
        && now.spec.pin == on
        && recorded.map(|s| s.kopia_snapshot_id.as_str()) == view.snapshot_id())
}

fn mover(
    ctx: &Context,
    view: &SnapshotView,
    repository: &RepositoryView,
    name: String,
    on: bool,
) -> Option<Mover> {
    let key = view.key();
    let password = &repository.spec.encryption.password_secret_ref;
    let timing = view.status.as_ref().and_then(|s| s.timing.as_ref());
    let item = PinItem {
        uid: view.uid().to_owned(),
        snapshot_id: view.snapshot_id()?.to_owned(),
        source: view.source()?,
        start_time: timing.and_then(|t| t.start_time),
        on,
    };
    Some(Mover {
        name,
        namespace: key.namespace.clone(),
        op: names::OP_PIN,
        owner_uid: view.uid().to_owned(),
        works_for: key.name.clone(),
        owner: Some(OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: "Snapshot".to_owned(),
            name: key.name,
            uid: view.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(false),
        }),
        document: WorkDocument {
            version: holdfast_protocol::VERSION,
            cluster: ctx.cluster.clone(),
            repository: access(repository),
            operation: Operation::Pin { item },
            results: None,
        },
        image: ctx.settings.mover_image.clone(),
        pull_policy: ctx.settings.mover_pull_policy.clone(),
        settings: repository.mover_defaults(),
        storage: Storage::of(repository),
        secret: password.name.clone(),
        secret_key: password.key.clone(),
        sources: Vec::new(),
        backoff_limit: 0,
        active_deadline_seconds: DEADLINE_SECONDS,
        labels: BTreeMap::new(),
        annotations: BTreeMap::from([
            (names::PIN_TARGET.to_owned(), on.to_string()),
            (
                names::PINS_IN.to_owned(),
                repository.unique_id().unwrap_or_default().to_owned(),
            ),
        ]),
    })
}
