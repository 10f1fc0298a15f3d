//! A namespace with quotas and records in it, and people who run the program.

use holdfast_api::ledger::convert;
use holdfast_api::{Artifact, names};
use holdfast_core::quota::capability;
use holdfast_core::quota::record::{Application, Record};
use holdfast_core::quota::transitions::{BackupFact, Left, backup_gone, backup_seen};
use holdfast_core::quota::{Ledger, StrategyKind};
use jiff::Timestamp;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);
const RBAC: &str = "rbac.authorization.k8s.io";

/// What a person may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// The chart's role for those who administer the storage of backups.
    Accountant,
    /// Reads records and patches their status, without the verb that the product asks for.
    Patcher,
    /// Reads the quotas of the namespace.
    Tenant,
    /// Nothing.
    None,
}

/// See the module.
pub struct Lab {
    /// As an administrator.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    suffix: String,
    kubeconfig: PathBuf,
    /// Cluster-scoped things to take away: kind and name.
    made: std::sync::Mutex<Vec<(ApiResource, String)>>,
}

/// Somebody who runs the program.
pub struct User {
    /// As the API server knows them.
    pub name: String,
    namespace: String,
    kubeconfig: PathBuf,
}

/// How the program ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub error: String,
}

impl User {
    /// Runs the program in the namespace. There is no terminal to ask.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        let output = Command::new(env!("CARGO_BIN_EXE_kubectl-holdfast"))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", &self.namespace])
            .stdin(Stdio::null())
            .output()
            .expect("the program runs");
        Ended {
            code: output.status.code().expect("an exit code"),
            out: String::from_utf8(output.stdout).expect("text"),
            error: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Runs it with `-o json`, which must end well.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, &["-o", "json"]].concat());
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.error);
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

impl Lab {
    /// A fresh namespace, or nothing where no control plane is named.
    pub async fn new(test: &str) -> Option<Self> {
        let Ok(path) = std::env::var("HOLDFAST_E2E_CONTROL_PLANE") else {
            println!("skipped: no control plane of its own (HOLDFAST_E2E_CONTROL_PLANE is not set)");
            return None;
        };
        // A second test of the same process finds the provider installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&path).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let client = Client::try_from(config.expect("a config")).expect("a client");
        let suffix = format!("{test}-{:08x}", fresh());
        let lab = Self {
            client,
            namespace: format!("cli-{suffix}"),
            suffix,
            kubeconfig: path.into(),
            made: std::sync::Mutex::default(),
        };
        lab.define().await;
        lab.apply(
            "Namespace",
            "v1",
            "namespaces",
            json!({ "metadata": { "name": lab.namespace } }),
        )
        .await;
        Some(lab)
    }

    /// The kinds, and the chart's role for accountants; each test finds or makes the same.
    async fn define(&self) {
        for definition in holdfast_api::crd::platform()
            .into_iter()
            .chain(holdfast_api::crd::all())
        {
            if definition.spec.group.ends_with("cozystack.io") {
                let value = serde_json::to_value(definition).expect("JSON");
                let kind = "CustomResourceDefinition";
                self.apply(
                    kind,
                    "apiextensions.k8s.io/v1",
                    "customresourcedefinitions",
                    value,
                )
                .await;
            }
        }
        let chart = include_str!("../../../../charts/holdfast/templates/ledger-roles.yaml");
        let plain: Vec<&str> = chart.lines().filter(|line| !line.contains("{{")).collect();
        for document in plain.join("\n").split("\n---\n") {
            let mut role: Value = serde_saphyr::from_str(document).expect("YAML");
            role["metadata"] = json!({ "name": role["metadata"]["name"] });
            self.apply("ClusterRole", &format!("{RBAC}/v1"), "clusterroles", role)
                .await;
        }
        for (version, kind, plural) in [
            (
                format!("{}/v1alpha1", names::LEDGER_GROUP),
                "Artifact",
                "artifacts",
            ),
            (
                format!("{}/v1alpha1", names::LEDGER_GROUP),
                "BackupStore",
                "backupstores",
            ),
            (format!("{}/v1alpha1", names::STRATEGY_GROUP), "Etcd", "etcds"),
        ] {
            let api: Api<DynamicObject> =
                Api::all_with(self.client.clone(), &resource(&version, kind, plural));
            self.until(&format!("{plural} to be served"), async || {
                api.list(&Default::default()).await.is_ok()
            })
            .await;
        }
    }

    async fn apply(&self, kind: &str, api_version: &str, plural: &str, mut value: Value) {
        value["apiVersion"] = json!(api_version);
        value["kind"] = json!(kind);
        let resource = resource(api_version, kind, plural);
        let api: Api<DynamicObject> = match value["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let name = value["metadata"]["name"].as_str().expect("a name").to_owned();
        let params = PatchParams::apply("tests").force();
        api.patch(&name, &params, &Patch::Apply(&value))
            .await
            .expect("applied");
        if name.contains(&self.suffix) && value["metadata"]["namespace"].is_null() {
            self.made.lock().expect("no panic").push((resource, name));
        }
    }

    /// A record of an Etcd Backup; of one that is gone if `left`. Answers its name.
    pub async fn record(&self, name: &str, bytes: i64, left: bool) -> String {
        let record = record(&self.namespace, name, bytes, left);
        let api: Api<Artifact> = Api::all(self.client.clone());
        let object = Artifact {
            status: None,
            ..convert::artifact(&record)
        };
        api.create(&PostParams::default(), &object)
            .await
            .expect("created");
        let patch = Patch::Merge(json!({ "status": convert::status(&record) }));
        api.patch_status(&record.name, &PatchParams::default(), &patch)
            .await
            .expect("told");
        let kind = resource(
            &format!("{}/v1alpha1", names::LEDGER_GROUP),
            "Artifact",
            "artifacts",
        );
        self.made
            .lock()
            .expect("no panic")
            .push((kind, record.name.clone()));
        record.name
    }

    /// A quota with a limit of size, and what the operator has published into it.
    pub async fn quota(&self, hard: &str, used: &str, breakdown: &str) {
        let metadata = json!({
            "name": "cap", "namespace": self.namespace, "annotations": { names::BREAKDOWN: breakdown },
        });
        let spec = json!({ "hard": { names::QUOTA_SIZE: hard } });
        self.apply(
            "ResourceQuota",
            "v1",
            "resourcequotas",
            json!({ "metadata": metadata, "spec": spec }),
        )
        .await;
        let quotas: Api<k8s_openapi::api::core::v1::ResourceQuota> =
            Api::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({ "status": { "used": { names::QUOTA_SIZE: used } } }));
        quotas
            .patch_status("cap", &PatchParams::default(), &patch)
            .await
            .expect("published");
    }

    /// An Etcd strategy, with a declaration. Answers its name.
    pub async fn strategy(&self, name: &str, declaration: Option<&str>) -> String {
        let name = format!("{name}-{}", self.suffix);
        let mut metadata = json!({ "name": name });
        if let Some(text) = declaration {
            metadata["annotations"] = json!({ names::CAPABILITIES: text });
        }
        let version = format!("{}/v1alpha1", names::STRATEGY_GROUP);
        self.apply(
            "Etcd",
            &version,
            "etcds",
            json!({ "metadata": metadata, "spec": {} }),
        )
        .await;
        name
    }

    /// Somebody with these rights.
    pub async fn user(&self, rights: Rights) -> User {
        let name = format!("{rights:?}-{}", self.suffix).to_lowercase();
        let version = format!("{RBAC}/v1");
        let subjects = json!([{ "apiGroup": RBAC, "kind": "User", "name": name }]);
        let bind = |role: &str, kind: &str| json!({ "apiGroup": RBAC, "kind": kind, "name": role });
        match rights {
            Rights::Accountant | Rights::Patcher => {
                let mut role = "holdfast-accountant".to_owned();
                if rights == Rights::Patcher {
                    role.clone_from(&name);
                    let rules = json!([
                        { "apiGroups": [names::LEDGER_GROUP], "resources": ["artifacts"], "verbs": ["get", "list"] },
                        { "apiGroups": [names::LEDGER_GROUP], "resources": ["artifacts/status"], "verbs": ["get", "patch"] },
                    ]);
                    let value = json!({ "metadata": { "name": name }, "rules": rules });
                    self.apply("ClusterRole", &version, "clusterroles", value).await;
                }
                let value = json!({
                    "metadata": { "name": name }, "roleRef": bind(&role, "ClusterRole"), "subjects": subjects,
                });
                self.apply("ClusterRoleBinding", &version, "clusterrolebindings", value)
                    .await;
            }
            Rights::Tenant => {
                let metadata = json!({ "name": name, "namespace": self.namespace });
                let rules =
                    json!([{ "apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["get", "list"] }]);
                let role = json!({ "metadata": metadata, "rules": rules });
                self.apply("Role", &version, "roles", role).await;
                let binding =
                    json!({ "metadata": metadata, "roleRef": bind(&name, "Role"), "subjects": subjects });
                self.apply("RoleBinding", &version, "rolebindings", binding).await;
            }
            Rights::None => {}
        }
        let user = User {
            kubeconfig: self.kubeconfig_of(&name),
            namespace: self.namespace.clone(),
            name,
        };
        // Roles are in force a moment after they were made.
        let first: &[&str] = match rights {
            Rights::Accountant => &["quota", "-o", "json"],
            Rights::Patcher => &["quota", "write-off", "no-such-record", "--yes"],
            Rights::Tenant => &["quota", "-o", "json"],
            Rights::None => return user,
        };
        self.until("the rights to be in force", async || user.run(first).code != 3)
            .await;
        user
    }

    /// The administrator's kubeconfig, that speaks for somebody else.
    fn kubeconfig_of(&self, name: &str) -> PathBuf {
        let text = std::fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        let mut value: Value = serde_saphyr::from_str(&text).expect("YAML");
        for user in value["users"].as_array_mut().expect("users") {
            user["user"]["as"] = json!(name);
        }
        let path = std::env::temp_dir().join(format!("holdfast-{name}.kubeconfig"));
        std::fs::write(&path, value.to_string()).expect("written");
        path
    }

    async fn until(&self, what: &str, mut is: impl AsyncFnMut() -> bool) {
        let started = Instant::now();
        while !is().await {
            assert!(started.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Takes away what the test made.
    pub async fn end(self) {
        for (resource, name) in self.made.into_inner().expect("no panic") {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            api.delete(&name, &DeleteParams::default())
                .await
                .expect("deleted");
        }
    }
}

/// What the operator would have written.
fn record(namespace: &str, name: &str, bytes: i64, left: bool) -> Record {
    let kind = "Etcd".to_owned();
    let group = names::STRATEGY_GROUP.to_owned();
    let fact = BackupFact {
        uid: format!("uid-{namespace}-{name}"),
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        namespace_uid: None,
        created_at: Timestamp::now(),
        in_force: capability::in_force(&group, &group, &kind, None).0,
        strategy: StrategyKind { group, kind },
        application: Application {
            group: "apps.cozystack.io".to_owned(),
            kind: "Etcd".to_owned(),
            name: "control".to_owned(),
        },
        uri: Some(format!("s3://shared-archive/{namespace}/control/{name}.db")),
        driver_metadata: BTreeMap::new(),
        size_bytes: Some(bytes),
    };
    let mut ledger = Ledger::default();
    let now = Timestamp::now();
    for change in backup_seen(&ledger, &fact, now) {
        ledger.apply(&change);
    }
    if left {
        for change in backup_gone(&ledger, &fact.uid, Left::Deleted, now) {
            ledger.apply(&change);
        }
    }
    let record = ledger.get(&fact.identity().record_name());
    record.expect("recorded").clone()
}

fn fresh() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() & 0xffff_ffff
}
