//! What a lane's decision rests on, gathered from the world, and live where an absence or a Job's pods matter.
//!
//! **Promises.** A repository object that the world does not have is looked for live before a Snapshot counts as
//! belonging nowhere. The Job that the lane's lock names is part of the picture even before the watch delivers it.
//! A lane with several Jobs counts as one that has started.
//!
//! **Assumes.** The world is synced. Passes over one lane never overlap.

use super::facts::{self, Around};
use super::lease::Lock;
use super::live::Live;
use crate::context::{Context, Error};
use crate::jobs::{outcome, parse_repository};
use crate::world::keys::{LaneKey, ObjectKey, RepositoryKey};
use crate::world::views::{JobView, RepositoryView, SnapshotView};
use crate::world::{Pending, ResolvedTo};
use holdfast_api::{ClusterRepository, Repository, Snapshot, SnapshotPolicy, names};
use holdfast_core::deletion::{Cache, Lane, LiveBatch, MemberFacts, OwnMover, Resolution, Sharing};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A batch Job of the lane that is not reaped.
#[derive(Debug, Clone)]
pub struct BatchJob {
    /// The Job.
    pub job: Arc<JobView>,
    /// The repository object it works for.
    pub repository: RepositoryKey,
    /// UIDs of its members, in the order of its answer.
    pub members: Vec<String>,
    /// Unique id of the repository it deletes from.
    pub unique_id: String,
    /// A container may have started.
    pub started: bool,
    /// Why none has, in the cluster's words; empty when one has.
    pub why_not: String,
}

/// What was read live because the world alone does not prove it.
#[derive(Debug, Clone, Default)]
pub struct Proven {
    /// The CRD of Snapshot is being deleted.
    api_going_away: bool,
    /// Repository objects that exist although the world does not have them.
    repositories: BTreeSet<RepositoryKey>,
    /// Policies that exist although the world does not have them.
    policies: BTreeSet<ObjectKey>,
    /// Backup Jobs that were looked for and are not there.
    absent_jobs: BTreeSet<ObjectKey>,
    /// Backup Jobs that are there although the world does not have them.
    present_jobs: BTreeMap<ObjectKey, Arc<JobView>>,
}

/// One lane as it is now.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The facts for the decision.
    pub lane: Lane,
    /// Its members' objects, by UID.
    pub views: HashMap<String, Arc<SnapshotView>>,
    /// Its repository objects.
    pub repositories: BTreeMap<RepositoryKey, Arc<RepositoryView>>,
    /// Its Jobs that are not reaped.
    pub jobs: Vec<BatchJob>,
    /// Where a member stands in the lane, by UID.
    index: HashMap<String, usize>,
}

impl Observed {
    /// The facts about a member.
    #[must_use]
    pub fn member(&self, uid: &str) -> Option<&MemberFacts> {
        self.lane.members.get(*self.index.get(uid)?)
    }

    /// Whether a Job of the lane includes a member.
    #[must_use]
    pub fn rides(&self, uid: &str) -> bool {
        self.jobs.iter().any(|j| j.members.iter().any(|m| m == uid))
    }
}

/// The batch Jobs of a lane, those that only the lock knows of included, with their pods looked at live.
///
/// # Errors
/// [`Error`].
pub async fn jobs(ctx: &Context, key: &LaneKey, lock: Option<&Lock>) -> Result<Vec<BatchJob>, Error> {
    let mut views: Vec<Arc<JobView>> = ctx.world.batch_jobs();
    views.retain(|job| belongs(ctx, key, job));
    if let Some(named) = lock.and_then(Lock::job)
        && !views.iter().any(|j| j.key() == named)
    {
        // Created a moment ago, or reaped: the watch does not say which.
        let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &named.namespace);
        let found = api.get_opt(&named.name).await?;
        views.extend(
            found
                .filter(|j| j.label(names::OP_LABEL) == Some(names::OP_DELETE_BATCH))
                .map(Arc::new),
        );
    }
    let mut jobs = Vec::new();
    for job in views {
        let Some(repository) = job.annotation(names::WORKS_FOR).and_then(parse_repository) else {
            tracing::warn!(job = %job.key(), "a batch Job names no repository and is left alone");
            continue;
        };
        let (started, why_not) = if job.is_terminal() {
            (true, String::new())
        } else {
            let pods = outcome::pods(&ctx.client, &job.key().namespace, job.uid()).await?;
            match (facts::started(&job, &pods), outcome::judge(pods)) {
                (true, _) | (false, outcome::Read::Outcome { .. }) => (true, String::new()),
                (false, outcome::Read::Unreadable(why)) => (false, why),
            }
        };
        let members = job.annotation(names::DELETE_MEMBERS).unwrap_or_default();
        jobs.push(BatchJob {
            members: members
                .split(',')
                .filter(|uid| !uid.is_empty())
                .map(str::to_owned)
                .collect(),
            unique_id: job
                .annotation(names::DELETE_UNIQUE_ID)
                .unwrap_or_default()
                .to_owned(),
            repository,
            started,
            why_not,
            job,
        });
    }
    jobs.sort_by_key(|j| j.job.key());
    Ok(jobs)
}

/// By the repository object it works for; and by the physical repository, should that object be gone.
fn belongs(ctx: &Context, key: &LaneKey, job: &JobView) -> bool {
    let by_object = job
        .annotation(names::WORKS_FOR)
        .and_then(parse_repository)
        .is_some_and(|r| ctx.world.lane_of(&r) == *key);
    let by_id = match key {
        LaneKey::Physical(id) => job.annotation(names::DELETE_UNIQUE_ID) == Some(id),
        LaneKey::Unconnected(_) | LaneKey::Unresolved => false,
    };
    by_object || by_id
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
    proven.api_going_away = api_going_away(ctx).await?;
    let mut looked_for = BTreeSet::new();
    let mut policies = BTreeSet::new();
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
        if let Some(job) = missing_job(ctx, snapshot) {
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
    for key in policies {
        // A policy that is known names a repository that is not there; only one that is unknown is in doubt.
        if ctx.world.policy(&key).is_none() {
            let api: Api<PartialObjectMeta<SnapshotPolicy>> =
                Api::namespaced(ctx.client.clone(), &key.namespace);
            if api.get_opt(&key.name).await?.is_some() {
                proven.policies.insert(key);
            }
        }
    }
    Ok(proven)
}

/// The backup Job that a Snapshot without an id names and the world does not have.
fn missing_job(ctx: &Context, snapshot: &SnapshotView) -> Option<ObjectKey> {
    let named = snapshot.status.as_ref()?.job.as_ref()?;
    if snapshot.snapshot_id().is_some() || !ctx.world.jobs_of(snapshot.uid()).is_empty() {
        return None;
    }
    Some(ObjectKey::new(snapshot.key().namespace, &named.name))
}

async fn repository_exists(ctx: &Context, key: &RepositoryKey) -> Result<bool, Error> {
    let client = ctx.client.clone();
    Ok(match key {
        RepositoryKey::Repository { namespace, name } => {
            let api: Api<PartialObjectMeta<Repository>> = Api::namespaced(client, namespace);
            api.get_opt(name).await?.is_some()
        }
        RepositoryKey::ClusterRepository { name } => {
            let api: Api<PartialObjectMeta<ClusterRepository>> = Api::all(client);
            api.get_opt(name).await?.is_some()
        }
    })
}

/// Rule 2. A definition that is not there at all has no objects either: look again.
async fn api_going_away(ctx: &Context) -> Result<bool, Error> {
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(ctx.client.clone());
    match api.get_opt(Snapshot::crd_name()).await? {
        Some(crd) => Ok(crd.metadata.deletion_timestamp.is_some()),
        None => Err(Error::Conflict),
    }
}

/// Puts a lane together. What `live` has read takes the place of what the world says.
#[must_use]
pub fn lane(ctx: &Context, key: &LaneKey, jobs: &[BatchJob], proven: &Proven, live: &Live) -> Observed {
    let pending = ctx.world.pending(key);
    let mut repositories: BTreeMap<RepositoryKey, Arc<RepositoryView>> = ctx
        .world
        .repositories_of(key)
        .into_iter()
        .map(|view| (view.key.clone(), view))
        .collect();
    for (repository, found) in &live.repositories {
        // Gone, or another physical repository by now: no longer of this lane, so nothing of it fires.
        match found.as_ref().filter(|view| is_of(key, view)) {
            Some(view) => _ = repositories.insert(repository.clone(), Arc::clone(view)),
            None => _ = repositories.remove(repository),
        }
    }
    let gather = Gather {
        ctx,
        key,
        proven,
        live,
    };
    let members: Vec<MemberFacts> = pending.iter().map(|p| gather.member(p)).collect();
    let index = members
        .iter()
        .enumerate()
        .map(|(n, m)| (m.uid.clone(), n))
        .collect();
    let unplaced = ctx.world.unplaced(key).iter().map(|p| gather.member(p)).collect();
    let lane = Lane {
        repositories: repositories
            .values()
            .map(|view| facts::repository(view))
            .collect(),
        members,
        unplaced,
        live: live_batch(jobs),
        cache: if ctx.world.is_synced() {
            Cache::Synced
        } else {
            Cache::Cold
        },
        foreign_manager: false,
        api_going_away: proven.api_going_away,
        live_jobs_in_cluster: live
            .jobs_in_cluster
            .unwrap_or_else(|| u32::try_from(ctx.world.live_batches()).unwrap_or(u32::MAX)),
    };
    let views = pending
        .into_iter()
        .map(|p| (p.snapshot.uid().to_owned(), p.snapshot))
        .collect();
    Observed {
        lane,
        views,
        repositories,
        jobs: jobs.to_vec(),
        index,
    }
}

fn is_of(key: &LaneKey, view: &RepositoryView) -> bool {
    match key {
        LaneKey::Physical(id) => view.unique_id() == Some(id),
        LaneKey::Unconnected(own) => view.key == *own && view.unique_id().is_none(),
        LaneKey::Unresolved => false,
    }
}

/// The Jobs as the decision sees them: one. Several (after an object was removed) stop everything until they end.
fn live_batch(jobs: &[BatchJob]) -> Option<LiveBatch> {
    let first = jobs.first()?;
    let created = first.job.metadata.creation_timestamp.as_ref();
    Some(LiveBatch {
        job: first.job.key().name,
        repository: first.repository.clone(),
        members: jobs.iter().flat_map(|j| j.members.iter().cloned()).collect(),
        started: jobs.len() > 1 || first.started,
        created_at: created.map_or(Timestamp::MAX, |t| t.0),
    })
}

struct Gather<'a> {
    ctx: &'a Context,
    key: &'a LaneKey,
    proven: &'a Proven,
    live: &'a Live,
}

impl Gather<'_> {
    fn member(&self, pending: &Pending) -> MemberFacts {
        let view = &pending.snapshot;
        let own = view.key();
        let world = &self.ctx.world;
        let repository = self.resolution(view);
        let place = match &repository {
            Resolution::Resolved(key) => key.namespace().unwrap_or(&self.ctx.settings.namespace),
            Resolution::Gone | Resolution::Unreadable => "",
        };
        let sharing = match view
            .snapshot_id()
            .and_then(|id| world.live_sharer(self.key, id, &own))
        {
            Some(other) => Sharing::WithLive(other.to_string()),
            None => Sharing::Alone,
        };
        let around = Around {
            first_seen: pending.first_seen,
            owner: self.live.owner(self.ctx, view),
            namespace: facts::namespace(self.live.namespace(self.ctx, &own.namespace)),
            sharing,
            mover: self.mover(view),
            place: facts::place(place, self.live.namespace(self.ctx, place)),
            repository,
        };
        facts::member(view, around)
    }

    fn resolution(&self, view: &SnapshotView) -> Resolution {
        match self.ctx.world.resolve(view) {
            ResolvedTo::Repository(key) => Resolution::Resolved(key),
            ResolvedTo::Unknown => Resolution::Unreadable,
            ResolvedTo::Gone => {
                let there = match (view.pin(), view.policy()) {
                    (Some(pin), _) => self.proven.repositories.contains(&pin),
                    (None, Some(policy)) => self.proven.policies.contains(&policy),
                    (None, None) => false,
                };
                if there {
                    Resolution::Unreadable
                } else {
                    Resolution::Gone
                }
            }
        }
    }

    fn mover(&self, view: &SnapshotView) -> OwnMover {
        let mut jobs = self.ctx.world.jobs_of(view.uid());
        let missing = missing_job(self.ctx, view);
        if let Some(found) = missing.as_ref().and_then(|j| self.proven.present_jobs.get(j)) {
            jobs.push(Arc::clone(found));
        }
        let unknown = missing.is_some_and(|j| !self.proven.absent_jobs.contains(&j));
        facts::own_mover(&jobs, view.snapshot_id().is_some(), unknown)
    }
}

/// Backup Jobs of a Snapshot, those that only a live look found included.
#[must_use]
pub fn own_jobs(ctx: &Context, proven: &Proven, view: &SnapshotView) -> Vec<Arc<JobView>> {
    let mut jobs = ctx.world.jobs_of(view.uid());
    if let Some(found) = missing_job(ctx, view).and_then(|j| proven.present_jobs.get(&j)) {
        jobs.push(Arc::clone(found));
    }
    jobs.retain(|j| j.label(names::OP_LABEL) == Some(names::OP_BACKUP));
    jobs
}
