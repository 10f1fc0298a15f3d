//! The cluster's half: definitions, namespaces, Backups, and what the API server counts.

use anyhow::{Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use holdfast_api::backups::Backup;
use holdfast_api::ledger::Artifact;
use holdfast_api::names;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Requests under way at once.
const AT_ONCE: usize = 64;
/// Size of every Backup at first.
pub const SIZE: i64 = 1_000_000;
/// The quota's name.
const QUOTA: &str = "backup-storage";
/// The namespace in which ordinary objects are created beside a busy ledger.
pub const BUSY: &str = "bench-busy";

/// A control plane and what is put into it.
pub struct Cluster {
    /// As an administrator.
    pub client: Client,
    /// Namespaces with Backups.
    pub namespaces: usize,
    /// Backups in all of them.
    pub backups: usize,
}

impl Cluster {
    /// The cluster of a kubeconfig.
    pub async fn open(kubeconfig: &Path, namespaces: usize, backups: usize) -> Result<Self> {
        if namespaces == 0 || !backups.is_multiple_of(namespaces) {
            bail!("{backups} Backups cannot be spread evenly over {namespaces} namespaces");
        }
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self {
            client: Client::try_from(config)?,
            namespaces,
            backups,
        })
    }

    /// Backups of each namespace.
    pub fn each(&self) -> usize {
        self.backups / self.namespaces
    }

    /// Name of the n-th namespace.
    pub fn namespace(n: usize) -> String {
        format!("bench-{n:05}")
    }

    /// Installs every definition and waits until it is served.
    pub async fn install(&self) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let all: Vec<_> = holdfast_api::crd::platform()
            .into_iter()
            .chain(holdfast_api::crd::all())
            .collect();
        for definition in &all {
            api.create(&PostParams::default(), definition).await?;
        }
        for definition in &all {
            let name = definition.metadata.name.as_deref().unwrap_or_default();
            wait(&format!("{name} to be served"), async || {
                let status = api.get(name).await?.status;
                let conditions = status.and_then(|s| s.conditions).unwrap_or_default();
                Ok(conditions
                    .iter()
                    .any(|c| c.type_ == "Established" && c.status == "True"))
            })
            .await?;
        }
        self.create_namespace(names::OPERATOR_NAMESPACE).await
    }

    /// Makes the namespaces with their quotas, and the Backups.
    pub async fn fill(&self) -> Result<()> {
        let namespaces = (0..self.namespaces).map(|n| async move {
            let namespace = Self::namespace(n);
            self.create_namespace(&namespace).await?;
            self.create_quota(
                &namespace,
                &json!({ names::QUOTA_SIZE: "100Ti", names::QUOTA_COUNT: "1000000" }),
            )
            .await
        });
        all_of(namespaces, "namespaces", self.namespaces).await?;
        let backups = (0..self.backups).map(|n| self.create_backup(Self::namespace(n % self.namespaces), n));
        all_of(backups, "Backups", self.backups).await
    }

    async fn create_namespace(&self, name: &str) -> Result<()> {
        let object: Namespace = from(json!({ "metadata": { "name": name } }))?;
        Api::all(self.client.clone())
            .create(&PostParams::default(), &object)
            .await?;
        Ok(())
    }

    async fn create_quota(&self, namespace: &str, hard: &Value) -> Result<()> {
        let quota: ResourceQuota = from(json!({ "metadata": { "name": QUOTA }, "spec": { "hard": hard } }))?;
        self.quotas(namespace)
            .create(&PostParams::default(), &quota)
            .await?;
        Ok(())
    }

    /// The namespace beside whose ledger ordinary objects are created, with one Backup.
    pub async fn create_busy(&self) -> Result<()> {
        self.create_namespace(BUSY).await?;
        let hard = json!({
            names::QUOTA_SIZE: "100Ti", names::QUOTA_COUNT: "1000000", "secrets": "100000", "pods": "100000",
        });
        self.create_quota(BUSY, &hard).await?;
        self.create_backup(BUSY.to_owned(), 0).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), BUSY);
        // Pods are refused before the controller manager has made it.
        wait("the default ServiceAccount", async || {
            Ok(accounts.get_opt("default").await?.is_some())
        })
        .await
    }

    /// A Backup as the platform's drivers make it: with its status, by a plain create.
    async fn create_backup(&self, namespace: String, n: usize) -> Result<()> {
        let backup: Backup = from(json!({
            "metadata": { "name": Self::backup_name(n) },
            "spec": {
                "applicationRef": { "apiGroup": "apps.cozystack.io", "kind": "Etcd", "name": format!("app-{}", n % 7) },
                "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": "Etcd", "name": "etcd" },
                "takenAt": "2026-01-01T00:00:00Z",
            },
            "status": { "phase": "Ready", "artifact": {
                "uri": format!("s3://backups/{namespace}/{n:07}.tar"), "sizeBytes": SIZE,
            } },
        }))?;
        self.backups_of(&namespace)
            .create(&PostParams::default(), &backup)
            .await?;
        Ok(())
    }

    fn backup_name(n: usize) -> String {
        format!("backup-{n:07}")
    }

    fn backups_of(&self, namespace: &str) -> Api<Backup> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn quotas(&self, namespace: &str) -> Api<ResourceQuota> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Gives the n-th Backup of a namespace another size.
    pub async fn resize(&self, namespace: &str, n: usize, size: i64) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": { "artifact": { "sizeBytes": size } } }));
        self.backups_of(namespace)
            .patch_metadata(&Self::backup_name(n), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Takes what was published out of every quota, so that the next start has to write it.
    pub async fn wipe_figures(&self) -> Result<()> {
        let wiped = (0..self.namespaces).map(|n| async move {
            let patch =
                json!({ "status": { "used": { names::QUOTA_SIZE: null, names::QUOTA_COUNT: null } } });
            self.quotas(&Self::namespace(n))
                .patch_status(QUOTA, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            Ok(())
        });
        all_of(wiped, "quotas wiped", self.namespaces).await
    }

    /// Backups that a LIST shows.
    pub async fn count_backups(&self) -> Result<usize> {
        self.count::<Backup>().await
    }

    /// Records that a LIST shows.
    pub async fn count_records(&self) -> Result<usize> {
        self.count::<Artifact>().await
    }

    async fn count<K>(&self) -> Result<usize>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(1_000);
        let mut number = 0;
        loop {
            let page = api.list_metadata(&params).await?;
            number += page.items.len();
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(number),
            }
        }
    }

    /// Writes that Holdfast alone makes, as the API server counts them: records, figures, events.
    pub async fn writes(&self) -> Result<f64> {
        let request = axum::http::Request::get("/metrics").body(Vec::new())?;
        let text = self.client.request_text(request).await?;
        let mut total = 0.0;
        for (resource, verbs) in [
            ("artifacts", &["POST", "PUT", "PATCH", "APPLY", "DELETE"][..]),
            // The controller manager writes by PUT.
            ("resourcequotas", &["PATCH", "APPLY"]),
            ("events", &["POST", "PATCH", "APPLY"]),
        ] {
            for verb in verbs {
                let labels = [format!("resource=\"{resource}\""), format!("verb=\"{verb}\"")];
                total += crate::sum(
                    &text,
                    "apiserver_request_total",
                    &labels.each_ref().map(String::as_str),
                )?;
            }
        }
        Ok(total)
    }
}

fn from<T: DeserializeOwned>(value: Value) -> Result<T> {
    Ok(serde_json::from_value(value)?)
}

/// Carries all of it out, many at once, and says how far it is.
pub async fn all_of(
    work: impl Iterator<Item = impl Future<Output = Result<()>>>,
    what: &str,
    number: usize,
) -> Result<()> {
    some_of(AT_ONCE, work, what, number).await
}

/// The same, so many at once.
pub async fn some_of(
    at_once: usize,
    work: impl Iterator<Item = impl Future<Output = Result<()>>>,
    what: &str,
    number: usize,
) -> Result<()> {
    let began = Instant::now();
    let mut done = 0_usize;
    let mut said = Instant::now();
    let mut all = futures::stream::iter(work).buffer_unordered(at_once);
    while let Some(()) = all.try_next().await? {
        done += 1;
        if said.elapsed() > Duration::from_secs(2) {
            let rate = done as f64 / began.elapsed().as_secs_f64();
            eprintln!("{done} of {number} {what}, {rate:.0} a second");
            said = Instant::now();
        }
    }
    Ok(())
}

/// Waits for a minute until `is` says yes.
pub async fn wait(what: &str, is: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !is().await? {
        if began.elapsed() > Duration::from_secs(60) {
            bail!("waited a minute for {what}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
