//! Maintenance of the repository beside delete batches: never at the same time, and neither waits for ever.

use crate::server::Server;
use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::Method;
use holdfast_operator::protect::maintenance;
use holdfast_operator::world::keys::ObjectKey;
use serde_json::{Value, json};

const PATH: &str = "/apis/kopiur.home-operations.com/v1alpha1/namespaces/backup/maintenances/care";
const REQUESTED: &str = "kopiur.home-operations.com/run-requested";

/// A Maintenance of the repository that a person asks to run in full, now.
fn asked(story: &Story, edit: impl FnOnce(&mut Value)) {
    let mut object = json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Maintenance",
        "metadata": {
            "name": "care", "namespace": "backup", "uid": "u-care", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": { REQUESTED: "2026-01-31T12:00:00Z" },
        },
        "spec": { "repository": { "name": "nas" } },
    });
    edit(&mut object);
    story.server.put(PATH, object);
}

async fn pass(story: &Story) {
    // Pins are recorded first, and that write brings the object back.
    for _ in 0..3 {
        maintenance::pass(&story.ctx, &ObjectKey::new("backup", "care"))
            .await
            .expect("a pass");
    }
}

fn run(server: &Server) -> Option<(String, Value)> {
    let mut jobs = server.under(JOBS);
    jobs.retain(|(_, j)| {
        j["metadata"]["labels"]["kopiur.home-operations.com/op"] == "repository-maintenance"
    });
    jobs.into_iter().next()
}

fn ready(story: &Story) -> (String, String) {
    let object = story.server.get(PATH).unwrap();
    let (status, reason, _) = story.condition(&object, "Ready");
    (status, reason)
}

fn blocked(story: &Story) -> String {
    let object = story.server.get(&snapshot_path("a")).unwrap();
    story.condition(&object, "DeletionBlocked").1
}

fn made(owner: Value) -> String {
    let mut answer = json!({ "freedBytes": 7, "markedBytes": 9, "storedBytes": 100 });
    if owner.is_string() {
        answer["owner"] = owner;
    }
    json!({ "version": 1, "uniqueId": "id", "result": { "maintained": answer } }).to_string()
}

/// A change of an object.
type Edit = fn(&mut Value);

#[tokio::test]
async fn a_delete_job_waits_for_maintenance_and_fires_when_it_has_ended() {
    let story = Story::new(10);
    asked(&story, |_| {});
    pass(&story).await;
    let (path, job) = run(&story.server).expect("it runs");
    assert_eq!(job["metadata"]["name"], "care-f-20260131120000");
    assert_eq!(
        job["metadata"]["annotations"]["kopiur.home-operations.com/maintains"],
        "id"
    );
    assert_eq!(
        job["spec"]["activeDeadlineSeconds"],
        6 * 3600,
        "it has an end of its own"
    );
    story.snapshot("a", json!({}));
    story.pass().await;
    assert!(story.job().is_none());
    assert_eq!(blocked(&story), "MaintenanceRunning");

    // A world that has not heard of it is no excuse.
    story.forget_job(&path);
    story.pass().await;
    assert!(story.job().is_none(), "asked live");

    story.end(&path, &made(Value::Null), true);
    pass(&story).await;
    assert!(run(&story.server).is_none(), "its Job went");
    story.pass().await;
    assert!(story.job().is_some());
    let object = story.server.get(PATH).unwrap();
    let full = &object["status"]["full"];
    assert_eq!(full["lastContentReclaimedBytes"], 7);
    assert_eq!(full["lastContentMarkedBytes"], 9);
    assert_eq!(object["status"]["manualRun"]["succeeded"], true);
    assert_eq!(ready(&story), ("True".into(), "Scheduled".into()));
    let text = story.ctx.metrics.text();
    let line = r#"kopiur_maintenance_last_reclaimed_bytes{repo_kind="Repository",repo_name="nas"} 7"#;
    assert!(text.contains(line), "{text}");
    pass(&story).await;
    assert!(run(&story.server).is_none(), "asked once, run once");
}

#[tokio::test]
async fn maintenance_waits_for_a_delete_job_and_for_one_that_waits() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().expect("a batch");
    asked(&story, |_| {});
    pass(&story).await;
    assert!(run(&story.server).is_none());
    assert_eq!(ready(&story), ("True".into(), "DeletionsRunning".into()));
    story.finish(&path, Some("D"), None);
    story.pass().await;
    pass(&story).await;
    // What was deleted is looked for again first.
    assert_eq!(ready(&story), ("True".into(), "SecondLookDue".into()));
    story.server.edit(&repository_path(), |repository| {
        repository["status"]["catalog"]["secondLookAt"] = Value::Null;
    });
    pass(&story).await;
    assert!(run(&story.server).is_some());

    // A batch that waits has its turn before the next run.
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    asked(&story, |_| {});
    pass(&story).await;
    let (path, _) = run(&story.server).expect("a run");
    story.pass().await;
    assert_eq!(blocked(&story), "MaintenanceRunning");
    story.end(&path, &made(Value::Null), true);
    pass(&story).await;
    story.server.edit(PATH, |care| {
        care["metadata"]["annotations"][REQUESTED] = json!("2026-02-01T12:00:00Z")
    });
    pass(&story).await;
    assert!(run(&story.server).is_none());
    assert_eq!(ready(&story).1, "DeletionsRunning");
    story.pass().await;
    assert!(story.job().is_some());
}

#[tokio::test]
async fn nothing_is_freed_while_a_wave_is_held() {
    let story = Story::new(1);
    story.snapshot("a", json!({}));
    story.pass().await;
    assert!(story.job().is_none(), "held");
    asked(&story, |_| {});
    pass(&story).await;
    assert!(run(&story.server).is_none());
    assert_eq!(ready(&story), ("False".into(), "MassDeletionHeld".into()));
}

#[tokio::test]
async fn one_per_repository_in_its_place_and_only_with_fields_that_have_an_effect() {
    let refused: [(Edit, &str); 3] = [
        (
            |care| care["spec"]["ownership"] = json!({ "owner": "backup/nas" }),
            "InvalidSpec",
        ),
        (
            |care| care["spec"]["schedule"] = json!({ "timezone": "Nowhere/Else" }),
            "InvalidSchedule",
        ),
        (
            |care| care["spec"]["repository"]["name"] = json!("none"),
            "RepositoryNotFound",
        ),
    ];
    for (edit, reason) in refused {
        let story = Story::new(10);
        asked(&story, edit);
        pass(&story).await;
        assert!(run(&story.server).is_none());
        assert_eq!(ready(&story), ("False".into(), reason.into()));
    }
    let story = Story::new(10);
    asked(&story, |_| {});
    let mut older = story.server.get(PATH).unwrap();
    older["metadata"] = json!({
        "name": "older", "namespace": "backup", "uid": "u-older", "creationTimestamp": "2025-01-01T00:00:00Z",
    });
    story.server.put(&PATH.replace("care", "older"), older);
    pass(&story).await;
    assert!(run(&story.server).is_none());
    assert_eq!(ready(&story).1, "AnotherMaintenance");
}

#[tokio::test]
async fn it_runs_on_a_degraded_repository_and_waits_for_one_that_is_away() {
    for (reason, runs) in [("ProbeDeadlineExceeded", true), ("BackendUnreachable", false)] {
        let story = Story::new(10);
        story.server.edit(&repository_path(), |repository| {
            repository["status"]["phase"] = json!("Degraded");
            repository["status"]["conditions"] = json!([{
                "type": "BackendReachable", "status": "False", "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        });
        asked(&story, |_| {});
        pass(&story).await;
        assert_eq!(run(&story.server).is_some(), runs, "{reason}");
    }
}

#[tokio::test]
async fn a_kopia_repository_is_claimed_left_to_its_owner_or_taken_over() {
    for (policy, owned, reason) in [
        ("Never", "True", "LeftToOwner"),
        ("PromptCondition", "False", "TakeoverNeeded"),
    ] {
        let story = Story::new(10);
        story.server.edit(&repository_path(), |repository| {
            repository["spec"]["engine"] = json!("Kopia")
        });
        asked(&story, |care| {
            care["spec"]["ownership"] = json!({ "owner": "backup/nas", "takeoverPolicy": policy });
        });
        pass(&story).await;
        let (path, job) = run(&story.server).expect("a run asks who maintains it");
        let document = job["spec"]["template"]["metadata"]["annotations"].to_string();
        assert!(
            document.contains("backup/nas") && document.contains(r#"takeOver\":false"#),
            "{document}"
        );
        let answer = json!({ "version": 1, "uniqueId": "id", "result": { "notOwner": { "owner": "they" } } });
        story.end(&path, &answer.to_string(), true);
        pass(&story).await;
        assert_eq!(ready(&story), (owned.into(), reason.into()));
        let object = story.server.get(PATH).unwrap();
        assert_eq!(story.condition(&object, "LeaseOwned").0, "False");
        assert_eq!(object["status"]["ownership"], json!({ "owner": "they" }));
        let events = story.server.writes(&Method::POST, "/events").len();
        assert_eq!(
            events,
            usize::from(policy == "PromptCondition"),
            "a person is asked once"
        );

        story.server.edit(PATH, |care| {
            care["spec"]["ownership"]["takeoverPolicy"] = json!("Force");
            care["metadata"]["annotations"][REQUESTED] = json!("2026-02-01T12:00:00Z");
        });
        pass(&story).await;
        let (path, job) = run(&story.server).expect("a run that takes it over");
        let document = job["spec"]["template"]["metadata"]["annotations"].to_string();
        assert!(document.contains(r#"takeOver\":true"#), "{document}");
        story.end(&path, &made(json!("backup/nas")), true);
        pass(&story).await;
        let object = story.server.get(PATH).unwrap();
        assert_eq!(story.condition(&object, "LeaseOwned").0, "True");
        assert_eq!(object["status"]["ownership"]["owner"], "backup/nas");
        assert_eq!(ready(&story).1, "Scheduled");
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_told_once_and_a_failure_says_why() {
    let story = Story::new(10);
    asked(&story, |care| {
        care["metadata"]["annotations"][REQUESTED] = json!("soon")
    });
    pass(&story).await;
    assert!(run(&story.server).is_none());
    assert_eq!(story.server.writes(&Method::POST, "/events").len(), 1);
    let object = story.server.get(PATH).unwrap();
    assert_eq!(object["status"]["manualRun"]["succeeded"], false);

    asked(&story, |_| {});
    pass(&story).await;
    let (path, _) = run(&story.server).expect("a run");
    let failure = json!({ "class": "OperationFailed", "message": "the disk is full" });
    let answer = json!({ "version": 1, "uniqueId": "id", "error": failure, "result": "none" });
    story.end(&path, &answer.to_string(), false);
    pass(&story).await;
    let object = story.server.get(PATH).unwrap();
    assert_eq!(object["status"]["manualRun"]["message"], "the disk is full");
    assert!(
        run(&story.server).is_none(),
        "what a person asked for is not tried again"
    );
}
