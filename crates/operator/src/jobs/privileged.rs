//! Movers that read or set whatever a volume holds, where its namespace agreed to that.
//!
//! **Promises.** The agreement is an annotation on the namespace, read live right before the Job is created. Nothing on a
//! policy, a Restore or a repository counts as one, so whoever may write only those cannot give it; nor can the operator,
//! which may not change namespaces. The container starts as root with the capabilities of its task and no other; without
//! privilege escalation, with a read-only root file system and without a token for the API server it is as every mover.
//! What is written to a repository's volume belongs to the user that it always belongs to.

use super::build::{BuildError, MOVER_UID, Mover, Storage};
use crate::context::{Context, Error};
use holdfast_api::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::core::PartialObjectMeta;

/// What a privileged mover does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task<'a> {
    /// Reads sources, and writes the repository.
    Read,
    /// Reads the repository, and writes this claim.
    Set(&'a str),
}

impl Task<'_> {
    /// What its container is given. A namespace that enforces the level `baseline` of Pod Security admits all of them.
    fn capabilities(self) -> &'static [&'static str] {
        match self {
            // Not DAC_READ_SEARCH, which baseline refuses and which opens any file of the node by its handle. A source is
            // mounted read-only, whoever reads it.
            Self::Read => &["DAC_OVERRIDE"],
            // No MKNOD: a device that a tenant could name is none that a restore makes. It is listed as not restored.
            Self::Set(_) => &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP"],
        }
    }
}

/// Whether the mover becomes the user of the repository's files before it opens it: what it writes there as root no
/// other mover could delete, and a server of NFS trusts no root. In a bucket nothing belongs to a user.
fn becomes_its_user(storage: &Storage, task: Task<'_>) -> bool {
    match (storage, task) {
        (Storage::Bucket { .. }, Task::Read | Task::Set(_)) | (Storage::Claim(_), Task::Set(_)) => false,
        (Storage::Claim(_), Task::Read) | (Storage::Nfs(_), Task::Read | Task::Set(_)) => true,
    }
}

/// Numbers that the API server takes for a user.
const USERS: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;

/// The Job of a privileged mover.
///
/// # Errors
/// [`BuildError`].
pub fn job(mover: &Mover, task: Task<'_>) -> Result<Job, BuildError> {
    let mut mover = mover.clone();
    let mut capabilities = task.capabilities().to_vec();
    let context = mover.settings.security_context.as_ref();
    let user = context.and_then(|c| c.run_as_user).unwrap_or(MOVER_UID);
    // A number that is no user stays in the Job, and the API server says so.
    let no_user = (!USERS.contains(&user)).then_some(user);
    if becomes_its_user(&mover.storage, task) {
        mover.document.repository.user = u32::try_from(user).ok();
        capabilities.push("SETUID");
    }
    let mut job = match task {
        Task::Read => mover.job()?,
        Task::Set(claim) => mover.reading_job(Some(claim))?,
    };
    let asked = mover.settings.pod_security_context.unwrap_or_default();
    let Some(pod) = job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()) else {
        return Ok(job);
    };
    // The kubelet would give every file of the volumes to the group, before they are read or after they are set.
    if let (Some(context), None) = (&mut pod.security_context, asked.fs_group) {
        context.fs_group = None;
        context.fs_group_change_policy = None;
    }
    for container in &mut pod.containers {
        let context = container.security_context.get_or_insert_default();
        context.run_as_user = Some(no_user.unwrap_or(0));
        context.run_as_non_root = Some(false);
        let given = context.capabilities.get_or_insert_default();
        given.add = Some(capabilities.iter().map(|&name| name.to_owned()).collect());
    }
    Ok(job)
}

/// Whether the namespace agreed, as it is now.
///
/// # Errors
/// When it cannot be read.
pub async fn is_agreed(ctx: &Context, namespace: &str) -> Result<bool, Error> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(ctx.client.clone());
    let found = api.get_opt(namespace).await?;
    let annotations = found.and_then(|n| n.metadata.annotations).unwrap_or_default();
    Ok(annotations
        .get(names::PRIVILEGED_MOVERS)
        .is_some_and(|value| value == "true"))
}

/// What is said where it did not.
#[must_use]
pub fn not_agreed(who: &str, namespace: &str) -> String {
    format!(
        "{who} asks for a privileged mover (spec.mover.privilegedMode, or runAsUser: 0), and namespace {namespace} did not agree to any. Whoever may change the namespace agrees by: kubectl annotate namespace {namespace} {}=true. It goes on then. Without either the mover reads and sets what its user may.",
        names::PRIVILEGED_MOVERS
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::views::RepositoryView;
    use holdfast_api::mover::MoverSpec;
    use holdfast_api::repository::{NfsVolume, Repository};
    use holdfast_protocol::work::{Operation, WorkDocument};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn mover(storage: Storage, recipe: Value) -> Mover {
        let repository: Repository = serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": "vault" },
            "spec": {
                "engine": "Restic",
                "backend": { "filesystem": { "volume": { "pvc": { "name": "vault" } } } },
                "encryption": { "passwordSecretRef": { "name": "password" } },
            },
            "status": { "uniqueId": "id" },
        }))
        .unwrap();
        let view = RepositoryView::namespaced(repository);
        let recipe: MoverSpec = serde_json::from_value(recipe).unwrap();
        Mover {
            name: "nightly".into(),
            namespace: "shop".into(),
            op: names::OP_BACKUP,
            owner_uid: "u".into(),
            works_for: "nightly".into(),
            owner: None,
            document: WorkDocument {
                version: holdfast_protocol::VERSION,
                cluster: "c".into(),
                repository: crate::protect::repository::access(&view),
                operation: Operation::Backup { items: Vec::new() },
                results: None,
            },
            image: "mover".into(),
            pull_policy: "IfNotPresent".into(),
            settings: recipe.over(&view.mover_defaults()),
            storage,
            secret: "password".into(),
            secret_key: names::PASSWORD_KEY.into(),
            sources: vec!["data".into()],
            backoff_limit: 2,
            active_deadline_seconds: 60,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }

    fn written(job: Job) -> String {
        serde_json::to_string_pretty(&job).unwrap()
    }

    fn bucket() -> Storage {
        Storage::Bucket {
            secret: "keys".into(),
            authorities: None,
        }
    }

    fn nfs() -> Storage {
        Storage::Nfs(NfsVolume {
            server: "nas.example.internal".into(),
            path: "/tank".into(),
        })
    }

    #[test]
    fn the_jobs_of_privileged_movers_as_they_are() {
        let asked = json!({ "privilegedMode": true });
        let backup = mover(Storage::Claim("vault".into()), asked.clone());
        insta::assert_snapshot!("backup", written(job(&backup, Task::Read).unwrap()));
        let restore = mover(Storage::Claim("vault".into()), asked);
        insta::assert_snapshot!("restore", written(job(&restore, Task::Set("back")).unwrap()));
    }

    #[test]
    fn a_privileged_mover_has_what_its_task_needs_and_nothing_else() {
        let storages = || [Storage::Claim("vault".into()), nfs(), bucket()];
        for (task, given, becomes) in [
            (Task::Read, vec!["DAC_OVERRIDE"], [true, true, false]),
            (
                Task::Set("back"),
                vec!["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP"],
                [false, true, false],
            ),
        ] {
            for (storage, becomes) in storages().into_iter().zip(becomes) {
                let recipe = json!({ "privilegedMode": true, "securityContext": { "runAsUser": 1050 } });
                let made = job(&mover(storage.clone(), recipe), task).unwrap();
                let pod = made.spec.unwrap().template;
                let work = &pod.metadata.unwrap().annotations.unwrap()[holdfast_protocol::WORK_ANNOTATION];
                let user = WorkDocument::parse(work).unwrap().repository.user;
                assert_eq!(user, becomes.then_some(1050), "{task:?} {storage:?}");
                let pod = serde_json::to_value(pod.spec.unwrap()).unwrap();
                let security = &pod["containers"][0]["securityContext"];
                let mut given = given.clone();
                given.extend(becomes.then_some("SETUID"));
                assert_eq!(
                    security,
                    &json!({
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "capabilities": { "drop": ["ALL"], "add": given },
                        "runAsUser": 0,
                        "runAsNonRoot": false,
                    })
                );
                assert_eq!(pod["automountServiceAccountToken"], false);
                assert_eq!(pod["securityContext"]["fsGroup"], Value::Null);
                assert_eq!(pod["securityContext"]["runAsGroup"], MOVER_UID);
            }
        }
    }

    #[test]
    fn a_number_that_is_no_user_is_left_to_the_api_server() {
        for (number, user) in [
            (4_294_967_295_i64, 4_294_967_295_i64),
            (1 << 32, 1 << 32),
            (1050, 0),
        ] {
            let recipe = json!({ "privilegedMode": true, "securityContext": { "runAsUser": number } });
            let made = job(&mover(Storage::Claim("vault".into()), recipe), Task::Read).unwrap();
            let pod = made.spec.unwrap().template.spec.unwrap();
            let context = pod.containers[0].security_context.clone().unwrap();
            assert_eq!(context.run_as_user, Some(user));
        }
    }

    #[test]
    fn what_is_said_of_groups_counts_for_a_privileged_mover_too() {
        let recipe = json!({
            "securityContext": { "runAsUser": 0, "runAsGroup": 0 },
            "podSecurityContext": { "fsGroup": 1052 },
        });
        let made = job(&mover(Storage::Claim("vault".into()), recipe), Task::Read).unwrap();
        let template = made.spec.unwrap().template;
        let work = &template.metadata.unwrap().annotations.unwrap()[holdfast_protocol::WORK_ANNOTATION];
        let user = WorkDocument::parse(work).unwrap().repository.user;
        assert_eq!(
            user,
            Some(65_532),
            "root is who reads, not whose the repository is"
        );
        let pod = serde_json::to_value(template.spec.unwrap()).unwrap();
        assert_eq!(pod["securityContext"]["fsGroup"], 1052);
        assert_eq!(pod["containers"][0]["securityContext"]["runAsGroup"], 0);
    }
}
