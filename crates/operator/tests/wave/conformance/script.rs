//! The operations: what the operator relies on, and what would be noticed if the scripted server were kinder than a real one.

use super::runner::{As, Runner};
use axum::http::Method;
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
    r.ask(
        "create a namespace",
        Method::POST,
        "/api/v1/namespaces",
        Some((As::Json, namespace)),
    )
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
    r.ask("get what is not there", Method::GET, &a, None).await;
    let mut body = snapshot("a");
    body["status"] = json!({ "phase": "Succeeded" });
    let created = r
        .ask(
            "create; the status is dropped",
            Method::POST,
            all,
            Some((As::Json, body)),
        )
        .await;
    r.ask("create again", Method::POST, all, Some((As::Json, snapshot("a"))))
        .await;
    r.ask("get", Method::GET, &a, None).await;
    let merge = |body| Some((As::Merge, body));
    let phase = json!({ "status": { "phase": "Succeeded", "deletion": { "attempts": 0, "job": "x" } } });
    r.ask("merge the status", Method::PATCH, &status, merge(phase.clone()))
        .await;
    r.ask(
        "merge the same status again",
        Method::PATCH,
        &status,
        merge(phase),
    )
    .await;
    r.ask(
        "merge a status at the object itself",
        Method::PATCH,
        &a,
        merge(json!({ "status": { "phase": "Failed" } })),
    )
    .await;
    let spec = json!({ "spec": { "deletionPolicy": "Retain" }, "metadata": { "labels": { "x": "y" } } });
    r.ask(
        "merge spec and labels at the status",
        Method::PATCH,
        &status,
        merge(spec.clone()),
    )
    .await;
    r.ask("merge spec and labels", Method::PATCH, &a, merge(spec))
        .await;
    r.ask(
        "merge labels alone",
        Method::PATCH,
        &a,
        merge(json!({ "metadata": { "labels": { "x": "z" } } })),
    )
    .await;
    r.ask(
        "merge a null into the status",
        Method::PATCH,
        &status,
        merge(json!({ "status": { "deletion": { "job": null } } })),
    )
    .await;
    r.ask(
        "merge a null into the spec",
        Method::PATCH,
        &a,
        merge(json!({ "spec": { "deletionPolicy": null } })),
    )
    .await;
    r.ask(
        "merge a null label",
        Method::PATCH,
        &a,
        merge(json!({ "metadata": { "labels": { "x": null } } })),
    )
    .await;
    let old =
        json!({ "metadata": { "resourceVersion": version(&created) }, "status": { "phase": "Deleting" } });
    r.ask(
        "merge the status at an old version",
        Method::PATCH,
        &status,
        merge(old),
    )
    .await;
    let now = r.ask("get for the version", Method::GET, &a, None).await;
    let current =
        json!({ "metadata": { "resourceVersion": version(&now) }, "status": { "phase": "Deleting" } });
    r.ask(
        "merge the status at the current version",
        Method::PATCH,
        &status,
        merge(current.clone()),
    )
    .await;
    r.ask(
        "and again at that one, which is old now",
        Method::PATCH,
        &status,
        merge(current),
    )
    .await;
    let now = r
        .ask("get for the version once more", Method::GET, &a, None)
        .await;
    let same = json!({ "metadata": { "resourceVersion": version(&now) }, "status": { "phase": "Deleting" } });
    r.ask(
        "a current version and nothing to change",
        Method::PATCH,
        &status,
        merge(same),
    )
    .await;
    let dry = json!({ "metadata": { "labels": { "dry": "run" } } });
    r.ask("a dry run", Method::PATCH, &format!("{a}?dryRun=All"), merge(dry))
        .await;
    r.ask("that left no trace", Method::GET, &a, None).await;
    r.ask(
        "merge the status of what is not there",
        Method::PATCH,
        &format!("{all}/none/status"),
        merge(json!({ "status": {} })),
    )
    .await;
    let annotations = json!({ "metadata": { "annotations": { "k": "v" } } });
    r.ask("merge annotations", Method::PATCH, &a, merge(annotations))
        .await;
    r.ask(
        "merge the last annotation away",
        Method::PATCH,
        &a,
        merge(json!({ "metadata": { "annotations": { "k": null } } })),
    )
    .await;
    r.ask(
        "merge another uid",
        Method::PATCH,
        &a,
        merge(json!({ "metadata": { "uid": "another" } })),
    )
    .await;
    let without = snapshot("a");
    r.ask(
        "replace without a version",
        Method::PUT,
        &a,
        Some((As::Json, without)),
    )
    .await;
    let mut old = snapshot("a");
    old["metadata"]["resourceVersion"] = version(&created);
    r.ask(
        "replace at an old version",
        Method::PUT,
        &a,
        Some((As::Json, old)),
    )
    .await;
}

async fn json_patches(r: &mut Runner, all: &str) {
    let a = format!("{all}/a");
    let patch = |body| Some((As::Patch, body));
    let path = "/metadata/finalizers/0";
    let wrong_uid = json!([{ "op": "test", "path": "/metadata/uid", "value": "another" }, { "op": "remove", "path": path }]);
    r.ask(
        "a tested patch of another uid",
        Method::PATCH,
        &a,
        patch(wrong_uid),
    )
    .await;
    let wrong = json!([{ "op": "test", "path": path, "value": "other" }, { "op": "remove", "path": path }]);
    r.ask(
        "a tested patch of another finalizer",
        Method::PATCH,
        &a,
        patch(wrong),
    )
    .await;
    r.ask(
        "a patch that removes what is not there",
        Method::PATCH,
        &a,
        patch(json!([{ "op": "remove", "path": "/metadata/finalizers/7" }])),
    )
    .await;
    let added = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.org/second" }]);
    r.ask("a patch that adds a finalizer", Method::PATCH, &a, patch(added))
        .await;
    let spec = json!([{ "op": "add", "path": "/spec/deletionPolicy", "value": "Orphan" }]);
    r.ask("a patch of the spec", Method::PATCH, &a, patch(spec)).await;
    r.ask(
        "a patch of what is not there",
        Method::PATCH,
        &format!("{all}/none"),
        patch(json!([])),
    )
    .await;
    r.ask("a patch of nothing", Method::PATCH, &a, patch(json!([])))
        .await;
}

async fn deletions(r: &mut Runner, all: &str) {
    let a = format!("{all}/a");
    let now = r.ask("get before the deletion", Method::GET, &a, None).await;
    let uid = now["metadata"]["uid"].clone();
    let body = |options: Value| Some((As::Json, options));
    r.ask(
        "delete another uid",
        Method::DELETE,
        &a,
        body(json!({ "preconditions": { "uid": "another" } })),
    )
    .await;
    let old = json!({ "preconditions": { "uid": uid, "resourceVersion": "1" } });
    r.ask("delete at an old version", Method::DELETE, &a, body(old))
        .await;
    let dry = json!({ "dryRun": ["All"] });
    r.ask(
        "a dry deletion",
        Method::DELETE,
        &format!("{a}?dryRun=All"),
        body(dry),
    )
    .await;
    let exact = json!({ "preconditions": { "uid": uid, "resourceVersion": version(&now) }, "propagationPolicy": "Background" });
    r.ask(
        "delete exactly this one; finalizers keep it",
        Method::DELETE,
        &a,
        body(exact),
    )
    .await;
    r.ask("delete it again", Method::DELETE, &a, body(json!({})))
        .await;
    let status = json!({ "status": { "phase": "Deleting" } });
    r.ask(
        "the status of a deleting one",
        Method::PATCH,
        &format!("{a}/status"),
        Some((As::Merge, status)),
    )
    .await;
    let late = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.org/late" }]);
    r.ask(
        "a new finalizer on a deleting one",
        Method::PATCH,
        &a,
        Some((As::Patch, late)),
    )
    .await;
    let revive = json!({ "metadata": { "deletionTimestamp": null } });
    r.ask("nobody is revived", Method::PATCH, &a, Some((As::Merge, revive)))
        .await;
    let first = json!([
        { "op": "test", "path": "/metadata/uid", "value": uid },
        { "op": "test", "path": "/metadata/finalizers/0", "value": FINALIZER },
        { "op": "remove", "path": "/metadata/finalizers/0" },
    ]);
    r.ask(
        "our finalizer goes, another is left",
        Method::PATCH,
        &a,
        Some((As::Patch, first.clone())),
    )
    .await;
    r.ask(
        "the same patch again",
        Method::PATCH,
        &a,
        Some((As::Patch, first)),
    )
    .await;
    let last = json!({ "metadata": { "finalizers": null } });
    r.ask(
        "the last finalizer goes, and with it the object",
        Method::PATCH,
        &a,
        Some((As::Merge, last)),
    )
    .await;
    r.ask("it is gone", Method::GET, &a, None).await;
    r.ask(
        "delete what is gone",
        Method::DELETE,
        &a,
        body(json!({ "preconditions": { "uid": uid } })),
    )
    .await;
    r.ask(
        "create under the same name",
        Method::POST,
        all,
        Some((As::Json, snapshot("a"))),
    )
    .await;
    let stale = json!([{ "op": "test", "path": "/metadata/uid", "value": uid }, { "op": "remove", "path": "/metadata/finalizers/0" }]);
    r.ask(
        "the old uid does not touch the new one",
        Method::PATCH,
        &a,
        Some((As::Patch, stale)),
    )
    .await;
    r.ask(
        "nor does a deletion of the old uid",
        Method::DELETE,
        &a,
        body(json!({ "preconditions": { "uid": uid } })),
    )
    .await;
    let free = json!({ "metadata": { "finalizers": [] } });
    r.ask("without finalizers", Method::PATCH, &a, Some((As::Merge, free)))
        .await;
    r.ask("a deletion is at once", Method::DELETE, &a, body(json!({})))
        .await;
}

async fn maps(r: &mut Runner, all: &str) {
    let create = |name: &str, row: &str| Some((As::Json, map(name, row)));
    r.ask("create a map", Method::POST, all, create("m1", "1")).await;
    let mut body = map("m1", "1");
    body["data"]["a"] = json!("2");
    r.ask(
        "replace without a version, where that is allowed",
        Method::PUT,
        &format!("{all}/m1"),
        Some((As::Json, body)),
    )
    .await;
    r.ask(
        "merge data",
        Method::PATCH,
        &format!("{all}/m1"),
        Some((As::Merge, json!({ "data": { "b": "3", "a": null } }))),
    )
    .await;
    let mut versioned = map("m9", "9");
    versioned["metadata"]["resourceVersion"] = json!("5");
    r.ask(
        "create with a version",
        Method::POST,
        all,
        Some((As::Json, versioned)),
    )
    .await;
    r.ask(
        "create in a dry run",
        Method::POST,
        &format!("{all}?dryRun=All"),
        create("dry", "0"),
    )
    .await;
    r.ask("which left no trace", Method::GET, &format!("{all}/dry"), None)
        .await;
    r.ask(
        "create in a namespace that is not there",
        Method::POST,
        "/api/v1/namespaces/not-there-at-all/configmaps",
        create("m", "1"),
    )
    .await;
}

async fn lists(r: &mut Runner, all: &str) {
    let begin = r
        .ask(
            "list by label",
            Method::GET,
            &format!("{all}?labelSelector=of%3Dscript"),
            None,
        )
        .await;
    for (name, row) in [("m3", "3"), ("m2", "2"), ("m4", "2")] {
        r.ask(
            "create out of order",
            Method::POST,
            all,
            Some((As::Json, map(name, row))),
        )
        .await;
    }
    r.ask(
        "lists are in order",
        Method::GET,
        &format!("{all}?labelSelector=of%3Dscript"),
        None,
    )
    .await;
    r.ask(
        "two labels",
        Method::GET,
        &format!("{all}?labelSelector=of%3Dscript%2Crow%3D2"),
        None,
    )
    .await;
    r.ask(
        "a label that is there",
        Method::GET,
        &format!("{all}?labelSelector=of"),
        None,
    )
    .await;
    r.ask(
        "a label that is not this",
        Method::GET,
        &format!("{all}?labelSelector=of%2Crow%21%3D2"),
        None,
    )
    .await;
    r.ask(
        "no such label",
        Method::GET,
        &format!("{all}?labelSelector=of%3Dnobody"),
        None,
    )
    .await;
    let page = r
        .ask(
            "a page",
            Method::GET,
            &format!("{all}?labelSelector=of%3Dscript&limit=3"),
            None,
        )
        .await;
    let token = page["metadata"]["continue"].as_str().unwrap_or_default();
    r.ask(
        "and the next",
        Method::GET,
        &format!("{all}?labelSelector=of%3Dscript&limit=3&continue={token}"),
        None,
    )
    .await;
    r.ask(
        "delete one",
        Method::DELETE,
        &format!("{all}/m4"),
        Some((As::Json, json!({}))),
    )
    .await;
    r.ask(
        "change one",
        Method::PATCH,
        &format!("{all}/m2"),
        Some((As::Merge, json!({ "data": { "c": "4" } }))),
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
        .ask(
            "list again",
            Method::GET,
            &format!("{all}?labelSelector=of%3Dscript"),
            None,
        )
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
        Some((As::Json, lease))
    };
    let lane = format!("{all}/lane");
    let first = r.ask("create a lease", Method::POST, all, lease("a", None)).await;
    r.ask(
        "somebody else creates it too",
        Method::POST,
        all,
        lease("b", None),
    )
    .await;
    r.ask(
        "replace at its version",
        Method::PUT,
        &lane,
        lease("b", Some(version(&first))),
    )
    .await;
    r.ask(
        "a former holder replaces at the old one",
        Method::PUT,
        &lane,
        lease("a", Some(version(&first))),
    )
    .await;
    r.ask(
        "replace what is not there",
        Method::PUT,
        &format!("{all}/none"),
        lease("a", Some(version(&first))),
    )
    .await;
    r.ask(
        "delete the lease",
        Method::DELETE,
        &lane,
        Some((As::Json, json!({}))),
    )
    .await;
}

async fn jobs(r: &mut Runner, all: &str) {
    let job = || {
        Some((
            As::Json,
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "snapdel-x" },
                "spec": { "suspend": true, "template": { "spec": {
                    "restartPolicy": "Never", "containers": [{ "name": "mover", "image": "none" }],
                } } },
            }),
        ))
    };
    let created = r.ask("create a Job", Method::POST, all, job()).await;
    r.ask("a repeated create is harmless", Method::POST, all, job())
        .await;
    let path = format!("{all}/snapdel-x");
    let other = json!({ "preconditions": { "uid": "another" }, "propagationPolicy": "Background" });
    r.ask(
        "reap another Job of this name",
        Method::DELETE,
        &path,
        Some((As::Json, other)),
    )
    .await;
    let exact =
        json!({ "preconditions": { "uid": created["metadata"]["uid"] }, "propagationPolicy": "Background" });
    r.ask(
        "reap exactly this Job",
        Method::DELETE,
        &path,
        Some((As::Json, exact)),
    )
    .await;
    r.ask("it is not there any more", Method::GET, &path, None).await;
}

async fn teardown(r: &mut Runner, ns: &str, snapshots: &str) {
    r.ask(
        "a Snapshot that outlasts its namespace for a while",
        Method::POST,
        snapshots,
        Some((As::Json, snapshot("z"))),
    )
    .await;
    r.ask(
        "delete the namespace",
        Method::DELETE,
        &format!("/api/v1/namespaces/{ns}"),
        Some((As::Json, json!({}))),
    )
    .await;
    let maps = format!("/api/v1/namespaces/{ns}/configmaps");
    r.ask(
        "nothing is created in it",
        Method::POST,
        &maps,
        Some((As::Json, map("late", "1"))),
    )
    .await;
    r.ask(
        "no Snapshot either",
        Method::POST,
        snapshots,
        Some((As::Json, snapshot("y"))),
    )
    .await;
    let z = format!("{snapshots}/z");
    r.ask(
        "a status is still written",
        Method::PATCH,
        &format!("{z}/status"),
        Some((As::Merge, json!({ "status": { "phase": "Deleting" } }))),
    )
    .await;
    r.ask(
        "z is deleted, by the teardown or by hand",
        Method::DELETE,
        &format!("{z}?dryRun=All"),
        Some((As::Json, json!({}))),
    )
    .await;
    let free = json!([{ "op": "remove", "path": "/metadata/finalizers" }]);
    r.ask("and let go", Method::PATCH, &z, Some((As::Patch, free)))
        .await;
}
