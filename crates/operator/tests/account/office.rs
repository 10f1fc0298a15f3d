//! The operator's half in this process, and a tenant's namespace with backups in it.

use super::lab::{COUNT, Lab, PATIENCE, SIZE};
use holdfast_api::backups::{Backup, BackupJob};
use holdfast_api::ledger::{Artifact, ArtifactState};
use holdfast_api::names;
use holdfast_operator::account::settings::AccountSettings;
use holdfast_operator::account::{self, Account};
use holdfast_operator::runtime::clock::Clock;
use holdfast_operator::runtime::events::Events;
use holdfast_operator::runtime::leader::Leadership;
use holdfast_operator::runtime::metrics::Metrics;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio_util::sync::CancellationToken;

/// The operator as the API server knows it here.
pub const USER: &str = "holdfast-test-operator";
/// Platform's group and the only driver that reports sizes.
pub const ETCD: &str = "Etcd";

static OFFICE: OnceCell<Office> = OnceCell::const_new();
/// Who ends the operator, or takes its records away, is alone.
static ALONE: RwLock<()> = RwLock::const_new(());

/// The one operator of all tests.
pub struct Office {
    running: Mutex<Option<Running>>,
}

struct Running {
    account: Arc<Account>,
    end: CancellationToken,
    thread: std::thread::JoinHandle<()>,
}

impl Office {
    async fn open(lab: &Lab) -> Self {
        for definition in holdfast_api::crd::platform()
            .into_iter()
            .chain(holdfast_api::crd::all())
        {
            if definition.spec.group.ends_with("cozystack.io") {
                define(&lab.client, serde_json::to_value(definition).expect("JSON")).await;
            }
        }
        rights(&lab.client).await;
        let office = Self {
            running: Mutex::new(None),
        };
        office.start();
        office
    }

    /// Starts the operator, as a process would.
    pub fn start(&self) {
        self.start_ahead(SignedDuration::ZERO);
    }

    /// The same with a clock that is so much ahead: a day has passed for what is there.
    pub fn start_ahead(&self, ahead: SignedDuration) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(running.is_none(), "it runs already");
        let end = CancellationToken::new();
        let (sender, receiver) = std::sync::mpsc::channel();
        let until = end.clone();
        // A runtime of its own: those of the tests end with each test.
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let settings = AccountSettings {
                    namespace: names::OPERATOR_NAMESPACE.to_owned(),
                    pod_name: "test".to_owned(),
                    concurrency: 8,
                    streaming_lists: false,
                    strategy_groups: BTreeSet::from([names::STRATEGY_GROUP.to_owned()]),
                    debounce: Duration::from_secs(1),
                };
                let config = client_config().await;
                let client = Client::try_from(config).expect("a client");
                let account = Account::new(
                    client.clone(),
                    settings,
                    Clock::new(move || Timestamp::now() + ahead),
                    Leadership::always(),
                    Events::new(client, "test"),
                    Arc::new(Metrics::new()),
                );
                let mut work = account::start(&account, &until);
                sender.send(account).expect("somebody waits");
                while work.join_next().await.is_some() {}
            });
        });
        // `RUST_LOG` shows what it says; without, nothing.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_test_writer()
            .try_init();
        let account = receiver.recv().expect("it starts");
        *running = Some(Running { account, end, thread });
    }

    /// Ends the operator.
    pub fn stop(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = running.take().expect("it runs");
        running.end.cancel();
        running.thread.join().expect("it ended well");
    }

    /// What the running operator knows.
    pub fn account(&self) -> Arc<Account> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&running.as_ref().expect("it runs").account)
    }

    /// A figure of the metrics, by its whole name with labels.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.account().metrics.text();
        let line = text
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

async fn client_config() -> kube::Config {
    let path = std::env::var("HOLDFAST_E2E_CONTROL_PLANE").expect("checked");
    let kubeconfig = kube::config::Kubeconfig::read_from(path).expect("a kubeconfig");
    let options = kube::config::KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .expect("a config");
    config.auth_info.impersonate = Some(USER.to_owned());
    config
}

/// Gives the operator what the chart gives it: the rules are read from the chart, with the quota switched on.
async fn rights(client: &Client) {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": names::OPERATOR_NAMESPACE } });
    apply(client, "Namespace", "v1", "namespaces", namespace).await;
    let chart = include_str!("../../../../charts/holdfast/templates/rbac.yaml");
    let chart = chart.replace("{{ if .Values.quota.touchPlans }}, patch{{ end }}", ", patch");
    let plain: Vec<&str> = chart.lines().filter(|line| !line.contains("{{")).collect();
    for document in plain.join("\n").split("\n---\n") {
        let mut value: Value = serde_saphyr::from_str(document).expect("YAML");
        let kind = value["kind"].as_str().expect("a kind").to_owned();
        let namespaced = !kind.starts_with("Cluster");
        value["metadata"] = json!({ "name": value["metadata"]["name"] });
        if namespaced {
            value["metadata"]["namespace"] = json!(names::OPERATOR_NAMESPACE);
        }
        if !value["subjects"].is_null() {
            value["subjects"] =
                json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER }]);
        }
        let plural = format!("{}s", kind.to_lowercase());
        apply(client, &kind, "rbac.authorization.k8s.io/v1", &plural, value).await;
    }
}

/// What the chart gives for an entry of `quota.strategies`.
pub async fn may_read(client: &Client, plural: &str) {
    let name = format!("holdfast-{plural}");
    let rules = json!([{ "apiGroups": [names::STRATEGY_GROUP], "resources": [plural], "verbs": ["get", "list", "watch"] }]);
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let role =
        json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules });
    apply(client, "ClusterRole", &version, "clusterroles", role).await;
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": USER }],
    });
    apply(
        client,
        "ClusterRoleBinding",
        &version,
        "clusterrolebindings",
        binding,
    )
    .await;
}

async fn apply(client: &Client, kind: &str, api_version: &str, plural: &str, value: Value) {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = match value["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = value["metadata"]["name"].as_str().expect("a name").to_owned();
    let params = PatchParams::apply("tests").force();
    api.patch(&name, &params, &Patch::Apply(&value))
        .await
        .expect("applied");
}

/// Installs a definition and waits until it is served.
pub async fn define(client: &Client, mut definition: Value) {
    definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
    definition["kind"] = json!("CustomResourceDefinition");
    let name = definition["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("tests").force();
    api.patch(&name, &params, &Patch::Apply(&definition))
        .await
        .expect("defined");
    for _ in 0..300 {
        let conditions = api
            .get(&name)
            .await
            .expect("read")
            .status
            .and_then(|status| status.conditions);
        let established = |c: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionCondition| {
            c.type_ == "Established" && c.status == "True"
        };
        if conditions.is_some_and(|all| all.iter().any(established)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{name} is not established");
}

/// A definition that takes anything.
pub fn permissive(group: &str, version: &str, kind: &str, plural: &str, scope: &str) -> Value {
    json!({
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": scope,
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// A tenant.
pub struct Tenant {
    /// Its namespace, and hands in the cluster.
    pub lab: Lab,
    /// The operator.
    pub office: &'static Office,
    _shared: Option<RwLockReadGuard<'static, ()>>,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
}

impl Tenant {
    /// A fresh namespace; the operator runs, and nobody ends it meanwhile.
    pub async fn new(test: &str) -> Option<Self> {
        let lab = Lab::new(test).await?;
        let shared = ALONE.read().await;
        let office = OFFICE.get_or_init(|| Office::open(&lab)).await;
        Some(Self {
            lab,
            office,
            _shared: Some(shared),
            _alone: None,
        })
    }

    /// The same, for a test that ends the operator itself.
    pub async fn alone(test: &str) -> Option<Self> {
        let lab = Lab::new(test).await?;
        let alone = ALONE.write().await;
        let office = OFFICE.get_or_init(|| Office::open(&lab)).await;
        Some(Self {
            lab,
            office,
            _shared: None,
            _alone: Some(alone),
        })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.lab.namespace
    }

    /// A quota with both dimensions, far from its limits.
    pub async fn quota(&self) {
        self.lab
            .quota("cap", json!({ SIZE: "10Gi", COUNT: "100000" }))
            .await;
    }

    /// Waits until the quota shows these figures.
    pub async fn until_used(&self, size: &str, count: &str) {
        self.lab.until_used("cap", &[(SIZE, size), (COUNT, count)]).await;
    }

    /// Backups of the namespace.
    pub fn backups(&self) -> Api<Backup> {
        self.lab.api()
    }

    /// BackupJobs of the namespace.
    pub fn jobs(&self) -> Api<BackupJob> {
        self.lab.api()
    }

    /// Makes a Backup as the platform's drivers do: with its status, by a plain create.
    pub async fn backup(&self, name: &str, strategy: &str, uri: Option<&str>, size: Option<i64>) -> Backup {
        let mut artifact = json!({});
        if let Some(uri) = uri {
            artifact = json!({ "artifact": { "uri": uri } });
            if let Some(size) = size {
                artifact["artifact"]["sizeBytes"] = json!(size);
            }
        }
        artifact["phase"] = json!("Ready");
        self.backup_of(
            name,
            json!({
                "applicationRef": { "apiGroup": "apps.cozystack.io", "kind": strategy, "name": "control" },
                "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": strategy, "name": "any" },
                "takenAt": "2026-08-22T00:00:09Z",
            }),
            artifact,
        )
        .await
    }

    /// Makes a Backup.
    pub async fn backup_of(&self, name: &str, spec: Value, status: Value) -> Backup {
        let backup = json!({ "metadata": { "name": name }, "spec": spec, "status": status });
        let backup: Backup = serde_json::from_value(backup).expect("a Backup");
        self.backups()
            .create(&PostParams::default(), &backup)
            .await
            .expect("created")
    }

    /// An address of its own in the tenant's part of a bucket.
    pub fn uri(&self, name: &str) -> String {
        format!("s3://shared-archive/{}/control/{name}.db", self.namespace())
    }

    /// Makes an Etcd Backup with an address of its own.
    pub async fn etcd(&self, name: &str, mebibytes: i64) -> Backup {
        let uri = self.uri(name);
        self.backup(name, ETCD, Some(&uri), Some(mebibytes << 20)).await
    }

    /// Deletes a Backup.
    pub async fn delete_backup(&self, name: &str) {
        self.backups()
            .delete(name, &DeleteParams::default())
            .await
            .expect("deleted");
    }

    /// Makes a BackupJob.
    pub async fn job(&self, name: &str) -> BackupJob {
        let job = json!({
            "metadata": { "name": name },
            "spec": {
                "applicationRef": { "kind": ETCD, "name": "control" },
                "backupClassName": "no-such-class",
            },
        });
        let job: BackupJob = serde_json::from_value(job).expect("a BackupJob");
        self.jobs()
            .create(&PostParams::default(), &job)
            .await
            .expect("created")
    }

    /// Writes a BackupJob's status.
    pub async fn job_status(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.jobs()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .expect("patched");
    }

    /// The namespace's records, from the API server.
    pub async fn records(&self) -> Vec<Artifact> {
        let api: Api<Artifact> = Api::all(self.lab.client.clone());
        let of_namespace = format!("{}={}", names::ARTIFACT_NAMESPACE_LABEL, self.namespace());
        let list = api
            .list(&ListParams::default().labels(&of_namespace))
            .await
            .expect("listed");
        list.items
    }

    /// How many records there are in each state and for which reason.
    pub async fn states(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for record in self.records().await {
            let status = record.status.unwrap_or_default();
            let reason = status.reason.unwrap_or_default();
            *all.entry(format!("{:?} {reason}", status.state)).or_default() += 1;
        }
        all
    }

    /// Waits until the records are in exactly these states.
    pub async fn until_states(&self, expected: &[(&str, usize)]) {
        let expected: BTreeMap<String, usize> = expected.iter().map(|(s, n)| ((*s).to_owned(), *n)).collect();
        let started = std::time::Instant::now();
        loop {
            let now = self.states().await;
            if now == expected {
                return;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "waited {PATIENCE:?} for records to be {expected:?}; they are {now:?}: {:#?}\n{}",
                self.records().await,
                self.known(),
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What the operator knows of the namespace, for a test that fails.
    fn known(&self) -> String {
        let account = self.office.account();
        let backups = account.world.backups();
        let backups: Vec<_> = backups
            .iter()
            .filter(|backup| &*backup.namespace == self.namespace())
            .map(|backup| (&backup.name, &backup.uid))
            .collect();
        let records: Vec<_> = account
            .book
            .read(|ledger| ledger.of_namespace(self.namespace()).cloned().collect());
        format!(
            "Backups known: {backups:?}\nrecords known: {records:#?}\nowed: {}, queued: {}, waits for {:?}",
            account.arrears.len(),
            account.items.len(),
            account.world.waits_for(),
        )
    }

    /// Events about an object of the namespace, by reason.
    pub async fn events(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = self.lab.api();
        let list = events.list(&ListParams::default()).await.expect("listed");
        let of_reason = list
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason));
        of_reason.filter_map(|event| event.note).collect()
    }

    /// What was added up bit by bit is what the records are, counted from scratch: in memory and on the API server.
    pub async fn assert_recount(&self) {
        let namespace = self.namespace();
        let account = self.office.account();
        let (figures, recount) = account
            .book
            .read(|ledger| (ledger.figures(namespace), ledger.recount(namespace)));
        assert_eq!(figures, recount, "in memory");
        // A record that is being written has no status for a moment.
        self.lab
            .until("the records to add up to what is published", async || {
                let figures = account.figures(namespace);
                let told = self.counted().await;
                told == Some((figures.used_size(), figures.used_count()))
            })
            .await;
    }

    /// The records on the API server, added up; `None` while one has no status.
    async fn counted(&self) -> Option<(i64, i64)> {
        let (mut size, mut count) = (0, 0);
        for record in self.records().await {
            let status = record.status?;
            match status.state {
                ArtifactState::Attributed | ArtifactState::PendingPurge | ArtifactState::Retained => {
                    size += status.size_bytes.unwrap_or_default();
                    count += 1;
                }
                ArtifactState::InFlight | ArtifactState::Released | ArtifactState::WrittenOff => {}
                ArtifactState::Unknown => panic!("a record without a state: {status:?}"),
            }
        }
        Some((size, count))
    }

    /// Ends the test.
    pub async fn end(self) {
        self.assert_recount().await;
        self.lab.end().await;
    }
}
