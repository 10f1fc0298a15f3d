//! Under which identity runs are recorded: what says it, what an edit changes, and what finds the snapshots afterwards.

use crate::cluster_repository::{SHARED, shared};
use crate::story::{JOBS, Story, repository_path, snapshot_path};
use crate::work_document;
use axum::http::Method;
use holdfast_operator::protect::{policy, restore, snapshot};
use holdfast_operator::world::keys::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const ALLOW: &str = "kopiur.home-operations.com/allow-identity-change";

fn policy_path(name: &str) -> String {
    snapshot_path(name).replace("/snapshots/", "/snapshotpolicies/")
}

impl Story {
    async fn pass_over_policy(&self, name: &str) -> Value {
        let key = ObjectKey::new("backup", name);
        policy::pass(&self.ctx, &key).await.expect("a pass");
        // The first one may only put the finalizer on.
        policy::pass(&self.ctx, &key).await.expect("a pass");
        self.server.get(&policy_path(name)).unwrap()
    }

    /// A run that has begun: whose it is by its mover's order.
    async fn begun(&self, name: &str) -> (String, String) {
        let key = ObjectKey::new("backup", name);
        for _ in 0..2 {
            snapshot::pass(&self.ctx, &key).await.expect("a pass");
        }
        let job = self.server.get(&format!("{JOBS}/{name}")).expect("a Job");
        let source = &work_document(&job)["operation"]["backup"]["items"][0]["source"];
        let text = |field: &str| source[field].as_str().unwrap().to_owned();
        (text("username"), text("hostname"))
    }

    async fn ended(&self, name: &str) -> Value {
        let uid = self.server.get(&snapshot_path(name)).unwrap()["metadata"]["uid"].clone();
        let message = json!({
            "version": 1, "uniqueId": "id",
            "result": { "backedUp": { "taken": 1, "first": {
                "uid": uid, "snapshotId": format!("id-{name}"),
                "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:01:00Z",
                "sizeBytes": 1, "filesNew": 1, "filesModified": 0, "filesUnchanged": 0,
            } } },
        });
        self.end(&format!("{JOBS}/{name}"), &message.to_string(), true);
        self.run_pass(name).await;
        self.server.get(&snapshot_path(name)).unwrap()
    }

    /// Another run of the policy as it is by now.
    fn runs_again(&self, name: &str) {
        let policy = self.server.get(&policy_path("p")).unwrap();
        self.run(name);
        self.server.put(&policy_path("p"), policy);
    }

    fn defaults(&self, defaults: Value) {
        self.server
            .edit(&repository_path(), |r| r["spec"]["identityDefaults"] = defaults);
    }
}

fn of(username: &str, hostname: &str) -> (String, String) {
    (username.to_owned(), hostname.to_owned())
}

#[tokio::test]
async fn what_was_recorded_outlasts_every_edit_and_is_deleted_by_it() {
    let story = Story::new(10);
    story.defaults(json!({ "usernameExpr": "namespace + '-' + policyName", "cluster": "lab" }));
    story.run("a");
    assert_eq!(story.begun("a").await, of("backup-p", "backup.lab"));
    let running = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(running["status"]["resolved"]["identity"]["username"], "backup-p");

    // Edited while the mover runs: it records what it was told.
    story.defaults(Value::Null);
    let done = story.ended("a").await;
    assert_eq!(
        done["status"]["snapshot"]["identity"],
        json!({ "username": "backup-p", "hostname": "backup.lab", "sourcePath": "/pvc/data" })
    );
    assert!(done["status"]["resolved"]["identity"].is_null(), "it stands once");

    // And the policy goes on under what its snapshots bear, and says so once.
    let p = story.pass_over_policy("p").await;
    let (status, reason, message) = story.condition(&p, "IdentityChangeHeld");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "IdentityInUse"));
    assert!(
        message.contains("p@backup") && message.contains(ALLOW),
        "{message}"
    );
    assert_eq!(p["status"]["resolved"]["identity"]["hostname"], "backup.lab");
    assert_eq!(story.condition(&p, "Ready").0, "True");
    story.pass_over_policy("p").await;
    let told = story.server.writes(&Method::POST, "/events");
    let told = told.iter().filter(|e| e.body["reason"] == "IdentityChangeHeld");
    assert_eq!(told.count(), 1);
    story.runs_again("b");
    assert_eq!(story.begun("b").await, of("backup-p", "backup.lab"));
    story.ended("b").await;

    // A person allows it, once.
    let allow = |value: &'static str| {
        story.server.edit(&policy_path("p"), |p| {
            p["metadata"]["annotations"] = json!({ ALLOW: value })
        });
    };
    allow("yes");
    let p = story.pass_over_policy("p").await;
    assert_eq!(story.condition(&p, "IdentityChangeHeld").0, "False");
    assert_eq!(
        p["status"]["resolved"]["identity"],
        json!({ "username": "p", "hostname": "backup" })
    );
    assert_eq!(p["status"]["resolved"]["allowedIdentityChange"], "yes");
    story.server.edit(&policy_path("p"), |p| {
        p["spec"]["identity"] = json!({ "username": "other" });
    });
    let p = story.pass_over_policy("p").await;
    assert_eq!(
        story.condition(&p, "IdentityChangeHeld").0,
        "True",
        "the same value allows no second one"
    );
    allow("yes, again");
    let p = story.pass_over_policy("p").await;
    assert_eq!(p["status"]["resolved"]["identity"]["username"], "other");

    // The old one is deleted as what it was recorded as.
    let deleted = (Timestamp::now() - SignedDuration::from_secs(60)).strftime("%Y-%m-%dT%H:%M:%SZ");
    story.server.edit(&snapshot_path("a"), |s| {
        s["metadata"]["deletionTimestamp"] = json!(deleted.to_string());
    });
    story.pass().await;
    let (_, job) = story.job().expect("a batch");
    let member = &work_document(&job)["operation"]["deleteBatch"]["members"][0];
    assert_eq!(member["source"]["username"], "backup-p");
    assert_eq!(member["source"]["hostname"], "backup.lab");
}

#[tokio::test]
async fn an_expression_that_says_no_name_stalls_the_policy_and_starts_no_run() {
    let story = Story::new(10);
    story.defaults(json!({ "usernameExpr": "labels.owner" }));
    story.run("a");
    let p = story.pass_over_policy("p").await;
    let (status, reason, message) = story.condition(&p, "Stalled");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "IdentityInvalid"));
    assert!(
        message.starts_with("spec.identityDefaults.usernameExpr cannot be evaluated"),
        "{message}"
    );
    story.run_pass("a").await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(story.condition(&a, "Ready").1, "IdentityInvalid");
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
    // With the label it runs.
    story.server.edit(&policy_path("p"), |p| {
        p["metadata"]["labels"] = json!({ "owner": "ops" });
    });
    assert_eq!(story.begun("a").await, of("ops", "backup"));
    let p = story.pass_over_policy("p").await;
    assert_eq!(story.condition(&p, "Ready").0, "True");
}

#[tokio::test]
async fn of_two_policies_that_would_be_one_history_the_first_has_it() {
    let story = Story::new(10);
    story.run("a");
    story.pass_over_policy("p").await;
    let mut second = story.server.get(&policy_path("p")).unwrap();
    second["metadata"] = json!({ "name": "q", "namespace": "backup", "uid": "q-uid", "generation": 1 });
    second["spec"]["identity"] = json!({ "username": "p" });
    second.as_object_mut().unwrap().remove("status");
    story.server.put(&policy_path("q"), second);
    let q = story.pass_over_policy("q").await;
    let (_, reason, message) = story.condition(&q, "Stalled");
    assert_eq!(reason, "IdentityTaken");
    assert!(message.contains("SnapshotPolicy backup/p"), "{message}");
    assert!(q["status"]["resolved"].is_null());
    story.runs_again("b");
    story.server.edit(&snapshot_path("b"), |s| {
        s["spec"]["policyRef"]["name"] = json!("q")
    });
    story.run_pass("b").await;
    let b = story.server.get(&snapshot_path("b")).unwrap();
    assert_eq!(story.condition(&b, "Ready").1, "IdentityTaken");
    // The first one runs all the same, and of another claim the second does too.
    assert_eq!(story.begun("a").await, of("p", "backup"));
    story.server.edit(&policy_path("q"), |q| {
        q["spec"]["sources"] = json!([{ "pvc": { "name": "store" } }]);
    });
    assert_eq!(story.begun("b").await, of("p", "backup"));
}

#[tokio::test]
async fn in_a_cluster_repository_a_policy_cannot_take_another_namespaces_host_name() {
    let story = shared(10);
    story.run("a");
    story.server.edit(&policy_path("p"), |p| {
        p["spec"]["repository"] = json!({ "kind": "ClusterRepository", "name": "shared" });
        p["spec"]["identity"] = json!({ "hostname": "bank" });
    });
    story.run_pass("a").await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    let (_, reason, message) = story.condition(&a, "Ready");
    assert_eq!(reason, "IdentityInvalid");
    assert!(message.contains("spec.identity.hostname says bank"), "{message}");
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
    story.server.edit(SHARED, |r| {
        r["spec"]["identityDefaults"] = json!({ "cluster": "lab" })
    });
    story
        .server
        .edit(&policy_path("p"), |p| p["spec"]["identity"] = Value::Null);
    assert_eq!(story.begun("a").await, of("p", "backup.lab"));
}

#[tokio::test]
async fn a_name_is_kept_only_in_its_repository_and_never_as_another_namespaces() {
    // Borne in a repository that `spec.repository` named before, and, however that came to be, in the shared one itself.
    for (unique_id, kept) in [("before", "bank"), ("id", "bank"), ("id", "bank.lab")] {
        let story = shared(10);
        story.run("old");
        let identity = json!({ "username": "p", "hostname": kept, "sourcePath": "/pvc/data" });
        story.server.edit(&snapshot_path("old"), |s| {
            s["status"] = json!({
                "phase": "Succeeded", "origin": "manual",
                "snapshot": { "kopiaSnapshotID": "old", "identity": identity },
                "timing": { "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:01:00Z" },
                "resolved": { "uniqueId": unique_id, "repository": { "name": "nas", "namespace": "backup" } },
            });
        });
        story.runs_again("a");
        story.server.edit(&policy_path("p"), |p| {
            p["spec"]["repository"] = json!({ "kind": "ClusterRepository", "name": "shared" });
            p["status"]["resolved"] = json!({
                "identity": { "username": "p", "hostname": kept },
                "uniqueId": unique_id, "sourcePath": "/pvc/data",
            });
        });
        assert_eq!(story.begun("a").await, of("p", "backup"), "{unique_id} {kept}");
        let p = story.pass_over_policy("p").await;
        let resolved = &p["status"]["resolved"];
        assert_eq!(resolved["identity"]["hostname"], "backup");
        assert_eq!(
            (&resolved["uniqueId"], &resolved["sourcePath"]),
            (&json!("id"), &json!("/pvc/data"))
        );
    }
}

#[tokio::test]
async fn an_expression_that_fails_by_now_stops_no_policy_whose_snapshots_bear_a_name() {
    let story = Story::new(10);
    story.run("a");
    assert_eq!(story.begun("a").await, of("p", "backup"));
    story.ended("a").await;
    story.defaults(json!({ "usernameExpr": "labels.owner" }));
    let p = story.pass_over_policy("p").await;
    assert_eq!(story.condition(&p, "Ready").0, "True");
    let (status, _, message) = story.condition(&p, "IdentityChangeHeld");
    assert_eq!(status, "True");
    assert!(
        message.contains("cannot be evaluated") && message.contains("p@backup"),
        "{message}"
    );
    story.runs_again("b");
    assert_eq!(story.begun("b").await, of("p", "backup"));
}

#[tokio::test]
async fn the_first_run_holds_its_name_while_it_is_under_way() {
    let story = Story::new(10);
    story.run("a");
    assert_eq!(story.begun("a").await, of("p", "backup"));
    story.server.edit(&policy_path("p"), |p| {
        p["spec"]["identity"] = json!({ "username": "other" });
    });
    let p = story.pass_over_policy("p").await;
    assert_eq!(story.condition(&p, "IdentityChangeHeld").0, "True");
    assert_eq!(p["status"]["resolved"]["identity"]["username"], "p");
    story.runs_again("b");
    assert_eq!(story.begun("b").await, of("p", "backup"));
}

#[tokio::test]
async fn who_had_it_first_is_asked_of_the_path_too() {
    let story = Story::new(10);
    story.run("a");
    story.pass_over_policy("p").await;
    let mut second = story.server.get(&policy_path("p")).unwrap();
    second["metadata"] = json!({
        "name": "q", "namespace": "backup", "uid": "q-uid", "generation": 1,
        "creationTimestamp": "2999-01-01T00:00:00Z",
    });
    second["spec"]["identity"] = json!({ "username": "p" });
    second["spec"]["sources"] = json!([{ "pvc": { "name": "store" } }]);
    second.as_object_mut().unwrap().remove("status");
    story.server.put(&policy_path("q"), second);
    let q = story.pass_over_policy("q").await;
    assert_eq!(story.condition(&q, "Ready").0, "True");
    // The older one is edited onto the younger one's path: that one had it.
    story.server.edit(&policy_path("p"), |p| {
        p["spec"]["sources"] = json!([{ "pvc": { "name": "store" } }]);
    });
    let p = story.pass_over_policy("p").await;
    let (_, reason, message) = story.condition(&p, "Stalled");
    assert_eq!(reason, "IdentityTaken");
    assert!(message.contains("backup/q"), "{message}");
    let q = story.pass_over_policy("q").await;
    assert_eq!(story.condition(&q, "Ready").0, "True");
}

#[tokio::test]
async fn two_annotations_do_not_make_each_other_new() {
    let story = Story::new(10);
    story.run("a");
    story.begun("a").await;
    story.ended("a").await;
    story.pass_over_policy("p").await;
    story.server.edit(&policy_path("p"), |p| {
        p["metadata"]["annotations"] = json!({ ALLOW: "one" })
    });
    story.server.edit(&repository_path(), |r| {
        r["metadata"]["annotations"][ALLOW] = json!("two")
    });
    for (name, held) in [("second", "False"), ("third", "True"), ("fourth", "True")] {
        story.server.edit(&policy_path("p"), |p| {
            p["spec"]["identity"] = json!({ "username": name });
        });
        let p = story.pass_over_policy("p").await;
        let list = p["status"]["conditions"].to_string();
        let is_held = if list.contains("IdentityChangeHeld") {
            story.condition(&p, "IdentityChangeHeld").0
        } else {
            "False".to_owned()
        };
        assert_eq!(is_held, held, "{name}");
        assert_eq!(p["status"]["resolved"]["identity"]["username"], "second");
    }
}

#[tokio::test]
async fn what_was_recorded_with_the_clusters_name_is_restored_after_that_was_removed() {
    let story = shared(10);
    story.run("a");
    story.server.edit(SHARED, |r| {
        r["spec"]["identityDefaults"] = json!({ "cluster": "lab" })
    });
    story.server.edit(&policy_path("p"), |p| {
        p["spec"]["repository"] = json!({ "kind": "ClusterRepository", "name": "shared" });
    });
    assert_eq!(story.begun("a").await, of("p", "backup.lab"));
    story.ended("a").await;
    story
        .server
        .edit(SHARED, |r| r["spec"]["identityDefaults"] = Value::Null);
    let restores = snapshot_path("back").replace("/snapshots/", "/restores/");
    let typed = json!({ "identity": { "username": "p", "hostname": "backup.lab" } });
    for (source, typed) in [
        (json!({ "snapshotRef": { "name": "a" } }), false),
        (json!({ "fromPolicy": { "name": "p" } }), false),
        (typed, true),
    ] {
        let mut spec = json!({ "source": source, "target": { "pvcRef": { "name": "data" } } });
        if typed {
            spec["repository"] = json!({ "kind": "ClusterRepository", "name": "shared" });
        }
        story.server.put(
            &restores,
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Restore",
                "metadata": { "name": "back", "namespace": "backup", "uid": "r-uid", "generation": 1 },
                "spec": spec,
            }),
        );
        let key = ObjectKey::new("backup", "back");
        for _ in 0..3 {
            restore::pass(&story.ctx, &key).await.expect("a pass");
        }
        let back = story.server.get(&restores).unwrap();
        let (_, reason, message) = story.condition(&back, "Ready");
        assert_eq!(reason == "IdentityNotAllowed", typed, "{reason}: {message}");
        if typed {
            assert!(message.contains("spec.identityDefaults.cluster"), "{message}");
            assert!(!message.contains("Make the Restore there"), "{message}");
        } else {
            assert!(back["status"]["job"]["name"].is_string(), "{back}");
        }
        for (path, _) in story.server.under(JOBS) {
            story.server.remove(&path);
        }
    }
}
