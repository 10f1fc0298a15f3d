//! Adoption against the API server in memory: what it writes, and that it comes to rest.

use crate::story::{Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_api::Repository;
use holdfast_operator::protect::catalog::arrived;
use holdfast_operator::protect::catalog::due::Request;
use holdfast_operator::protect::policy;
use holdfast_operator::world::keys::ObjectKey;
use holdfast_operator::world::views::RepositoryView;
use holdfast_operator::world::{Change, Observed};
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

mod lag;
mod memory;
mod partial;
mod rows;

const SNAPSHOTS: &str = "/apis/kopiur.home-operations.com/v1alpha1/namespaces/backup/snapshots";
const KEPT: &str = "/api/v1/namespaces/holdfast-system/configmaps";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/snapshots.kopiur.home-operations.com";
const ORIGIN: &str = "kopiur.home-operations.com/origin";

fn policy_path() -> String {
    SNAPSHOTS.replace("/snapshots", "/snapshotpolicies/p")
}

/// One a day for so many days, the last of them two days ago.
fn listing(count: i64) -> Vec<ListedSnapshot> {
    let now = Timestamp::now();
    (0..count)
        .map(|n| {
            listed(
                &format!("{n:064x}"),
                now - SignedDuration::from_hours(24 * (n + 2)),
            )
        })
        .collect()
}

fn id_of(snapshot: &Value) -> String {
    let id = snapshot["status"]["snapshot"]["kopiaSnapshotID"].as_str();
    id.unwrap().to_owned()
}

fn listed(id: &str, start_time: Timestamp) -> ListedSnapshot {
    ListedSnapshot {
        snapshot_id: id.to_owned(),
        source: Source {
            username: "p".into(),
            hostname: "backup".into(),
            path: "/pvc/data".into(),
        },
        start_time,
        size_bytes: Some(1),
        cluster: Some("cluster".into()),
        snapshot_uid: Some("gone".into()),
        pinned: false,
        pin_is_ours: false,
    }
}

impl Story {
    /// The policy `p`, made an hour ago.
    fn adopter(&self, spec: Value) {
        let mut full = json!({ "repository": { "name": "nas" }, "sources": [{ "pvc": { "name": "data" } }] });
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        let made = Timestamp::now() - SignedDuration::from_hours(1);
        self.server.put(
            &policy_path(),
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
                "metadata": {
                    "name": "p", "namespace": "backup", "uid": "p-uid", "generation": 1, "annotations": {},
                    "creationTimestamp": made.to_string(),
                    "finalizers": ["kopiur.home-operations.com/policy-cleanup"],
                },
                "spec": full,
            }),
        );
    }

    async fn scanned(&self, listing: &[ListedSnapshot]) {
        self.scanned_at(Timestamp::now() + SignedDuration::from_secs(1), listing)
            .await;
    }

    /// So much later that no difference of two clocks matters.
    async fn scanned_later(&self, listing: &[ListedSnapshot]) {
        self.scanned_at(Timestamp::now() + SignedDuration::from_mins(11), listing)
            .await;
    }

    async fn scanned_at(&self, began: Timestamp, listing: &[ListedSnapshot]) {
        let object: Repository =
            serde_json::from_value(self.server.get(&repository_path()).unwrap()).unwrap();
        let view = RepositoryView::namespaced(object);
        let request = Request {
            asked: Some("t".into()),
            due: None,
        };
        arrived(&self.ctx, &view, began, &request, listing).await.unwrap();
    }

    /// Everything that was written so far, the record of scans and events apart.
    fn written(&self) -> usize {
        [Method::POST, Method::PATCH, Method::DELETE]
            .iter()
            .flat_map(|method| self.server.writes(method, ""))
            .filter(|write| !write.path.contains("/repositories/") && !write.path.ends_with("/events"))
            .count()
    }

    fn of_origin(&self, origin: &str) -> Vec<Value> {
        let all = self.server.under(SNAPSHOTS).into_iter().map(|(_, s)| s);
        all.filter(|s| s["metadata"]["labels"][ORIGIN] == origin)
            .collect()
    }

    async fn adopter_pass(&self) {
        let key = ObjectKey::new("backup", "p");
        policy::pass(&self.ctx, &key).await.expect("a pass");
    }

    fn adopter_now(&self) -> Value {
        self.server.get(&policy_path()).unwrap()
    }
}

#[tokio::test]
async fn four_thousand_rows_become_a_policys_and_come_to_rest_within_three_passes() {
    let story = Story::new(10);
    let all = listing(4_898);
    story.scanned(&all).await;
    assert_eq!(story.of_origin("discovered").len(), 4_898);

    story.adopter(json!({ "defaultDeletionPolicy": "Delete" }));
    let mut writes = Vec::new();
    for _ in 0..3 {
        let before = story.written();
        story.scanned(&all).await;
        writes.push(story.written() - before);
    }
    println!("writes in three passes: {writes:?}");
    // Object, status and row of each, and the policy before and after it; then nothing any more.
    assert_eq!(writes, [3 * 4_898 + 2, 0, 0]);
    let adopted = story.of_origin("adopted");
    assert_eq!(adopted.len(), 4_898);
    assert!(story.of_origin("discovered").is_empty());
    for one in &adopted {
        assert_eq!(one["spec"]["policyRef"]["name"], "p");
        assert_eq!(one["status"]["phase"], "Succeeded");
        assert_eq!(one["status"]["origin"], "adopted");
        assert_eq!(one["spec"]["deletionPolicy"], "Delete");
    }
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(repository["status"]["catalog"]["discoveredBackupCount"], 0);
    assert!(
        repository["status"]["catalog"]["scanDue"].is_null(),
        "no scan follows"
    );
    assert_eq!(story.told("SnapshotsAdopted").len(), 1);
    let warnings = story.server.writes(&Method::POST, "/events");
    assert!(
        warnings.iter().all(|e| e.body["type"] == "Normal"),
        "nothing warns on the happy path"
    );

    // An edit would let nearly all of them go, and their data with them: a person is asked first.
    story.server.edit(&policy_path(), |p| {
        p["metadata"]["generation"] = json!(2);
        p["spec"]["retention"] = json!({ "keepDaily": 14 });
    });
    story.adopter_pass().await;
    story.adopter_pass().await;
    let policy = story.adopter_now();
    let (status, _, message) = story.condition(&policy, "MassPruneHeld");
    assert_eq!(status, "True");
    assert!(message.contains("4884"), "{message}");
    let stamped = story.of_origin("adopted").into_iter();
    let by = "kopiur.home-operations.com/pruned-by";
    assert_eq!(
        stamped
            .filter(|s| !s["metadata"]["annotations"][by].is_null())
            .count(),
        0
    );
}

#[tokio::test]
async fn only_what_retention_keeps_is_adopted_and_nothing_goes_round() {
    for says in ["Retain", "Delete"] {
        only_what_is_kept(says).await;
    }
}

async fn only_what_is_kept(says: &str) {
    let story = Story::new(10);
    let all = listing(4_898);
    story.adopter(json!({ "retention": { "keepDaily": 14 }, "defaultDeletionPolicy": says }));
    let mut writes = Vec::new();
    for _ in 0..3 {
        let before = story.written();
        story.scanned(&all).await;
        story.adopter_pass().await;
        story.pass().await;
        writes.push(story.written() - before);
    }
    println!("writes in three rounds: {writes:?}");
    assert_eq!(writes[2], 0);
    assert_eq!(story.of_origin("adopted").len(), 14);
    assert_eq!(story.of_origin("discovered").len(), 4_884);
    let policy = story.adopter_now();
    assert_eq!(policy["status"]["adoption"]["skippedByRetention"], 4_884);
    assert_eq!(story.told("AdoptionSkippedByRetention").len(), 1);
    assert!(story.told("MassPruneHeld").is_empty());
}

#[tokio::test]
async fn a_policy_adopts_what_bears_its_identity_in_force_and_not_what_bears_its_own_name() {
    let story = Story::new(10);
    let mut all = listing(4);
    for one in &mut all[..2] {
        one.source.username = "app".into();
        one.source.hostname = "old-cluster".into();
    }
    story.adopter(json!({ "identity": { "username": "app", "hostname": "old-cluster" } }));
    story.scanned(&all).await;
    let mut adopted: Vec<String> = story.of_origin("adopted").iter().map(id_of).collect();
    adopted.sort();
    assert_eq!(adopted, [all[0].snapshot_id.clone(), all[1].snapshot_id.clone()]);
    assert_eq!(story.of_origin("discovered").len(), 2);
}

#[tokio::test]
async fn a_policy_whose_specs_say_no_name_adopts_nothing() {
    let story = Story::new(10);
    story.server.edit(&repository_path(), |repository| {
        repository["spec"]["identityDefaults"] = json!({ "usernameExpr": "labels['team']" });
    });
    story.adopter(json!({}));
    story.scanned(&listing(3)).await;
    assert!(story.of_origin("adopted").is_empty());
    assert_eq!(story.of_origin("discovered").len(), 3);
}

#[tokio::test]
async fn of_two_policies_with_one_identity_neither_adopts_also_when_one_had_it_first() {
    let story = Story::new(10);
    story.adopter(json!({}));
    let mut second = story.adopter_now();
    second["metadata"]["name"] = json!("q");
    second["metadata"]["uid"] = json!("q-uid");
    second["spec"]["identity"] = json!({ "username": "p" });
    story
        .server
        .put(&SNAPSHOTS.replace("/snapshots", "/snapshotpolicies/q"), second);
    // The first has it in its status: the second is refused it, and claims it all the same.
    story.adopter_pass().await;
    assert_eq!(
        story.adopter_now()["status"]["resolved"]["identity"]["username"],
        "p"
    );
    story.scanned(&listing(3)).await;
    assert!(story.of_origin("adopted").is_empty());
    assert_eq!(story.of_origin("discovered").len(), 3);
    let told = story.adopter_now()["status"]["conditions"].clone();
    let told = told.as_array().unwrap();
    let contested = told.iter().find(|c| c["type"] == "AdoptionContested").unwrap();
    assert_eq!(contested["status"], "True");
    assert!(contested["message"].as_str().unwrap().contains("backup/q"));
}

#[tokio::test]
async fn who_ignores_adopts_nothing() {
    for (own, theirs, adopted) in [
        (json!("Ignore"), Value::Null, 0),
        (Value::Null, json!("Ignore"), 0),
        (json!("Adopt"), json!("Ignore"), 3),
        (Value::Null, json!("Adopt"), 3),
    ] {
        let story = Story::new(10);
        story.server.edit(&repository_path(), |r| {
            r["spec"]["catalog"] = json!({ "adoption": theirs })
        });
        story.adopter(json!({ "adoption": own }));
        story.scanned(&listing(3)).await;
        assert_eq!(story.of_origin("adopted").len(), adopted, "{own} {theirs}");
        assert_eq!(story.of_origin("discovered").len(), 3 - adopted);
    }
}

#[tokio::test]
async fn what_was_kept_reappears_as_discovered_and_is_adopted_only_when_its_policy_is_made_again() {
    let story = Story::new(10);
    story.adopter(json!({}));
    // It was taken before the policy that there is, and let go under it.
    for (name, policy, pin) in [("a", "Retain", false), ("b", "Orphan", true)] {
        story.snapshot(name, json!({}));
        story.server.edit(&snapshot_path(name), |s| {
            s["spec"]["deletionPolicy"] = json!(policy);
            s["spec"]["pin"] = json!(pin);
        });
    }
    // What is remembered is written before the first finalizer goes.
    story.server.on_write(|write, objects| {
        let releases = write.method == Method::PATCH
            && write.path.contains("/snapshots/")
            && !write.path.ends_with("/status");
        if releases {
            let maps = objects.by_path.iter().filter(|(path, _)| path.starts_with(KEPT));
            let data: Vec<&Value> = maps.map(|(_, map)| &map["data"]).collect();
            assert!(data.iter().any(|d| d["id-a"].is_string()), "{data:?}");
        }
        None
    });
    story.pass().await;
    assert!(story.server.under(SNAPSHOTS).is_empty(), "both were let go");
    story.server.on_write(|_, _| None);

    let long_ago = Timestamp::now() - SignedDuration::from_hours(100);
    let found = [listed("id-a", long_ago), listed("id-b", long_ago)];
    for _ in 0..2 {
        story.scanned(&found).await;
        assert_eq!(story.of_origin("discovered").len(), 2);
        assert!(story.of_origin("adopted").is_empty());
    }

    story.server.remove(&policy_path());
    story.adopter(json!({ "defaultDeletionPolicy": "Delete" }));
    story
        .server
        .edit(&policy_path(), |p| p["metadata"]["uid"] = json!("another"));
    story.scanned(&found).await;
    let mut adopted = story.of_origin("adopted");
    adopted.sort_by_key(|s| s["status"]["snapshot"]["kopiaSnapshotID"].to_string());
    let says: Vec<(&Value, &Value)> = adopted
        .iter()
        .map(|s| (&s["spec"]["deletionPolicy"], &s["spec"]["pin"]))
        .collect();
    assert_eq!(
        says,
        [(&json!("Retain"), &Value::Null), (&json!("Orphan"), &json!(true))]
    );

    // It is remembered until a live object records it, and not longer.
    let remembered = || -> usize {
        let maps = story.server.under(KEPT).into_iter();
        let kept = maps.filter(|(path, _)| path.contains("holdfast-kept-"));
        kept.filter_map(|(_, map)| Some(map["data"].as_object()?.len()))
            .sum()
    };
    assert_eq!(remembered(), 2);
    story.scanned_later(&found).await;
    assert_eq!(remembered(), 0);
    let before = story.written();
    story.scanned(&found).await;
    assert_eq!(story.written(), before);
}

#[tokio::test]
async fn an_adoption_that_is_cut_off_anywhere_is_completed_by_the_next_scan() {
    for cut in 0..3 {
        let story = Story::new(10);
        let all = listing(1);
        story.scanned(&all).await;
        story.adopter(json!({}));
        let mut seen = 0;
        story.server.on_write(move |write, _| {
            let counts = write.path.starts_with(SNAPSHOTS);
            let refuse = counts && seen == cut;
            seen += usize::from(counts);
            refuse.then_some(StatusCode::INTERNAL_SERVER_ERROR)
        });
        story.scanned(&all).await;
        let repository = story.server.get(&repository_path()).unwrap();
        let catalog = &repository["status"]["catalog"];
        assert!(catalog["lastError"].is_string(), "{cut}: it is said");
        assert!(catalog["scanDue"].is_object(), "{cut}: and tried again");
        story.scanned(&all).await;
        story.scanned(&all).await;
        let all = story.server.under(SNAPSHOTS);
        assert_eq!(all.len(), 1, "{cut}: {all:?}");
        assert_eq!(all[0].1["status"]["origin"], "adopted", "{cut}");
    }
}

#[tokio::test]
async fn a_new_policy_asks_for_one_scan_where_something_is_left() {
    let story = Story::new(10);
    story.scanned(&listing(2)).await;
    story.adopter(json!({}));
    for _ in 0..3 {
        story.adopter_pass().await;
    }
    let due = |story: &Story| {
        let repository = story.server.get(&repository_path()).unwrap();
        repository["status"]["catalog"]["scanDue"].clone()
    };
    assert!(due(&story)["at"].is_string());
    let policy = story.adopter_now();
    assert_eq!(
        policy["status"]["adoption"]["lookedFor"],
        "p@backup:/pvc/data in id"
    );
    assert_eq!(story.told("AdoptionScanRequested").len(), 1);
    let ready = story.condition(&policy, "Ready");
    assert_eq!(ready.0, "True", "retention goes on: {ready:?}");

    let empty = Story::new(10);
    empty.scanned(&[]).await;
    empty.adopter(json!({}));
    empty.adopter_pass().await;
    empty.adopter_pass().await;
    assert!(due(&empty).is_null());
    assert!(empty.told("AdoptionScanRequested").is_empty());
}

const PRUNED_BY: &str = "kopiur.home-operations.com/pruned-by";

impl Story {
    /// One of the policy's own that ended so many hours ago.
    fn own(&self, name: &str, hours: i64) {
        self.snapshot(name, json!({}));
        let ended = Timestamp::now() - SignedDuration::from_hours(hours);
        self.server.edit(&snapshot_path(name), |s| {
            s["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
            s["status"]["timing"] = json!({ "startTime": ended.to_string(), "endTime": ended.to_string() });
            s["status"]["resolved"]["uniqueId"] = json!("id");
        });
    }

    /// Twelve of the policy's own, taken before everything that is listed; retention has room for no more, and ran to its end.
    fn full_policy(&self) {
        self.adopter(json!({ "retention": { "keepLatest": 12 }, "defaultDeletionPolicy": "Delete" }));
        self.server.edit(&policy_path(), |p| {
            p["status"] = json!({ "retention": { "completedGeneration": 1 } });
        });
        for n in 0..12 {
            self.own(&format!("own-{n}"), 24 * (n + 40));
        }
    }

    fn stamps(&self) -> usize {
        let all = self.server.under(SNAPSHOTS).into_iter();
        all.filter(|(_, s)| !s["metadata"]["annotations"][PRUNED_BY].is_null())
            .count()
    }
}

/// What is taken over comes one by one, and each takes the place of one that retention kept so far. Were each judged when it
/// comes, twelve would go without a question although the threshold is ten.
#[tokio::test]
async fn retention_that_runs_after_every_write_of_an_adoption_judges_all_of_it_at_once() {
    let all = listing(12);
    for cut in 0..=26 {
        let story = Story::new(10);
        story.full_policy();
        let mut seen = 0;
        story.server.on_write(move |write, _| {
            let counts = write.path.starts_with(SNAPSHOTS) || write.path.contains("/snapshotpolicies/");
            let refuse = counts && seen >= cut;
            seen += usize::from(counts);
            refuse.then_some(StatusCode::INTERNAL_SERVER_ERROR)
        });
        story.scanned(&all).await;
        story.server.on_write(|_, _| None);
        for _ in 0..3 {
            story.adopter_pass().await;
        }
        assert_eq!(story.stamps(), 0, "after {cut} writes");
        for _ in 0..2 {
            story.scanned(&all).await;
            story.adopter_pass().await;
        }
        assert_eq!(story.stamps(), 0, "{cut}: when all of them are there");
        assert_eq!(story.of_origin("adopted").len(), 12, "{cut}");
        let policy = story.adopter_now();
        assert!(policy["status"]["adoption"]["underWay"].is_null(), "{cut}");
        let (status, _, message) = story.condition(&policy, "MassPruneHeld");
        assert_eq!(status, "True", "{cut}");
        assert!(message.contains("12 Snapshots"), "{cut}: {message}");
        if cut < 26 {
            continue;
        }
        // What lies in a file for the generation does not let them go; what the condition shows does.
        let key = "kopiur.home-operations.com/allow-mass-prune";
        let allow = |value: String| {
            story.server.edit(&policy_path(), |p| {
                p["metadata"]["annotations"][key] = json!(value);
            });
        };
        allow("1".to_owned());
        story.adopter_pass().await;
        assert_eq!(story.stamps(), 0);
        let value = message.split(&format!("{key}=\"")).nth(1).unwrap();
        allow(value.split('"').next().unwrap().to_owned());
        story.adopter_pass().await;
        assert_eq!(story.stamps(), 12);
    }
}

#[tokio::test]
async fn retention_that_was_judged_before_an_adoption_began_stops_when_it_begins() {
    let story = Story::new(10);
    story.adopter(json!({ "retention": { "keepLatest": 1 } }));
    story.own("own-0", 24 * 50);
    story.own("own-1", 24 * 40);
    // A schedule's: their names are not written down before.
    for name in ["own-0", "own-1"] {
        story.server.edit(&snapshot_path(name), |s| {
            s["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule",
                "name": "s", "uid": "s", "controller": true,
            }]);
        });
    }
    // The API server knows, the world does not yet.
    let seen = story.ctx.world.policy(&ObjectKey::new("backup", "p")).unwrap();
    story.server.edit(&policy_path(), |p| {
        p["status"] = json!({ "adoption": { "underWay": Timestamp::now().to_string() } });
    });
    let stale = Change::Set(Observed::Policy(Box::new(seen.as_ref().clone())));
    story.ctx.world.apply(stale, Timestamp::now());
    let _ = policy::pass(&story.ctx, &ObjectKey::new("backup", "p")).await;
    assert_eq!(story.stamps(), 0);
}

#[tokio::test]
async fn a_policy_that_is_edited_while_it_takes_over_takes_nothing_more() {
    for change in [
        (|p: &mut Value| p["metadata"]["generation"] = json!(2)) as fn(&mut Value),
        |p| p["metadata"]["uid"] = json!("another"),
        |p| p["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
    ] {
        let story = Story::new(10);
        story.adopter(json!({}));
        let all = listing(40);
        let world = std::sync::Arc::clone(&story.ctx.world);
        let mut made = 0;
        story.server.on_write(move |write, objects| {
            made += usize::from(write.method == Method::POST && write.path.starts_with(SNAPSHOTS));
            if made == 10 {
                let mut policy = objects.by_path[&policy_path()].clone();
                change(&mut policy);
                let policy = serde_json::from_value(policy).unwrap();
                let edited = Change::Set(Observed::Policy(Box::new(policy)));
                world.apply(edited, Timestamp::now());
            }
            None
        });
        story.scanned(&all).await;
        let adopted = story.of_origin("adopted").len();
        assert!((10..40).contains(&adopted), "{adopted}");
        let repository = story.server.get(&repository_path()).unwrap();
        assert!(
            repository["status"]["catalog"]["scanDue"].is_object(),
            "the rest is judged by the next scan"
        );
    }
}

#[tokio::test]
async fn a_policy_whose_status_is_refused_leaves_the_scan_to_the_others() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.server.on_write(|write, _| {
        write
            .path
            .ends_with("/snapshotpolicies/p/status")
            .then_some(StatusCode::UNPROCESSABLE_ENTITY)
    });
    let mut all = listing(3);
    all[0].source.username = "q".into();
    story.scanned(&all).await;
    assert!(
        story.of_origin("adopted").is_empty(),
        "its retention could not be told to wait"
    );
    assert_eq!(story.of_origin("discovered").len(), 1);
    let repository = story.server.get(&repository_path()).unwrap();
    let catalog = &repository["status"]["catalog"];
    assert!(catalog["lastRefreshAt"].is_string() && catalog["lastError"].is_string());
}

#[tokio::test]
async fn a_policy_that_cannot_be_told_what_was_left_leaves_the_scan_to_the_others() {
    let story = Story::new(10);
    // Nothing is adopted, so that its status is written only to tell it.
    story.adopter(json!({ "retention": { "keepLatest": 1 } }));
    story.own("own", 2);
    story.server.on_write(|write, _| {
        write
            .path
            .ends_with("/snapshotpolicies/p/status")
            .then_some(StatusCode::UNPROCESSABLE_ENTITY)
    });
    story.scanned(&listing(3)).await;
    assert_eq!(story.of_origin("discovered").len(), 3);
    let repository = story.server.get(&repository_path()).unwrap();
    let catalog = &repository["status"]["catalog"];
    assert!(catalog["lastRefreshAt"].is_string() && catalog["lastError"].is_string());
}

#[tokio::test]
async fn retention_does_not_wait_for_a_repository_that_takes_no_request_for_a_scan() {
    let story = Story::new(10);
    story.scanned(&listing(2)).await;
    story.adopter(json!({ "retention": { "keepLatest": 1 } }));
    story.own("own-0", 24 * 50);
    story.own("own-1", 24 * 40);
    story.server.on_write(|write, _| {
        write
            .path
            .contains("/repositories/")
            .then_some(StatusCode::UNPROCESSABLE_ENTITY)
    });
    story.adopter_pass().await;
    assert_eq!(story.stamps(), 1);
}

#[tokio::test]
async fn a_name_that_is_taken_by_another_object_is_said() {
    let story = Story::new(10);
    story.adopter(json!({}));
    let all = listing(1);
    story.scanned(&all).await;
    let (path, _) = story.server.under(SNAPSHOTS).remove(0);
    // Somebody makes another one of it.
    story.server.edit(&path, |s| {
        s["metadata"]["labels"] = json!({});
        s["spec"] = json!({});
        s.as_object_mut().unwrap().remove("status");
    });
    story.scanned(&all).await;
    let repository = story.server.get(&repository_path()).unwrap();
    let said = repository["status"]["catalog"]["lastError"].to_string();
    let name = path.rsplit('/').next().unwrap();
    assert!(said.contains(name) && said.contains("Remove it"), "{said}");
    let policy = story.adopter_now();
    let adoption = &policy["status"]["adoption"];
    assert!(
        adoption["underWay"].is_null(),
        "retention waits for nothing that cannot come"
    );
}

const INCOMPLETE: &str = "KeptMemoryIncomplete";
const LANE_INCOMPLETE: &str = "kopiur.home-operations.com/kept-memory-incomplete";

impl Story {
    /// One that is being deleted and whose data stays.
    /// The interface itself is being deleted.
    fn interface_goes(&self) {
        self.server.edit(DEFINITION, |d| {
            d["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
        });
    }

    /// From now on what is to be remembered of the Snapshot `a` cannot be written.
    fn refuses_the_memory_of_a(&self, code: StatusCode) {
        self.server.on_write(move |write, _| {
            let memory = write.path.starts_with(KEPT) && write.body.to_string().contains("id-a");
            memory.then_some(code)
        });
    }

    fn retained(&self, name: &str) {
        self.snapshot(name, json!({}));
        self.server.edit(&snapshot_path(name), |s| {
            s["spec"]["deletionPolicy"] = json!("Retain");
            s["spec"]["pin"] = json!(true);
            s["status"]["resolved"]["uniqueId"] = json!("id");
        });
    }

    fn kept_maps(&self) -> Vec<Value> {
        let maps = self.server.under(KEPT).into_iter();
        let kept = maps.filter(|(path, _)| path.contains("holdfast-kept-"));
        kept.map(|(_, map)| map).collect()
    }

    /// The policy is another object of the same name from now on.
    fn policy_made_again(&self) {
        self.server.remove(&policy_path());
        self.adopter(json!({ "defaultDeletionPolicy": "Delete" }));
        self.server
            .edit(&policy_path(), |p| p["metadata"]["uid"] = json!("another"));
    }

    fn says(&self) -> Vec<(Value, Value)> {
        let adopted = self.of_origin("adopted").into_iter();
        adopted
            .map(|s| (s["spec"]["deletionPolicy"].clone(), s["spec"]["pin"].clone()))
            .collect()
    }
}

fn long_ago() -> Timestamp {
    Timestamp::now() - SignedDuration::from_hours(100)
}

#[tokio::test]
async fn what_is_let_go_because_its_repository_object_went_stays_what_it_was_when_all_is_made_again() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    // Its own word would have it deleted; that nobody knows where keeps it.
    story.server.edit(&snapshot_path("a"), |s| {
        s["spec"]["deletionPolicy"] = json!("Delete")
    });
    let repository = story.server.get(&repository_path()).unwrap();
    story.server.remove(&repository_path());
    story.pass_unresolved().await;
    assert!(story.server.get(&snapshot_path("a")).is_none(), "let go");
    story.server.put(&repository_path(), repository);
    story.policy_made_again();
    story.scanned(&[listed("id-a", long_ago())]).await;
    assert_eq!(story.says(), [(json!("Delete"), json!(true))]);
}

#[tokio::test]
async fn what_is_let_go_because_the_interface_is_going_stays_what_it_was_when_all_is_made_again() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.interface_goes();
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none(), "let go");
    story.server.edit(DEFINITION, |d| {
        d["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    });
    story.policy_made_again();
    story.scanned(&[listed("id-a", long_ago())]).await;
    assert_eq!(story.says(), [(json!("Retain"), json!(true))]);
}

#[tokio::test]
async fn a_memory_that_cannot_be_written_stops_no_lane_and_nothing_is_adopted_then() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.snapshot("b", json!({}));
    story.server.on_write(|write, objects| {
        let releases = write.method == Method::PATCH && write.path.ends_with("/snapshots/a");
        if releases {
            let list = &objects.by_path[&repository_path()]["status"]["conditions"];
            let said = list.as_array().unwrap().iter().any(|c| c["type"] == INCOMPLETE);
            assert!(said, "it is said before anything goes");
            let leases = objects
                .by_path
                .iter()
                .filter(|(path, _)| path.contains("/leases/"));
            let mut leases = leases.map(|(_, lease)| &lease["metadata"]["annotations"][LANE_INCOMPLETE]);
            assert!(leases.any(Value::is_string), "also where it stays");
        }
        let maps = write.path.starts_with(KEPT) && write.body.to_string().contains("id-a");
        maps.then_some(StatusCode::FORBIDDEN)
    });
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert!(story.job().is_some(), "the deletion of the other one goes on");
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(story.condition(&repository, INCOMPLETE).0, "True");
    assert_eq!(story.told(INCOMPLETE).len(), 1);

    story.server.on_write(|_, _| None);
    story.server.remove(&snapshot_path("b"));
    story.policy_made_again();
    let found = [listed("id-a", long_ago())];
    for _ in 0..2 {
        story.scanned(&found).await;
        assert!(story.of_origin("adopted").is_empty());
        assert_eq!(story.of_origin("discovered").len(), 1);
    }
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(story.condition(&repository, INCOMPLETE).0, "True");
    // Nothing is left of which something could have been forgotten. A listing from before does not say so.
    story.scanned_at(long_ago(), &[]).await;
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(story.condition(&repository, INCOMPLETE).0, "True");
    story.scanned(&[]).await;
    story.scanned(&[]).await;
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(story.condition(&repository, INCOMPLETE).0, "False");
    story.scanned(&[listed("later", long_ago())]).await;
    assert_eq!(story.of_origin("adopted").len(), 1);
}

#[tokio::test]
async fn what_can_be_remembered_nowhere_is_not_let_go_and_keeps_nobody_else_waiting() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.snapshot("b", json!({}));
    story.server.on_write(|write, _| {
        let text = write.body.to_string();
        let memory = write.path.starts_with(KEPT) && text.contains("id-a");
        (memory || text.contains(LANE_INCOMPLETE)).then_some(StatusCode::FORBIDDEN)
    });
    story.pass().await;
    let waits = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(story.condition(&waits, "DeletionBlocked").1, "MemoryNotWritten");
    assert!(story.job().is_some());
    story.server.on_write(|_, _| None);
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert_eq!(story.kept_maps().len(), 1);
}

#[tokio::test]
async fn an_error_of_a_moment_lets_nothing_go_unremembered() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.server.on_write(|write, _| {
        let memory = write.path.starts_with(KEPT);
        memory.then_some(StatusCode::INTERNAL_SERVER_ERROR)
    });
    story.pass().await;
    let waits = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(story.condition(&waits, "DeletionBlocked").1, "MemoryNotWritten");
    story.server.on_write(|_, _| None);
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    let repository = story.server.get(&repository_path()).unwrap();
    let list = repository["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert!(list.iter().all(|c| c["type"] != INCOMPLETE), "nothing is missing");
}

#[tokio::test]
async fn a_listing_from_before_forgets_nothing_that_was_let_go_since() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    let before = Timestamp::now() - SignedDuration::from_secs(10);
    story.pass().await;
    story.scanned_at(before, &[]).await;
    story.policy_made_again();
    story.scanned(&[listed("id-a", long_ago())]).await;
    assert_eq!(story.says(), [(json!("Retain"), json!(true))]);
}

#[tokio::test]
async fn nothing_was_let_go_under_a_policy_that_was_made_after_the_deletion() {
    for (made, taken_back) in [(long_ago(), false), (Timestamp::now(), true)] {
        let story = Story::new(10);
        story.adopter(json!({}));
        story.server.edit(&policy_path(), |p| {
            p["metadata"]["creationTimestamp"] = json!(made.to_string());
        });
        // Deleted a minute ago.
        story.retained("a");
        story.pass().await;
        let earlier = Timestamp::now() - SignedDuration::from_hours(1_000);
        story.scanned(&[listed("id-a", earlier)]).await;
        assert_eq!(story.says().len(), usize::from(taken_back));
    }
}

#[tokio::test]
async fn what_is_remembered_is_not_written_again_while_its_object_stays() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.server.on_write(|write, _| {
        let releases = write.method == Method::PATCH && write.path.ends_with("/snapshots/a");
        releases.then_some(StatusCode::UNPROCESSABLE_ENTITY)
    });
    for _ in 0..3 {
        story.pass().await;
    }
    assert!(story.server.get(&snapshot_path("a")).is_some());
    let writes = [Method::POST, Method::PATCH]
        .iter()
        .flat_map(|method| story.server.writes(method, KEPT));
    assert_eq!(writes.filter(|w| w.body.to_string().contains("id-a")).count(), 1);
}

#[tokio::test]
async fn what_was_begun_is_completed_as_strict_as_is_known_then() {
    for (first, then, pinned, says) in [
        ("Delete", "Retain", false, (json!("Retain"), false)),
        ("Retain", "Delete", false, (json!("Retain"), false)),
        ("Delete", "Delete", true, (json!("Delete"), true)),
    ] {
        let story = Story::new(10);
        story.adopter(json!({ "defaultDeletionPolicy": first }));
        let mut all = listing(1);
        story.server.on_write(|write, _| {
            let status = write.path.starts_with(SNAPSHOTS) && write.path.ends_with("/status");
            status.then_some(StatusCode::INTERNAL_SERVER_ERROR)
        });
        story.scanned(&all).await;
        assert!(story.of_origin("adopted")[0]["status"].is_null());
        story.server.on_write(|_, _| None);
        story.server.edit(&policy_path(), |p| {
            p["metadata"]["generation"] = json!(2);
            p["spec"]["defaultDeletionPolicy"] = json!(then);
        });
        all[0].pinned = pinned;
        story.scanned(&all).await;
        let adopted = story.of_origin("adopted");
        assert_eq!(adopted[0]["status"]["phase"], "Succeeded");
        let spec = &adopted[0]["spec"];
        assert_eq!(
            (spec["deletionPolicy"].clone(), spec["pin"] == json!(true)),
            says,
            "{first} {then}"
        );
    }
}
