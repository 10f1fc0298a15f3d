//! The Job object of a mover.

use super::needs::BUCKET_KEYS;
use crate::world::views::RepositoryView;
use holdfast_api::mover::MoverDefaults;
use holdfast_api::names;
use holdfast_api::repository::NfsVolume;
use holdfast_protocol::work::WorkDocument;
use holdfast_protocol::{
    BACKEND_CA, BACKEND_DIR, REPOSITORY_DIR, RESTORE_DIR, SECRET_DIR, SOURCE_DIR, TOKEN_AUDIENCE, TOKEN_PATH,
    WORK_ANNOTATION, WORK_LIMIT, WORK_PATH,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// User and group that movers run as.
pub const MOVER_UID: i64 = 65_532;

/// What is mounted to reach a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// The claim of a filesystem repository.
    Claim(String),
    /// The exported directory of one: the node mounts it, so a namespace that enforces restricted pods refuses it.
    Nfs(NfsVolume),
    /// What a bucket is asked with.
    Bucket {
        /// Secret with the keys.
        secret: String,
        /// ConfigMap with the authorities to trust, and its key.
        authorities: Option<(String, String)>,
    },
}

impl Storage {
    /// Of a repository's backend.
    #[must_use]
    pub fn of(view: &RepositoryView) -> Self {
        match view.s3() {
            None => match view.filesystem().and_then(|f| f.volume.nfs.as_ref()) {
                Some(nfs) => Self::Nfs(nfs.clone()),
                None => Self::Claim(view.claim().unwrap_or_default().to_owned()),
            },
            Some(s3) => Self::Bucket {
                secret: s3.auth.secret_name().to_owned(),
                authorities: s3
                    .tls
                    .as_ref()
                    .and_then(|tls| tls.ca_bundle_ref.as_ref())
                    .map(|bundle| (bundle.config_map_name.clone(), bundle.key.clone())),
            },
        }
    }

    /// The volume with its place.
    fn volume(&self) -> (Value, Value) {
        match self {
            Self::Claim(claim) => (
                json!({ "name": "repository", "persistentVolumeClaim": { "claimName": claim } }),
                json!({ "name": "repository", "mountPath": REPOSITORY_DIR }),
            ),
            Self::Nfs(NfsVolume { server, path }) => (
                json!({ "name": "repository", "nfs": { "server": server, "path": path } }),
                json!({ "name": "repository", "mountPath": REPOSITORY_DIR }),
            ),
            Self::Bucket { secret, authorities } => {
                let entry = |key: &str| json!({ "key": key, "path": key });
                let mut sources = vec![
                    json!({ "secret": { "name": secret, "items": BUCKET_KEYS.map(entry) } }),
                    // Only temporary keys come with one.
                    json!({ "secret": { "name": secret, "items": [entry("AWS_SESSION_TOKEN")], "optional": true } }),
                ];
                if let Some((name, key)) = authorities {
                    sources.push(json!({ "configMap": { "name": name, "items": [{ "key": key, "path": BACKEND_CA }] } }));
                }
                (
                    json!({ "name": "backend", "projected": { "defaultMode": 0o440, "sources": sources } }),
                    json!({ "name": "backend", "mountPath": BACKEND_DIR, "readOnly": true }),
                )
            }
        }
    }
}

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
    /// How its pod is, beside what every mover's is.
    pub settings: MoverDefaults,
    /// What is mounted to reach the repository.
    pub storage: Storage,
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
        let mut job = json!({
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
        apply(&self.settings, &mut job["spec"]["template"]["spec"]);
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
            let volumes = pod.volumes.get_or_insert_default();
            for volume in [
                json!({ "name": "beside-target", "emptyDir": {} }),
                json!({ "name": "target", "persistentVolumeClaim": { "claimName": claim } }),
            ] {
                volumes.push(serde_json::from_value(volume)?);
            }
        }
        for container in &mut pod.containers {
            let mounts = container.volume_mounts.get_or_insert_default();
            for mount in mounts.iter_mut().filter(|m| m.mount_path == REPOSITORY_DIR) {
                mount.read_only = Some(true);
            }
            if target.is_some() {
                let beside = Path::new(RESTORE_DIR).parent().unwrap_or(Path::new("/"));
                for mount in [
                    json!({ "name": "beside-target", "mountPath": beside }),
                    json!({ "name": "target", "mountPath": RESTORE_DIR }),
                ] {
                    mounts.push(serde_json::from_value(mount)?);
                }
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
        ];
        let mut mounts = vec![
            json!({ "name": "work", "mountPath": work_dir, "readOnly": true }),
            json!({ "name": "secret", "mountPath": SECRET_DIR, "readOnly": true }),
            json!({ "name": "token", "mountPath": token_dir, "readOnly": true }),
            json!({ "name": "tmp", "mountPath": "/tmp" }),
        ];
        let (volume, mount) = self.storage.volume();
        volumes.push(volume);
        mounts.push(mount);
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

/// Writes what is set over what every mover's pod has. Root is refused where it is set, or asked for by name and given by
/// [`super::privileged`]; where it got past that, the pod says `runAsNonRoot`.
fn apply(settings: &MoverDefaults, pod: &mut Value) {
    if let Some(context) = &settings.security_context {
        let container = &mut pod["containers"][0]["securityContext"];
        set(container, "runAsUser", context.run_as_user.as_ref());
        set(container, "runAsGroup", context.run_as_group.as_ref());
    }
    if let Some(context) = &settings.pod_security_context {
        let of_pod = &mut pod["securityContext"];
        set(of_pod, "fsGroup", context.fs_group.as_ref());
        set(of_pod, "supplementalGroups", context.supplemental_groups.as_ref());
        let policy = context.fs_group_change_policy.as_ref();
        set(of_pod, "fsGroupChangePolicy", policy);
    }
    if let Some(resources) = &settings.resources {
        let given = &mut pod["containers"][0]["resources"];
        set(given, "limits", resources.limits.as_ref());
        set(given, "requests", resources.requests.as_ref());
    }
    set(pod, "nodeSelector", settings.node_selector.as_ref());
    set(pod, "tolerations", settings.tolerations.as_ref());
}

fn set(object: &mut Value, field: &str, value: Option<&impl serde::Serialize>) {
    if let Some(value) = value {
        object[field] = json!(value);
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

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_api::repository::Repository;
    use holdfast_protocol::work::{EngineKind, Operation, RepositoryAccess};

    fn storage(backend: Value) -> Storage {
        let repository: Repository = serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": "Repository",
            "metadata": { "namespace": "a", "name": "r" },
            "spec": { "backend": backend, "encryption": { "passwordSecretRef": { "name": "password" } } },
        }))
        .unwrap();
        Storage::of(&RepositoryView::namespaced(repository))
    }

    #[test]
    fn a_movers_pod_is_as_it_is_set_and_hardened_all_the_same() {
        let mut pod = json!({
            "securityContext": { "runAsNonRoot": true, "runAsUser": MOVER_UID, "fsGroup": MOVER_UID },
            "containers": [{ "securityContext": { "readOnlyRootFilesystem": true } }],
        });
        let before = pod.clone();
        apply(&MoverDefaults::default(), &mut pod);
        assert_eq!(pod, before, "nothing is set, nothing changes");
        let settings = serde_json::from_value(json!({
            "securityContext": { "runAsUser": 1050, "runAsGroup": 1051 },
            "podSecurityContext": { "fsGroup": 1052, "fsGroupChangePolicy": "Always", "supplementalGroups": [5] },
            "resources": { "limits": { "memory": "1Gi" }, "requests": { "cpu": 1 } },
            "nodeSelector": { "disk": "fast" },
            "tolerations": [{ "key": "backup", "operator": "Exists" }],
        }))
        .unwrap();
        apply(&settings, &mut pod);
        assert_eq!(
            pod,
            json!({
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": MOVER_UID, "fsGroup": 1052,
                    "fsGroupChangePolicy": "Always", "supplementalGroups": [5],
                },
                "containers": [{
                    "securityContext": { "readOnlyRootFilesystem": true, "runAsUser": 1050, "runAsGroup": 1051 },
                    "resources": { "limits": { "memory": "1Gi" }, "requests": { "cpu": 1 } },
                }],
                "nodeSelector": { "disk": "fast" },
                "tolerations": [{ "key": "backup", "operator": "Exists" }],
            })
        );
    }

    #[test]
    fn a_directory_is_mounted_and_of_a_bucket_only_the_keys_that_are_needed() {
        let (volume, mount) =
            storage(json!({ "filesystem": { "volume": { "pvc": { "name": "nas" } } } })).volume();
        assert_eq!(volume["persistentVolumeClaim"]["claimName"], "nas");
        assert_eq!(mount["mountPath"], REPOSITORY_DIR);

        let export = json!({ "server": "nas.example.internal", "path": "/tank/backups" });
        let (volume, mount) = storage(json!({ "filesystem": { "volume": { "nfs": export } } })).volume();
        assert_eq!(volume, json!({ "name": "repository", "nfs": export }));
        assert_eq!(mount["mountPath"], REPOSITORY_DIR);

        let (volume, mount) = storage(json!({ "s3": {
            "bucket": "b", "auth": { "secretRef": { "name": "keys" } },
            "tls": { "caBundleRef": { "configMapName": "internal", "key": "root.pem" } },
        } }))
        .volume();
        assert_eq!(
            mount,
            json!({ "name": "backend", "mountPath": BACKEND_DIR, "readOnly": true })
        );
        let sources = volume["projected"]["sources"].as_array().unwrap();
        assert_eq!(sources.len(), 3);
        assert_eq!(sources[0]["secret"]["name"], "keys");
        assert_eq!(sources[0]["secret"]["items"].as_array().unwrap().len(), 2);
        assert_eq!(sources[1]["secret"]["optional"], true);
        assert_eq!(
            sources[2],
            json!({ "configMap": { "name": "internal", "items": [{ "key": "root.pem", "path": BACKEND_CA }] } })
        );
    }

    /// Kopia removes a placeholder beside the directory it restored, and a root filesystem that is read-only refuses that.
    #[test]
    fn a_target_lies_in_a_writable_directory_and_the_repository_is_only_read() {
        let mover = Mover {
            name: "back-restore".into(),
            namespace: "a".into(),
            op: names::OP_RESTORE,
            owner_uid: "u".into(),
            works_for: "back".into(),
            owner: None,
            document: WorkDocument {
                version: holdfast_protocol::VERSION,
                cluster: "c".into(),
                repository: RepositoryAccess {
                    engine: EngineKind::Kopia,
                    path: REPOSITORY_DIR.into(),
                    bucket: None,
                    password_key: names::PASSWORD_KEY.into(),
                    unique_id: None,
                    user: None,
                },
                operation: Operation::Bootstrap { create: false },
                results: None,
            },
            image: "mover".into(),
            pull_policy: "IfNotPresent".into(),
            settings: MoverDefaults::default(),
            storage: storage(json!({ "filesystem": { "volume": { "pvc": { "name": "nas" } } } })),
            secret: "password".into(),
            secret_key: names::PASSWORD_KEY.into(),
            sources: Vec::new(),
            backoff_limit: 0,
            active_deadline_seconds: 60,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        let mounted = |job: Job| {
            let pod = serde_json::to_value(job).unwrap()["spec"]["template"]["spec"].take();
            assert_eq!(
                pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"],
                true
            );
            let volumes = pod["volumes"].as_array().unwrap().clone();
            let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap().clone();
            move |path: &str| {
                let mount = mounts.iter().find(|m| m["mountPath"] == path)?.clone();
                let volume = volumes.iter().find(|v| v["name"] == mount["name"]).unwrap();
                Some((mount, volume.clone()))
            }
        };
        let restoring = mounted(mover.reading_job(Some("back")).unwrap());
        let (mount, volume) = restoring(RESTORE_DIR).unwrap();
        assert_eq!(mount["readOnly"], Value::Null);
        assert_eq!(volume["persistentVolumeClaim"]["claimName"], "back");
        let parent = Path::new(RESTORE_DIR).parent().unwrap().to_str().unwrap();
        let (mount, volume) = restoring(parent).unwrap();
        assert_eq!(mount["readOnly"], Value::Null);
        assert_eq!(volume["emptyDir"], json!({}));
        assert_eq!(restoring(REPOSITORY_DIR).unwrap().0["readOnly"], true);

        let looking = mounted(mover.reading_job(None).unwrap());
        assert!(looking(RESTORE_DIR).is_none() && looking(parent).is_none());
        assert_eq!(looking(REPOSITORY_DIR).unwrap().0["readOnly"], true);
    }
}
