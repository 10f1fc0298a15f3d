//! The operations: what the operator relies on, and what would be noticed if the scripted server were kinder than a real one.

use super::runner::Runner;
use serde_json::{Value, json};

const API: &str = "kopiur.home-operations.com/v1alpha1";
const FINALIZER: &str = "kopiur.home-operations.com/snapshot-cleanup";

fn snapshot(name: &str) -> Value {
    json!({
        "apiVersion": API, "kind": "Snapshot",
        "metadata": { "name": name, "labels": { "row": name }, "finalizers": [FINALIZER] },
        "spec": { "policyRef": { "name": "p" } },
    })
}

fn map(name: &str, row: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "row": row, "of": "script" } }, "data": { "a": "1" },
    })
}

fn version(object: &Value) -> Value {
    object["metadata"]["resourceVersion"].clone()
}

/// Plays everything in its order.
pub async fn play(r: &mut Runner) {
    let ns = r.namespace.clone();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": ns } });
    r.post("create a namespace", "/api/v1/namespaces", namespace)
        .await;
    let snapshots = format!("/apis/{API}/namespaces/{ns}/snapshots");
    status_and_versions(r, &snapshots).await;
    json_patches(r, &snapshots).await;
    deletions(r, &snapshots).await;
    maps(r, &format!("/api/v1/namespaces/{ns}/configmaps")).await;
    lists(r, &format!("/api/v1/namespaces/{ns}/configmaps")).await;
    leases(r, &format!("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases")).await;
    jobs(r, &format!("/apis/batch/v1/namespaces/{ns}/jobs")).await;
    teardown(r, &ns, &snapshots).await;
}

async fn status_and_versions(r: &mut Runner, all: &str) {
    let a = format!("{all}/a");
    let status = format!("{a}/status");
    r.get("get what is not there", &a).await;
    let mut body = snapshot("a");
    body["status"] = json!({ "phase": "Succeeded" });
    let created = r.post("create; the status is dropped", all, body).await;
    r.post("create again", all, snapshot("a")).await;
    r.get("get", &a).await;
    let phase = json!({ "status": { "phase": "Succeeded", "deletion": { "attempts": 0, "job": "x" } } });
    r.merge("merge the status", &status, phase.clone()).await;
    r.merge("merge the same status again", &status, phase).await;
    r.merge(
        "merge a status at the object itself",
        &a,
        json!({ "status": { "phase": "Failed" } }),
    )
    .await;
    let spec = json!({ "spec": { "deletionPolicy": "Retain" }, "metadata": { "labels": { "x": "y" } } });
    r.merge("merge spec and labels at the status", &status, spec.clone())
        .await;
    r.merge("merge spec and labels", &a, spec).await;
    r.merge(
        "merge labels alone",
        &a,
        json!({ "metadata": { "labels": { "x": "z" } } }),
    )
    .await;
    r.merge(
        "merge a null into the status",
        &status,
        json!({ "status": { "deletion": { "job": null } } }),
    )
    .await;
    r.merge(
        "merge a null into the spec",
        &a,
        json!({ "spec": { "deletionPolicy": null } }),
    )
    .await;
    r.merge(
        "merge a null label",
        &a,
        json!({ "metadata": { "labels": { "x": null } } }),
    )
    .await;
    let old =
        json!({ "metadata": { "resourceVersion": version(&created) }, "status": { "phase": "Deleting" } });
    r.merge("merge the status at an old version", &status, old).await;
    let now = r.get("get for the version", &a).await;
    let current =
        json!({ "metadata": { "resourceVersion": version(&now) }, "status": { "phase": "Deleting" } });
    r.merge(
        "merge the status at the current version",
        &status,
        current.clone(),
    )
    .await;
    r.merge("and again at that one, which is old now", &status, current)
        .await;
    let now = r.get("get for the version once more", &a).await;
    let same = json!({ "metadata": { "resourceVersion": version(&now) }, "status": { "phase": "Deleting" } });
    r.merge("a current version and nothing to change", &status, same)
        .await;
    let dry = json!({ "metadata": { "labels": { "dry": "run" } } });
    r.merge("a dry run", &format!("{a}?dryRun=All"), dry).await;
    r.get("that left no trace", &a).await;
    r.merge(
        "merge the status of what is not there",
        &format!("{all}/none/status"),
        json!({ "status": {} }),
    )
    .await;
    let annotations = json!({ "metadata": { "annotations": { "k": "v" } } });
    r.merge("merge annotations", &a, annotations).await;
    r.merge(
        "merge the last annotation away",
        &a,
        json!({ "metadata": { "annotations": { "k": null } } }),
    )
    .await;
    r.merge(
        "merge another uid",
        &a,
        json!({ "metadata": { "uid": "another" } }),
    )
    .await;
    let without = snapshot("a");
    r.put("replace without a version", &a, without).await;
    let mut old = snapshot("a");
    old["metadata"]["resourceVersion"] = version(&created);
    r.put("replace at an old version", &a, old).await;
}

async fn json_patches(r: &mut Runner, all: &str) {
    let a = format!("{all}/a");
    let path = "/metadata/finalizers/0";
    let wrong_uid = json!([{ "op": "test", "path": "/metadata/uid", "value": "another" }, { "op": "remove", "path": path }]);
    r.patch("a tested patch of another uid", &a, wrong_uid).await;
    let wrong = json!([{ "op": "test", "path": path, "value": "other" }, { "op": "remove", "path": path }]);
    r.patch("a tested patch of another finalizer", &a, wrong).await;
    r.patch(
        "a patch that removes what is not there",
        &a,
        json!([{ "op": "remove", "path": "/metadata/finalizers/7" }]),
    )
    .await;
    let added = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.org/second" }]);
    r.patch("a patch that adds a finalizer", &a, added).await;
    let spec = json!([{ "op": "add", "path": "/spec/deletionPolicy", "value": "Orphan" }]);
    r.patch("a patch of the spec", &a, spec).await;
    r.patch("a patch of what is not there", &format!("{all}/none"), json!([]))
        .await;
    r.patch("a patch of nothing", &a, json!([])).await;
}

async fn deletions(r: &mut Runner, all: &str) {
    let a = format!("{all}/a");
    let now = r.get("get before the deletion", &a).await;
    let uid = now["metadata"]["uid"].clone();
    r.delete(
        "delete another uid",
        &a,
        json!({ "preconditions": { "uid": "another" } }),
    )
    .await;
    let old = json!({ "preconditions": { "uid": uid, "resourceVersion": "1" } });
    r.delete("delete at an old version", &a, old).await;
    let dry = json!({ "dryRun": ["All"] });
    r.delete("a dry deletion", &format!("{a}?dryRun=All"), dry).await;
    let exact = json!({ "preconditions": { "uid": uid, "resourceVersion": version(&now) }, "propagationPolicy": "Background" });
    r.delete("delete exactly this one; finalizers keep it", &a, exact)
        .await;
    r.delete("delete it again", &a, json!({})).await;
    let status = json!({ "status": { "phase": "Deleting" } });
    r.merge("the status of a deleting one", &format!("{a}/status"), status)
        .await;
    let late = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.org/late" }]);
    r.patch("a new finalizer on a deleting one", &a, late).await;
    let revive = json!({ "metadata": { "deletionTimestamp": null } });
    r.merge("nobody is revived", &a, revive).await;
    let first = json!([
        { "op": "test", "path": "/metadata/uid", "value": uid },
        { "op": "test", "path": "/metadata/finalizers/0", "value": FINALIZER },
        { "op": "remove", "path": "/metadata/finalizers/0" },
    ]);
    r.patch("our finalizer goes, another is left", &a, first.clone())
        .await;
    r.patch("the same patch again", &a, first).await;
    let last = json!({ "metadata": { "finalizers": null } });
    r.merge("the last finalizer goes, and with it the object", &a, last)
        .await;
    r.get("it is gone", &a).await;
    r.delete(
        "delete what is gone",
        &a,
        json!({ "preconditions": { "uid": uid } }),
    )
    .await;
    r.post("create under the same name", all, snapshot("a")).await;
    let stale = json!([{ "op": "test", "path": "/metadata/uid", "value": uid }, { "op": "remove", "path": "/metadata/finalizers/0" }]);
    r.patch("the old uid does not touch the new one", &a, stale).await;
    r.delete(
        "nor does a deletion of the old uid",
        &a,
        json!({ "preconditions": { "uid": uid } }),
    )
    .await;
    let free = json!({ "metadata": { "finalizers": [] } });
    r.merge("without finalizers", &a, free).await;
    r.delete("a deletion is at once", &a, json!({})).await;
}

async fn maps(r: &mut Runner, all: &str) {
    r.post("create a map", all, map("m1", "1")).await;
    let mut body = map("m1", "1");
    body["data"]["a"] = json!("2");
    r.put(
        "replace without a version, where that is allowed",
        &format!("{all}/m1"),
        body,
    )
    .await;
    r.merge(
        "merge data",
        &format!("{all}/m1"),
        json!({ "data": { "b": "3", "a": null } }),
    )
    .await;
    let mut versioned = map("m9", "9");
    versioned["metadata"]["resourceVersion"] = json!("5");
    r.post("create with a version", all, versioned).await;
    r.post(
        "create in a dry run",
        &format!("{all}?dryRun=All"),
        map("dry", "0"),
    )
    .await;
    r.get("which left no trace", &format!("{all}/dry")).await;
    r.post(
        "create in a namespace that is not there",
        "/api/v1/namespaces/not-there-at-all/configmaps",
        map("m", "1"),
    )
    .await;
}

async fn lists(r: &mut Runner, all: &str) {
    let begin = r
        .get("list by label", &format!("{all}?labelSelector=of%3Dscript"))
        .await;
    for (name, row) in [("m3", "3"), ("m2", "2"), ("m4", "2")] {
        r.post("create out of order", all, map(name, row)).await;
    }
    r.get("lists are in order", &format!("{all}?labelSelector=of%3Dscript"))
        .await;
    r.get(
        "two labels",
        &format!("{all}?labelSelector=of%3Dscript%2Crow%3D2"),
    )
    .await;
    r.get("a label that is there", &format!("{all}?labelSelector=of"))
        .await;
    r.get(
        "a label that is not this",
        &format!("{all}?labelSelector=of%2Crow%21%3D2"),
    )
    .await;
    r.get("no such label", &format!("{all}?labelSelector=of%3Dnobody"))
        .await;
    let page = r
        .get("a page", &format!("{all}?labelSelector=of%3Dscript&limit=3"))
        .await;
    let token = page["metadata"]["continue"].as_str().unwrap_or_default();
    r.get(
        "and the next",
        &format!("{all}?labelSelector=of%3Dscript&limit=3&continue={token}"),
    )
    .await;
    r.delete("delete one", &format!("{all}/m4"), json!({})).await;
    r.merge(
        "change one",
        &format!("{all}/m2"),
        json!({ "data": { "c": "4" } }),
    )
    .await;
    let from = version(&begin);
    let from = from.as_str().unwrap_or_default();
    let watch = format!(
        "{all}?labelSelector=of%3Dscript&watch=1&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion={from}"
    );
    r.watch("a watch tells everything since the first list", &watch)
        .await;
    let now = r
        .get("list again", &format!("{all}?labelSelector=of%3Dscript"))
        .await;
    let now = version(&now);
    let now = now.as_str().unwrap_or_default();
    let watch = format!("{all}?labelSelector=of%3Dscript&watch=1&timeoutSeconds=1&resourceVersion={now}");
    r.watch("a watch from now tells nothing", &watch).await;
}

async fn leases(r: &mut Runner, all: &str) {
    let lease = |holder: &str, version: Option<Value>| {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "lane" },
            "spec": { "holderIdentity": holder },
        });
        if let Some(version) = version {
            lease["metadata"]["resourceVersion"] = version;
        }
        lease
    };
    let lane = format!("{all}/lane");
    let first = r.post("create a lease", all, lease("a", None)).await;
    r.post("somebody else creates it too", all, lease("b", None))
        .await;
    r.put("replace at its version", &lane, lease("b", Some(version(&first))))
        .await;
    r.put(
        "a former holder replaces at the old one",
        &lane,
        lease("a", Some(version(&first))),
    )
    .await;
    r.put(
        "replace under another name",
        &format!("{all}/none"),
        lease("a", Some(version(&first))),
    )
    .await;
    r.delete("delete the lease", &lane, json!({})).await;
}

async fn jobs(r: &mut Runner, all: &str) {
    let job = || {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "snapdel-x" },
            "spec": { "suspend": true, "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "mover", "image": "none" }],
            } } },
        })
    };
    let created = r.post("create a Job", all, job()).await;
    r.post("a repeated create is harmless", all, job()).await;
    let path = format!("{all}/snapdel-x");
    let other = json!({ "preconditions": { "uid": "another" }, "propagationPolicy": "Background" });
    r.delete("reap another Job of this name", &path, other).await;
    let exact =
        json!({ "preconditions": { "uid": created["metadata"]["uid"] }, "propagationPolicy": "Background" });
    r.delete("reap exactly this Job", &path, exact).await;
    r.get("it is not there any more", &path).await;
}

async fn teardown(r: &mut Runner, ns: &str, snapshots: &str) {
    r.post(
        "a Snapshot that outlasts its namespace for a while",
        snapshots,
        snapshot("z"),
    )
    .await;
    let z = format!("{snapshots}/z");
    r.delete("delete it", &z, json!({})).await;
    r.delete(
        "delete the namespace",
        &format!("/api/v1/namespaces/{ns}"),
        json!({}),
    )
    .await;
    let maps = format!("/api/v1/namespaces/{ns}/configmaps");
    r.post("nothing is created in it", &maps, map("late", "1")).await;
    r.post("no Snapshot either", snapshots, snapshot("y")).await;
    r.merge(
        "a status is still written",
        &format!("{z}/status"),
        json!({ "status": { "phase": "Deleting" } }),
    )
    .await;
    let free = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
    r.patch("and let go", &z, free).await;
}
