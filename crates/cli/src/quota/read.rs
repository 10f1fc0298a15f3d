//! The part of a cluster that `quota` reads.
//!
//! **Promises.** Nothing that may not be read is an error, except the ResourceQuotas themselves: a note says what is
//! left out.

use std::collections::BTreeSet;

use anyhow::Result;
use holdfast_api::ledger::{Artifact, BackupStore, convert};
use holdfast_api::names;
use holdfast_core::quota::gate::Quota;
use holdfast_core::quota::{Dimensions, Ledger};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::Api;
use kube::core::PartialObjectMeta;

use crate::connect::{Asked, Connection, list, scoped};

/// The names of the two dimensions.
pub const DIMENSIONS: Dimensions<'static> = Dimensions {
    size: names::QUOTA_SIZE,
    count: names::QUOTA_COUNT,
};

/// See the module.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Every record; `None`: they may not be read.
    pub ledger: Option<Ledger>,
    /// Quotas with a key of ours, or one that looks like it, by namespace.
    pub quotas: Vec<(String, Quota)>,
    /// Namespaces there are; `None`: they may not be read.
    pub live: Option<BTreeSet<String>>,
    /// Stores that are listed; `None`: they may not be read.
    pub stores: Option<Vec<BackupStore>>,
    /// What could not be read, in sentences.
    pub notes: Vec<String>,
}

/// Reads what a question about `namespace` (none: all) needs.
pub async fn read(connection: &Connection, namespace: Option<&str>) -> Result<Cluster> {
    let mut cluster = Cluster::default();
    let asked = Asked {
        verb: "list",
        plural: "resourcequotas",
        name: None,
        namespace,
    };
    let quotas: Vec<ResourceQuota> = list(&scoped(connection, namespace))
        .await
        .map_err(|error| asked.failed(error))?;
    cluster.quotas = quotas.iter().filter_map(quota).collect();
    // All of them, whatever the namespace: one is also charged for what others left behind.
    cluster.ledger = cluster
        .records(connection)
        .await?
        .map(|all| Ledger::of(all.iter().map(convert::record)));
    cluster.stores = cluster
        .all(connection, "backupstores", "unaccounted bytes")
        .await?;
    let live: Option<Vec<PartialObjectMeta<Namespace>>> = cluster
        .all(
            connection,
            "namespaces",
            "what namespaces that are gone left behind",
        )
        .await?;
    cluster.live = live.map(|all| all.into_iter().filter_map(|one| one.metadata.name).collect());
    Ok(cluster)
}

impl Cluster {
    async fn records(&mut self, connection: &Connection) -> Result<Option<Vec<Artifact>>> {
        match list::<Artifact>(&Api::all(connection.client.clone())).await {
            Ok(all) => Ok(Some(all)),
            Err(error) if Asked::forbidden(&error) => {
                self.notes.push(
                    "you may not read the records (list artifacts, which the ClusterRole holdfast-accountant carries): what is shown is what the ResourceQuotas publish, without the single artifacts"
                        .to_owned(),
                );
                Ok(None)
            }
            Err(error) => Err(asked_all("artifacts").failed(error)),
        }
    }

    /// Every object of a kind of the cluster's own; `None`, with a note, where that is not allowed.
    async fn all<K>(
        &mut self,
        connection: &Connection,
        plural: &'static str,
        what: &str,
    ) -> Result<Option<Vec<K>>>
    where
        K: kube::Resource<Scope = kube::core::ClusterResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let asked = asked_all(plural);
        match list::<K>(&Api::all(connection.client.clone())).await {
            Ok(all) => Ok(Some(all)),
            Err(error) if Asked::forbidden(&error) => {
                // Without the records it would be the second note about one missing role.
                if self.ledger.is_some() {
                    self.notes
                        .push(format!("{what} are left out: {:#}", asked.failed(error)));
                }
                Ok(None)
            }
            Err(error) => Err(asked.failed(error)),
        }
    }
}

fn asked_all(plural: &str) -> Asked<'_> {
    Asked {
        verb: "list",
        plural,
        name: None,
        namespace: None,
    }
}

/// What is read of a ResourceQuota; `None`: nothing in it concerns backups.
pub fn quota(object: &ResourceQuota) -> Option<(String, Quota)> {
    let spec = object.spec.as_ref()?;
    let strings = |all: &Option<
        std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    >| {
        all.iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.0.clone()))
            .collect::<std::collections::BTreeMap<String, String>>()
    };
    let hard = strings(&spec.hard);
    if !hard.keys().any(|key| key.contains(names::BACKUPS_GROUP)) {
        return None;
    }
    let scoped =
        spec.scopes.as_ref().is_some_and(|scopes| !scopes.is_empty()) || spec.scope_selector.is_some();
    let annotations = object.metadata.annotations.as_ref();
    let quota = Quota {
        name: object.metadata.name.clone().unwrap_or_default(),
        scoped,
        hard,
        used: object
            .status
            .as_ref()
            .map(|status| strings(&status.used))
            .unwrap_or_default(),
        breakdown: annotations.and_then(|all| all.get(names::BREAKDOWN)).cloned(),
    };
    Some((object.metadata.namespace.clone().unwrap_or_default(), quota))
}
