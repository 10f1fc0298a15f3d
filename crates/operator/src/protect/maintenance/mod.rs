//! Maintenance: a repository's space is freed on schedules, by a mover Job of its own.
//!
//! **Promises.** One maintenance Job for each physical repository, never beside a delete batch: both ask under one gate,
//! live, until their Job is created. What a run needs is named in a condition when it is missing, and looked for again.
//! A result is recorded once, before its Job goes.
//!
//! **Assumes.** A Job comes to an end by itself, at its deadline at the latest: a delete batch waits for it.

mod act;
mod observe;
mod record;
mod report;
#[cfg(test)]
mod tests;

use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::world::keys::{LaneKey, ObjectKey};
use crate::world::views::JobView;
use holdfast_api::names;
use holdfast_core::deletion::names::repository_label;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

/// One pass over one Maintenance.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &ObjectKey) -> Result<Next, Error> {
    let Some(view) = ctx.world.maintenance(key) else {
        return Ok(Next::Settled);
    };
    if view.metadata.deletion_timestamp.is_some() || !ctx.world.is_synced() {
        return Ok(Next::Settled);
    }
    let now = ctx.clock.now();
    let observed = observe::observe(ctx, key, view, now).await?;
    act::carry_out(ctx, &observed, now).await
}

/// Whether a Job maintains the physical repository of this unique id and has not ended.
#[must_use]
pub fn works_on(job: &JobView, unique_id: &str) -> bool {
    job.label(names::OP_LABEL) == Some(names::OP_MAINTENANCE)
        && job.annotation(names::MAINTAINS) == Some(unique_id)
        && !job.is_terminal()
}

/// What still maintains the physical repository, in words: a Job that has not ended, or a pod whose Job is gone. Read live
/// where the movers of its objects run; of an object that is gone, as the world has it.
///
/// # Errors
/// [`Error`].
pub async fn live(ctx: &Context, unique_id: &str) -> Result<Option<String>, Error> {
    let of_kind = format!("{}={}", names::OP_LABEL, names::OP_MAINTENANCE);
    if let Some(job) = ctx.world.jobs(|job| works_on(job, unique_id)).first() {
        return Ok(Some(format!("Job {}", job.key())));
    }
    let lane = LaneKey::Physical(unique_id.to_owned());
    for view in ctx.world.repositories_of(&lane) {
        let place = view.place(&ctx.settings.namespace);
        let api: Api<JobView> = Api::namespaced(ctx.client.clone(), place);
        let jobs = api.list(&ListParams::default().labels(&of_kind)).await?;
        if let Some(job) = jobs.items.iter().find(|job| works_on(job, unique_id)) {
            return Ok(Some(format!("Job {}", job.key())));
        }
        let api: Api<Pod> = Api::namespaced(ctx.client.clone(), place);
        let of_repository = format!(
            "{of_kind},{}={}",
            names::MAINTENANCE_REPO_LABEL,
            repository_label(&view.key)
        );
        let pods = api.list(&ListParams::default().labels(&of_repository)).await?;
        let alive = pods.items.into_iter().find(|pod| {
            let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        });
        if let Some(pod) = alive {
            return Ok(Some(format!("pod {}", pod.metadata.name.unwrap_or_default())));
        }
    }
    Ok(None)
}

/// The Maintenance that is of a repository object, by name, if there is one.
#[must_use]
pub fn of_repository(ctx: &Context, repository: &crate::world::keys::RepositoryKey) -> Option<String> {
    let those = ctx.world.maintenances(|key, view| {
        crate::world::keys::resolve(&view.spec.repository, &key.namespace).as_ref() == Some(repository)
    });
    let mut names: Vec<String> = those
        .iter()
        .map(|m| ObjectKey::of(m.as_ref()).to_string())
        .collect();
    names.sort();
    names.into_iter().next()
}
