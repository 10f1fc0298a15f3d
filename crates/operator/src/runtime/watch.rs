//! One watch per kind, feeding the world.
//!
//! **Promises.** A broken watch is taken up again with backoff and a full list; an object that cannot be decoded
//! is logged and skipped, it never stops the watch of its kind.
//!
//! **Assumes.** The sink that receives dirty keys does not block.

use crate::runtime::clock::Clock;
use crate::runtime::foreign::Foreign;
use crate::world::views::{JobView, RepositoryView, SnapshotView};
use crate::world::{Change, Dirty, Kind, NamespaceView, Observed, World};
use futures::StreamExt;
use holdfast_api::{ClusterRepository, Repository, SnapshotPolicy, SnapshotSchedule, names};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::{DeserializeGuard, PartialObjectMeta};
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
        let foreign = self.foreign.clone();
        self.set.spawn(async move {
            let mut events = watcher(api, config).default_backoff().boxed();
            while let Some(event) = events.next().await {
                let decode = |guard: DeserializeGuard<K>| match guard.0 {
                    Ok(mut object) => {
                        // Read once, not kept: they are bulky.
                        let fields = object.meta_mut().managed_fields.take();
                        foreign.look(fields.as_deref(), clock.now());
                        Some(observe(object))
                    }
                    Err(error) => {
                        tracing::warn!(?kind, %error, "an object cannot be read and is left alone; correct it or update Holdfast");
                        None
                    }
                };
                let change = match event {
                    Ok(watcher::Event::Init) => Some(Change::ListBegins(kind)),
                    Ok(watcher::Event::InitDone) => Some(Change::ListEnds(kind)),
                    Ok(watcher::Event::InitApply(o) | watcher::Event::Apply(o)) => decode(o).map(Change::Set),
                    Ok(watcher::Event::Delete(o)) => decode(o).map(Change::Gone),
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
