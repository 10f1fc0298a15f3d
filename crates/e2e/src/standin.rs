//! The systems around Account, stood in for: an S3 server and a backup driver in a namespace of their own.
//!
//! **Promises.** The archives are real objects of a real S3 server; the driver records Backups as the platform's
//! drivers do (`crates/standin`). Both run restricted.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use crate::objects::{USER, namespace};
use crate::wait::{Look, until};
use crate::{Lab, pods, scenario};

/// The image with both programs that the local cluster's node has.
pub const IMAGE: &str = "localhost/holdfast-standin:dev";
/// The image to use: of `HOLDFAST_E2E_STANDIN_IMAGE`, else [`IMAGE`].
#[must_use]
pub fn image() -> String {
    std::env::var("HOLDFAST_E2E_STANDIN_IMAGE").unwrap_or_else(|_| IMAGE.to_owned())
}

/// The bucket that everything goes into.
pub const BUCKET: &str = "shared-archive";
/// The Secret with what to sign in with, in the standins' namespace.
pub const CREDENTIALS: &str = "archive-credentials";
/// Annotation on a BackupJob: how many bytes its archive is to have.
pub const BYTES: &str = "standin.holdfast/bytes";

const PORT: u16 = 9000;

/// Starts the S3 server alone in a new namespace and waits until it runs; answers with its `host:port`. It takes the keys
/// of [`KEYS`].
///
/// # Errors
/// What the API server says, or that it does not start.
pub async fn s3(lab: &Lab, name: &str) -> Result<String> {
    lab.create(namespace(name, "standins")).await?;
    for object in archive(name, &image()) {
        lab.create(object).await?;
    }
    runs(lab, name, "archive").await?;
    Ok(format!("archive.{name}.svc:{PORT}"))
}

/// What the S3 server takes: access key id and secret.
pub const KEYS: (&str, &str) = ("archive", "archive-secret");

async fn runs(lab: &Lab, namespace: &str, deployment: &str) -> Result<()> {
    let deployments: Api<Deployment> = lab.api(namespace);
    until(
        &format!("the {deployment} of the standins to run"),
        Duration::from_secs(120),
        || async {
            let status = deployments.get(deployment).await?.status.unwrap_or_default();
            Ok(match status.available_replicas {
                Some(1..) => Look::Done(()),
                _ => Look::Not(format!("{status:?}")),
            })
        },
    )
    .await
}

/// An S3 server and a driver that runs.
pub struct Standins {
    /// Where they run.
    pub namespace: String,
    /// URL of the S3 server, for pods.
    pub endpoint: String,
    image: String,
}

impl Standins {
    /// Starts both in a new namespace and waits until they run.
    ///
    /// # Errors
    /// What the API server says, or that they do not start.
    pub async fn start(lab: &Lab, name: &str, image: &str) -> Result<Self> {
        lab.create(namespace(name, "standins")).await?;
        let endpoint = format!("http://archive.{name}.svc:{PORT}");
        for object in objects(name, image, &endpoint) {
            lab.create(object).await?;
        }
        for deployment in ["archive", "driver"] {
            runs(lab, name, deployment).await?;
        }
        Ok(Self {
            namespace: name.to_owned(),
            endpoint,
            image: image.to_owned(),
        })
    }

    /// Removes what lies below `path` in the bucket, behind everybody's back.
    ///
    /// # Errors
    /// What the API server says, or that the Job does not succeed.
    pub async fn prune(&self, lab: &Lab, path: &str) -> Result<()> {
        let name = format!("prune-{}", scenario::suffix());
        let args = json!([
            "remove",
            format!("--endpoint={}", self.endpoint),
            format!("--bucket={BUCKET}"),
            path,
        ]);
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "backoffLimit": 2, "template": {
                "spec": pod(&self.image, args, "default", "Never"),
            } },
        });
        pods::run(lab, job, Duration::from_secs(60)).await.map(drop)
    }

    /// Takes both away.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn end(&self, lab: &Lab) -> Result<()> {
        let name = format!("{}-driver", self.namespace);
        let params = DeleteParams::default();
        let bindings: Api<ClusterRoleBinding> = Api::all(lab.client.clone());
        gone(bindings.delete(&name, &params).await)?;
        let roles: Api<ClusterRole> = Api::all(lab.client.clone());
        gone(roles.delete(&name, &params).await)?;
        scenario::remove_namespace(lab, &self.namespace).await
    }
}

fn gone<T>(answer: kube::Result<T>) -> Result<()> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The S3 server.
fn archive(namespace: &str, image: &str) -> Vec<Value> {
    let metadata = |name: &str| json!({ "name": name, "namespace": namespace });
    let credentials = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata(CREDENTIALS),
        "stringData": { "AWS_ACCESS_KEY_ID": KEYS.0, "AWS_SECRET_ACCESS_KEY": KEYS.1 },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata("archive"),
        "spec": { "selector": { "app": "archive" }, "ports": [{ "port": PORT }] },
    });
    let server = deployment(
        metadata("archive"),
        "archive",
        image,
        json!(["s3", "--folder=/archive", format!("--bucket={BUCKET}")]),
        "default",
    );
    vec![credentials, service, server]
}

fn objects(namespace: &str, image: &str, endpoint: &str) -> Vec<Value> {
    let metadata = |name: &str| json!({ "name": name, "namespace": namespace });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("driver") });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": format!("{namespace}-driver") },
        "rules": [
            { "apiGroups": ["backups.cozystack.io"], "resources": ["backupjobs", "backupclasses"],
              "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["backups.cozystack.io"], "resources": ["backupjobs/status"], "verbs": ["patch"] },
            { "apiGroups": ["backups.cozystack.io"], "resources": ["backups"], "verbs": ["create"] },
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("{namespace}-driver") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                     "name": format!("{namespace}-driver") },
        "subjects": [{ "kind": "ServiceAccount", "name": "driver", "namespace": namespace }],
    });
    let driver = deployment(
        metadata("driver"),
        "driver",
        image,
        json!([
            "driver",
            format!("--endpoint={endpoint}"),
            format!("--bucket={BUCKET}")
        ]),
        "driver",
    );
    let mut all = archive(namespace, image);
    all.extend([account, role, binding, driver]);
    all
}

fn deployment(metadata: Value, app: &str, image: &str, args: Value, account: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": app } },
            "template": {
                "metadata": { "labels": { "app": app } },
                "spec": pod(image, args, account, "Always"),
            },
        },
    })
}

fn pod(image: &str, args: Value, account: &str, restart: &str) -> Value {
    json!({
        "serviceAccountName": account,
        "restartPolicy": restart,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumes": [{ "name": "archive", "emptyDir": {} }],
        "containers": [{
            "name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "args": args,
            "envFrom": [{ "secretRef": { "name": CREDENTIALS } }],
            "volumeMounts": [{ "name": "archive", "mountPath": "/archive" }],
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            },
        }],
    })
}
