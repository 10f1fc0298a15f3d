//! Fields of specs that say a word, a place or a time: each is found where it counts.
//!
//! As [`crate::fields`], whose tests are of what a Job or a claim is like.

use crate::fields::{policy_path, work};
use crate::server::Write;
use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::Method;
use holdfast_operator::protect::{maintenance, schedule};
use holdfast_operator::world::keys::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The Job of a backup to a repository of this spec.
async fn backup(spec: Value) -> Value {
    let story = Story::new(10);
    story.server.put(
        "/api/v1/namespaces/backup/secrets/other",
        json!({ "metadata": { "name": "other" }, "data": {
            "PASS": "eA==", "AWS_ACCESS_KEY_ID": "YQ==", "AWS_SECRET_ACCESS_KEY": "Yg==",
        } }),
    );
    story.server.put(
        "/api/v1/namespaces/backup/configmaps/ca",
        json!({ "metadata": { "name": "ca" }, "data": { "root.pem": "-" } }),
    );
    story.server.put(
        "/api/v1/namespaces/backup/persistentvolumeclaims/shelf",
        json!({ "metadata": { "name": "shelf" } }),
    );
    story.server.edit(&repository_path(), |r| {
        for (field, value) in spec.as_object().unwrap() {
            r["spec"][field] = value.clone();
        }
    });
    story.backup_job(json!({}), json!({})).await
}

fn volumes(job: &Value) -> String {
    job["spec"]["template"]["spec"]["volumes"].to_string()
}

#[tokio::test]
async fn a_directory_and_its_claim_or_export_are_where_the_mover_looks() {
    let filesystem =
        |volume: Value| json!({ "backend": { "filesystem": { "path": "/deep/down", "volume": volume } } });
    let job = backup(filesystem(json!({ "pvc": { "name": "shelf" } }))).await;
    assert!(volumes(&job).contains(r#""claimName":"shelf""#), "{job}");
    let path = work(&job)["repository"]["path"].to_string();
    assert!(path.contains("/deep/down"), "{path}");
    let job = backup(filesystem(
        json!({ "nfs": { "server": "nas.example.internal", "path": "/tank" } }),
    ))
    .await;
    assert!(
        volumes(&job).contains(r#""nfs":{"path":"/tank","server":"nas.example.internal"}"#),
        "{job}"
    );
}

#[tokio::test]
async fn a_bucket_is_told_to_the_mover_as_it_is_described() {
    let s3 = |tls: Value| {
        json!({ "backend": { "s3": {
            "bucket": "b", "prefix": "cluster-a/", "endpoint": "s3.example.internal:9001", "region": "eu-north-1",
            "auth": { "secretRef": { "name": "other" } }, "tls": tls,
        } } })
    };
    let job = backup(s3(
        json!({ "caBundleRef": { "configMapName": "ca", "key": "root.pem" } }),
    ))
    .await;
    let bucket = &work(&job)["repository"]["bucket"];
    assert_eq!(bucket["name"], "b");
    assert_eq!(bucket["prefix"], "cluster-a/");
    assert_eq!(bucket["endpoint"], "s3.example.internal:9001");
    assert_eq!(bucket["region"], "eu-north-1");
    assert_eq!(bucket["privateCa"], true);
    assert_eq!(
        (&bucket["disableTls"], &bucket["insecureSkipVerify"]),
        (&json!(false), &json!(false))
    );
    let mounted = volumes(&job);
    assert!(mounted.contains(r#""name":"other""#), "{mounted}");
    assert!(
        mounted.contains(r#""name":"ca""#) && mounted.contains("root.pem"),
        "{mounted}"
    );
    for (field, other) in [
        ("disableTls", "insecureSkipVerify"),
        ("insecureSkipVerify", "disableTls"),
    ] {
        let bucket = &work(&backup(s3(json!({ field: true }))).await)["repository"]["bucket"];
        assert_eq!(bucket[field], true);
        assert_eq!(
            (&bucket[other], &bucket["privateCa"]),
            (&json!(false), &json!(false))
        );
    }
}

#[tokio::test]
async fn the_password_is_mounted_from_the_secret_and_the_key_that_are_named() {
    let job =
        backup(json!({ "encryption": { "passwordSecretRef": { "name": "other", "key": "PASS" } } })).await;
    assert_eq!(work(&job)["repository"]["passwordKey"], "PASS");
    let mounted = volumes(&job);
    assert!(
        mounted.contains(r#""items":[{"key":"PASS","path":"PASS"}],"secretName":"other""#),
        "{mounted}"
    );
}

#[tokio::test]
async fn each_engine_is_the_one_that_the_mover_uses() {
    for engine in ["Kopia", "Restic"] {
        let job = backup(json!({ "engine": engine })).await;
        assert_eq!(work(&job)["repository"]["engine"], engine);
    }
}

#[tokio::test]
async fn a_snapshot_bears_the_name_the_claim_and_the_tags_that_are_said() {
    let item = |job: &Value| work(job)["operation"]["backup"]["items"][0].clone();
    let story = Story::new(10);
    story.server.put(
        "/api/v1/namespaces/backup/persistentvolumeclaims/photos",
        json!({ "metadata": { "name": "photos" } }),
    );
    let policy = json!({
        "identity": { "username": "who", "hostname": "where" },
        "sources": [{ "pvc": { "name": "photos" } }],
    });
    let job = story
        .backup_job(policy, json!({ "tags": { "why": "upgrade" } }))
        .await;
    let told = item(&job);
    assert_eq!(
        told["source"],
        json!({ "username": "who", "hostname": "where", "path": "/pvc/photos" })
    );
    assert_eq!(told["tags"], json!({ "why": "upgrade" }));
    assert!(volumes(&job).contains(r#""claimName":"photos""#), "{job}");

    let defaults = json!({ "hostnameExpr": "'of-' + namespace", "usernameExpr": "policyName + '-x'" });
    let told = item(&backup(json!({ "identityDefaults": defaults })).await);
    assert_eq!(
        told["source"],
        json!({ "username": "p-x", "hostname": "of-backup", "path": "/pvc/data" })
    );
    let told = item(&backup(json!({ "identityDefaults": { "cluster": "lab" } })).await);
    assert_eq!(told["source"]["hostname"], "backup.lab");
}

#[tokio::test]
async fn a_snapshot_whose_policy_or_repository_is_not_there_runs_nothing() {
    for (of_policy, of_snapshot) in [
        (json!({}), json!({ "policyRef": { "name": "other" } })),
        (json!({ "repository": { "name": "none" } }), json!({})),
        (json!({ "repository": { "namespace": "elsewhere" } }), json!({})),
        (
            json!({ "repository": { "kind": "ClusterRepository" } }),
            json!({}),
        ),
    ] {
        let story = Story::new(10);
        let job = story
            .maybe_backup_job(of_policy.clone(), of_snapshot.clone())
            .await;
        assert!(job.is_none(), "{of_policy} {of_snapshot}");
    }
}

const NIGHTLY: &str = "/apis/kopiur.home-operations.com/v1alpha1/namespaces/backup/snapshotschedules/nightly";

/// Snapshots that a schedule with these times makes, whose slot was due so long ago, if it had one.
async fn made(times: Value, due: Option<SignedDuration>) -> (usize, Value) {
    let story = Story::new(10);
    story.run("a");
    story.server.remove(&snapshot_path("a"));
    assert!(story.server.get(&policy_path()).is_some());
    let mut status = json!({});
    if let Some(ago) = due {
        let at = (Timestamp::now() - ago)
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        status["nextSchedule"] = json!({
            "at": at, "cron": times["cron"], "timezone": times["timezone"], "jitter": times["jitter"],
        });
    }
    story.server.put(
        NIGHTLY,
        json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule",
            "metadata": {
                "name": "nightly", "namespace": "backup", "uid": "sched", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["kopiur.home-operations.com/schedule-cleanup"],
            },
            "spec": { "policyRef": { "name": "p" }, "schedule": times },
            "status": status,
        }),
    );
    for _ in 0..2 {
        let key = ObjectKey::new("backup", "nightly");
        schedule::pass(&story.ctx, &key).await.expect("a pass");
    }
    let of_schedule = |write: &&Write| write.path.ends_with("/snapshots");
    let made = story.server.writes(&Method::POST, "/snapshots");
    (
        made.iter().filter(of_schedule).count(),
        story.server.get(NIGHTLY).unwrap()["status"]["nextSchedule"].clone(),
    )
}

#[tokio::test]
async fn each_word_of_a_schedule_moves_or_stops_its_runs() {
    let minutes = SignedDuration::from_mins;
    let times = |with: Value| {
        let mut times = json!({ "cron": "0 3 1 * *" });
        crate::fields::merge(&mut times, &with);
        times
    };
    assert_eq!(
        made(times(json!({})), Some(minutes(30))).await.0,
        1,
        "a slot that is due"
    );
    let late = json!({ "startingDeadlineSeconds": 60 });
    assert_eq!(
        made(times(late), Some(minutes(30))).await.0,
        0,
        "too late for its deadline"
    );
    let suspended = json!({ "suspend": true });
    assert_eq!(made(times(suspended), Some(minutes(30))).await.0, 0);
    assert_eq!(
        made(times(json!({})), None).await.0,
        0,
        "the first slot is to come"
    );
    assert_eq!(made(times(json!({ "runOnCreate": true })), None).await.0, 1);
    let at = |next: &Value| next["at"].as_str().unwrap().to_owned();
    let next = made(times(json!({})), None).await.1;
    assert!(at(&next).ends_with("-01T03:00:00Z"), "{next}");
    let next = made(json!({ "cron": "15 4 2 * *" }), None).await.1;
    assert!(at(&next).ends_with("-02T04:15:00Z"), "{next}");
    let next = made(times(json!({ "timezone": "Asia/Kolkata" })), None).await.1;
    assert!(at(&next).ends_with("T21:30:00Z"), "{next}");
    let with = made(times(json!({ "jitter": "24h" })), None).await.1;
    assert!(!at(&with).ends_with("-01T03:00:00Z"), "{with}");
}

#[tokio::test]
async fn each_word_of_a_maintenances_schedule_moves_its_slots() {
    let path = snapshot_path("care").replace("/snapshots/", "/maintenances/");
    let slots = async |schedule: Value| {
        let story = Story::new(10);
        story.server.put(
            &path,
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Maintenance",
                "metadata": {
                    "name": "care", "namespace": "backup", "uid": "u-care", "generation": 1,
                    "creationTimestamp": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                },
                "spec": { "repository": { "name": "nas" }, "schedule": schedule },
            }),
        );
        for _ in 0..3 {
            let key = ObjectKey::new("backup", "care");
            maintenance::pass(&story.ctx, &key).await.expect("a pass");
        }
        assert!(story.server.under(JOBS).is_empty());
        let status = story.server.get(&path).unwrap()["status"].clone();
        let at = |effort: &str| status[effort]["nextScheduledAt"].as_str().unwrap().to_owned();
        (at("quick"), at("full"))
    };
    let days = |quick: Value, full: Value| {
        let mut both = json!({ "quick": { "cron": "0 3 1 * *" }, "full": { "cron": "0 4 2 * *" } });
        crate::fields::merge(&mut both["quick"], &quick);
        crate::fields::merge(&mut both["full"], &full);
        both
    };
    let (quick, full) = slots(days(json!({}), json!({}))).await;
    assert!(
        quick.ends_with("-01T03:00:00Z") && full.ends_with("-02T04:00:00Z"),
        "{quick} {full}"
    );
    let (quick, full) = slots(days(json!({ "jitter": "24h" }), json!({}))).await;
    assert!(
        !quick.ends_with("-01T03:00:00Z") && full.ends_with("-02T04:00:00Z"),
        "{quick} {full}"
    );
    let (quick, full) = slots(days(json!({}), json!({ "jitter": "24h" }))).await;
    assert!(
        quick.ends_with("-01T03:00:00Z") && !full.ends_with("-02T04:00:00Z"),
        "{quick} {full}"
    );
    let mut there = days(json!({}), json!({}));
    there["timezone"] = json!("Asia/Kolkata");
    let (quick, full) = slots(there).await;
    assert!(
        quick.ends_with("T21:30:00Z") && full.ends_with("T22:30:00Z"),
        "{quick} {full}"
    );
}

#[tokio::test]
async fn a_maintenance_is_of_the_repository_that_it_names() {
    let path = snapshot_path("care").replace("/snapshots/", "/maintenances/");
    for (repository, runs) in [
        (json!({ "name": "nas" }), 1),
        (json!({ "name": "other" }), 0),
        (json!({ "name": "nas", "namespace": "elsewhere" }), 0),
        (json!({ "name": "nas", "kind": "ClusterRepository" }), 0),
    ] {
        let story = Story::new(10);
        story.server.put(
            &path,
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Maintenance",
                "metadata": {
                    "name": "care", "namespace": "backup", "uid": "u-care", "generation": 1,
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": { "kopiur.home-operations.com/run-requested": "2026-01-31T12:00:00Z" },
                },
                "spec": { "repository": repository },
            }),
        );
        for _ in 0..3 {
            let key = ObjectKey::new("backup", "care");
            maintenance::pass(&story.ctx, &key).await.expect("a pass");
        }
        assert_eq!(story.server.under(JOBS).len(), runs, "{repository}");
    }
}
