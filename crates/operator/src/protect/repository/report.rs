//! What a repository says about itself.

use super::decide::Reason;
use super::observe::Facts;
use crate::context::{Context, Error};
use crate::runtime::{diff, write};
use crate::world::keys::RepositoryKey;
use holdfast_api::repository::{RepositoryPhase, RepositoryStatus};
use holdfast_api::{ClusterRepository, Repository, conditions};
use jiff::Timestamp;
use kube::api::Api;
use serde_json::Value;

/// One reason and one sentence, for every condition that carries them.
pub struct Said {
    /// The word.
    pub reason: Reason,
    /// The sentence.
    pub message: String,
}

/// Writes the status if it changes.
pub async fn write(
    ctx: &Context,
    facts: &Facts,
    said: &Said,
    now: Timestamp,
    change: impl FnOnce(&mut RepositoryStatus),
) -> Result<(), Error> {
    let view = &facts.view;
    let mut status = view.status.clone();
    change(&mut status);
    fill(&mut status, facts, said, now);
    let Some(patch) = diff::merge_patch(&view.status, &status) else {
        return Ok(());
    };
    let failed_before = view.status.phase == Some(RepositoryPhase::Failed);
    let version = view.metadata.resource_version.clone().unwrap_or_default();
    ctx.leadership.guard()?;
    patch_status(ctx, &view.key, &version, patch).await?;
    let degraded = |status: &RepositoryStatus| status.phase == Some(RepositoryPhase::Degraded);
    if degraded(&status) && !degraded(&view.status) {
        ctx.warn_repository(view, said.reason.as_str(), &said.message, "CheckBackend")
            .await;
    }
    if status.phase == Some(RepositoryPhase::Failed) && !failed_before {
        ctx.warn_repository(view, said.reason.as_str(), &said.message, "FixSpec")
            .await;
    }
    Ok(())
}

/// Patches the status of either repository kind against the judged resourceVersion.
pub async fn patch_status(
    ctx: &Context,
    key: &RepositoryKey,
    version: &str,
    patch: Value,
) -> Result<(), Error> {
    match key {
        RepositoryKey::Repository { namespace, name } => {
            let api: Api<Repository> = Api::namespaced(ctx.client.clone(), namespace);
            write::patch_status(&api, name, version, patch).await?;
        }
        RepositoryKey::ClusterRepository { name } => {
            let api: Api<ClusterRepository> = Api::all(ctx.client.clone());
            write::patch_status(&api, name, version, patch).await?;
        }
    }
    Ok(())
}

fn fill(status: &mut RepositoryStatus, facts: &Facts, said: &Said, now: Timestamp) {
    let generation = facts.view.metadata.generation;
    let connected_before = status.unique_id.is_some();
    status.phase = Some(said.reason.phase(connected_before));
    status.observed_generation = generation;
    status.backend = Some(facts.view.backend_name().to_owned());
    status.allowed_namespace_count = facts.allowed_namespaces;
    let ready = status.phase == Some(RepositoryPhase::Ready);
    let stalled = said.reason.is_stalled();
    let word = said.reason.as_str();
    let list = &mut status.conditions;
    let reconciling = !ready && !stalled && said.reason != Reason::Suspended;
    conditions::Kstatus {
        ready,
        reconciling,
        stalled,
    }
    .set(list, word, &said.message, generation, now);
    match said.reason {
        Reason::Connected => {
            conditions::set(
                list,
                conditions::BOOTSTRAPPED,
                true,
                word,
                &said.message,
                generation,
                now,
            );
        }
        Reason::InvalidPassword
        | Reason::RepositoryNotInitialized
        | Reason::RepositoryReplaced
        | Reason::BackendUnreachable
        | Reason::BootstrapDeadlineExceeded
        | Reason::ProbeDeadlineExceeded
        | Reason::BootstrapJobFailed => {
            conditions::set(
                list,
                conditions::BOOTSTRAPPED,
                false,
                word,
                &said.message,
                generation,
                now,
            );
        }
        Reason::InvalidSpec
        | Reason::Suspended
        | Reason::MissingCredentialsSecret
        | Reason::MissingCredentialsKey
        | Reason::MissingRepositoryClaim
        | Reason::MissingCaBundle
        | Reason::Connecting
        | Reason::NoPlaceToRun => {
            if !connected_before && conditions::get(list, conditions::BOOTSTRAPPED).is_none() {
                conditions::set(
                    list,
                    conditions::BOOTSTRAPPED,
                    false,
                    word,
                    &said.message,
                    generation,
                    now,
                );
            }
        }
    }
    if status.unique_id.is_some() {
        let (word, message) = match &facts.maintenance {
            Some(name) => (
                "MaintenanceConfigured",
                format!("Maintenance {name} is of this repository."),
            ),
            None => (
                "MaintenanceNotConfigured",
                "No Maintenance names this repository, so what deletions leave in it is never freed. Make one."
                    .to_owned(),
            ),
        };
        let is = facts.maintenance.is_some();
        let kind = conditions::MAINTENANCE_CONFIGURED;
        conditions::set(list, kind, is, word, &message, generation, now);
    }
    if !facts.overlaps.is_empty() {
        let message = format!(
            "The prefix overlaps with that of {}: Kopia takes what lies below a prefix for its own, and its maintenance deletes it. Stop the maintenance of the outer repository and move one of them to a prefix beside the other.",
            facts.overlaps.join(", ")
        );
        conditions::set(
            list,
            conditions::SHARED_REPOSITORY,
            true,
            "OverlappingPrefix",
            &message,
            generation,
            now,
        );
    } else if facts.shared_with.is_empty() {
        conditions::clear(list, conditions::SHARED_REPOSITORY);
    } else {
        let message = format!(
            "The same physical repository is also {}. Deletions of all share one lane and the strictest threshold.",
            facts.shared_with.join(", ")
        );
        conditions::set(
            list,
            conditions::SHARED_REPOSITORY,
            true,
            "SamePhysicalRepository",
            &message,
            generation,
            now,
        );
    }
}
