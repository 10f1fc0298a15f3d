//! The live proof before a Job: what a deletion rests on, read from the API server and not from a cache
//! (`docs/design.md` 3.5).
//!
//! **Promises.** Every repository object of the lane, each distinct owner and each distinct namespace of the
//! batch is read once, and the policy of a member without a pin; one list says who else records the batch's snapshots, and whether any deletion that could be of the lane is not known to the world: the count
//! of the breaker rests on it. Whatever cannot be read ends the pass; whatever is not there counts as such.
//!
//! **Assumes.** The members themselves need no reading: the claim carries the resourceVersion that was judged.

use super::facts;
use super::observe::Observed;
use super::proven::Proven;
use crate::context::{Context, Error};
use crate::runtime::read;
use crate::world::keys::{LaneKey, ObjectKey, RepositoryKey};
use crate::world::views::{RepositoryView, ScheduleView, SnapshotView};
use crate::world::{NamespaceKnown, ResolvedTo, World};
use holdfast_api::{ClusterRepository, Repository, SnapshotPolicy, names};
use holdfast_core::deletion::silence::Writers;
use holdfast_core::deletion::{Batch, Cascade, Owner};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How often the world is asked for a deletion that a live list tells of, and at what pace.
const LOOKS: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What was read. Empty before the proof: then the world is asked.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// Repository objects; `None`: not there.
    pub repositories: BTreeMap<RepositoryKey, Option<Arc<RepositoryView>>>,
    /// Batch Jobs of the whole cluster that have not ended; only where a cap counts them.
    pub jobs_in_cluster: Option<u32>,
    /// Who else writes to the repository; only where its engine minds.
    pub writers: Option<Writers>,
    /// Snapshot ids of the batch, and the live Snapshots that record them.
    recorders: Option<(HashSet<String>, Vec<SnapshotView>)>,
    schedules: BTreeMap<ObjectKey, Option<ScheduleView>>,
    namespaces: BTreeMap<String, NamespaceKnown>,
    /// A deletion that could be of the lane and that the watch has not told of: the count is not known.
    pub untold: Option<Untold>,
    /// Policies of members without a pin; `None`: not there.
    policies: BTreeMap<ObjectKey, Option<SnapshotPolicy>>,
}

/// A Snapshot that the API server says is being deleted and the world does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untold {
    /// Which one.
    pub snapshot: ObjectKey,
    /// When it was deleted.
    pub deleted_at: Option<Timestamp>,
    uid: String,
}

impl Untold {
    fn of(meta: &ObjectMeta) -> Option<Self> {
        let ours = meta.finalizers.iter().flatten().any(|f| f == names::FINALIZER);
        let deleted_at = meta.deletion_timestamp.as_ref().filter(|_| ours)?.0;
        Some(Self {
            snapshot: ObjectKey::new(
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default(),
            ),
            deleted_at: Some(deleted_at),
            uid: meta.uid.clone().unwrap_or_default(),
        })
    }

    fn is_known(&self, world: &World) -> bool {
        world
            .snapshot(&self.snapshot)
            .is_some_and(|known| known.is_pending_deletion() && known.uid() == self.uid)
    }
}

impl Live {
    /// Nothing but who else writes.
    #[must_use]
    pub fn of_writers(writers: Option<Writers>) -> Self {
        Self {
            writers,
            ..Self::default()
        }
    }

    /// The schedule that owns a Snapshot, and what it says about the data.
    #[must_use]
    pub fn owner(&self, world: &World, proven: &Proven, view: &SnapshotView) -> (Owner, Option<Cascade>) {
        let Some((uid, name)) = view.schedule_owner() else {
            return (facts::owner(None, None), None);
        };
        let key = ObjectKey::new(view.key().namespace, name);
        let known = match self.schedules.get(&key) {
            Some(read) => read.clone(),
            None => {
                let known = world.schedule(&key);
                let known = known.map(|schedule| ScheduleView::from(schedule.as_ref()));
                known.or_else(|| proven.schedules.get(&key).cloned())
            }
        };
        let meta = known.as_ref().map(|schedule| &schedule.metadata);
        (
            facts::owner(Some(uid), meta),
            facts::schedule_says(Some(uid), known.as_ref()),
        )
    }

    /// Where a Snapshot's data is: where it is pinned to, else where its policy leads to.
    #[must_use]
    pub fn resolve(&self, world: &World, view: &SnapshotView) -> ResolvedTo {
        let policy = view.policy().filter(|_| !view.is_pinned());
        match policy.and_then(|key| self.policies.get(&key)) {
            Some(Some(policy)) => world.resolve_through(policy),
            // The next pass asks the world, which is about to learn it.
            Some(None) => ResolvedTo::Unknown,
            None => world.resolve(view),
        }
    }

    /// Another Snapshot of the lane that is not being deleted and records the same snapshot.
    #[must_use]
    pub fn sharer(&self, world: &World, lane: &LaneKey, id: &str, but: &ObjectKey) -> Option<ObjectKey> {
        match &self.recorders {
            Some((ids, recorders)) if ids.contains(id) => recorders
                .iter()
                .filter(|view| view.snapshot_id() == Some(id) && world.could_be_of(view, lane))
                .map(SnapshotView::key)
                .find(|key| key != but),
            Some(_) | None => world.live_sharer(lane, id, but),
        }
    }

    /// A namespace.
    #[must_use]
    pub fn namespace(&self, world: &World, name: &str) -> NamespaceKnown {
        match self.namespaces.get(name) {
            Some(read) => *read,
            None => world.namespace(name),
        }
    }
}

/// Reads what a batch rests on.
///
/// # Errors
/// [`Error`].
pub async fn read(ctx: &Context, key: &LaneKey, observed: &Observed, batch: &Batch) -> Result<Live, Error> {
    let mut live = Live {
        repositories: repositories(ctx, observed).await?,
        ..Live::default()
    };
    let mut schedules = BTreeSet::new();
    let mut namespaces = BTreeSet::new();
    let mut policies = BTreeSet::new();
    let place = batch.repository.namespace().unwrap_or(&ctx.settings.namespace);
    namespaces.insert(place.to_owned());
    for view in batch.members.iter().filter_map(|uid| observed.views.get(uid)) {
        let key = view.key();
        if let Some((_, name)) = view.schedule_owner() {
            schedules.insert(ObjectKey::new(&key.namespace, name));
        }
        namespaces.insert(key.namespace);
        policies.extend(view.policy().filter(|_| !view.is_pinned()));
    }
    let ids: HashSet<String> = batch
        .members
        .iter()
        .filter_map(|uid| observed.views.get(uid)?.snapshot_id().map(str::to_owned))
        .collect();
    let (recorders, deleting) = listed(ctx, &ids, Of::TheLiving(key)).await?;
    live.recorders = Some((ids, recorders));
    live.untold = untold(ctx, deleting).await;
    for key in schedules {
        let api: Api<ScheduleView> = Api::namespaced(ctx.client.clone(), &key.namespace);
        let found = read::find(&api, &key.name).await?;
        live.schedules.insert(key, found);
    }
    for key in policies {
        let api: Api<SnapshotPolicy> = Api::namespaced(ctx.client.clone(), &key.namespace);
        let found = read::find(&api, &key.name).await?;
        live.policies.insert(key, found);
    }
    for name in namespaces {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(ctx.client.clone());
        let known = match api.get_opt(&name).await? {
            None => NamespaceKnown::Absent,
            Some(n) if n.metadata.deletion_timestamp.is_some() => NamespaceKnown::Terminating,
            Some(_) => NamespaceKnown::Live,
        };
        live.namespaces.insert(name, known);
    }
    Ok(live)
}

/// The repository objects of a lane, live; `None`: not there.
///
/// # Errors
/// [`Error`].
pub async fn repositories(
    ctx: &Context,
    observed: &Observed,
) -> Result<BTreeMap<RepositoryKey, Option<Arc<RepositoryView>>>, Error> {
    let mut found = BTreeMap::new();
    for key in observed.repositories.keys() {
        let view = repository(ctx, key).await?;
        found.insert(key.clone(), view.map(Arc::new));
    }
    Ok(found)
}

/// The Snapshots that record one of these ids, those that are being deleted as well; rows of the catalog apart.
///
/// # Errors
/// [`Error`].
pub async fn recorders(ctx: &Context, ids: &HashSet<String>) -> Result<Vec<SnapshotView>, Error> {
    Ok(listed(ctx, ids, Of::Everybody).await?.0)
}

/// Whose recording counts.
enum Of<'a> {
    /// Those that are not being deleted; the others are answered with, where they could be of this lane.
    TheLiving(&'a LaneKey),
    /// All.
    Everybody,
}

/// One list of every Snapshot: those that record one of these ids, rows of the catalog apart, and those that are being
/// deleted. One that cannot be read records nothing, what the world knows of it was judged before; but its deletion
/// counts.
async fn listed(
    ctx: &Context,
    ids: &HashSet<String>,
    of: Of<'_>,
) -> Result<(Vec<SnapshotView>, Vec<Untold>), Error> {
    let api: Api<DeserializeGuard<SnapshotView>> = Api::all(ctx.client.clone());
    let mut page = ListParams::default().limit(500);
    let (mut recorders, mut deleting) = (Vec::new(), Vec::new());
    loop {
        let list = api.list(&page).await?;
        for guard in list.items {
            let view = match guard.0 {
                Ok(view) => view,
                Err(error) => {
                    deleting.extend(Untold::of(&error.metadata));
                    continue;
                }
            };
            let counts = match of {
                Of::TheLiving(lane) => {
                    if ctx.world.could_be_of(&view, lane) {
                        deleting.extend(Untold::of(&view.metadata));
                    }
                    view.metadata.deletion_timestamp.is_none()
                }
                Of::Everybody => true,
            };
            let records = view.snapshot_id().is_some_and(|id| ids.contains(id));
            if counts && records && !view.is_discovered() {
                recorders.push(view);
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok((recorders, deleting)),
        }
    }
}

/// The first deletion that the world does not know of, after its watch was given a moment to deliver it.
async fn untold(ctx: &Context, mut deleting: Vec<Untold>) -> Option<Untold> {
    for look in 0..LOOKS {
        deleting.retain(|one| !one.is_known(&ctx.world));
        if deleting.is_empty() {
            return None;
        }
        if look + 1 < LOOKS {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
    deleting.into_iter().min_by_key(|one| one.deleted_at)
}

async fn repository(ctx: &Context, key: &RepositoryKey) -> Result<Option<RepositoryView>, Error> {
    let client = ctx.client.clone();
    Ok(match key {
        RepositoryKey::Repository { namespace, name } => {
            let api: Api<Repository> = Api::namespaced(client, namespace);
            read::find(&api, name).await?.map(RepositoryView::namespaced)
        }
        RepositoryKey::ClusterRepository { name } => {
            let api: Api<ClusterRepository> = Api::all(client);
            read::find(&api, name).await?.map(RepositoryView::cluster)
        }
    })
}
