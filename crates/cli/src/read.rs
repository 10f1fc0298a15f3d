//! Reading what a decision rests on, with the caller's rights.
//!
//! **Promises.** The whole cluster is asked first, then what the caller may see of it. What cannot be read is noted
//! with the right that is missing, and is unknown afterwards, never absent.
//!
//! **Assumes.** Not being allowed to read the Snapshots of the namespace in question is an error: there is nothing
//! to say then.

use std::collections::BTreeSet;

use anyhow::Result;
use holdfast_api::{ClusterRepository, Repository, Snapshot, SnapshotPolicy, SnapshotSchedule, names};
use holdfast_core::deletion::RepositoryKey;
use holdfast_operator::world::keys::{ObjectKey, resolve};
use holdfast_operator::world::views::{JobView, RepositoryView};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::cluster::{Cluster, view_of};
use crate::connect::{Asked, Connection, list, scoped};

/// Name of the operator's Deployment as the chart installs it.
const DEPLOYMENT: &str = "holdfast-operator";

/// Reads the cluster; where the whole is not to be seen, `namespace`.
pub async fn cluster(connection: &Connection, namespace: &str, home: &str) -> Result<Cluster> {
    let mut read = Reader {
        connection,
        namespace,
        seen: Cluster {
            home: home.to_owned(),
            ..Cluster::default()
        },
    };
    let snapshots = read.widest::<Snapshot>("snapshots").await?;
    read.seen.snapshots = snapshots.found.unwrap_or_default();
    read.seen.only = (!snapshots.whole).then(|| BTreeSet::from([namespace.to_owned()]));
    if let Some(note) = snapshots.note {
        read.seen.notes.push(format!(
            "Only the Snapshots of namespace {namespace} are looked at: {note}."
        ));
    }
    read.policies_and_schedules().await?;
    read.repositories().await?;
    read.namespaces().await?;
    read.jobs().await?;
    read.operator().await?;
    Ok(read.seen)
}

struct Reader<'a> {
    connection: &'a Connection,
    namespace: &'a str,
    seen: Cluster,
}

/// What a list brought.
struct Widest<K> {
    /// None: it could not be read.
    found: Option<Vec<K>>,
    /// Of the whole cluster.
    whole: bool,
    /// Which right is missing for more.
    note: Option<String>,
}

impl Reader<'_> {
    /// The whole cluster's objects, else the namespace's. Snapshots that cannot be read at all are an error.
    async fn widest<K>(&self, plural: &'static str) -> Result<Widest<K>>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let asked = |namespace| Asked {
            verb: "list",
            plural,
            name: None,
            namespace,
        };
        let whole = match list::<K>(&scoped(self.connection, None)).await {
            Ok(found) => {
                return Ok(Widest {
                    found: Some(found),
                    whole: true,
                    note: None,
                });
            }
            Err(error) if Asked::forbidden(&error) => asked(None).failed(error),
            Err(error) => return Err(asked(None).failed(error)),
        };
        let here = Some(self.namespace);
        match list::<K>(&scoped(self.connection, here)).await {
            Ok(found) => Ok(Widest {
                found: Some(found),
                whole: false,
                note: Some(whole.to_string()),
            }),
            Err(error) if Asked::forbidden(&error) && plural != "snapshots" => Ok(Widest {
                found: None,
                whole: false,
                note: Some(asked(here).failed(error).to_string()),
            }),
            Err(error) => Err(asked(here).failed(error)),
        }
    }

    async fn policies_and_schedules(&mut self) -> Result<()> {
        let policies = self.widest::<SnapshotPolicy>("snapshotpolicies").await?;
        let schedules = self.widest::<SnapshotSchedule>("snapshotschedules").await?;
        for snapshot in &self.seen.snapshots {
            let view = view_of(snapshot)?;
            let here = view.key().namespace;
            let unread = |whole: bool, found: bool| !whole && (!found || here != self.namespace);
            if let Some(policy) = view.policy()
                && unread(policies.whole, policies.found.is_some())
            {
                self.seen.unread.policies.insert(policy);
            }
            if let Some((_, name)) = view.schedule_owner()
                && unread(schedules.whole, schedules.found.is_some())
            {
                let key = ObjectKey::new(&here, name);
                self.seen.unread.schedules.insert(key);
            }
        }
        let missing = [
            (policies.note, policies.found.is_none(), "SnapshotPolicies"),
            (schedules.note, schedules.found.is_none(), "SnapshotSchedules"),
        ];
        for (note, unread, kind) in missing {
            if let (Some(note), true) = (note, unread) {
                self.seen.notes.push(format!("{kind} are not known: {note}."));
            }
        }
        self.seen.policies = policies.found.unwrap_or_default();
        self.seen.schedules = schedules.found.unwrap_or_default();
        Ok(())
    }

    /// Lists what may be listed, then gets each one that is referred to and was not listed.
    async fn repositories(&mut self) -> Result<()> {
        let own = self.widest::<Repository>("repositories").await?;
        let views = own.found.unwrap_or_default();
        self.seen
            .repositories
            .extend(views.into_iter().map(RepositoryView::namespaced));
        let cluster = Asked {
            verb: "list",
            plural: "clusterrepositories",
            name: None,
            namespace: None,
        };
        let api: Api<ClusterRepository> = Api::all(self.connection.client.clone());
        let all = match list(&api).await {
            Ok(found) => {
                let views = found.into_iter().map(RepositoryView::cluster);
                self.seen.repositories.extend(views);
                true
            }
            Err(error) if Asked::forbidden(&error) => false,
            Err(error) => return Err(cluster.failed(error)),
        };
        for key in self.referred()? {
            let listed = match &key {
                RepositoryKey::Repository { .. } => own.whole,
                RepositoryKey::ClusterRepository { .. } => all,
            };
            if listed || self.seen.repositories.iter().any(|view| view.key == key) {
                continue;
            }
            match self.repository(&key).await {
                Ok(Some(view)) => self.seen.repositories.push(view),
                Ok(None) => {}
                Err((error, asked)) if Asked::forbidden(&error) => {
                    let why = asked.failed(error);
                    self.seen.notes.push(format!("The {key} is not known: {why}."));
                    self.seen.unread.repositories.insert(key);
                }
                Err((error, asked)) => return Err(asked.failed(error)),
            }
        }
        Ok(())
    }

    fn referred(&self) -> Result<BTreeSet<RepositoryKey>> {
        let mut keys = BTreeSet::new();
        for snapshot in &self.seen.snapshots {
            keys.extend(view_of(snapshot)?.pin());
        }
        for policy in &self.seen.policies {
            let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
            let named = policy.spec.repository.as_ref();
            keys.extend(named.and_then(|reference| resolve(reference, namespace)));
        }
        Ok(keys)
    }

    async fn repository<'k>(
        &self,
        key: &'k RepositoryKey,
    ) -> Result<Option<RepositoryView>, (kube::Error, Asked<'k>)> {
        let client = self.connection.client.clone();
        let asked = Asked {
            verb: "get",
            plural: match key {
                RepositoryKey::Repository { .. } => "repositories",
                RepositoryKey::ClusterRepository { .. } => "clusterrepositories",
            },
            name: Some(key.name()),
            namespace: key.namespace(),
        };
        let found = match key {
            RepositoryKey::Repository { namespace, name } => {
                let api: Api<Repository> = Api::namespaced(client, namespace);
                let found = api.get_opt(name).await;
                found.map(|found| found.map(RepositoryView::namespaced))
            }
            RepositoryKey::ClusterRepository { name } => {
                let api: Api<ClusterRepository> = Api::all(client);
                let found = api.get_opt(name).await;
                found.map(|found| found.map(RepositoryView::cluster))
            }
        };
        found.map_err(|error| (error, asked))
    }

    async fn namespaces(&mut self) -> Result<()> {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(self.connection.client.clone());
        let terminating = |found: &PartialObjectMeta<Namespace>| found.metadata.deletion_timestamp.is_some();
        let asked = Asked {
            verb: "list",
            plural: "namespaces",
            name: None,
            namespace: None,
        };
        match list(&api).await {
            Ok(all) => {
                let named = all.iter().filter_map(|found| {
                    let name = found.metadata.name.clone()?;
                    Some((name, terminating(found)))
                });
                self.seen.namespaces.extend(named);
                return Ok(());
            }
            Err(error) if Asked::forbidden(&error) => {}
            Err(error) => return Err(asked.failed(error)),
        }
        let places = self.seen.repositories.iter().filter_map(|r| r.key.namespace());
        let own = self
            .seen
            .snapshots
            .iter()
            .filter_map(|s| s.metadata.namespace.as_deref());
        let wanted: BTreeSet<String> = places
            .chain(own)
            .chain([self.namespace, self.seen.home.as_str()])
            .map(str::to_owned)
            .collect();
        for name in wanted {
            match api.get_opt(&name).await {
                Ok(Some(found)) => {
                    self.seen.namespaces.insert(name, terminating(&found));
                }
                Ok(None) => {}
                // Almost nobody may look into the operator's namespace, and it is there as long as Holdfast is.
                Err(error) if Asked::forbidden(&error) && name == self.seen.home => {
                    self.seen.namespaces.insert(name, false);
                    self.seen.home_assumed = true;
                }
                Err(error) if Asked::forbidden(&error) => self.seen.notes.push(format!(
                    "Whether namespace {name} is being deleted is not known: you may not get namespaces {name}."
                )),
                Err(error) => return Err(asked.failed(error)),
            }
        }
        Ok(())
    }

    /// Jobs matter only to Snapshots without a recorded id: their backup may run.
    async fn jobs(&mut self) -> Result<()> {
        let unfinished = |snapshot: &Snapshot| {
            let status = snapshot.status.as_ref();
            status.is_some_and(|s| s.snapshot.is_none() && s.job.is_some())
        };
        if !self.seen.snapshots.iter().any(unfinished) {
            return Ok(());
        }
        let namespace = self.seen.only.as_ref().map(|_| self.namespace);
        let api: Api<JobView> = scoped(self.connection, namespace);
        let ours =
            ListParams::default().labels(&format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY));
        let asked = Asked {
            verb: "list",
            plural: "jobs",
            name: None,
            namespace,
        };
        match api.list(&ours).await {
            Ok(found) => self.seen.jobs = found.items,
            Err(error) if Asked::forbidden(&error) => {
                let why = asked.failed(error);
                self.seen
                    .notes
                    .push(format!("Whether a backup runs is not known: {why}."));
                self.seen.unread.jobs = true;
            }
            Err(error) => return Err(asked.failed(error)),
        }
        Ok(())
    }

    /// Whether the operator was told to pause deletions.
    async fn operator(&mut self) -> Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.connection.client.clone(), &self.seen.home);
        let asked = Asked {
            verb: "get",
            plural: "deployments",
            name: Some(DEPLOYMENT),
            namespace: Some(&self.seen.home),
        };
        self.seen.paused = match api.get_opt(DEPLOYMENT).await {
            Ok(found) => found.map(|deployment| is_paused(&deployment)),
            Err(error) if Asked::forbidden(&error) => None,
            Err(error) => return Err(asked.failed(error)),
        };
        if self.seen.paused.is_none() {
            self.seen.notes.push(format!(
                "Whether all deletions are paused (deletions.paused) is not known: there is no Deployment {DEPLOYMENT} in namespace {} that you may get.",
                self.seen.home
            ));
        }
        Ok(())
    }
}

fn is_paused(deployment: &Deployment) -> bool {
    let pod = deployment.spec.as_ref().and_then(|s| s.template.spec.as_ref());
    pod.into_iter()
        .flat_map(|pod| &pod.containers)
        .flat_map(|container| container.env.iter().flatten())
        .any(|variable| {
            variable.name == "HOLDFAST_DELETIONS_PAUSED" && variable.value.as_deref() == Some("true")
        })
}
