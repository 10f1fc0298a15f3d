//! Manifests as people write them, whose storage a test machine has not: the Jobs that they lead to, as they are.
//!
//! What this release refuses of a file is taken out, as its refusal says (`docs/reference/manifests.md`), and nothing else.

use crate::cluster_repository::{SHARED, shared};
use crate::fields::merge;
use crate::story::{JOBS, Story, snapshot_path};
use holdfast_operator::protect::{restore, snapshot};
use holdfast_operator::world::keys::ObjectKey;
use serde_json::{Value, json};

const GROUP: &str = "/apis/kopiur.home-operations.com/v1alpha1";

/// The documents of a file.
fn written(file: &str) -> Vec<Value> {
    let path = format!(
        "{}/../api/tests/fixtures/kopia/{file}.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap();
    let documents = text.split("\n---\n");
    documents
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

/// The ClusterRepository of a file without these fields of its spec, which is then accepted.
fn repository(file: &str, without: &[&str], with: &Value) -> Value {
    let mut object = written(file).remove(0);
    for path in without {
        let (parent, field) = path.rsplit_once('/').unwrap();
        let parent = object["spec"].pointer_mut(parent).unwrap();
        assert!(parent.as_object_mut().unwrap().remove(field).is_some(), "{path}");
    }
    merge(&mut object["spec"], with);
    let refusals = holdfast_api::written::refusals(&object).unwrap();
    assert!(refusals.is_empty(), "{refusals:?}");
    object
}

/// A cluster whose operator is in `backup-system`, where the files have their Secrets, and in which this
/// ClusterRepository is connected.
fn connected(mut object: Value) -> Story {
    let mut story = shared(10);
    story.ctx.settings.namespace = "backup-system".to_owned();
    story.ctx.settings.credential_projection = true;
    story.server.remove(SHARED);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    object["metadata"]["uid"] = json!("repository-uid");
    object["status"] = json!({ "phase": "Ready", "uniqueId": "id" });
    let keys =
        json!({ "KOPIA_PASSWORD": "eA==", "AWS_ACCESS_KEY_ID": "YQ==", "AWS_SECRET_ACCESS_KEY": "Yg==" });
    let secret = object["spec"]["encryption"]["passwordSecretRef"]["name"].clone();
    for namespace in ["backup", "apps", "backup-system"] {
        let below = format!("/api/v1/namespaces/{namespace}");
        story.server.put(
            &below,
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": namespace,
                "labels": { "backups.example.org/enabled": "true" },
                "annotations": { "kopiur.home-operations.com/privileged-movers": "true" },
            } }),
        );
        story.server.put(
            &format!("{below}/serviceaccounts/holdfast-mover"),
            json!({ "metadata": { "name": "holdfast-mover" } }),
        );
        story.server.put(
            &format!("{below}/configmaps/internal-ca"),
            json!({ "metadata": { "name": "internal-ca" }, "data": { "ca.crt": "-" } }),
        );
        let copied = object["spec"]["credentialProjection"]["allowed"] == true;
        if namespace == "backup-system" || !copied {
            story.server.put(
                &format!("{below}/secrets/{}", secret.as_str().unwrap()),
                json!({ "metadata": { "name": secret }, "data": keys }),
            );
        }
    }
    story
        .server
        .put(&format!("{GROUP}/clusterrepositories/{name}"), object);
    story
}

/// An object without what the API server gives it, and with what its mover is told as it reads.
fn reviewed(mut object: Value) -> String {
    object.as_object_mut().unwrap().remove("status");
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
    ] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
        for owner in owners.iter_mut().filter(|owner| owner["kind"] == "Job") {
            owner.as_object_mut().unwrap().remove("uid");
        }
    }
    let work = "/spec/template/metadata/annotations/kopiur.home-operations.com~1work";
    if let Some(work) = object.pointer_mut(work) {
        *work = serde_json::from_str(work.as_str().unwrap()).unwrap();
    }
    serde_json::to_string_pretty(&object).unwrap()
}

/// The Job of a backup of the claim `data` to this ClusterRepository.
async fn backup_to(object: Value) -> String {
    let name = object["metadata"]["name"].clone();
    let copies = object["spec"]["credentialProjection"]["allowed"] == true;
    let story = connected(object);
    story.run("a");
    story.server.edit(
        &snapshot_path("p").replace("/snapshots/", "/snapshotpolicies/"),
        |p| {
            p["spec"]["repository"] = json!({ "kind": "ClusterRepository", "name": name });
            if copies {
                p["spec"]["credentialProjection"] = json!({ "enabled": true });
            }
        },
    );
    for _ in 0..2 {
        let key = ObjectKey::new("backup", "a");
        snapshot::pass(&story.ctx, &key).await.expect("a pass");
    }
    let job = story.server.get(&format!("{JOBS}/a"));
    reviewed(job.unwrap_or_else(|| panic!("no Job: {:?}", story.server.get(&snapshot_path("a")))))
}

#[tokio::test]
async fn a_backup_to_an_export_that_is_there() {
    // The slip of the file, a Secret without its namespace, is put right.
    let namespace = json!({ "encryption": { "passwordSecretRef": { "namespace": "backup-system" } } });
    let job = backup_to(repository("01-clusterrepo-nfs-adopt", &[], &namespace)).await;
    insta::assert_snapshot!("01-clusterrepo-nfs-adopt", job);
}

#[tokio::test]
async fn a_backup_to_an_export_with_users_of_its_own() {
    let file = "02-clusterrepo-nfs-create-moverdefaults";
    let without = ["/moverDefaults/ttlSecondsAfterFinished", "/maintenance"];
    let job = backup_to(repository(file, &without, &json!({}))).await;
    insta::assert_snapshot!("02-clusterrepo-nfs-create-moverdefaults", job);
}

#[tokio::test]
async fn a_backup_to_an_export_with_defaults_of_schedules() {
    let file = "03-clusterrepo-schedule-defaults-maintenance";
    let job = backup_to(repository(
        file,
        &["/moverDefaults/cache", "/maintenance"],
        &json!({}),
    ))
    .await;
    insta::assert_snapshot!("03-clusterrepo-schedule-defaults-maintenance", job);
}

#[tokio::test]
async fn a_backup_to_a_bucket_behind_a_private_authority() {
    let file = "05-clusterrepo-s3-ca-deletion-guards";
    let job = backup_to(repository(file, &["/parameters"], &json!({}))).await;
    insta::assert_snapshot!("05-clusterrepo-s3-ca-deletion-guards", job);
}

#[tokio::test]
async fn a_claim_of_a_storage_class_is_filled_as_root_with_a_copy_of_the_credentials() {
    let file = "05-clusterrepo-s3-ca-deletion-guards";
    let story = connected(repository(file, &["/parameters"], &json!({})));
    let apps = format!("{GROUP}/namespaces/apps");
    story.server.put(
        &format!("{apps}/snapshotpolicies/wiki"),
        json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
            "metadata": { "name": "wiki", "namespace": "apps", "uid": "policy-uid", "generation": 1 },
            "spec": {
                "repository": { "kind": "ClusterRepository", "name": "objects" },
                "sources": [{ "pvc": { "name": "wiki" } }],
            },
        }),
    );
    story.server.put(
        "/apis/storage.k8s.io/v1/storageclasses/csi-block",
        json!({
            "metadata": { "name": "csi-block" }, "provisioner": "csi.example.org",
            "volumeBindingMode": "WaitForFirstConsumer",
        }),
    );
    let mut documents = written("14-restore-populator-and-pvc");
    let (mut claim, mut object) = (documents.remove(1), documents.remove(0));
    for (object, uid) in [(&mut claim, "claim-uid"), (&mut object, "restore-uid")] {
        merge(
            &mut object["metadata"],
            &json!({ "uid": uid, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z" }),
        );
    }
    // The scheduler chose a node for the pod that waits for it.
    claim["metadata"]["annotations"] = json!({ "volume.kubernetes.io/selected-node": "node-1" });
    let claims = "/api/v1/namespaces/apps/persistentvolumeclaims";
    story.server.put(&format!("{claims}/wiki"), claim);
    let path = format!("{apps}/restores/wiki");
    story.server.put(&path, object);
    let passes = async || {
        for _ in 0..6 {
            let key = ObjectKey::new("apps", "wiki");
            restore::pass(&story.ctx, &key).await.expect("a pass");
        }
    };
    passes().await;
    let jobs = "/apis/batch/v1/namespaces/apps/jobs";
    let asks = story.server.under(jobs);
    assert_eq!(asks.len(), 1, "{:?}", story.server.get(&path));
    let found = json!({
        "version": 1, "uniqueId": "id",
        "result": { "restore": { "resolved": { "of_identity": 1, "paths": [], "found": {
            "snapshotId": "s1", "startTime": "2026-01-01T00:00:00Z", "sizeBytes": 1000,
            "source": { "username": "wiki", "hostname": "apps", "path": "/pvc/wiki" },
        } } } },
    });
    story.end(&asks[0].0, &found.to_string(), true);
    passes().await;
    let writes = story
        .server
        .under(jobs)
        .into_iter()
        .find(|(of, _)| of != &asks[0].0);
    let Some((_, job)) = writes else {
        panic!("no Job writes: {:?}", story.server.get(&path));
    };
    insta::assert_snapshot!("14-restore-populator-and-pvc.job", reviewed(job));
    let filled = story
        .server
        .under(claims)
        .into_iter()
        .find(|(of, _)| !of.ends_with("/wiki"));
    insta::assert_snapshot!("14-restore-populator-and-pvc.claim", reviewed(filled.unwrap().1));
}
