//! The live proof before a Job: what a deletion rests on, read from the API server and not from a cache
//! (`docs/design.md` 3.5).
//!
//! **Promises.** Every repository object of the lane, each distinct owner and each distinct namespace of the
//! batch is read once. Whatever cannot be read ends the pass; whatever is not there counts as such.
//!
//! **Assumes.** The members themselves need no reading: the claim carries the resourceVersion that was judged.

use super::facts;
use super::observe::Observed;
use super::proven::Proven;
use crate::context::{Context, Error};
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::{RepositoryView, ScheduleView, SnapshotView};
use crate::world::{NamespaceKnown, World};
use holdfast_api::{ClusterRepository, Repository};
use holdfast_core::deletion::{Batch, Cascade, Owner};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was read. Empty before the proof: then the world is asked.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// Repository objects; `None`: not there.
    pub repositories: BTreeMap<RepositoryKey, Option<Arc<RepositoryView>>>,
    /// Batch Jobs of the whole cluster that have not ended; only where a cap counts them.
    pub jobs_in_cluster: Option<u32>,
    schedules: BTreeMap<ObjectKey, Option<ScheduleView>>,
    namespaces: BTreeMap<String, NamespaceKnown>,
}

impl Live {
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
pub async fn read(ctx: &Context, observed: &Observed, batch: &Batch) -> Result<Live, Error> {
    let mut live = Live::default();
    for key in observed.repositories.keys() {
        let view = repository(ctx, key).await?;
        live.repositories.insert(key.clone(), view.map(Arc::new));
    }
    let mut schedules = BTreeSet::new();
    let mut namespaces = BTreeSet::new();
    let place = batch.repository.namespace().unwrap_or(&ctx.settings.namespace);
    namespaces.insert(place.to_owned());
    for view in batch.members.iter().filter_map(|uid| observed.views.get(uid)) {
        let key = view.key();
        if let Some((_, name)) = view.schedule_owner() {
            schedules.insert(ObjectKey::new(&key.namespace, name));
        }
        namespaces.insert(key.namespace);
    }
    for key in schedules {
        let api: Api<ScheduleView> = Api::namespaced(ctx.client.clone(), &key.namespace);
        let found = api.get_opt(&key.name).await?;
        live.schedules.insert(key, found);
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

async fn repository(ctx: &Context, key: &RepositoryKey) -> Result<Option<RepositoryView>, Error> {
    let client = ctx.client.clone();
    Ok(match key {
        RepositoryKey::Repository { namespace, name } => {
            let api: Api<Repository> = Api::namespaced(client, namespace);
            api.get_opt(name).await?.map(RepositoryView::namespaced)
        }
        RepositoryKey::ClusterRepository { name } => {
            let api: Api<ClusterRepository> = Api::all(client);
            api.get_opt(name).await?.map(RepositoryView::cluster)
        }
    })
}
