//! What the world alone does not prove, looked for live: the definition of Snapshot, repository objects, policies and
//! schedules that seem to be gone, and backup Jobs that a Snapshot names and the watch has not delivered.
//!
//! **Promises.** Absence in a cache frees nothing. One read for each distinct object.

use crate::context::{Context, Error};
use crate::runtime::read;
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::{JobView, ScheduleView, SnapshotView};
use crate::world::{Pending, ResolvedTo, World};
use holdfast_api::{ClusterRepository, Repository, Snapshot, SnapshotPolicy, names};
use holdfast_core::deletion::{Fired, LaneLatch};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was read live because the world alone does not prove it.
#[derive(Debug, Clone, Default)]
pub struct Proven {
    /// The CRD of Snapshot is being deleted.
    pub api_going_away: bool,
    /// It is not there at all: nothing can be written to a Snapshot, and nothing is decided.
    pub api_gone: bool,
    /// Repository objects that exist although the world does not have them.
    pub repositories: BTreeSet<RepositoryKey>,
    /// Policies that exist although the world does not have them.
    pub policies: BTreeSet<ObjectKey>,
    /// Schedules that exist although the world does not have them.
    pub schedules: BTreeMap<ObjectKey, ScheduleView>,
    /// Backup Jobs that were looked for and are not there.
    pub absent_jobs: BTreeSet<ObjectKey>,
    /// What the lane itself remembers of a hold.
    pub latch: Option<LaneLatch>,
    /// What was fired lately; only read for a sliding window.
    pub fired: Vec<Fired>,
    /// Backup Jobs that are there although the world does not have them.
    pub present_jobs: BTreeMap<ObjectKey, Arc<JobView>>,
}

/// Looks live for what the world cannot prove.
///
/// # Errors
/// [`Error`].
pub async fn prove(ctx: &Context, pending: &[Pending]) -> Result<Proven, Error> {
    let mut proven = Proven::default();
    if pending.is_empty() {
        return Ok(proven);
    }
    match definition(ctx).await? {
        Some(going_away) => proven.api_going_away = going_away,
        None => {
            proven.api_gone = true;
            return Ok(proven);
        }
    }
    let mut looked_for = BTreeSet::new();
    let mut policies = BTreeSet::new();
    let mut schedules = BTreeSet::new();
    for Pending { snapshot, .. } in pending {
        if ctx.world.resolve(snapshot) == ResolvedTo::Gone {
            match (snapshot.pin(), snapshot.policy()) {
                (Some(pin), _) => {
                    looked_for.insert(pin);
                }
                (None, Some(policy)) => {
                    policies.insert(policy);
                }
                (None, None) => {}
            }
        }
        if let Some((_, name)) = snapshot.schedule_owner() {
            let key = ObjectKey::new(snapshot.key().namespace, name);
            if ctx.world.schedule(&key).is_none() {
                schedules.insert(key);
            }
        }
        if let Some(job) = missing_job(&ctx.world, snapshot) {
            let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &job.namespace);
            match api
                .get_opt(&job.name)
                .await?
                .filter(|j| j.label(names::OWNER_UID_LABEL) == Some(snapshot.uid()))
            {
                Some(found) => _ = proven.present_jobs.insert(job, Arc::new(found)),
                None => _ = proven.absent_jobs.insert(job),
            }
        }
    }
    for key in looked_for {
        if repository_exists(ctx, &key).await? {
            proven.repositories.insert(key);
        }
    }
    for key in schedules {
        let api: Api<ScheduleView> = Api::namespaced(ctx.client.clone(), &key.namespace);
        if let Some(found) = read::find(&api, &key.name).await? {
            proven.schedules.insert(key, found);
        }
    }
    for key in policies {
        // A policy that is known names a repository that is not there; only one that is unknown is in doubt.
        if ctx.world.policy(&key).is_none() {
            let api: Api<PartialObjectMeta<SnapshotPolicy>> =
                Api::namespaced(ctx.client.clone(), &key.namespace);
            if read::find(&api, &key.name).await?.is_some() {
                proven.policies.insert(key);
            }
        }
    }
    Ok(proven)
}

/// The backup Job that a Snapshot without an id names and the world does not have.
pub fn missing_job(world: &World, snapshot: &SnapshotView) -> Option<ObjectKey> {
    let named = snapshot.status.as_ref()?.job.as_ref()?;
    if snapshot.snapshot_id().is_some() || !world.jobs_of_snapshot(snapshot).is_empty() {
        return None;
    }
    Some(ObjectKey::new(snapshot.key().namespace, &named.name))
}

async fn repository_exists(ctx: &Context, key: &RepositoryKey) -> Result<bool, Error> {
    let client = ctx.client.clone();
    Ok(match key {
        RepositoryKey::Repository { namespace, name } => {
            let api: Api<PartialObjectMeta<Repository>> = Api::namespaced(client, namespace);
            read::find(&api, name).await?.is_some()
        }
        RepositoryKey::ClusterRepository { name } => {
            let api: Api<PartialObjectMeta<ClusterRepository>> = Api::all(client);
            read::find(&api, name).await?.is_some()
        }
    })
}

/// Rule 2: whether the definition is being deleted; `None` if it is not there.
async fn definition(ctx: &Context) -> Result<Option<bool>, Error> {
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(ctx.client.clone());
    let found = api.get_opt(Snapshot::crd_name()).await?;
    Ok(found.map(|crd| crd.metadata.deletion_timestamp.is_some()))
}

/// Backup Jobs of a Snapshot, those that only a live look found included.
#[must_use]
pub fn own_jobs(ctx: &Context, proven: &Proven, view: &SnapshotView) -> Vec<Arc<JobView>> {
    let mut jobs = ctx.world.jobs_of_snapshot(view);
    if let Some(found) = missing_job(&ctx.world, view).and_then(|j| proven.present_jobs.get(&j)) {
        jobs.push(Arc::clone(found));
    }
    jobs.retain(|j| j.label(names::OP_LABEL) == Some(names::OP_BACKUP));
    jobs
}
