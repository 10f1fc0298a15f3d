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
use super::member;
use super::proven::{Proven, missing_job};
use crate::context::{Context, Error};
use crate::jobs::{outcome, parse_repository};
use crate::protect::maintenance;
use crate::protect::snapshot::pins;
use crate::world::keys::{LaneKey, ObjectKey, RepositoryKey};
use crate::world::views::{JobView, RepositoryView, SnapshotView};
use crate::world::{Pending, ResolvedTo, World};
use holdfast_api::names;
use holdfast_core::deletion::{Cache, Lane, LiveBatch, MemberFacts, OwnMover, Resolution, Sharing};
use jiff::Timestamp;
use kube::api::Api;
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
    /// It deletes again what came back: its members have no Snapshots.
    pub again: bool,
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
    /// Snapshots whose data a Job proved gone and whose Job is gone too: no members any more, only to be released.
    pub done: Vec<Arc<SnapshotView>>,
    /// Where a member stands in the lane, by UID.
    index: HashMap<String, usize>,
}

impl Observed {
    /// The facts about a member.
    #[must_use]
    pub fn member(&self, uid: &str) -> Option<&MemberFacts> {
        self.lane.members.get(*self.index.get(uid)?)
    }

    /// Puts what was read live in the place of what the world said.
    pub fn see(&mut self, key: &LaneKey, live: &BTreeMap<RepositoryKey, Option<Arc<RepositoryView>>>) {
        replace(key, &mut self.repositories, live);
        self.lane.repositories = self
            .repositories
            .values()
            .map(|view| facts::repository(view))
            .collect();
    }

    /// Whether a Job of the lane includes a member.
    #[must_use]
    pub fn rides(&self, uid: &str) -> bool {
        rides(&self.jobs, uid)
    }
}

fn rides(jobs: &[BatchJob], uid: &str) -> bool {
    jobs.iter().any(|j| j.members.iter().any(|m| m == uid))
}

/// The batch Jobs of a lane, those that only the lock or a claim knows of included, with their pods looked at live.
///
/// # Errors
/// [`Error`].
pub async fn jobs(
    ctx: &Context,
    key: &LaneKey,
    lock: Option<&Lock>,
    pending: &[Pending],
) -> Result<Vec<BatchJob>, Error> {
    let mut views: Vec<Arc<JobView>> = ctx.world.batch_jobs();
    views.retain(|job| belongs(ctx, key, job));
    let named: BTreeSet<ObjectKey> = match lock {
        Some(lock) => lock.job().into_iter().collect(),
        // Without a lock (the repository object went or is made anew) the claims say which Job there may be.
        None => pending
            .iter()
            .filter_map(|p| claimed_by(ctx, &p.snapshot))
            .collect(),
    };
    for named in named {
        if views.iter().any(|j| j.key() == named) {
            continue;
        }
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
            let pods = outcome::pods(&ctx.client, &job).await?;
            match (facts::started(&job, &pods), outcome::judge(pods)) {
                (true, _) | (false, outcome::Read::Outcome { .. }) => (true, String::new()),
                (false, outcome::Read::Unreadable(why) | outcome::Read::Silent(why)) => (false, why),
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
            again: job.annotation(names::DELETE_REAPPEARED).is_some(),
            job,
        });
    }
    jobs.sort_by_key(|j| j.job.key());
    Ok(jobs)
}

fn claimed_by(ctx: &Context, snapshot: &SnapshotView) -> Option<ObjectKey> {
    let job = member::claim(snapshot)?;
    let pin = snapshot.pin()?;
    Some(ObjectKey::new(
        pin.namespace().unwrap_or(&ctx.settings.namespace),
        job,
    ))
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

/// Puts a lane together. What `live` has read takes the place of what the world says. `home` is the operator's
/// namespace.
#[must_use]
pub fn lane(
    world: &World,
    home: &str,
    key: &LaneKey,
    jobs: &[BatchJob],
    proven: &Proven,
    live: &Live,
) -> Observed {
    let (done, pending): (Vec<Pending>, Vec<Pending>) = world
        .pending(key)
        .into_iter()
        .partition(|p| member::is_confirmed(&p.snapshot) && !rides(jobs, p.snapshot.uid()));
    let mut repositories: BTreeMap<RepositoryKey, Arc<RepositoryView>> = world
        .repositories_of(key)
        .into_iter()
        .map(|view| (view.key.clone(), view))
        .collect();
    replace(key, &mut repositories, &live.repositories);
    let gather = Gather {
        world,
        home,
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
    let unplaced = world.unplaced(key).iter().map(|p| gather.member(p)).collect();
    let lane = Lane {
        repositories: repositories
            .values()
            .map(|view| facts::repository(view))
            .collect(),
        members,
        unplaced,
        latch: proven.latch.clone(),
        fired: proven.fired.clone(),
        live: live_batch(jobs),
        cache: if world.is_synced() {
            Cache::Synced
        } else {
            Cache::Cold
        },
        foreign_manager: false,
        api_going_away: proven.api_going_away,
        most_members: repositories.values().filter_map(|view| most_members(view)).min(),
        writers: live.writers.clone(),
        maintenance: is_maintained(world, key),
        live_jobs_in_cluster: live
            .jobs_in_cluster
            .unwrap_or_else(|| u32::try_from(world.live_batches()).unwrap_or(u32::MAX)),
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
        done: done.into_iter().map(|p| p.snapshot).collect(),
        index,
    }
}

/// What was read live takes the place of what the world says. Gone, or another physical repository by now: no longer
/// of this lane, so nothing of it fires.
fn replace(
    key: &LaneKey,
    repositories: &mut BTreeMap<RepositoryKey, Arc<RepositoryView>>,
    live: &BTreeMap<RepositoryKey, Option<Arc<RepositoryView>>>,
) {
    for (repository, found) in live {
        match found.as_ref().filter(|view| is_of(key, view)) {
            Some(view) => _ = repositories.insert(repository.clone(), Arc::clone(view)),
            None => _ = repositories.remove(repository),
        }
    }
}

/// Whether a maintenance or a pin Job of the physical repository has not ended, as the world has it; right before a batch fires it
/// is asked live.
fn is_maintained(world: &World, key: &LaneKey) -> bool {
    match key {
        LaneKey::Physical(id) => !world
            .jobs(|job| maintenance::works_on(job, id) || pins::works_on(job, id))
            .is_empty(),
        LaneKey::Unconnected(_) | LaneKey::Unresolved => false,
    }
}

fn most_members(view: &RepositoryView) -> Option<usize> {
    let most = view.protection().jobs?.most_members?;
    usize::try_from(most).ok()
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
        members: jobs
            .iter()
            .filter(|j| !j.again)
            .flat_map(|j| j.members.iter().cloned())
            .collect(),
        started: jobs.len() > 1 || first.started,
        created_at: created.map_or(Timestamp::MAX, |t| t.0),
    })
}

struct Gather<'a> {
    world: &'a World,
    home: &'a str,
    key: &'a LaneKey,
    proven: &'a Proven,
    live: &'a Live,
}

impl Gather<'_> {
    fn member(&self, pending: &Pending) -> MemberFacts {
        let view = &pending.snapshot;
        let own = view.key();
        let world = self.world;
        let repository = self.resolution(view);
        let place = match &repository {
            Resolution::Resolved(key) => key.namespace().unwrap_or(self.home),
            Resolution::Gone | Resolution::Unreadable => "",
        };
        let sharing = match view
            .snapshot_id()
            .and_then(|id| self.live.sharer(world, self.key, id, &own))
        {
            Some(other) => Sharing::WithLive(other.to_string()),
            None => Sharing::Alone,
        };
        let (owner, schedule_says) = self.live.owner(world, self.proven, view);
        let around = Around {
            first_seen: pending.first_seen,
            owner,
            schedule_says,
            namespace: facts::namespace(self.live.namespace(world, &own.namespace)),
            sharing,
            mover: self.mover(view),
            place: facts::place(place, self.live.namespace(world, place)),
            repository,
        };
        facts::member(view, around)
    }

    fn resolution(&self, view: &SnapshotView) -> Resolution {
        if member::is_never_seen(view) {
            // Where its policy leads to it is not, and nothing says where else.
            return Resolution::Gone;
        }
        match self.live.resolve(self.world, view) {
            ResolvedTo::Repository(key) => match facts::elsewhere(view, self.key) {
                // The object is there, and connected to another repository than the one its snapshot is in: an id
                // that is absent here proves nothing. As a key that is not of this lane it waits, by rule 8.
                Some(unique_id) => Resolution::Resolved(RepositoryKey::ClusterRepository {
                    name: format!("(of unique id {unique_id})"),
                }),
                None => Resolution::Resolved(key),
            },
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
        let mut jobs = self.world.jobs_of_snapshot(view);
        let missing = missing_job(self.world, view);
        if let Some(found) = missing.as_ref().and_then(|j| self.proven.present_jobs.get(j)) {
            jobs.push(Arc::clone(found));
        }
        let unknown = missing.is_some_and(|j| !self.proven.absent_jobs.contains(&j));
        facts::own_mover(&jobs, view.snapshot_id().is_some(), unknown)
    }
}
