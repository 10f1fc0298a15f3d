//! Pinning a Snapshot's snapshot in its repository, and taking our pin back (`docs/design.md` 3.6).
//!
//! **Promises.** What is wanted is `spec.pin`, what is there is what a listing or a pin Job last read. That a Job is to come
//! is recorded before it is created. One pin Job at a time for each physical repository, never beside a delete Job: both
//! ask under one gate, live, until their Job is created, and the Snapshot is read there once more, so that one that is being
//! deleted is not pinned any more. The id that the snapshot has then is recorded together with the result, in one write.
//! Only our own pin is taken back.
//!
//! **Assumes.** A crash between the mover's write and this record leaves an id that the delete Job's plan, a restore, the
//! next pin Job and the next listing find again by what the snapshot is of and when it was begun.

use super::act::write_status;
use super::allowed::allows;
use crate::context::{Context, Error};
use crate::jobs::build::{Mover, Storage};
use crate::jobs::create::{Created, NOT_READ, SecretFact, create, secret};
use crate::jobs::job_name;
use crate::jobs::needs::{self, Needs};
use crate::jobs::outcome::{JobFact, Read, job_fact, refused_pod};
use crate::protect::repository::access;
use crate::protect::wave;
use crate::runtime::queue::Next;
use crate::runtime::write;
use crate::world::keys::LaneKey;
use crate::world::views::{JobView, RepositoryView, SnapshotStatusView, SnapshotView};
use holdfast_api::repository::RepositoryPhase;
use holdfast_api::snapshot::{Snapshot, SnapshotPhase};
use holdfast_api::{conditions, names};
use holdfast_core::backoff;
use holdfast_core::pins::{Facts, Hold, PinReason, Seen, Step, decide};
use holdfast_protocol::outcome::OperationResult;
use holdfast_protocol::work::{Operation, PinItem, Source, WorkDocument};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ListParams, PropagationPolicy};
use kube::runtime::events::EventType;
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds after which a pin Job is ended: a delete Job may be waiting for it.
const DEADLINE_SECONDS: i64 = 600;
/// How soon what stands in the way is looked at again.
const AGAIN: Duration = Duration::from_secs(10);
/// The failed attempt that is told in an event.
const TOLD_AT: u32 = 3;

/// What the repository's record said when it was last read.
#[must_use]
pub fn seen(view: &SnapshotView) -> Seen {
    let status = view.status.as_ref();
    Seen {
        pinned: status.and_then(|s| s.pinned) == Some(true),
        ours: status.and_then(|s| s.pin.as_ref()).is_some_and(|pin| pin.ours),
    }
}

/// Takes what was read into a status: the id that the snapshot has, and its pins.
pub fn take(
    status: &mut SnapshotStatusView,
    id: &str,
    seen: Seen,
    read_at: Timestamp,
    generation: Option<i64>,
    now: Timestamp,
) {
    if let Some(snapshot) = status.snapshot.as_mut() {
        id.clone_into(&mut snapshot.kopia_snapshot_id);
    }
    status.pinned = Some(seen.pinned);
    let pin = status.pin.get_or_insert_default();
    pin.ours = seen.ours;
    pin.read_at = Some(read_at);
    say(status, PinReason::of(seen), "", generation, now);
}

/// Says a word of [`PinReason`].
fn say(
    status: &mut SnapshotStatusView,
    reason: PinReason,
    detail: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (is_true, message) = match reason {
        PinReason::Pinned => (
            true,
            "Its record in the repository says that it is to be kept; retention never prunes it.",
        ),
        PinReason::PinnedInRepository => (
            true,
            "It was pinned in the repository itself, so retention never prunes it. That is not taken back here: unpin it with the repository's own program.",
        ),
        PinReason::NotPinned => (
            false,
            "Its record in the repository does not say that it is to be kept.",
        ),
        PinReason::PinJobRunning | PinReason::PinJobFailed | PinReason::SharedSnapshot => (false, detail),
    };
    let list = &mut status.conditions;
    let kind = conditions::PINNED;
    match reason {
        PinReason::PinJobRunning => {
            conditions::set_unknown(list, kind, reason.as_str(), message, generation, now);
        }
        PinReason::Pinned
        | PinReason::PinnedInRepository
        | PinReason::NotPinned
        | PinReason::PinJobFailed
        | PinReason::SharedSnapshot => {
            conditions::set(list, kind, is_true, reason.as_str(), message, generation, now);
        }
    }
}

/// Whether a Job pins or unpins in the physical repository of this unique id and has not ended.
#[must_use]
pub fn works_on(job: &JobView, unique_id: &str) -> bool {
    job.label(names::OP_LABEL) == Some(names::OP_PIN)
        && job.annotation(names::PINS_IN) == Some(unique_id)
        && !job.is_terminal()
}

/// The Job that pins or unpins in the physical repository and has not ended, read live.
///
/// # Errors
/// [`Error`].
pub async fn live(ctx: &Context, unique_id: &str) -> Result<Option<String>, Error> {
    let api: Api<JobView> = Api::all(ctx.client.clone());
    let of_kind = ListParams::default().labels(&format!("{}={}", names::OP_LABEL, names::OP_PIN));
    let jobs = api.list(&of_kind).await?.items;
    let found = jobs.iter().find(|job| works_on(job, unique_id));
    Ok(found.map(|job| job.key().to_string()))
}

/// What a batch may not run beside, read live: the pin Jobs of its own members, and, where the engine minds who else writes,
/// every pin Job of the repository. That a member's Job is to come is recorded on the member before, so that a batch which
/// has not heard of it cannot claim the member.
///
/// # Errors
/// [`Error`].
pub async fn beside(
    ctx: &Context,
    unique_id: &str,
    minds: bool,
    members: impl Iterator<Item = &SnapshotView>,
) -> Result<Option<String>, Error> {
    if minds {
        return live(ctx, unique_id).await;
    }
    for view in members {
        let pin = view.status.as_ref().and_then(|s| s.pin.as_ref());
        let Some(name) = pin.and_then(|pin| pin.job.as_deref()) else {
            continue;
        };
        let namespace = view.key().namespace;
        let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &namespace);
        let found = api.get_opt(name).await?;
        if found.is_some_and(|job| works_on(&job, unique_id)) {
            return Ok(Some(format!("{namespace}/{name}")));
        }
    }
    Ok(None)
}

/// One pass over a Snapshot that is not being deleted and has come to its end.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, view: &SnapshotView, now: Timestamp) -> Result<Next, Error> {
    if view.phase() != Some(SnapshotPhase::Succeeded) {
        return Ok(Next::Settled);
    }
    if let Some(job) = job_fact(ctx, view.uid(), names::OP_PIN).await? {
        return if job.job.is_terminal() {
            record(ctx, view, &job, now).await
        } else {
            running(ctx, view, &job, now).await
        };
    }
    let sharer = sharer(ctx, view);
    match decide(&facts(view, sharer.is_some(), now), now) {
        Step::Nothing => Ok(Next::Settled),
        Step::Settled(reason) => {
            settled(ctx, view, reason, sharer.as_deref(), now).await?;
            Ok(Next::Settled)
        }
        Step::Wait(at) => Ok(Next::After(
            Duration::try_from(at.duration_since(now))
                .unwrap_or(AGAIN)
                .max(AGAIN),
        )),
        Step::Job { on } => start(ctx, view, on, now).await,
    }
}

fn facts(view: &SnapshotView, shared: bool, now: Timestamp) -> Facts {
    let status = view.status.as_ref();
    let told = source(view).is_some() && view.pinned_unique_id().is_some() && view.pin().is_some();
    let hold = if view.is_discovered() || !told {
        Some(Hold::NothingRecorded)
    } else if view.is_vanished() {
        Some(Hold::Vanished)
    } else {
        shared.then_some(Hold::Shared)
    };
    let pin = status.and_then(|s| s.pin.as_ref());
    Facts {
        wanted: view.spec.pin,
        seen: seen(view),
        hold,
        next_attempt_at: pin
            .and_then(|pin| pin.next_attempt_at)
            .filter(|at| backoff::MEMBER.waits(*at, now)),
    }
}

/// Another live Snapshot that records the same id, by its key.
fn sharer(ctx: &Context, view: &SnapshotView) -> Option<String> {
    let lane = LaneKey::Physical(view.pinned_unique_id()?.to_owned());
    let recorders = ctx.world.live_recorders(&lane, view.snapshot_id()?);
    recorders
        .iter()
        .find(|other| other.uid() != view.uid() && !other.is_discovered())
        .map(|other| other.key().to_string())
}

fn source(view: &SnapshotView) -> Option<Source> {
    let identity = view.status.as_ref()?.snapshot.as_ref()?.identity.as_ref()?;
    Some(Source {
        username: identity.username.clone(),
        hostname: identity.hostname.clone(),
        path: identity.source_path.clone(),
    })
}

/// Nothing is to be written in the repository; the word is only said of what somebody asked about or pinned.
async fn settled(
    ctx: &Context,
    view: &SnapshotView,
    reason: PinReason,
    sharer: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    let status = view.status.as_ref();
    let silent = status.is_none_or(|s| {
        s.pin.is_none() && s.pinned.is_none() && conditions::get(&s.conditions, conditions::PINNED).is_none()
    });
    if silent && reason == PinReason::NotPinned {
        return Ok(());
    }
    let detail = format!(
        "Snapshot {} records the same snapshot. Its record in the repository gets another id when it is pinned or unpinned, which that one would not know, so nothing is written there. Here spec.pin keeps this Snapshot from retention all the same. Delete one of the two.",
        sharer.unwrap_or("of another name")
    );
    write_status(ctx, view, |status| {
        if let Some(pin) = &mut status.pin {
            pin.job = None;
            pin.attempts = 0;
            pin.last_error = None;
            pin.next_attempt_at = None;
        }
        say(status, reason, &detail, view.metadata.generation, now);
    })
    .await
}

/// What stands in the way of a Job.
struct Obstacle {
    reason: &'static str,
    message: String,
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

async fn blocked(ctx: &Context, view: &SnapshotView, why: Obstacle, now: Timestamp) -> Result<Next, Error> {
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

async fn start(ctx: &Context, view: &SnapshotView, on: bool, now: Timestamp) -> Result<Next, Error> {
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
        source: source(view)?,
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

async fn running(ctx: &Context, view: &SnapshotView, job: &JobFact, now: Timestamp) -> Result<Next, Error> {
    let created = job.job.metadata.creation_timestamp.as_ref();
    let is_slow = created.is_some_and(|t| now.duration_since(t.0) > SignedDuration::from_secs(20));
    if is_slow && let Some(message) = refused_pod(&ctx.client, job).await? {
        let why = Obstacle {
            reason: "JobRefused",
            message,
        };
        return blocked(ctx, view, why, now).await;
    }
    let does = match job.job.annotation(names::PIN_TARGET) {
        Some("false") => "takes our pin back",
        Some(_) | None => "pins it",
    };
    let detail = format!("Job {} {does} in the repository.", job.job.key());
    write_status(ctx, view, |status| {
        say(
            status,
            PinReason::PinJobRunning,
            &detail,
            view.metadata.generation,
            now,
        );
    })
    .await?;
    Ok(Next::After(Duration::from_secs(20)))
}

/// Records what a Job that ended left, once, and removes it.
async fn record(ctx: &Context, view: &SnapshotView, job: &JobFact, now: Timestamp) -> Result<Next, Error> {
    let pin = view
        .status
        .as_ref()
        .and_then(|s| s.pin.clone())
        .unwrap_or_default();
    if pin.job.as_deref() == Some(job.job.key().name.as_str()) {
        match judge(view, &job.read) {
            Ok((id, seen)) => {
                write_status(ctx, view, |status| {
                    take(status, &id, seen, now, view.metadata.generation, now);
                    let pin = status.pin.get_or_insert_default();
                    pin.job = None;
                    pin.attempts = 0;
                    pin.last_error = None;
                    pin.next_attempt_at = None;
                    if view.is_vanished() {
                        let there = "The snapshot is in the repository, and counts.";
                        let generation = view.metadata.generation;
                        let kind = conditions::VANISHED;
                        conditions::set(
                            &mut status.conditions,
                            kind,
                            false,
                            "Listed",
                            there,
                            generation,
                            now,
                        );
                    }
                })
                .await?;
            }
            Err(why) => failed(ctx, view, &why, pin.attempts.saturating_add(1), now).await?,
        }
    }
    let key = job.job.key();
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
    ctx.leadership.guard()?;
    write::delete(
        &api,
        &key.name,
        job.job.uid(),
        None,
        PropagationPolicy::Background,
    )
    .await?;
    Ok(Next::After(AGAIN))
}

async fn failed(
    ctx: &Context,
    view: &SnapshotView,
    why: &str,
    attempts: u32,
    now: Timestamp,
) -> Result<(), Error> {
    let next = backoff::MEMBER.next(attempts, now);
    let detail = format!("The Job failed: {why} It is tried again at {next}.");
    write_status(ctx, view, |status| {
        let pin = status.pin.get_or_insert_default();
        pin.job = None;
        pin.attempts = attempts;
        pin.last_error = Some(why.to_owned());
        pin.next_attempt_at = Some(next);
        say(
            status,
            PinReason::PinJobFailed,
            &detail,
            view.metadata.generation,
            now,
        );
    })
    .await?;
    if attempts == TOLD_AT {
        let reason = PinReason::PinJobFailed.as_str();
        let _ = ctx
            .event_snapshot(view, EventType::Warning, reason, &detail, "CheckRepository")
            .await;
    }
    Ok(())
}

/// What a Job's end means: only a whole outcome for this very object, from the right repository, counts.
fn judge(view: &SnapshotView, read: &Read) -> Result<(String, Seen), String> {
    let outcome = match read {
        Read::Unreadable(why) | Read::Silent(why) => {
            return Err(format!(
                "the mover left no result: {why}. If it wrote, the next Job finds what it wrote."
            ));
        }
        Read::Outcome { outcome, .. } => outcome,
    };
    if let Some(failure) = &outcome.error {
        return Err(format!("{}.", failure.message.trim_end_matches('.')));
    }
    if outcome.unique_id.as_deref() != view.pinned_unique_id() {
        return Err("the mover worked on another repository than this snapshot is in.".to_owned());
    }
    match &outcome.result {
        OperationResult::Pinned {
            uid,
            snapshot_id,
            pinned,
            ours,
        } if uid == view.uid() => Ok((
            snapshot_id.clone(),
            Seen {
                pinned: *pinned,
                ours: *ours,
            },
        )),
        OperationResult::Pinned { .. }
        | OperationResult::None
        | OperationResult::Bootstrapped { .. }
        | OperationResult::BackedUp { .. }
        | OperationResult::Listed { .. }
        | OperationResult::Restore(_)
        | OperationResult::Maintained { .. }
        | OperationResult::NotOwner { .. }
        | OperationResult::Batch { .. } => Err(
            "the mover answered something else than was asked; are operator and mover of one release?"
                .to_owned(),
        ),
    }
}
