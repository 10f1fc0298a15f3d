//! Whose name counts: what another operator recorded, a repository that is not there for a while, two policies, a bucket
//! that namespaces share.

use crate::cluster_repository::{SHARED, shared};
use crate::story::{Story, repository_path, snapshot_path};
use holdfast_operator::protect::policy;
use holdfast_operator::world::keys::ObjectKey;
use serde_json::{Value, json};

const ALLOW: &str = "kopiur.home-operations.com/allow-identity-change";

fn policy_in(namespace: &str, name: &str) -> String {
    snapshot_path(name)
        .replace("/snapshots/", "/snapshotpolicies/")
        .replace("/namespaces/backup/", &format!("/namespaces/{namespace}/"))
}

impl Story {
    async fn judged(&self, namespace: &str, name: &str) -> Value {
        let key = ObjectKey::new(namespace, name);
        for _ in 0..2 {
            policy::pass(&self.ctx, &key).await.expect("a pass");
        }
        self.server.get(&policy_in(namespace, name)).unwrap()
    }

    /// A policy like `p`, elsewhere or under another name.
    fn another(&self, namespace: &str, name: &str, spec: Value) {
        let mut other = self.server.get(&policy_in("backup", "p")).unwrap();
        other["metadata"] = json!({
            "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "generation": 1,
        });
        other.as_object_mut().unwrap().remove("status");
        for (field, value) in spec.as_object().unwrap() {
            other["spec"][field] = value.clone();
        }
        self.server.put(&policy_in(namespace, name), other);
    }

    /// A Snapshot of `p` that was taken; without a unique id, as the Kopia operator leaves it.
    fn took(&self, name: &str, identity: (&str, &str), unique_id: Option<&str>, pin: Value) {
        let p = self.server.get(&policy_in("backup", "p")).unwrap();
        self.run(name);
        self.server.put(&policy_in("backup", "p"), p);
        let (username, hostname) = identity;
        self.server.edit(&snapshot_path(name), |s| {
            s["status"] = json!({
                "phase": "Succeeded", "origin": "scheduled",
                "snapshot": { "kopiaSnapshotID": name, "identity": {
                    "username": username, "hostname": hostname, "sourcePath": "/pvc/data",
                } },
                "timing": { "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:01:00Z" },
                "resolved": { "repository": pin },
            });
            if let Some(unique_id) = unique_id {
                s["status"]["resolved"]["uniqueId"] = json!(unique_id);
            }
        });
    }
}

fn nas() -> Value {
    json!({ "kind": "Repository", "name": "nas", "namespace": "backup" })
}

#[tokio::test]
async fn what_the_kopia_operator_recorded_stays_in_force() {
    for fails in [false, true] {
        let story = Story::new(10);
        story.run("old");
        story.took("old", ("ops-db", "backup"), None, nas());
        story.server.edit(&policy_in("backup", "p"), |p| {
            p["status"] =
                json!({ "resolved": { "identity": { "username": "ops-db", "hostname": "backup" } } });
        });
        // The specs say another name by now, or none.
        let expression = if fails { "labels.owner" } else { "'other'" };
        story.server.edit(&repository_path(), |r| {
            r["spec"]["identityDefaults"] = json!({ "usernameExpr": expression });
        });
        let p = story.judged("backup", "p").await;
        assert_eq!(story.condition(&p, "Ready").0, "True", "{p}");
        assert_eq!(story.condition(&p, "IdentityChangeHeld").0, "True");
        let resolved = &p["status"]["resolved"];
        assert_eq!(resolved["identity"]["username"], "ops-db");
        assert_eq!(resolved["uniqueId"], "id", "known from now on");
    }
    // Of another repository object nobody knows that it is this one.
    let story = Story::new(10);
    story.run("old");
    let elsewhere = json!({ "kind": "Repository", "name": "before", "namespace": "backup" });
    story.took("old", ("ops-db", "backup"), None, elsewhere);
    let p = story.judged("backup", "p").await;
    assert_eq!(p["status"]["resolved"]["identity"]["username"], "p");
}

#[tokio::test]
async fn of_two_names_that_it_bears_the_recorded_one_counts() {
    let story = Story::new(10);
    story.run("old");
    story.took("old", ("ops-db", "backup"), None, nas());
    story.took("young", ("p", "backup"), None, nas());
    story.server.edit(&snapshot_path("young"), |s| {
        s["status"]["timing"]["startTime"] = json!("2026-01-02T00:00:00Z");
    });
    story.server.edit(&policy_in("backup", "p"), |p| {
        p["status"] = json!({ "resolved": { "identity": { "username": "ops-db", "hostname": "backup" } } });
    });
    let p = story.judged("backup", "p").await;
    assert_eq!(p["status"]["resolved"]["identity"]["username"], "ops-db");
}

#[tokio::test]
async fn a_repository_that_is_gone_for_a_while_makes_nothing_forgotten() {
    let story = Story::new(10);
    story.run("old");
    story.took("old", ("first", "backup"), Some("id"), nas());
    let p = story.judged("backup", "p").await;
    assert_eq!(story.condition(&p, "IdentityChangeHeld").0, "True");
    let before = p["status"]["resolved"].clone();
    assert_eq!(before["identity"]["username"], "first");
    let nas = story.server.get(&repository_path()).unwrap();
    story.server.edit(&repository_path(), |r| {
        r["status"].as_object_mut().unwrap().remove("uniqueID");
        r["status"].as_object_mut().unwrap().remove("uniqueId");
    });
    let p = story.judged("backup", "p").await;
    assert_eq!(p["status"]["resolved"], before);
    assert_eq!(story.condition(&p, "IdentityChangeHeld").0, "True");
    story.server.put(&repository_path(), nas);
    let p = story.judged("backup", "p").await;
    assert_eq!(p["status"]["resolved"], before);
}

#[tokio::test]
async fn an_old_word_on_the_repository_allows_a_new_policy_no_change() {
    let story = Story::new(10);
    story.server.edit(&repository_path(), |r| {
        r["metadata"]["annotations"][ALLOW] = json!("a year ago");
    });
    story.run("old");
    let p = story.judged("backup", "p").await;
    let resolved = &p["status"]["resolved"];
    assert_eq!(resolved["allowedIdentityChangeOfRepository"], "a year ago");
    story.took("old", ("p", "backup"), Some("id"), nas());
    story.server.edit(&policy_in("backup", "p"), |p| {
        p["spec"]["identity"] = json!({ "username": "other" });
    });
    let p = story.judged("backup", "p").await;
    assert_eq!(story.condition(&p, "IdentityChangeHeld").0, "True");
    story.server.edit(&repository_path(), |r| {
        r["metadata"]["annotations"][ALLOW] = json!("now");
    });
    let p = story.judged("backup", "p").await;
    assert_eq!(p["status"]["resolved"]["identity"]["username"], "other");
}

/// A bucket with the ClusterRepository `shared` and a Repository of the namespace `backup` over it.
fn two_over_one() -> Story {
    let story = shared(10);
    let mut own = story.server.get(SHARED).unwrap();
    own["kind"] = json!("Repository");
    own["metadata"] = json!({ "name": "nas", "namespace": "backup", "uid": "nas-uid", "annotations": {} });
    own["spec"].as_object_mut().unwrap().remove("allowedNamespaces");
    own["spec"]["encryption"]["passwordSecretRef"]
        .as_object_mut()
        .unwrap()
        .remove("namespace");
    story.server.put(&repository_path(), own);
    story.server.put(
        "/api/v1/namespaces/bank",
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "bank" } }),
    );
    story.run("a");
    story.server.remove(&snapshot_path("a"));
    story
}

#[tokio::test]
async fn in_a_repository_over_a_shared_bucket_no_policy_says_anothers_host_name() {
    let story = two_over_one();
    story.server.edit(&policy_in("backup", "p"), |p| {
        p["spec"]["identity"] = json!({ "username": "db", "hostname": "bank" });
    });
    let p = story.judged("backup", "p").await;
    let (_, reason, message) = story.condition(&p, "Stalled");
    assert_eq!(reason, "IdentityInvalid", "{message}");
    assert!(p["status"]["resolved"].is_null());
    // Of a bucket of its own it may.
    story.server.remove(SHARED);
    let p = story.judged("backup", "p").await;
    assert_eq!(p["status"]["resolved"]["identity"]["hostname"], "bank");
}

#[tokio::test]
async fn who_bore_anothers_host_name_before_the_bucket_was_shared_takes_it_from_nobody() {
    let story = two_over_one();
    story.server.edit(&policy_in("backup", "p"), |p| {
        p["spec"]["identity"] = json!({ "username": "db", "hostname": "bank" });
    });
    story.took("old", ("db", "bank"), Some("id"), nas());
    story.server.edit(&policy_in("backup", "p"), |p| {
        p["status"] = json!({ "resolved": {
            "identity": { "username": "db", "hostname": "bank" }, "uniqueId": "id", "sourcePath": "/pvc/data",
        } });
    });
    let p = story.judged("backup", "p").await;
    assert_eq!(story.condition(&p, "Ready").0, "True", "it goes on: {p}");
    story.another(
        "bank",
        "db",
        json!({ "repository": { "kind": "ClusterRepository", "name": "shared" }, "identity": { "username": "db" } }),
    );
    let db = story.judged("bank", "db").await;
    assert_eq!(story.condition(&db, "Ready").0, "True", "{db}");
    assert_eq!(db["status"]["resolved"]["identity"]["hostname"], "bank");
    // And where both are, the one whose the name is has it.
    let p = story.judged("backup", "p").await;
    assert_eq!(story.condition(&p, "Stalled").1, "IdentityTaken");
}

#[tokio::test]
async fn whose_snapshots_bear_it_had_it_first() {
    let story = Story::new(10);
    story.run("old");
    story.took("old", ("p", "backup"), Some("id"), nas());
    // The other one has it in its status, and is younger; this one has only its snapshots.
    story.another("backup", "q", json!({ "identity": { "username": "p" } }));
    story.server.edit(&policy_in("backup", "q"), |q| {
        q["metadata"]["creationTimestamp"] = json!("2999-01-01T00:00:00Z");
        q["status"] = json!({ "resolved": {
            "identity": { "username": "p", "hostname": "backup" }, "uniqueId": "id", "sourcePath": "/pvc/data",
        } });
    });
    let p = story.judged("backup", "p").await;
    assert_eq!(story.condition(&p, "Ready").0, "True", "{p}");
    let q = story.judged("backup", "q").await;
    assert_eq!(story.condition(&q, "Stalled").1, "IdentityTaken");
}
