//! The Job object of a mover.

use holdfast_api::names;
use holdfast_protocol::work::WorkDocument;
use holdfast_protocol::{
    REPOSITORY_DIR, RESTORE_DIR, SECRET_DIR, SOURCE_DIR, TOKEN_AUDIENCE, TOKEN_PATH, WORK_ANNOTATION,
    WORK_LIMIT, WORK_PATH,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// User and group that movers run as.
pub const MOVER_UID: i64 = 65_532;

/// What a mover Job needs.
#[derive(Debug, Clone)]
pub struct Mover {
    /// Name of the Job.
    pub name: String,
    /// Where it runs.
    pub namespace: String,
    /// Value of the label `op`.
    pub op: &'static str,
    /// UID of the object it works for.
    pub owner_uid: String,
    /// Value of the annotation `works-for`.
    pub works_for: String,
    /// Owner, for garbage collection; none for batch Jobs (`docs/design.md` 3.6).
    pub owner: Option<OwnerReference>,
    /// What to do.
    pub document: WorkDocument,
    /// Mover image.
    pub image: String,
    /// Pull policy of it.
    pub pull_policy: String,
    /// Claim of the filesystem repository.
    pub repository_claim: String,
    /// Secret with the password.
    pub secret: String,
    /// Key in it.
    pub secret_key: String,
    /// Claims to mount read-only below [`SOURCE_DIR`].
    pub sources: Vec<String>,
    /// Retries by the Job controller.
    pub backoff_limit: i32,
    /// Seconds after which the Job is ended.
    pub active_deadline_seconds: i64,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// Further annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Why a Job cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The work document would not fit the annotation.
    #[error("the work document has {0} bytes, at most {WORK_LIMIT} fit; make the batch smaller")]
    TooLarge(usize),
    /// Not JSON.
    #[error("the Job cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Mover {
    /// The Job.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn job(&self) -> Result<Job, BuildError> {
        let document = serde_json::to_string(&self.document)?;
        if document.len() > WORK_LIMIT {
            return Err(BuildError::TooLarge(document.len()));
        }
        let mut labels = self.labels.clone();
        labels.insert(names::MANAGED_BY_LABEL.into(), names::MANAGED_BY.into());
        labels.insert(names::OP_LABEL.into(), self.op.into());
        labels.insert(names::OWNER_UID_LABEL.into(), self.owner_uid.clone());
        let mut annotations = self.annotations.clone();
        annotations.insert(names::WORKS_FOR.into(), self.works_for.clone());
        let (volumes, mounts) = self.volumes();
        let job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": self.owner.iter().collect::<Vec<_>>(),
            },
            "spec": {
                "backoffLimit": self.backoff_limit,
                "activeDeadlineSeconds": self.active_deadline_seconds,
                // A pod that the cluster evicted says nothing about the work.
                "podFailurePolicy": { "rules": [
                    { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
                ]},
                "template": {
                    "metadata": { "labels": labels, "annotations": { WORK_ANNOTATION: document } },
                    "spec": {
                        "restartPolicy": "Never",
                        "serviceAccountName": names::MOVER_SERVICE_ACCOUNT,
                        "automountServiceAccountToken": false,
                        "enableServiceLinks": false,
                        "terminationGracePeriodSeconds": 10,
                        "securityContext": {
                            "runAsNonRoot": true,
                            "runAsUser": MOVER_UID,
                            "runAsGroup": MOVER_UID,
                            "fsGroup": MOVER_UID,
                            "fsGroupChangePolicy": "OnRootMismatch",
                            "seccompProfile": { "type": "RuntimeDefault" },
                        },
                        "containers": [{
                            "name": "mover",
                            "image": self.image,
                            "imagePullPolicy": self.pull_policy,
                            "securityContext": {
                                "allowPrivilegeEscalation": false,
                                "readOnlyRootFilesystem": true,
                                "capabilities": { "drop": ["ALL"] },
                            },
                            "terminationMessagePolicy": "File",
                            "volumeMounts": mounts,
                        }],
                        "volumes": volumes,
                    },
                },
            },
        });
        Ok(serde_json::from_value(job)?)
    }

    /// The Job of a mover that only reads the repository: its volume is mounted read-only, whatever the engine. With a
    /// target, that claim is mounted writable below [`RESTORE_DIR`].
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn reading_job(&self, target: Option<&str>) -> Result<Job, BuildError> {
        let mut job = self.job()?;
        let pod = job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
        let Some(pod) = pod else {
            return Ok(job);
        };
        if let Some(claim) = target {
            let volume = json!({ "name": "target", "persistentVolumeClaim": { "claimName": claim } });
            pod.volumes
                .get_or_insert_default()
                .push(serde_json::from_value(volume)?);
        }
        for container in &mut pod.containers {
            let mounts = container.volume_mounts.get_or_insert_default();
            for mount in mounts.iter_mut().filter(|m| m.mount_path == REPOSITORY_DIR) {
                mount.read_only = Some(true);
            }
            if target.is_some() {
                let mount = json!({ "name": "target", "mountPath": RESTORE_DIR });
                mounts.push(serde_json::from_value(mount)?);
            }
        }
        Ok(job)
    }

    fn volumes(&self) -> (Vec<Value>, Vec<Value>) {
        let parts = |path: &'static str| {
            let path = Path::new(path);
            let text =
                |p: Option<&std::ffi::OsStr>| p.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
            (
                path.parent()
                    .map(|p| p.to_string_lossy().into_owned())
                    .unwrap_or_default(),
                text(path.file_name()),
            )
        };
        let (work_dir, work_file) = parts(WORK_PATH);
        let (token_dir, token_file) = parts(TOKEN_PATH);
        let field = format!("metadata.annotations['{WORK_ANNOTATION}']");
        let mut volumes = vec![
            json!({ "name": "work", "downwardAPI": { "items": [{ "path": work_file, "fieldRef": { "fieldPath": field } }] } }),
            json!({ "name": "secret", "secret": {
                "secretName": self.secret,
                "defaultMode": 0o440,
                "items": [{ "key": self.secret_key, "path": self.secret_key }],
            }}),
            json!({ "name": "token", "projected": { "defaultMode": 0o440, "sources": [
                { "serviceAccountToken": { "audience": TOKEN_AUDIENCE, "path": token_file, "expirationSeconds": 3600 } },
            ]}}),
            json!({ "name": "tmp", "emptyDir": {} }),
            json!({ "name": "repository", "persistentVolumeClaim": { "claimName": self.repository_claim } }),
        ];
        let mut mounts = vec![
            json!({ "name": "work", "mountPath": work_dir, "readOnly": true }),
            json!({ "name": "secret", "mountPath": SECRET_DIR, "readOnly": true }),
            json!({ "name": "token", "mountPath": token_dir, "readOnly": true }),
            json!({ "name": "tmp", "mountPath": "/tmp" }),
            json!({ "name": "repository", "mountPath": REPOSITORY_DIR }),
        ];
        for (n, claim) in self.sources.iter().enumerate() {
            volumes.push(
                json!({ "name": format!("source-{n}"), "persistentVolumeClaim": { "claimName": claim } }),
            );
            mounts.push(json!({
                "name": format!("source-{n}"),
                "mountPath": format!("{SOURCE_DIR}/{claim}"),
                "readOnly": true,
            }));
        }
        (volumes, mounts)
    }
}

/// Where a filesystem repository of this path is inside a mover.
#[must_use]
pub fn repository_path(path: &str) -> String {
    let inner = path.trim_matches('/');
    if inner.is_empty() {
        REPOSITORY_DIR.to_owned()
    } else {
        format!("{REPOSITORY_DIR}/{inner}")
    }
}
