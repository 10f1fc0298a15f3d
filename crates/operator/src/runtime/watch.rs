//! One watch per kind, feeding the world.
//!
//! **Promises.** A kind whose definition is not installed has no objects; that is read live. A broken watch is taken up
//! again with backoff and a full list; an object that cannot be decoded is logged and what was known of it stays; it
//! never stops the watch of its kind, and it goes when it is gone.
//!
//! **Assumes.** The sink that receives dirty keys does not block.

use crate::runtime::clock::Clock;
use crate::runtime::foreign::Foreign;
use crate::world::keys::ObjectKey;
use crate::world::views::{JobView, RepositoryView, SnapshotView};
use crate::world::{Change, Dirty, Kind, NamespaceView, Observed, World};
use futures::StreamExt;
use holdfast_api::{
    ClusterRepository, Maintenance, Repository, Restore, SnapshotPolicy, SnapshotSchedule, names,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{DeserializeGuard, ObjectMeta, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Receives what has to be looked at again.
pub type Sink = Arc<dyn Fn(BTreeSet<Dirty>) + Send + Sync>;

/// Starts all watches; none of them ends by itself.
pub fn start(
    client: &Client,
    world: &Arc<World>,
    sink: &Sink,
    streaming_lists: bool,
    clock: &Clock,
    foreign: &Foreign,
) -> JoinSet<()> {
    let all = watcher::Config::default();
    // The API server refuses a streamed list when its etcd cannot report progress, and nothing falls back.
    let all = if streaming_lists {
        all.streaming_lists()
    } else {
        all
    };
    let ours = all
        .clone()
        .labels(&format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY));
    let mut spawn = Spawn {
        client,
        world,
        sink,
        clock,
        foreign,
        set: JoinSet::new(),
    };
    spawn.kind(Kind::Repository, all.clone(), |r: Repository| {
        Observed::Repository(Box::new(RepositoryView::namespaced(r)))
    });
    spawn.kind(Kind::ClusterRepository, all.clone(), |r: ClusterRepository| {
        Observed::Repository(Box::new(RepositoryView::cluster(r)))
    });
    spawn.kind(Kind::Policy, all.clone(), |p: SnapshotPolicy| {
        Observed::Policy(Box::new(p))
    });
    spawn.kind(Kind::Schedule, all.clone(), |s: SnapshotSchedule| {
        Observed::Schedule(Box::new(s))
    });
    spawn.kind(Kind::Snapshot, all.clone(), |s: SnapshotView| {
        Observed::Snapshot(Box::new(s))
    });
    spawn.kind(Kind::Restore, all.clone(), |r: Restore| {
        Observed::Restore(Box::new(r))
    });
    spawn.kind(Kind::Maintenance, all.clone(), |m: Maintenance| {
        Observed::Maintenance(Box::new(m))
    });
    spawn.kind(Kind::Job, ours, |j: JobView| Observed::Job(Box::new(j)));
    spawn.kind(Kind::Namespace, all, |n: PartialObjectMeta<Namespace>| {
        let view = NamespaceView {
            terminating: n.metadata.deletion_timestamp.is_some(),
            labels: n.metadata.labels.unwrap_or_default(),
        };
        Observed::Namespace(n.metadata.name.unwrap_or_default(), view)
    });
    spawn.set
}

fn named(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

struct Spawn<'a> {
    client: &'a Client,
    world: &'a Arc<World>,
    sink: &'a Sink,
    clock: &'a Clock,
    foreign: &'a Foreign,
    set: JoinSet<()>,
}

impl Spawn<'_> {
    fn kind<K>(
        &mut self,
        kind: Kind,
        config: watcher::Config,
        observe: impl Fn(K) -> Observed + Send + 'static,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let api: Api<DeserializeGuard<K>> = Api::all(self.client.clone());
        let (world, sink, clock) = (Arc::clone(self.world), Arc::clone(self.sink), self.clock.clone());
        let (foreign, client) = (self.foreign.clone(), self.client.clone());
        self.set.spawn(async move {
            let mut events = watcher(api, config).default_backoff().boxed();
            while let Some(event) = events.next().await {
                let not_found = event.as_ref().is_err_and(is_not_found);
                if not_found && is_not_defined::<K>(&client).await {
                    // Uninstalled in part: there is none of it, and what is left is decided with that.
                    tracing::info!(?kind, "the definition of this kind is not installed; there are no objects of it");
                    for change in [Change::ListBegins(kind), Change::ListEnds(kind)] {
                        sink(world.apply(change, clock.now()));
                    }
                    continue;
                }
                // What cannot be read is there all the same: what was known of it stays, until it is gone.
                let decode = |guard: DeserializeGuard<K>| match guard.0 {
                    Ok(mut object) => {
                        // Read once, not kept: they are bulky.
                        let fields = object.meta_mut().managed_fields.take();
                        foreign.look(fields.as_deref(), clock.now());
                        Change::Set(observe(object))
                    }
                    Err(error) => {
                        tracing::warn!(?kind, %error, "an object cannot be read and is left alone; correct it or update Holdfast");
                        Change::Unreadable(kind, named(&error.metadata))
                    }
                };
                let gone = |guard: DeserializeGuard<K>| match guard.0 {
                    Ok(object) => Change::Gone(observe(object)),
                    Err(error) => Change::GoneUnreadable(kind, named(&error.metadata)),
                };
                let change = match event {
                    Ok(watcher::Event::Init) => Some(Change::ListBegins(kind)),
                    Ok(watcher::Event::InitDone) => Some(Change::ListEnds(kind)),
                    Ok(watcher::Event::InitApply(o) | watcher::Event::Apply(o)) => Some(decode(o)),
                    Ok(watcher::Event::Delete(o)) => Some(gone(o)),
                    Err(error) => {
                        tracing::warn!(?kind, %error, "the watch broke and is taken up again; are the definitions installed?");
                        None
                    }
                };
                if let Some(change) = change {
                    sink(world.apply(change, clock.now()));
                }
            }
        });
    }
}

fn is_not_found(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(why)
    | watcher::Error::WatchStartFailed(why)
    | watcher::Error::WatchFailed(why)) = error
    else {
        return false;
    };
    matches!(why, kube::Error::Api(status) if status.code == 404)
}

/// Whether the API server says that it has no definition of a kind of ours. A list that is not found proves nothing by
/// itself: a definition that was just installed is not served yet.
async fn is_not_defined<K: Resource<DynamicType = ()>>(client: &Client) -> bool {
    if K::group(&()) != names::GROUP {
        return false;
    }
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.clone());
    let name = format!("{}.{}", K::plural(&()), names::GROUP);
    matches!(api.get_opt(&name).await, Ok(None))
}
