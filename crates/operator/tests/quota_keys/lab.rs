//! A namespace of its own for each test, quotas in it, and a hand on the controller manager.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

/// Bytes that backups occupy.
pub const SIZE: &str = "backups.cozystack.io/size";
/// Artifacts that backups left.
pub const COUNT: &str = "backups.cozystack.io/count";
/// Who publishes the figures.
pub const MANAGER: &str = "holdfast-quota";
/// The program whose behaviour is tested.
pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// What is waited for takes a few seconds; a machine that does much else is given ten times that.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// One test at a time pauses or restarts the controller manager.
static CONTROLLER_MANAGER_IS_MINE: Mutex<()> = Mutex::const_new(());

/// A test's namespace.
#[derive(Clone)]
pub struct Lab {
    /// As an administrator.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    program: String,
}

impl Lab {
    /// A fresh namespace, or nothing where no control plane is named.
    pub async fn new(test: &str) -> Option<Self> {
        let (Ok(path), Ok(program)) = (
            std::env::var("HOLDFAST_E2E_CONTROL_PLANE"),
            std::env::var("HOLDFAST_E2E_PROGRAM"),
        ) else {
            println!("skipped: no control plane of its own (HOLDFAST_E2E_CONTROL_PLANE is not set)");
            return None;
        };
        // A second test of the same process finds the provider installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = Client::try_from(config(&path).await).expect("a client");
        let namespace = format!("quota-{test}-{:08x}", fresh());
        let object: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": namespace } })).expect("a Namespace");
        Api::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .expect("created");
        let lab = Self {
            client,
            namespace,
            program,
        };
        // Pods are refused before the controller manager has made it.
        let accounts: Api<ServiceAccount> = lab.api();
        lab.until("the default ServiceAccount", async || {
            accounts.get_opt("default").await.expect("read").is_some()
        })
        .await;
        Some(lab)
    }

    /// A client that has only the rights of `user`.
    pub async fn as_user(&self, user: &str) -> Client {
        let path = std::env::var("HOLDFAST_E2E_CONTROL_PLANE").expect("checked");
        let mut config = config(&path).await;
        config.auth_info.impersonate = Some(user.to_owned());
        Client::try_from(config).expect("a client")
    }

    /// Objects of the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The namespace's quotas.
    pub fn quotas(&self) -> Api<ResourceQuota> {
        self.api()
    }

    /// Makes a quota; the answer is the API server's.
    pub async fn try_quota(&self, name: &str, spec: Value) -> kube::Result<ResourceQuota> {
        let quota = json!({ "metadata": { "name": name }, "spec": spec });
        let quota: ResourceQuota = serde_json::from_value(quota).expect("a ResourceQuota");
        self.quotas().create(&PostParams::default(), &quota).await
    }

    /// Makes a quota with these hard limits and waits until the controller manager has taken it up.
    pub async fn quota(&self, name: &str, hard: Value) {
        self.try_quota(name, json!({ "hard": hard }))
            .await
            .expect("created");
        self.until("status.hard to mirror spec.hard", async || {
            let quota = self.quotas().get(name).await.expect("read");
            quota.status.and_then(|status| status.hard) == quota.spec.and_then(|spec| spec.hard)
        })
        .await;
    }

    /// Publishes `used` the way Holdfast does: apply on `/status`, by force, with the full set of its keys.
    pub async fn publish(&self, name: &str, used: Value) -> kube::Result<ResourceQuota> {
        let params = PatchParams::apply(MANAGER).force();
        self.apply(&params, name, used).await
    }

    /// Applies `used` on `/status`.
    pub async fn apply(&self, params: &PatchParams, name: &str, used: Value) -> kube::Result<ResourceQuota> {
        let patch = json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": name, "namespace": self.namespace },
            "status": { "used": used },
        });
        self.quotas()
            .patch_status(name, params, &Patch::Apply(&patch))
            .await
    }

    /// Writes into `/status` as any other client would.
    pub async fn merge_status(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.quotas()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .expect("patched");
    }

    /// Changes the quota's hard limits.
    pub async fn merge_hard(&self, name: &str, hard: Value) {
        let patch = Patch::Merge(json!({ "spec": { "hard": hard } }));
        self.quotas()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .expect("patched");
    }

    /// `status.used`, as written.
    pub async fn used(&self, name: &str) -> BTreeMap<String, String> {
        let quota = self.quotas().get(name).await.expect("read");
        let used = quota.status.and_then(|status| status.used).unwrap_or_default();
        used.into_iter().map(|(key, value)| (key, value.0)).collect()
    }

    /// Waits until `status.used` of the quota holds exactly `expected`.
    pub async fn until_used(&self, name: &str, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> = expected
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let what = format!("used of {name} to be {expected:?}");
        self.until(&what, async || self.used(name).await == expected)
            .await;
    }

    /// Waits for one whole resync of the quota, whose hard limits name `configmaps`: a wrong count is written there,
    /// and only a resync puts it right.
    pub async fn resync(&self, name: &str) {
        self.merge_status(name, json!({ "used": { "configmaps": "77" } }))
            .await;
        self.until("a resync", async || {
            self.used(name)
                .await
                .get("configmaps")
                .is_none_or(|count| count != "77")
        })
        .await;
    }

    /// Asks for a Pod; nothing will run it.
    pub async fn pod(&self, name: &str) -> kube::Result<Pod> {
        let pod = json!({
            "metadata": { "name": name },
            "spec": { "containers": [{ "name": "main", "image": "localhost/none:1" }] },
        });
        let pod: Pod = serde_json::from_value(pod).expect("a Pod");
        self.api().create(&PostParams::default(), &pod).await
    }

    /// Makes a ConfigMap, which an admission counts.
    pub async fn config_map(&self, name: &str) -> kube::Result<ConfigMap> {
        let map: ConfigMap =
            serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a ConfigMap");
        self.api().create(&PostParams::default(), &map).await
    }

    /// Pauses, resumes or restarts a program of the control plane. The guard keeps other tests from doing so.
    pub async fn program(&self, what: &str, program: &str) {
        let command = format!("{} {program} {what}", self.program);
        let status = tokio::process::Command::new("sh")
            .args(["-c", &command])
            .status()
            .await
            .expect("a shell");
        assert!(status.success(), "{command} failed");
    }

    /// The controller manager is this test's alone while the guard lives.
    pub async fn controller_manager(&self) -> MutexGuard<'static, ()> {
        CONTROLLER_MANAGER_IS_MINE.lock().await
    }

    /// Waits until `is` says yes.
    pub async fn until(&self, what: &str, mut is: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !is().await {
            assert!(started.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Removes the namespace; the controller manager does it in its own time.
    pub async fn end(self) {
        let namespaces: Api<Namespace> = Api::all(self.client);
        namespaces
            .delete(&self.namespace, &DeleteParams::default())
            .await
            .expect("deleted");
    }
}

async fn config(path: &str) -> Config {
    let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a config")
}

/// The code and message of a refusal.
pub fn refusal<T: std::fmt::Debug>(answer: kube::Result<T>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("not refused: {other:?}"),
    }
}

fn fresh() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() & 0xffff_ffff
}
