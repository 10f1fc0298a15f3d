//! Fields of specs that end in a Job or a claim: each changes it, and none is lost on the way from the object.
//!
//! `dev/fields.json` names these tests as what shows that the fields have an effect.

use crate::cluster_repository::{SHARED, shared};
use crate::story::{JOBS, Story, repository_path, snapshot_path};
use holdfast_operator::protect::{maintenance, restore, snapshot};
use holdfast_operator::world::keys::ObjectKey;
use serde_json::{Value, json};

/// Settings of a mover, all of them, with values that nothing has by itself.
fn recipe() -> Value {
    json!({
        "securityContext": { "runAsUser": 1050, "runAsGroup": 1051 },
        "podSecurityContext": { "fsGroup": 1052, "fsGroupChangePolicy": "Always", "supplementalGroups": [1053] },
        "resources": { "limits": { "memory": "1Gi" }, "requests": { "cpu": "100m" } },
        "nodeSelector": { "disk": "fast" },
        "tolerations": [
            { "key": "backup", "operator": "Equal", "value": "only", "effect": "NoExecute", "tolerationSeconds": 77 },
        ],
    })
}

/// Each of them is in the pod of this Job.
fn is_set_by_the_recipe(job: &Value) {
    let pod = &job["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for (path, wanted) in [
        ("/securityContext/runAsUser", json!(1050)),
        ("/securityContext/runAsGroup", json!(1051)),
        ("/resources/limits", json!({ "memory": "1Gi" })),
        ("/resources/requests", json!({ "cpu": "100m" })),
    ] {
        assert_eq!(container.pointer(path), Some(&wanted), "{path}");
    }
    for (path, wanted) in [
        ("/securityContext/fsGroup", json!(1052)),
        ("/securityContext/fsGroupChangePolicy", json!("Always")),
        ("/securityContext/supplementalGroups", json!([1053])),
        ("/nodeSelector", json!({ "disk": "fast" })),
        ("/tolerations/0/key", json!("backup")),
        ("/tolerations/0/operator", json!("Equal")),
        ("/tolerations/0/value", json!("only")),
        ("/tolerations/0/effect", json!("NoExecute")),
        ("/tolerations/0/tolerationSeconds", json!(77)),
    ] {
        assert_eq!(pod.pointer(path), Some(&wanted), "{path}");
    }
}

pub fn policy_path() -> String {
    snapshot_path("p").replace("/snapshots/", "/snapshotpolicies/")
}

fn restore_path() -> String {
    snapshot_path("back").replace("/snapshots/", "/restores/")
}

impl Story {
    /// The Job of a backup by the policy `p`.
    pub async fn backup_job(&self, of_policy: Value, of_snapshot: Value) -> Value {
        let job = self.maybe_backup_job(of_policy, of_snapshot).await;
        job.unwrap_or_else(|| panic!("no Job: {:?}", self.server.get(&snapshot_path("a"))))
    }

    /// The same, where there may be none.
    pub async fn maybe_backup_job(&self, of_policy: Value, of_snapshot: Value) -> Option<Value> {
        self.run("a");
        self.server
            .edit(&policy_path(), |p| merge(&mut p["spec"], &of_policy));
        self.server
            .edit(&snapshot_path("a"), |s| merge(&mut s["spec"], &of_snapshot));
        for _ in 0..2 {
            let key = ObjectKey::new("backup", "a");
            snapshot::pass(&self.ctx, &key).await.expect("a pass");
        }
        self.server.get(&format!("{JOBS}/a"))
    }

    /// A Restore into the claim `data`, with this in its spec.
    fn restore_of(&self, spec: Value) {
        self.server.put(
            "/api/v1/namespaces/backup/persistentvolumeclaims/data",
            json!({ "metadata": { "name": "data", "uid": "data-uid" }, "spec": {} }),
        );
        let mut whole = json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Restore",
            "metadata": {
                "name": "back", "namespace": "backup", "uid": "r-uid", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "repository": { "name": "nas" },
                "source": { "identity": { "username": "p", "hostname": "backup" } },
                "target": { "pvcRef": { "name": "data" } },
            },
        });
        merge(&mut whole["spec"], &spec);
        self.server.put(&restore_path(), whole);
    }

    async fn restore_passes(&self) {
        for _ in 0..4 {
            let key = ObjectKey::new("backup", "back");
            restore::pass(&self.ctx, &key).await.expect("a pass");
        }
    }

    fn only_job(&self) -> (String, Value) {
        let jobs = self.server.under(JOBS);
        assert_eq!(jobs.len(), 1, "{:?}", self.server.get(&restore_path()));
        jobs.into_iter().next().unwrap()
    }

    /// The Job that writes: the one that asks has found a snapshot.
    async fn writing_job(&self) -> Value {
        self.restore_passes().await;
        let (path, _) = self.only_job();
        let found = json!({
            "version": 1, "uniqueId": "id",
            "result": { "restore": { "resolved": { "of_identity": 1, "paths": [], "found": {
                "snapshotId": "s1", "startTime": "2026-01-01T00:00:00Z", "sizeBytes": 1000,
                "source": { "username": "p", "hostname": "backup", "path": "/pvc/data" },
            } } } },
        });
        self.end(&path, &found.to_string(), true);
        self.restore_passes().await;
        let written = self.server.under(JOBS).into_iter().find(|(of, _)| of != &path);
        let Some((_, job)) = written else {
            panic!("no Job writes: {:?}", self.server.get(&restore_path()));
        };
        job
    }
}

/// Sets what `with` says, by the rules of a merge patch without removals.
pub fn merge(into: &mut Value, with: &Value) {
    let Some(fields) = with.as_object().filter(|_| into.is_object()) else {
        *into = with.clone();
        return;
    };
    for (field, value) in fields {
        merge(&mut into[field], value);
    }
}

/// What the mover is told.
pub fn work(job: &Value) -> Value {
    let text = &job["spec"]["template"]["metadata"]["annotations"]["kopiur.home-operations.com/work"];
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_policys_mover_is_as_its_recipe_says() {
    let story = Story::new(10);
    let job = story.backup_job(json!({ "mover": recipe() }), json!({})).await;
    is_set_by_the_recipe(&job);
}

#[tokio::test]
async fn a_restores_mover_is_as_its_recipe_says() {
    let story = Story::new(10);
    story.restore_of(json!({ "mover": recipe() }));
    is_set_by_the_recipe(&story.writing_job().await);
}

#[tokio::test]
async fn what_a_repository_says_of_movers_is_in_each_of_its_jobs() {
    let story = Story::new(10);
    story.server.edit(&repository_path(), |r| {
        r["spec"]["moverDefaults"] = recipe();
    });
    is_set_by_the_recipe(&story.backup_job(json!({}), json!({})).await);
    let story = Story::new(10);
    story.server.edit(&repository_path(), |r| {
        r["spec"]["moverDefaults"] = recipe();
    });
    story.restore_of(json!({}));
    is_set_by_the_recipe(&story.writing_job().await);
}

#[tokio::test]
async fn what_a_cluster_repository_says_of_movers_is_in_its_jobs() {
    let story = shared(10);
    story
        .server
        .edit(SHARED, |r| r["spec"]["moverDefaults"] = recipe());
    let by = json!({ "repository": { "kind": "ClusterRepository", "name": "shared" } });
    is_set_by_the_recipe(&story.backup_job(by, json!({})).await);
}

#[tokio::test]
async fn a_snapshots_deadline_and_retries_are_its_jobs() {
    let story = Story::new(10);
    let failure = json!({ "failurePolicy": { "activeDeadlineSeconds": 4321, "backoffLimit": 5 } });
    let job = story.backup_job(json!({}), failure).await;
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 4321);
    assert_eq!(job["spec"]["backoffLimit"], 5);
}

#[tokio::test]
async fn a_restores_deadline_and_retries_are_its_jobs() {
    let story = Story::new(10);
    story.restore_of(json!({ "failurePolicy": { "activeDeadlineSeconds": 4321, "backoffLimit": 5 } }));
    let job = story.writing_job().await;
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 4321);
    assert_eq!(job["spec"]["backoffLimit"], 5);
}

#[tokio::test]
async fn a_maintenances_deadline_and_retries_are_its_jobs() {
    let story = Story::new(10);
    story.server.put(
        &snapshot_path("care").replace("/snapshots/", "/maintenances/"),
        json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Maintenance",
            "metadata": {
                "name": "care", "namespace": "backup", "uid": "u-care", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": { "kopiur.home-operations.com/run-requested": "2026-01-31T12:00:00Z" },
            },
            "spec": {
                "repository": { "name": "nas" },
                "failurePolicy": { "activeDeadlineSeconds": 4321, "backoffLimit": 5 },
            },
        }),
    );
    for _ in 0..3 {
        let key = ObjectKey::new("backup", "care");
        maintenance::pass(&story.ctx, &key).await.expect("a pass");
    }
    let (_, job) = story.only_job();
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 4321);
    assert_eq!(job["spec"]["backoffLimit"], 5);
}

#[tokio::test]
async fn the_claim_that_a_restore_makes_is_as_it_says() {
    let story = Story::new(10);
    story.restore_of(json!({}));
    story.server.edit(&restore_path(), |r| {
        r["spec"]["target"] = json!({ "pvc": {
            "name": "new", "capacity": "7Gi", "storageClassName": "csi-block", "accessModes": ["ReadWriteMany"],
        } });
    });
    let job = story.writing_job().await;
    let claim = "/api/v1/namespaces/backup/persistentvolumeclaims/new";
    let claim = story.server.get(claim).expect("the claim");
    assert_eq!(claim["spec"]["storageClassName"], "csi-block");
    assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteMany"]));
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "7Gi");
    let mounted = job["spec"]["template"]["spec"]["volumes"].to_string();
    assert!(mounted.contains(r#""claimName":"new""#), "{mounted}");
}

#[tokio::test]
async fn the_claim_that_a_restore_names_is_the_one_that_is_written() {
    let story = Story::new(10);
    story.restore_of(json!({}));
    let mounted = story.writing_job().await["spec"]["template"]["spec"]["volumes"].to_string();
    assert!(mounted.contains(r#""claimName":"data""#), "{mounted}");
}

#[tokio::test]
async fn each_option_of_a_restore_is_told_to_the_mover() {
    for (options, field, value) in [
        (json!({ "overwriteFiles": true }), "existing", json!("replace")),
        (json!({ "skipExisting": true }), "existing", json!("keep")),
        (json!({ "enableFileDeletion": true }), "deleteOthers", json!(true)),
        (json!({ "skipOwners": true }), "owners", json!(false)),
        (json!({ "writeSparseFiles": false }), "sparse", json!(false)),
        (
            json!({ "ignorePermissionErrors": false }),
            "allOrFail",
            json!(true),
        ),
    ] {
        let how = async |options: Value| {
            let story = Story::new(10);
            story.restore_of(json!({ "options": options }));
            work(&story.writing_job().await)["operation"]["restore"]["item"]["how"].clone()
        };
        let (without, with) = (how(json!({})).await, how(options.clone()).await);
        assert_eq!(with[field], value, "{options}: {with}");
        assert_ne!(without[field], value, "{options} changes nothing: {without}");
    }
}

#[tokio::test]
async fn what_a_restores_source_says_is_what_the_repository_is_asked() {
    let asked = async |source: Value| {
        let story = Story::new(10);
        story.run("a");
        story.restore_of(json!({}));
        story
            .server
            .edit(&restore_path(), |r| r["spec"]["source"] = source.clone());
        story.restore_passes().await;
        work(&story.only_job().1)["operation"]["resolve"].to_string()
    };
    let of_policy =
        asked(json!({ "fromPolicy": { "name": "p", "offset": 3, "asOf": "2026-01-05T06:07:08Z" } })).await;
    for said in [
        r#""username":"p""#,
        r#""path":"/pvc/data""#,
        r#""offset":3"#,
        r#""2026-01-05T06:07:08Z""#,
    ] {
        assert!(of_policy.contains(said), "{said}: {of_policy}");
    }
    let identity = json!({ "identity": {
        "username": "who", "hostname": "where", "sourcePath": "/what", "offset": 4, "asOf": "2026-01-05T06:07:08Z",
    } });
    let of_identity = asked(identity).await;
    for said in [
        r#""username":"who""#,
        r#""hostname":"where""#,
        r#""path":"/what""#,
        r#""offset":4"#,
        r#""2026-01-05T06:07:08Z""#,
    ] {
        assert!(of_identity.contains(said), "{said}: {of_identity}");
    }
    let by_id =
        asked(json!({ "identity": { "username": "who", "hostname": "where", "snapshotID": "s9" } })).await;
    assert!(by_id.contains(r#""s9""#), "{by_id}");
}

#[tokio::test]
async fn the_repository_that_a_restore_names_is_the_one_that_is_read() {
    let story = shared(10);
    story.restore_of(json!({ "repository": { "kind": "ClusterRepository", "name": "shared" } }));
    story.restore_passes().await;
    story.only_job();
    // A Repository of that name is none, nor is a ClusterRepository of another one.
    for other in [
        json!({ "name": "shared" }),
        json!({ "kind": "ClusterRepository", "name": "other" }),
    ] {
        let story = shared(10);
        story.restore_of(json!({}));
        story
            .server
            .edit(&restore_path(), |r| r["spec"]["repository"] = other.clone());
        story.restore_passes().await;
        assert!(story.server.under(JOBS).is_empty(), "{other}");
    }
}

#[tokio::test]
async fn a_repository_of_another_namespace_is_looked_for_there() {
    let story = Story::new(10);
    story.restore_of(json!({ "repository": { "name": "nas", "namespace": "elsewhere" } }));
    story.restore_passes().await;
    assert!(story.server.under(JOBS).is_empty());
    let said = story
        .condition(&story.server.get(&restore_path()).unwrap(), "Ready")
        .2;
    assert!(said.contains("elsewhere"), "{said}");
}
