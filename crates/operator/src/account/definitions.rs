//! Which kinds are installed: their watches are started and ended as their definitions come and go.
//!
//! **Promises.** A kind that is not installed is no error and costs nothing. One that is installed later is watched
//! within seconds. Every kind of the strategies' groups is found, whatever its name.
//!
//! **Assumes.** A definition can be watched once it is established and serves the version that we read.

use super::Account;
use super::watch::{self, Watched};
use super::world::{Change, Kind};
use futures::StreamExt;
use holdfast_api::names;
use holdfast_core::quota::StrategyKind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::core::{ApiResource, GroupVersionKind, Object, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How soon a definition that cannot be used yet is looked at again.
const AGAIN: Duration = Duration::from_secs(2);

/// The kinds of Account that are installed, of those that may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Installed {
    /// Kinds whose names never change.
    pub kinds: BTreeSet<Kind>,
    /// Kinds of strategies.
    pub strategies: BTreeSet<StrategyKind>,
}

/// A definition that concerns us, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Definition {
    /// Not established, or not read yet.
    NotYet,
    /// It can be watched.
    Usable(Watched),
}

/// What a name of a definition (`<plural>.<group>`) means to us.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Interest {
    Fixed(Kind, &'static str),
    Strategy,
}

const VELERO_GROUP: &str = "velero.io";
const CNPG_GROUP: &str = "postgresql.cnpg.io";

fn interest(name: &str, strategy_groups: &BTreeSet<String>) -> Option<Interest> {
    let (plural, group) = name.split_once('.')?;
    let platform = names::BACKUPS_VERSION;
    Some(match (plural, group) {
        ("artifacts", names::LEDGER_GROUP) => Interest::Fixed(Kind::Artifact, platform),
        ("backups", names::BACKUPS_GROUP) => Interest::Fixed(Kind::Backup, platform),
        ("backupjobs", names::BACKUPS_GROUP) => Interest::Fixed(Kind::Job, platform),
        ("backupclasses", names::BACKUPS_GROUP) => Interest::Fixed(Kind::Class, platform),
        ("backups", VELERO_GROUP) => Interest::Fixed(Kind::VeleroBackup, "v1"),
        ("deletebackuprequests", VELERO_GROUP) => Interest::Fixed(Kind::VeleroRequest, "v1"),
        ("backups", CNPG_GROUP) => Interest::Fixed(Kind::CnpgBackup, "v1"),
        (_, group) if strategy_groups.contains(group) => Interest::Strategy,
        (_, _) => return None,
    })
}

type Slim = Object<SlimSpec, SlimStatus>;

/// What is read of a definition; its schemas are left on the API server's side of the decoder.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlimSpec {
    group: String,
    names: SlimNames,
    versions: Vec<SlimVersion>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlimNames {
    kind: String,
    plural: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlimVersion {
    name: String,
    served: bool,
    storage: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlimStatus {
    conditions: Vec<SlimCondition>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlimCondition {
    r#type: String,
    status: String,
}

/// What can be watched through a definition; `None` while it cannot.
fn usable(interest: &Interest, slim: &Slim) -> Option<Watched> {
    let established = slim
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| condition.r#type == "Established" && condition.status == "True");
    let spec = &slim.spec;
    let served = |wanted: &str| spec.versions.iter().any(|v| v.served && v.name == wanted);
    let version = match interest {
        Interest::Fixed(_, wanted) => served(wanted).then(|| (*wanted).to_owned()),
        // Of a strategy only the metadata is read: any version serves.
        Interest::Strategy => {
            let all = spec.versions.iter().filter(|version| version.served);
            all.max_by_key(|version| version.storage)
                .map(|version| version.name.clone())
        }
    }?;
    let kind = match interest {
        Interest::Fixed(kind, _) => kind.clone(),
        Interest::Strategy => Kind::Strategy(StrategyKind {
            group: spec.group.clone(),
            kind: spec.names.kind.clone(),
        }),
    };
    established.then(|| Watched {
        kind,
        resource: ApiResource {
            group: spec.group.clone(),
            api_version: format!("{}/{version}", spec.group),
            version,
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        },
    })
}

/// Watches definitions, and through them everything else. Ends only when it is dropped, and its watches with it.
pub async fn run(account: Arc<Account>) {
    let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(account.client.clone());
    let slim = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        "customresourcedefinitions",
    );
    let slim: Api<Slim> = Api::all_with(account.client.clone(), &slim);
    let config = watcher::Config::default();
    let mut events = watcher(definitions, config).default_backoff().boxed();
    let mut keeper = Keeper {
        account,
        slim,
        known: BTreeMap::new(),
        listed: None,
        synced: false,
        running: BTreeMap::new(),
    };
    loop {
        let again = keeper
            .known
            .values()
            .any(|definition| *definition == Definition::NotYet);
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => keeper.seen(event),
                Some(Err(error)) => {
                    tracing::warn!(%error, "the watch of definitions broke and is taken up again");
                    continue;
                }
                None => return,
            },
            () = tokio::time::sleep(AGAIN), if again && keeper.synced => {}
        }
        if keeper.synced {
            keeper.look().await;
            keeper.apply().await;
        }
    }
}

struct Keeper {
    account: Arc<Account>,
    slim: Api<Slim>,
    known: BTreeMap<String, Definition>,
    listed: Option<BTreeSet<String>>,
    synced: bool,
    running: BTreeMap<Kind, (Watched, JoinHandle<()>)>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        for (_, task) in self.running.values() {
            task.abort();
        }
    }
}

impl Keeper {
    fn seen(&mut self, event: watcher::Event<PartialObjectMeta<CustomResourceDefinition>>) {
        match event {
            watcher::Event::Init => self.listed = Some(BTreeSet::new()),
            watcher::Event::InitApply(definition) | watcher::Event::Apply(definition) => {
                let Some(name) = definition.metadata.name else {
                    return;
                };
                if interest(&name, &self.account.settings.strategy_groups).is_none() {
                    return;
                }
                if let Some(listed) = &mut self.listed {
                    listed.insert(name.clone());
                }
                // Whatever changed may be whether it can be used.
                self.known.insert(name, Definition::NotYet);
            }
            watcher::Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                self.known.retain(|name, _| listed.contains(name));
                self.synced = true;
            }
            watcher::Event::Delete(definition) => {
                self.known.remove(&definition.metadata.name.unwrap_or_default());
            }
        }
    }

    /// Reads the definitions that are not known to be usable.
    async fn look(&mut self) {
        for (name, definition) in &mut self.known {
            let Some(interest) = interest(name, &self.account.settings.strategy_groups) else {
                continue;
            };
            if *definition != Definition::NotYet {
                continue;
            }
            match self.slim.get_opt(name).await {
                Ok(Some(slim)) => {
                    if let Some(watched) = usable(&interest, &slim) {
                        *definition = Definition::Usable(watched);
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, name, "a definition cannot be read; trying again"),
            }
        }
    }

    /// Ends the watches of what is gone, tells the world, starts the watches of what is new.
    async fn apply(&mut self) {
        let wanted: BTreeMap<Kind, Watched> = self
            .known
            .values()
            .filter_map(|definition| match definition {
                Definition::NotYet => None,
                Definition::Usable(watched) => Some((watched.kind.clone(), watched.clone())),
            })
            .collect();
        // One that is only being read again keeps its watch.
        let unsettled = self
            .known
            .values()
            .any(|definition| *definition == Definition::NotYet);
        let over: Vec<Kind> = self
            .running
            .iter()
            .filter(|(kind, (running, _))| match wanted.get(kind) {
                Some(wanted) => wanted != running,
                None => !unsettled,
            })
            .map(|(kind, _)| kind.clone())
            .collect();
        for kind in over {
            if let Some((_, task)) = self.running.remove(&kind) {
                task.abort();
                let _ = task.await;
                tracing::info!(?kind, "not installed any more: its watch has ended");
            }
        }
        let kinds = wanted.keys().chain(self.running.keys());
        let mut installed = Installed::default();
        for kind in kinds {
            match kind {
                Kind::Strategy(strategy) => _ = installed.strategies.insert(strategy.clone()),
                Kind::Quota
                | Kind::Namespace
                | Kind::Artifact
                | Kind::Backup
                | Kind::Job
                | Kind::Class
                | Kind::VeleroBackup
                | Kind::VeleroRequest
                | Kind::CnpgBackup => _ = installed.kinds.insert(kind.clone()),
            }
        }
        self.account.observe(Change::Installed(installed));
        for (kind, watched) in wanted {
            if !self.running.contains_key(&kind) {
                let task = tokio::spawn(watch::follow(Arc::clone(&self.account), watched.clone()));
                self.running.insert(kind, (watched, task));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn groups() -> BTreeSet<String> {
        BTreeSet::from([names::STRATEGY_GROUP.to_owned()])
    }

    fn slim(group: &str, kind: &str, plural: &str, versions: serde_json::Value, established: &str) -> Slim {
        serde_json::from_value(json!({
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": { "group": group, "names": { "kind": kind, "plural": plural }, "versions": versions },
            "status": { "conditions": [{ "type": "Established", "status": established }] },
        }))
        .unwrap()
    }

    #[test]
    fn any_kind_of_a_strategy_group_concerns_us_and_other_kinds_of_other_groups_do_not() {
        let of = |name| interest(name, &groups());
        assert_eq!(
            of("rabbitmqs.strategy.backups.cozystack.io"),
            Some(Interest::Strategy)
        );
        assert_eq!(
            of("backups.velero.io"),
            Some(Interest::Fixed(Kind::VeleroBackup, "v1"))
        );
        assert_eq!(
            of("backups.backups.cozystack.io"),
            Some(Interest::Fixed(Kind::Backup, "v1alpha1"))
        );
        assert_eq!(of("schedules.velero.io"), None);
        assert_eq!(of("backups.example.org"), None);
    }

    #[test]
    fn a_definition_is_usable_when_it_is_established_and_serves_our_version() {
        let fixed = Interest::Fixed(Kind::VeleroBackup, "v1");
        let served = json!([{ "name": "v1", "served": true, "storage": true }]);
        let other = json!([{ "name": "v2", "served": true, "storage": true }]);
        let of = |versions, established| {
            usable(
                &fixed,
                &slim("velero.io", "Backup", "backups", versions, established),
            )
        };
        assert!(of(served.clone(), "True").is_some());
        assert!(of(served, "False").is_none());
        assert!(of(other, "True").is_none());
        let two = json!([
            { "name": "v1alpha1", "served": true, "storage": false },
            { "name": "v1", "served": true, "storage": true },
        ]);
        let strategy = usable(
            &Interest::Strategy,
            &slim(names::STRATEGY_GROUP, "Redis", "redises", two, "True"),
        );
        assert_eq!(strategy.unwrap().resource.version, "v1");
    }
}
