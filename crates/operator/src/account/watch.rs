//! One watch per kind, feeding the world and the book.
//!
//! **Promises.** A broken watch is taken up again with backoff and a full list; how long it has told nothing is noted
//! ([`super::pulse`]). No watch is asked for without an end, so that silence is not taken for quiet. An object that
//! cannot be decoded is logged and known to exist.

use super::Account;
use super::world::wire::{self, WireBackup, WireDriver, WireJob, WireQuota, WireRequest};
use super::world::{Change, Kind, Observed};
use futures::{Stream, StreamExt};
use holdfast_api::{Artifact, BackupClass};
use holdfast_core::quota::watches;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::{ApiResource, DeserializeGuard, DynamicObject, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// How soon a kind that may not be read is asked for again.
const FORBIDDEN_AGAIN: Duration = Duration::from_secs(30);

/// A kind and how it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The kind.
    pub kind: Kind,
    /// Where it is served.
    pub resource: ApiResource,
}

impl Watched {
    fn builtin<K: Resource<DynamicType = ()>>(kind: Kind) -> Self {
        Self {
            kind,
            resource: ApiResource::erase::<K>(&()),
        }
    }
}

/// Follows the kinds that every cluster has. Never ends by itself.
pub async fn follow_builtin(account: Arc<Account>) {
    let quotas = Watched::builtin::<k8s_openapi::api::core::v1::ResourceQuota>(Kind::Quota);
    let namespaces = Watched::builtin::<Namespace>(Kind::Namespace);
    tokio::join!(follow(Arc::clone(&account), quotas), follow(account, namespaces));
}

/// Follows one kind. Never ends by itself.
pub async fn follow(account: Arc<Account>, watched: Watched) {
    let Watched { kind, resource } = watched;
    match &kind {
        Kind::Quota => objects(&account, kind, resource, wire::quota as fn(WireQuota) -> Observed).await,
        Kind::Backup => {
            objects(
                &account,
                kind,
                resource,
                wire::backup as fn(WireBackup) -> Observed,
            )
            .await
        }
        Kind::Job => objects(&account, kind, resource, wire::job as fn(WireJob) -> Observed).await,
        Kind::Class => {
            objects(
                &account,
                kind,
                resource,
                wire::class as fn(BackupClass) -> Observed,
            )
            .await
        }
        Kind::VeleroBackup => driver_objects(&account, kind, resource, wire::velero_backup).await,
        Kind::CnpgBackup => driver_objects(&account, kind, resource, wire::cnpg_backup).await,
        Kind::VeleroRequest => {
            let client = account.pulse.listening(&account.client, &kind);
            let api: Api<DeserializeGuard<WireRequest>> = Api::all_with(client, &resource);
            guarded(
                &account,
                kind,
                watcher(api, config(&account)),
                wire::velero_request,
            )
            .await;
        }
        Kind::Namespace => {
            let client = account.pulse.listening(&account.client, &kind);
            let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
            let events = watcher(api, config(&account));
            plain(&account, kind, events, |one: PartialObjectMeta<Namespace>| {
                wire::namespace(one)
            })
            .await;
        }
        Kind::Strategy(_) => {
            let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(account.client.clone(), &resource);
            let observe = move |one: PartialObjectMeta<DynamicObject>| {
                wire::strategy_object(&resource.group, &resource.version, &resource.kind, &one)
            };
            plain(&account, kind, watcher(api, config(&account)), observe).await;
        }
        Kind::Artifact => records(&account).await,
    }
}

fn config(account: &Account) -> watcher::Config {
    let length = u32::try_from(watches::LENGTH.as_secs()).unwrap_or(u32::MAX);
    let config = watcher::Config::default().timeout(length);
    // The API server refuses a streamed list when its etcd cannot report progress, and nothing falls back.
    if account.settings.streaming_lists {
        config.streaming_lists()
    } else {
        config
    }
}

async fn objects<K>(account: &Arc<Account>, kind: Kind, _: ApiResource, observe: fn(K) -> Observed)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<DeserializeGuard<K>> = Api::all(account.pulse.listening(&account.client, &kind));
    guarded(account, kind, watcher(api, config(account)), observe).await;
}

async fn driver_objects(
    account: &Arc<Account>,
    kind: Kind,
    resource: ApiResource,
    observe: fn(WireDriver) -> Observed,
) {
    let client = account.pulse.listening(&account.client, &kind);
    let api: Api<DeserializeGuard<WireDriver>> = Api::all_with(client, &resource);
    guarded(account, kind, watcher(api, config(account)), observe).await;
}

/// Objects that may not decode.
async fn guarded<K>(
    account: &Account,
    kind: Kind,
    events: impl Stream<Item = watcher::Result<watcher::Event<DeserializeGuard<K>>>> + Send,
    observe: impl Fn(K) -> Observed + Send,
) where
    K: Send,
{
    let own = kind.clone();
    plain(account, kind, events, move |guard: DeserializeGuard<K>| match guard.0 {
        Ok(object) => observe(object),
        Err(error) => {
            tracing::warn!(kind = ?own, %error, "an object cannot be read and is left as it was; correct it or update Holdfast");
            Observed::Unreadable(own.clone(), error.metadata.uid.unwrap_or_default())
        }
    })
    .await;
}

async fn plain<T>(
    account: &Account,
    kind: Kind,
    events: impl Stream<Item = watcher::Result<watcher::Event<T>>> + Send,
    observe: impl Fn(T) -> Observed + Send,
) where
    T: Send,
{
    let mut events = std::pin::pin!(events.default_backoff());
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(watcher::Event::Init) => {
                account.pulse.list_begins(&kind);
                Change::ListBegins(kind.clone())
            }
            Ok(watcher::Event::InitDone) => {
                account.pulse.list_ends(&kind);
                Change::ListEnds(kind.clone(), account.clock.now())
            }
            Ok(watcher::Event::InitApply(one) | watcher::Event::Apply(one)) => Change::Set(observe(one)),
            Ok(watcher::Event::Delete(one)) => Change::Gone(observe(one), account.clock.now()),
            Err(error) => {
                tracing::warn!(?kind, %error, "the watch broke and is taken up again");
                if is_forbidden(&error) {
                    forbidden(account, &kind);
                    // Rights do not change by asking.
                    tokio::time::sleep(FORBIDDEN_AGAIN).await;
                }
                continue;
            }
        };
        account.observe(change);
    }
}

/// A strategy that may not be read declares nothing: what is built in, or the careful values, are in force, and nobody
/// else waits for it.
fn forbidden(account: &Account, kind: &Kind) {
    if matches!(kind, Kind::Strategy(_)) && !account.world.is_synced(kind) {
        tracing::warn!(
            ?kind,
            "what these strategies declare is not in force: name the kind in the chart's value quota.strategies"
        );
        account.observe(Change::ListBegins(kind.clone()));
        account.observe(Change::ListEnds(kind.clone(), account.clock.now()));
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Our own records go to the book.
async fn records(account: &Account) {
    let client = account.pulse.listening(&account.client, &Kind::Artifact);
    let api: Api<Artifact> = Api::all(client);
    let mut events = std::pin::pin!(watcher(api, config(account)).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => {
                account.pulse.list_begins(&Kind::Artifact);
                account.records_list_begins();
                account.observe(Change::ListBegins(Kind::Artifact));
            }
            Ok(watcher::Event::InitDone) => {
                account.pulse.list_ends(&Kind::Artifact);
                account.records_list_ends();
                account.observe(Change::ListEnds(Kind::Artifact, account.clock.now()));
            }
            Ok(watcher::Event::InitApply(one) | watcher::Event::Apply(one)) => account.record_seen(&one),
            Ok(watcher::Event::Delete(one)) => account.record_gone(&one),
            Err(error) => tracing::warn!(%error, "the watch of records broke and is taken up again"),
        }
    }
}

#[cfg(test)]
mod tests;
