//! The objects that people would write, as JSON.

use holdfast_api::names;
use holdfast_api::repository::Engine;
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};

/// Key of the password in the Secrets that are made here.
pub const PASSWORD_KEY: &str = names::PASSWORD_KEY;
/// The user that movers run as, and that owns what they read and write here.
pub const USER: i64 = 65_532;
/// A cron pattern that does not come due while anything here runs.
pub const ONCE_A_YEAR: &str = "0 3 29 2 *";

/// A namespace that admits restricted pods only.
#[must_use]
pub fn namespace(name: &str, label: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": {
        "pod-security.kubernetes.io/enforce": "restricted",
        "holdfast.test/part": label,
    } } })
}

/// The Secret of a repository.
#[must_use]
pub fn secret(namespace: &str, name: &str, password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name, "namespace": namespace },
        "stringData": { PASSWORD_KEY: password },
    })
}

/// Password of every repository here.
pub const PASSWORD: &str = "correct horse battery staple";

static CHOSEN: Mutex<Option<Engine>> = Mutex::new(None);

/// From now on every repository here is of this engine, whatever the environment says.
pub fn choose(engine: Engine) {
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(engine);
}

/// The engine of every repository here: the one that was chosen, else what `HOLDFAST_E2E_ENGINE` names, else Restic. Kopia
/// needs a mover image with the program in it (`KOPIA_BIN` when the images are built).
///
/// # Panics
/// When it names no engine.
#[must_use]
pub fn engine() -> Engine {
    let chosen = *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    chosen.unwrap_or_else(|| match std::env::var("HOLDFAST_E2E_ENGINE").as_deref() {
        Ok("Kopia") => Engine::Kopia,
        Ok("" | "Restic") | Err(_) => Engine::Restic,
        Ok(other) => panic!("HOLDFAST_E2E_ENGINE is `{other}`; set it to Kopia or Restic"),
    })
}

/// Whether deletions from the repositories here need them to themselves, so that backups and delete Jobs wait for each
/// other (`docs/design.md` 3.6). On the others a backup is asked for nothing.
#[must_use]
pub fn deletes_need_silence() -> bool {
    match engine() {
        Engine::Kopia => true,
        Engine::Restic | Engine::Unknown => false,
    }
}

/// Whether snapshots of the repositories here have hard links and named pipes, and whether a restore from them tells what
/// it could not set (`docs/restore.md`, "What comes back").
#[must_use]
pub fn keeps_every_kind_of_file() -> bool {
    match engine() {
        Engine::Restic => true,
        Engine::Kopia | Engine::Unknown => false,
    }
}

/// A claim of the default class.
#[must_use]
pub fn claim(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    })
}

/// A repository on a claim; `threshold` none leaves the default.
#[must_use]
pub fn repository(namespace: &str, name: &str, claim: &str, secret: &str, threshold: Option<u32>) -> Value {
    let protection = threshold.map(|threshold| json!({ "threshold": threshold }));
    json!({
        "apiVersion": names::API_VERSION, "kind": "Repository",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "engine": engine(),
            "backend": { "filesystem": { "path": "/", "volume": { "pvc": { "name": claim } } } },
            "encryption": { "passwordSecretRef": { "name": secret } },
            "create": { "enabled": true },
            "deletionProtection": protection.unwrap_or_else(|| json!({})),
        },
    })
}

/// A repository in a bucket, without TLS; the Secret holds keys and password.
#[must_use]
pub fn repository_in_bucket(
    namespace: &str,
    name: &str,
    endpoint: &str,
    prefix: &str,
    secret: &str,
) -> Value {
    let mut object = repository(namespace, name, "", secret, None);
    object["spec"]["backend"] = json!({ "s3": {
        "bucket": crate::standin::BUCKET,
        "prefix": prefix,
        "endpoint": endpoint,
        "tls": { "disableTls": true },
        "auth": { "secretRef": { "name": secret } },
    } });
    object
}

/// The same as a ClusterRepository for namespaces of which `allowed` says which; its Secrets are in the operator's namespace.
#[must_use]
pub fn shared(mut repository: Value, allowed: Value) -> Value {
    let home = json!(names::OPERATOR_NAMESPACE);
    repository["kind"] = json!("ClusterRepository");
    repository["metadata"] = json!({ "name": repository["metadata"]["name"] });
    repository["spec"]["allowedNamespaces"] = allowed;
    if let Some(bucket) = repository["spec"]["backend"].get_mut("s3") {
        bucket["auth"]["secretRef"]["namespace"] = home.clone();
    }
    repository["spec"]["encryption"]["passwordSecretRef"]["namespace"] = home;
    repository
}

/// How many digits the id of a snapshot has.
#[must_use]
pub fn id_length() -> usize {
    match engine() {
        Engine::Kopia => 32,
        Engine::Restic | Engine::Unknown => 64,
    }
}

/// A policy for one claim.
#[must_use]
pub fn policy(namespace: &str, name: &str, repository: &str, claim: &str, keep: Option<u32>) -> Value {
    let mut spec = json!({
        "repository": { "name": repository },
        "sources": [{ "pvc": { "name": claim } }],
    });
    if let Some(keep) = keep {
        spec["retention"] = json!({ "keepLatest": keep });
    }
    json!({
        "apiVersion": names::API_VERSION, "kind": "SnapshotPolicy",
        "metadata": { "name": name, "namespace": namespace },
        "spec": spec,
    })
}

/// A schedule that does not come due here; `now` asks for one run at its creation.
#[must_use]
pub fn schedule(namespace: &str, name: &str, policy: &str, now: bool, on_delete: Option<&str>) -> Value {
    let mut spec = json!({
        "policyRef": { "name": policy },
        "schedule": { "cron": ONCE_A_YEAR, "runOnCreate": now },
    });
    if let Some(on_delete) = on_delete {
        spec["deletion"] = json!({ "onScheduleDelete": on_delete });
    }
    json!({
        "apiVersion": names::API_VERSION, "kind": "SnapshotSchedule",
        "metadata": { "name": name, "namespace": namespace },
        "spec": spec,
    })
}

/// A Snapshot that a person makes.
#[must_use]
pub fn snapshot(namespace: &str, name: &str, policy: &str) -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "Snapshot",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "policyRef": { "name": policy } },
    })
}

/// A Job of one unprivileged container that runs `script` with the claims mounted below `/volumes`.
#[must_use]
pub fn shell_job(namespace: &str, name: &str, image: &str, claims: &[String], script: &str) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .enumerate()
        .map(|(n, claim)| json!({ "name": format!("v{n}"), "persistentVolumeClaim": { "claimName": claim } }))
        .collect();
    let mounts: Vec<Value> = claims
        .iter()
        .enumerate()
        .map(|(n, claim)| json!({ "name": format!("v{n}"), "mountPath": format!("/volumes/{claim}") }))
        .collect();
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "backoffLimit": 2, "template": { "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "securityContext": pod_security(),
            "containers": [{
                "name": "main",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script],
                "securityContext": container_security(),
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
        } } },
    })
}

/// What a restricted namespace asks of a pod.
#[must_use]
pub fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

/// What a restricted namespace asks of a container.
#[must_use]
pub fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}
