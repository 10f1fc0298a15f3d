//! The platform's kinds, and a tenant of it, in a cluster that has none.
//!
//! **Promises.** Definitions that are there already are left as they are. A tenant is a namespace with a quota and
//! what its driver needs, named with a random suffix.
//!
//! **Assumes.** Account is switched on in the installed chart, and [`crate::standin`] runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use holdfast_api::backups::{Backup, BackupJob, JobPhase};
use holdfast_api::ledger::Artifact;
use holdfast_api::names;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::scenario::{remove_namespace, suffix};
use crate::wait::{Look, until};
use crate::{Lab, objects, standin};

/// The BackupClass that binds applications of the kinds below to the stood-in driver.
pub const CLASS: &str = "standin";
/// A kind whose driver reports sizes.
pub const SIZED: &str = "Etcd";
/// A kind whose driver reports none.
pub const UNSIZED: &str = "MongoDB";
/// The quota's name.
pub const QUOTA: &str = "backup-storage";

/// Installs the platform's definitions and the class, if they are missing.
///
/// # Errors
/// What the API server says, or that the definitions are not served within a minute.
pub async fn install(client: &Client) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/cozystack/crds");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("{} is not there", folder.display()))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let definition: CustomResourceDefinition =
            serde_saphyr::from_str(&text).with_context(|| format!("{} cannot be read", path.display()))?;
        names.push(definition.name_any());
        match definitions.create(&PostParams::default(), &definition).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(|| format!("{} is refused", path.display())),
        }
    }
    for name in names {
        let what = format!("{name} to be served");
        until(&what, Duration::from_secs(60), || async {
            let definition = definitions.get(&name).await?;
            let conditions = definition.status.and_then(|s| s.conditions).unwrap_or_default();
            let served = conditions
                .iter()
                .any(|c| c.type_ == "Established" && c.status == "True");
            Ok(if served {
                Look::Done(())
            } else {
                Look::Not(format!("{conditions:?}"))
            })
        })
        .await?;
    }
    Ok(())
}

/// The class and its strategies; what is there already stays.
///
/// # Errors
/// What the API server says.
pub async fn class(lab: &Lab) -> Result<()> {
    let strategy = |kind: &str| {
        json!({
            "apiVersion": format!("{}/{}", names::STRATEGY_GROUP, names::BACKUPS_VERSION),
            "kind": kind, "metadata": { "name": CLASS }, "spec": {},
        })
    };
    let bound = |kind: &str| {
        json!({
            "application": { "apiGroup": names::APPLICATION_GROUP, "kind": kind },
            "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": kind, "name": CLASS },
        })
    };
    let class = json!({
        "apiVersion": format!("{}/{}", names::BACKUPS_GROUP, names::BACKUPS_VERSION),
        "kind": "BackupClass", "metadata": { "name": CLASS },
        "spec": { "strategies": [bound(SIZED), bound(UNSIZED)] },
    });
    for object in [strategy(SIZED), strategy(UNSIZED), class] {
        match lab.create(object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A namespace with a quota.
#[derive(Clone)]
pub struct Tenant {
    /// The cluster.
    pub lab: Lab,
    /// The namespace.
    pub namespace: String,
}

/// What became of a request for a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// It was admitted under this name.
    Admitted(String),
    /// It was refused with this sentence.
    Refused(String),
}

impl Tenant {
    /// A new tenant with these hard limits.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn new(lab: &Lab, name: &str, hard: Value) -> Result<Self> {
        let namespace = format!("{name}-{}", suffix());
        lab.create(objects::namespace(&namespace, "tenant")).await?;
        lab.create(json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": QUOTA, "namespace": namespace },
            "spec": { "hard": hard },
        }))
        .await?;
        let this = Self {
            lab: lab.clone(),
            namespace,
        };
        let what = format!("the first figures of {}", this.namespace);
        until(&what, Duration::from_secs(60), || async {
            let used = this.used().await?;
            Ok(if used.is_empty() {
                Look::Not("nothing published".to_owned())
            } else {
                Look::Done(())
            })
        })
        .await?;
        Ok(this)
    }

    /// A BackupJob as people write it; `bytes` are what its archive is to have.
    #[must_use]
    pub fn job(&self, name: &str, kind: &str, application: &str, bytes: u64) -> Value {
        json!({
            "apiVersion": format!("{}/{}", names::BACKUPS_GROUP, names::BACKUPS_VERSION),
            "kind": "BackupJob",
            "metadata": {
                "name": name, "namespace": self.namespace,
                "annotations": { standin::BYTES: bytes.to_string() },
            },
            "spec": {
                "applicationRef": {
                    "apiGroup": names::APPLICATION_GROUP, "kind": kind, "name": application,
                },
                "backupClassName": CLASS,
            },
        })
    }

    /// Asks for a backup.
    ///
    /// # Errors
    /// What the API server says other than that it is forbidden.
    pub async fn ask(&self, name: &str, kind: &str, application: &str, bytes: u64) -> Result<Asked> {
        match self.lab.create(self.job(name, kind, application, bytes)).await {
            Ok(job) => Ok(Asked::Admitted(job.name_any())),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(Asked::Refused(status.message.clone())),
            Err(error) => Err(error.into()),
        }
    }

    /// Names of the BackupJobs that are there.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn jobs(&self) -> Result<Vec<String>> {
        let api: Api<BackupJob> = self.lab.api(&self.namespace);
        let all = api.list(&ListParams::default()).await?;
        Ok(all.iter().map(BackupJob::name_any).collect())
    }

    /// Asks for a backup and waits until its run has ended well.
    ///
    /// # Errors
    /// When it is refused, or does not end within two minutes.
    pub async fn back_up(&self, name: &str, kind: &str, application: &str, bytes: u64) -> Result<()> {
        // A run that has just ended counts beside its result for a moment: on doubt the gate counts more.
        until(
            &format!("{name} to be admitted"),
            Duration::from_secs(20),
            || async {
                Ok(match self.ask(name, kind, application, bytes).await? {
                    Asked::Admitted(_) => Look::Done(()),
                    Asked::Refused(why) => Look::Not(why),
                })
            },
        )
        .await?;
        self.succeeded(name).await
    }

    /// Waits until a run has ended well.
    ///
    /// # Errors
    /// When it does not within two minutes.
    pub async fn succeeded(&self, name: &str) -> Result<()> {
        let jobs: Api<BackupJob> = self.lab.api(&self.namespace);
        until(
            &format!("{name} to succeed"),
            Duration::from_secs(120),
            || async {
                let phase = jobs.get(name).await?.status.and_then(|status| status.phase);
                Ok(match phase {
                    Some(JobPhase::Succeeded) => Look::Done(()),
                    Some(JobPhase::Pending | JobPhase::Running | JobPhase::Failed | JobPhase::Unknown)
                    | None => Look::Not(format!("{phase:?}")),
                })
            },
        )
        .await
    }

    /// `status.used` of the quota, our keys alone.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn used(&self) -> Result<std::collections::BTreeMap<String, String>> {
        let quotas: Api<ResourceQuota> = self.lab.api(&self.namespace);
        let used = quotas.get(QUOTA).await?.status.and_then(|status| status.used);
        Ok(used
            .unwrap_or_default()
            .into_iter()
            .filter(|(key, _)| key == names::QUOTA_SIZE || key == names::QUOTA_COUNT)
            .map(|(key, value)| (key, value.0))
            .collect())
    }

    /// Waits until the quota shows exactly these figures.
    ///
    /// # Errors
    /// When it does not within `limit`.
    pub async fn until_used(&self, size: &str, count: &str, limit: Duration) -> Result<()> {
        let what = format!("{} to show size {size} and count {count}", self.namespace);
        until(&what, limit, || async {
            let used = self.used().await?;
            let shows = |key: &str, value: &str| used.get(key).is_none_or(|shown| shown == value);
            Ok(
                if shows(names::QUOTA_SIZE, size) && shows(names::QUOTA_COUNT, count) && !used.is_empty() {
                    Look::Done(())
                } else {
                    Look::Not(format!("{used:?}"))
                },
            )
        })
        .await
    }

    /// Its records.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn records(&self) -> Result<Vec<Artifact>> {
        let artifacts: Api<Artifact> = Api::all(self.lab.client.clone());
        let params = ListParams::default().fields(&format!("spec.namespace={}", self.namespace));
        Ok(artifacts.list(&params).await?.items)
    }

    /// Deletes every Backup, as an administrator can.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn delete_backups(&self) -> Result<usize> {
        let backups: Api<Backup> = self.lab.api(&self.namespace);
        let all = backups.list(&ListParams::default()).await?.items;
        for backup in &all {
            backups
                .delete(&backup.name_any(), &DeleteParams::default())
                .await?;
        }
        Ok(all.len())
    }

    /// Removes the namespace and waits until it is gone.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn end(self) -> Result<()> {
        remove_namespace(&self.lab, &self.namespace).await
    }
}
