//! A namespace, users with rights of their own, and what the API server answered them.
//!
//! **Promises.** The namespace and everything cluster-wide has a random suffix and is removed, whatever became of
//! the test. **Assumes.** The chart is installed, with its admission policies; whether the operator runs does not
//! matter.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use holdfast_api::names;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::gvk::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, Config};
use serde_json::{Value, json};

/// How long a policy or a right may take to be in force.
const IN_FORCE: Duration = Duration::from_secs(30);
/// A finalizer that no operator removes.
pub const FINALIZER: &str = "holdfast.test/hold";
/// The Repository and the Snapshot of the namespace.
pub const NAME: &str = "mine";

/// What the API server answered.
pub type Answer = Result<DynamicObject, kube::Error>;

/// The API of `kind` in `namespace`; none: cluster-wide.
fn api(client: &Client, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = match kind {
        "Job" => ("batch", "v1"),
        "Namespace" | "Secret" => ("", "v1"),
        "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "v1"),
        "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => {
            ("admissionregistration.k8s.io", "v1")
        }
        "Artifact" | "BackupStore" => (names::LEDGER_GROUP, "v1alpha1"),
        "Backup" => (names::BACKUPS_GROUP, names::BACKUPS_VERSION),
        _ => (names::GROUP, names::VERSION),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// One who asks the API server.
#[derive(Clone)]
pub struct User {
    /// The name that the API server knows.
    pub name: String,
    client: Client,
    namespace: String,
    dry: bool,
}

impl User {
    /// The same, whose writes are only tried.
    #[must_use]
    pub fn dry(&self) -> Self {
        Self {
            dry: true,
            ..self.clone()
        }
    }

    /// The API of `kind` as this user.
    #[must_use]
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let wide = kind.starts_with("Cluster")
            || kind.starts_with("Validating")
            || ["Namespace", "Artifact", "BackupStore"].contains(&kind);
        api(&self.client, kind, (!wide).then_some(self.namespace.as_str()))
    }

    fn params(&self) -> PatchParams {
        PatchParams {
            dry_run: self.dry,
            ..PatchParams::default()
        }
    }

    /// Creates `object`.
    pub async fn create(&self, object: Value) -> Answer {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        let params = PostParams {
            dry_run: self.dry,
            ..PostParams::default()
        };
        self.api(&kind).create(&params, &object).await
    }

    /// Merges `change` into an object.
    pub async fn patch(&self, kind: &str, name: &str, change: Value) -> Answer {
        self.api(kind)
            .patch(name, &self.params(), &Patch::Merge(change))
            .await
    }

    /// Sets an annotation.
    pub async fn annotate(&self, kind: &str, name: &str, key: &str, value: Value) -> Answer {
        self.patch(
            kind,
            name,
            json!({ "metadata": { "annotations": { key: value } } }),
        )
        .await
    }

    /// Merges `status` into an object's status.
    pub async fn patch_status(&self, kind: &str, name: &str, status: Value) -> Answer {
        self.api(kind)
            .patch_status(name, &self.params(), &Patch::Merge(json!({ "status": status })))
            .await
    }

    /// Applies `object`, creating it if there is none.
    pub async fn apply(&self, object: Value) -> Answer {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams {
            dry_run: self.dry,
            ..PatchParams::apply("someone").force()
        };
        self.api(kind).patch(name, &params, &Patch::Apply(&object)).await
    }

    /// Deletes an object and takes its finalizers away; then it is gone.
    pub async fn delete_for_good(&self, kind: &str, name: &str) -> Result<()> {
        let api = self.api(kind);
        api.delete(name, &DeleteParams::background())
            .await
            .with_context(|| format!("{kind} {name} could not be deleted"))?;
        match self
            .patch(kind, name, json!({ "metadata": { "finalizers": null } }))
            .await
        {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => bail!("the finalizers of {kind} {name} could not be removed: {error}"),
        }
        let there = api.get_opt(name).await?;
        ensure!(there.is_none(), "{kind} {name} is still there: {there:?}");
        Ok(())
    }
}

/// A namespace with a Repository and a Snapshot in it, a ClusterRepository, and their users.
pub struct World {
    /// The namespace.
    pub namespace: String,
    /// An administrator of the cluster.
    pub admin: User,
    /// May get, create, update, patch and delete Snapshots, repositories and Jobs, statuses too.
    pub editor: User,
    /// The operator's ServiceAccount.
    pub operator: User,
    kubeconfig: Kubeconfig,
}

impl World {
    /// One more user, who has the rights of the editor.
    pub async fn user(&self, name: &str) -> Result<User> {
        let name = format!("{name}-{}", self.namespace);
        self.bind(&name, "ClusterRoleBinding", &self.namespace, "all")
            .await?;
        let user = as_user(&self.kubeconfig, &self.namespace, Some(&name)).await?;
        self.until("the user's rights", async || {
            let answer = user.dry().annotate("Repository", NAME, "a", json!("b")).await;
            let other = user
                .dry()
                .annotate("ClusterRepository", &self.namespace, "a", json!("b"))
                .await;
            answer.is_ok() && other.is_ok()
        })
        .await?;
        Ok(user)
    }

    /// One more user, who has no right at all.
    pub async fn nobody(&self, name: &str) -> Result<User> {
        let name = format!("{name}-{}", self.namespace);
        as_user(&self.kubeconfig, &self.namespace, Some(&name)).await
    }

    /// Installs the platform's definitions, if they are missing.
    pub async fn platform(&self) -> Result<()> {
        holdfast_e2e::platform::install(&self.admin.client).await
    }

    /// Gives `user` a ClusterRole, in the namespace or in the whole cluster.
    pub async fn bind(&self, user: &str, kind: &str, role: &str, suffix: &str) -> Result<()> {
        self.admin
            .create(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": { "name": format!("{user}-{suffix}"), "labels": { "holdfast.test/world": self.namespace } },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
            }))
            .await?;
        Ok(())
    }

    /// Creates a ClusterRole that goes with the world.
    pub async fn role(&self, name: &str, rules: Value) -> Result<()> {
        self.admin
            .create(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": { "name": name, "labels": { "holdfast.test/world": self.namespace } },
                "rules": rules,
            }))
            .await?;
        Ok(())
    }

    /// Waits until `look` says yes.
    pub async fn until(&self, what: &str, look: impl AsyncFn() -> bool) -> Result<()> {
        let started = Instant::now();
        while !look().await {
            ensure!(started.elapsed() < IN_FORCE, "waited {IN_FORCE:?} for {what}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// A repository of `kind`, with `more` merged into its spec.
    pub fn repository(&self, kind: &str, name: &str, more: &Value) -> Value {
        let mut object = json!({
            "apiVersion": names::API_VERSION, "kind": kind, "metadata": { "name": name },
            "spec": {
                "engine": "Restic",
                "backend": { "filesystem": { "volume": { "pvc": { "name": "none" } } } },
                "encryption": { "passwordSecretRef": { "name": "none" } },
            },
        });
        if kind == "ClusterRepository" {
            object["spec"]["allowedNamespaces"] = json!({ "list": [self.namespace] });
            object["spec"]["encryption"]["passwordSecretRef"]["namespace"] = json!(self.namespace);
            object["metadata"]["labels"] = json!({ "holdfast.test/world": self.namespace });
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        object
    }

    /// A policy that backs up nothing there is.
    pub fn policy(&self, name: &str) -> Value {
        json!({
            "apiVersion": names::API_VERSION, "kind": "SnapshotPolicy", "metadata": { "name": name },
            "spec": { "repository": { "name": "none" }, "sources": [{ "pvc": { "name": "none" } }] },
        })
    }

    async fn prepare(&self) -> Result<()> {
        let ns = &self.namespace;
        self.admin
            .create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": ns } }))
            .await?;
        let edit = ["get", "list", "watch", "create", "update", "patch", "delete"];
        self.role(
            ns,
            json!([
                { "apiGroups": [names::GROUP], "verbs": edit, "resources": [
                    "snapshots", "snapshots/status", "repositories", "repositories/status",
                    "clusterrepositories", "clusterrepositories/status", "snapshotpolicies"] },
                { "apiGroups": ["batch"], "verbs": edit, "resources": ["jobs"] },
            ]),
        )
        .await?;
        self.bind(&self.editor.name, "ClusterRoleBinding", ns, "all")
            .await?;
        self.admin
            .create(self.repository("Repository", NAME, &json!({})))
            .await?;
        self.admin
            .create(self.repository("ClusterRepository", ns, &json!({})))
            .await?;
        self.admin.create(self.policy(NAME)).await?;
        self.admin.create(snapshot(NAME, json!({}))).await?;
        self.policies_are_in_force().await
    }

    /// Until each policy refuses something that it has to refuse; nothing is written.
    async fn policies_are_in_force(&self) -> Result<()> {
        let editor = self.editor.dry();
        let forged = json!({ "uniqueId": "forged", "deletion": { "job": "forged" } });
        self.until("the policies, which the chart installs, to refuse", async || {
            let answers = [
                editor
                    .annotate("Snapshot", NAME, names::PRUNED_BY, json!("retention"))
                    .await,
                editor
                    .annotate("Repository", NAME, names::ALLOW_MASS_DELETION, json!("x"))
                    .await,
                editor
                    .annotate("SnapshotPolicy", NAME, names::ALLOW_MASS_PRUNE, json!("1"))
                    .await,
                editor.patch_status("Repository", NAME, forged.clone()).await,
                editor.patch_status("Snapshot", NAME, forged.clone()).await,
                editor.create(batch_job("forged")).await,
            ];
            answers.iter().all(|answer| policy(answer).is_some())
        })
        .await
    }

    async fn remove(&self) -> Result<()> {
        let all = ListParams::default();
        let mine = all
            .clone()
            .labels(&format!("holdfast.test/world={}", self.namespace));
        for (kind, which) in [
            ("ClusterRoleBinding", &mine),
            ("ClusterRole", &mine),
            ("ClusterRepository", &mine),
            ("BackupStore", &mine),
            ("Job", &all),
            ("Repository", &all),
            ("SnapshotPolicy", &all),
            ("Snapshot", &all),
        ] {
            for object in self.admin.api(kind).list(which).await? {
                let name = object.metadata.name.unwrap_or_default();
                self.admin.delete_for_good(kind, &name).await?;
            }
        }
        // An operator that runs writes them again, as it should.
        for record in self.admin.api("Artifact").list(&mine).await? {
            let name = record.metadata.name.unwrap_or_default();
            self.operator
                .api("Artifact")
                .delete(&name, &DeleteParams::default())
                .await?;
        }
        self.admin
            .api("Namespace")
            .delete(&self.namespace, &DeleteParams::default())
            .await?;
        Ok(())
    }
}

/// Runs `test` in a world of its own, or says that it was skipped.
pub async fn with(name: &str, test: impl AsyncFnOnce(&World) -> Result<()>) -> Result<()> {
    let path = match std::env::var_os("HOLDFAST_E2E_KUBECONFIG").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cluster/kubeconfig"),
    };
    if !path.exists() {
        println!(
            "skipped: no cluster (run `cargo xtask cluster up` and `cargo xtask deploy`, or set HOLDFAST_E2E_KUBECONFIG)"
        );
        return Ok(());
    }
    // Another test of the process may have done so already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(&path).context("the kubeconfig cannot be read")?;
    let random = jiff::Timestamp::now().as_nanosecond() % 0x1_0000_0000;
    let namespace = format!("who-may-{name}-{random:08x}");
    let operator = format!(
        "system:serviceaccount:{}:holdfast-operator",
        names::OPERATOR_NAMESPACE
    );
    let world = World {
        admin: as_user(&kubeconfig, &namespace, None).await?,
        editor: as_user(&kubeconfig, &namespace, Some(&format!("editor-{namespace}"))).await?,
        operator: as_user(&kubeconfig, &namespace, Some(&operator)).await?,
        namespace,
        kubeconfig,
    };
    let result = match world.prepare().await {
        Ok(()) => test(&world).await,
        Err(error) => Err(error),
    };
    let removed = world.remove().await.context("the world could not be removed");
    result.and(removed)
}

async fn as_user(kubeconfig: &Kubeconfig, namespace: &str, name: Option<&str>) -> Result<User> {
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await?;
    config.auth_info.impersonate = name.map(str::to_owned);
    Ok(User {
        name: name.unwrap_or("an administrator").to_owned(),
        client: Client::try_from(config)?,
        namespace: namespace.to_owned(),
        dry: false,
    })
}

/// A Snapshot with these annotations and a finalizer that no operator removes.
pub fn snapshot(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "Snapshot",
        "metadata": { "name": name, "annotations": annotations, "finalizers": [FINALIZER] },
        "spec": { "policyRef": { "name": "none" } },
    })
}

/// A suspended Job.
pub fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "labels": {}, "finalizers": [FINALIZER] },
        "spec": { "suspend": true, "template": {
            "metadata": { "annotations": { "work": "nothing" } },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "one", "image": "none.invalid/none" }] },
        } },
    })
}

/// The same, labelled as one that deletes snapshots.
pub fn batch_job(name: &str) -> Value {
    let mut job = job(name);
    job["metadata"]["labels"][names::OP_LABEL] = json!(names::OP_DELETE_BATCH);
    job["metadata"]["annotations"] = json!({ names::DELETE_MEMBERS: "a,b" });
    job
}

/// The sentence with which one of our policies refused, if one did.
fn policy(answer: &Answer) -> Option<&str> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => status
            .message
            .contains("ValidatingAdmissionPolicy 'holdfast-")
            .then_some(status.message.as_str()),
        _ => None,
    }
}

/// It was refused, by one of our policies, with a sentence that has all of `words` in it.
pub fn refused(what: &str, answer: Answer, words: &[&str]) -> Result<()> {
    let Some(message) = policy(&answer) else {
        bail!("{what} was not refused by a policy: {answer:?}");
    };
    for word in words {
        ensure!(
            message.contains(word),
            "{what}: the refusal does not say {word}: {message}"
        );
    }
    Ok(())
}

/// It was not refused.
pub fn allowed(what: &str, answer: Answer) -> Result<DynamicObject> {
    answer.with_context(|| format!("{what} was refused"))
}
