//! What a repository says of its probes.
//!
//! **Promises.** `BackendReachable` is False from the first failed probe on, whether or not the repository is degraded by
//! then. An event tells once that it is degraded, and once that it is not any more.

use super::decide::Reason;
use crate::context::{Context, Error};
use crate::runtime::metrics::{ProbeOutcome, RepositoryKind};
use crate::runtime::write::{self, WriteError};
use crate::world::keys::RepositoryKey;
use crate::world::views::RepositoryView;
use holdfast_api::repository::{HealthStatus, RepositoryStatus};
use holdfast_api::{ClusterRepository, Repository, conditions, names};
use jiff::{SignedDuration, Timestamp};
use kube::api::Api;
use kube::runtime::events::EventType;
use serde_json::json;

/// Failed backups ask for a probe no more often than this.
const ASKED: SignedDuration = SignedDuration::from_secs(60);

fn whole(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn answered(status: &mut RepositoryStatus, view: &RepositoryView, now: Timestamp) -> HealthStatus {
    let mut health = status.health.take().unwrap_or_default();
    health.last_probe_at = Some(whole(now));
    health.reverify_honored = view.annotation(names::REVERIFY_REQUESTED_AT).map(str::to_owned);
    health
}

/// A connection was made.
pub fn reached(status: &mut RepositoryStatus, view: &RepositoryView, now: Timestamp) {
    let mut health = answered(status, view, now);
    health.consecutive_probe_failures = 0;
    health.first_failure_at = None;
    status.health = Some(health);
    let message = "The last probe reached the repository.";
    let (kind, generation) = (conditions::BACKEND_REACHABLE, view.metadata.generation);
    conditions::set(
        &mut status.conditions,
        kind,
        true,
        "Reachable",
        message,
        generation,
        now,
    );
}

/// None was made, for this reason.
pub fn not_reached(
    status: &mut RepositoryStatus,
    view: &RepositoryView,
    (reason, message): (Reason, &str),
    now: Timestamp,
) {
    let mut health = answered(status, view, now);
    if reason.is_not_reached() {
        health.consecutive_probe_failures = health.consecutive_probe_failures.saturating_add(1);
        health.first_failure_at = health.first_failure_at.or(Some(whole(now)));
        let (kind, generation) = (conditions::BACKEND_REACHABLE, view.metadata.generation);
        let list = &mut status.conditions;
        conditions::set(list, kind, false, reason.as_str(), message, generation, now);
    }
    status.health = Some(health);
}

/// Counts a probe that failed.
pub fn count(ctx: &Context, view: &RepositoryView, reason: Reason, failures: u32, usable: bool) {
    let outcome = match reason {
        Reason::BackendUnreachable => ProbeOutcome::Unreachable,
        Reason::BootstrapDeadlineExceeded | Reason::ProbeDeadlineExceeded => ProbeOutcome::Slow,
        Reason::InvalidPassword => ProbeOutcome::Credentials,
        Reason::RepositoryNotInitialized | Reason::RepositoryReplaced => ProbeOutcome::Vanished,
        Reason::BootstrapJobFailed
        | Reason::Connected
        | Reason::InvalidSpec
        | Reason::Suspended
        | Reason::MissingCredentialsSecret
        | Reason::MissingCredentialsKey
        | Reason::MissingRepositoryClaim
        | Reason::MissingCaBundle
        | Reason::Connecting
        | Reason::NoPlaceToRun => ProbeOutcome::Failed,
    };
    let kind = RepositoryKind::from(&view.key);
    let open = view.unique_id().is_some() && !usable;
    ctx.metrics
        .probe_failed(kind, view.key.name(), outcome, failures, open);
}

/// A probe succeeded; where the repository was degraded, that is told.
pub async fn well(ctx: &Context, view: &RepositoryView, was_away: bool) {
    let kind = RepositoryKind::from(&view.key);
    ctx.metrics.probe_succeeded(kind, view.key.name());
    if was_away {
        let note = "The repository can be reached again; what waited goes on.";
        ctx.event_repository(view, EventType::Normal, "Reachable", note, "GoOn")
            .await;
    }
}

/// A backup could not reach the repository: it is probed soon, once for as many backups as fail within a minute.
///
/// # Errors
/// [`Error`].
pub async fn ask(ctx: &Context, key: &RepositoryKey, now: Timestamp) -> Result<(), Error> {
    let Some(view) = ctx.world.repository(key) else {
        return Ok(());
    };
    let asked = view.annotation(names::REVERIFY_REQUESTED_AT);
    let asked: Option<Timestamp> = asked.and_then(|at| at.parse().ok());
    if asked.is_some_and(|at| at <= now && now.duration_since(at) < ASKED) {
        return Ok(());
    }
    ctx.leadership.guard()?;
    let patch = json!({ "metadata": { "annotations": { names::REVERIFY_REQUESTED_AT: now.to_string() } } });
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    let written = match key {
        RepositoryKey::Repository { namespace, name } => {
            let api: Api<Repository> = Api::namespaced(ctx.client.clone(), namespace);
            write::patch(&api, name, version, patch).await.map(drop)
        }
        RepositoryKey::ClusterRepository { name } => {
            let api: Api<ClusterRepository> = Api::all(ctx.client.clone());
            write::patch(&api, name, version, patch).await.map(drop)
        }
    };
    match written {
        // Another backup asks again, or the interval comes.
        Ok(()) | Err(WriteError::Conflict | WriteError::Gone) => Ok(()),
        Err(error @ WriteError::Api(_)) => Err(error.into()),
    }
}
