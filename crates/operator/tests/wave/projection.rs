//! Copies of a ClusterRepository's Secrets: who may have one, how long it is there, and what is never written.

use crate::cluster_repository::{SHARED, shared};
use crate::story::{JOBS, Story, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_operator::protect::{restore, snapshot};
use holdfast_operator::world::keys::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub const SECRETS: &str = "/api/v1/namespaces/backup/secrets";
pub const SOURCE: &str = "/api/v1/namespaces/holdfast-system/secrets/key";

pub fn policy_path() -> String {
    snapshot_path("p").replace("/snapshots/", "/snapshotpolicies/")
}

/// The ClusterRepository `shared` with all consents, and nothing of its Secrets in the namespace `backup`.
pub fn consenting() -> Story {
    let mut story = shared(10);
    story.ctx.settings.credential_projection = true;
    story.server.remove(&format!("{SECRETS}/key"));
    story.server.edit(SHARED, |r| {
        r["metadata"]["uid"] = json!("shared-uid");
        r["spec"]["credentialProjection"] = json!({ "allowed": true });
    });
    story
}

impl Story {
    /// A run of a policy that asks for a copy.
    pub fn projecting(&self, name: &str) {
        self.run(name);
        self.server.edit(&policy_path(), |p| {
            p["spec"]["repository"] = json!({ "kind": "ClusterRepository", "name": "shared" });
            p["spec"]["credentialProjection"] = json!({ "enabled": true });
        });
    }

    /// The Secrets of the namespace.
    pub fn copies(&self) -> Vec<Value> {
        self.server.under(SECRETS).into_iter().map(|(_, s)| s).collect()
    }

    pub async fn runs(&self, name: &str) {
        for _ in 0..2 {
            let key = ObjectKey::new("backup", name);
            snapshot::pass(&self.ctx, &key).await.expect("a pass");
        }
    }

    pub fn job_of(&self, name: &str) -> Option<Value> {
        self.server.get(&format!("{JOBS}/{name}"))
    }

    pub async fn ends_well(&self, name: &str) {
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
    }

    pub fn said(&self, name: &str) -> (String, String, String) {
        let snapshot = self.server.get(&snapshot_path(name)).unwrap();
        self.condition(&snapshot, "CredentialsAvailable")
    }
}

#[tokio::test]
async fn a_copy_is_there_while_its_job_is_and_holds_what_that_reads() {
    let story = consenting();
    story
        .server
        .edit(SOURCE, |s| s["data"]["OTHER"] = json!("c2VjcmV0"));
    story.projecting("a");
    story.runs("a").await;
    let job = story.job_of("a").expect("a Job");
    let copies = story.copies();
    assert_eq!(copies.len(), 1);
    let copy = &copies[0];
    assert_eq!(
        copy["data"],
        json!({ "KOPIA_PASSWORD": "eA==" }),
        "and no other key"
    );
    let name = &copy["metadata"]["name"];
    let volumes = job["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let mounted = volumes.iter().find(|v| v["name"] == "secret").unwrap();
    assert_eq!(&mounted["secret"]["secretName"], name);
    assert_eq!(mounted["secret"]["items"][0]["key"], "KOPIA_PASSWORD");
    // Accounted for: whose it is, what of, and who takes it along.
    let meta = &copy["metadata"];
    assert_eq!(meta["labels"]["app.kubernetes.io/managed-by"], "holdfast");
    assert_eq!(
        meta["labels"]["kopiur.home-operations.com/cluster-repository-uid"],
        "shared-uid"
    );
    assert_eq!(
        meta["annotations"]["kopiur.home-operations.com/projected-from"],
        "holdfast-system/key"
    );
    let owner = &meta["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("Job"), &job["metadata"]["uid"])
    );
    let begun = story.server.get(&snapshot_path("a")).unwrap();
    let early = begun["status"]["conditions"].to_string();
    assert!(
        !early.contains("CredentialsAvailable"),
        "not said before: {early}"
    );
    story.run_pass("a").await;
    assert_eq!(story.said("a").1, "Projected");
    // Nothing of it in the Job.
    assert!(!job.to_string().contains("eA=="));

    story.ends_well("a").await;
    assert!(story.copies().is_empty(), "gone with the result");
    let done = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(done["status"]["phase"], "Succeeded");
}

#[tokio::test]
async fn without_each_of_the_three_consents_nothing_is_copied_and_the_refusal_says_which() {
    for (missing, word) in [
        (0, "Set spec.credentialProjection.allowed: true"),
        (1, "features.credentialProjection.enabled: true"),
        (2, "Secret backup/key"),
    ] {
        let mut story = consenting();
        story.projecting("a");
        match missing {
            0 => story.server.edit(SHARED, |r| {
                r["spec"]["credentialProjection"] = json!({ "allowed": false });
            }),
            1 => story.ctx.settings.credential_projection = false,
            _ => story.server.edit(&policy_path(), |p| {
                p["spec"]["credentialProjection"] = Value::Null;
            }),
        }
        story.runs("a").await;
        assert!(story.job_of("a").is_none() && story.copies().is_empty());
        let (status, _, message) = story.said("a");
        assert_eq!(status, "False");
        assert!(message.contains(word), "{message}");
        assert!(story.server.writes(&Method::POST, "/secrets").is_empty());
    }
}

#[tokio::test]
async fn a_copy_follows_its_source_while_the_job_runs() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    story.server.edit(&format!("{JOBS}/a"), |j| {
        j["status"] = json!({ "active": 1, "ready": 1 })
    });
    story.run_pass("a").await;
    let before = story.server.writes(&Method::PATCH, "/secrets/").len();
    story
        .server
        .edit(SOURCE, |s| s["data"]["KOPIA_PASSWORD"] = json!("eXk="));
    story.run_pass("a").await;
    assert_eq!(story.copies()[0]["data"]["KOPIA_PASSWORD"], "eXk=");
    story.run_pass("a").await;
    let patches = story.server.writes(&Method::PATCH, "/secrets/").len();
    assert_eq!(patches, before + 1, "written once, and not again");
    // The source goes: what runs keeps what it has.
    story.server.remove(SOURCE);
    story.run_pass("a").await;
    assert_eq!(story.copies().len(), 1);
}

#[tokio::test]
async fn keys_of_a_bucket_are_copied_with_the_password_and_lost_ones_go() {
    let story = consenting();
    let keys = "/api/v1/namespaces/holdfast-system/secrets/keys";
    story.server.put(
        keys,
        json!({ "metadata": { "name": "keys" }, "data": {
            "AWS_ACCESS_KEY_ID": "YQ==", "AWS_SECRET_ACCESS_KEY": "Yg==", "AWS_SESSION_TOKEN": "Yw==",
        } }),
    );
    story.server.edit(SHARED, |r| {
        let secret = json!({ "name": "keys", "namespace": "holdfast-system" });
        r["spec"]["backend"] = json!({ "s3": { "bucket": "b", "auth": { "secretRef": secret } } });
    });
    story.projecting("a");
    story.runs("a").await;
    let copy = story.copies().remove(0);
    assert_eq!(copy["data"].as_object().unwrap().len(), 4);
    assert_eq!(
        copy["metadata"]["annotations"]["kopiur.home-operations.com/projected-from"],
        "holdfast-system/key,holdfast-system/keys"
    );
    let job = story.job_of("a").unwrap().to_string();
    assert!(!job.contains("\"keys\""), "the Job names the copy alone: {job}");
    story.server.edit(keys, |s| {
        s["data"].as_object_mut().unwrap().remove("AWS_SESSION_TOKEN");
    });
    story.server.edit(&format!("{JOBS}/a"), |j| {
        j["status"] = json!({ "active": 1, "ready": 1 })
    });
    story.run_pass("a").await;
    assert_eq!(story.copies()[0]["data"].as_object().unwrap().len(), 3);
}

#[tokio::test]
async fn a_secret_of_the_copys_name_that_is_not_ours_is_left_and_said() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    let name = story.copies()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("{SECRETS}/{name}");
    story.server.remove(&format!("{JOBS}/a"));
    story.server.remove(&path);
    let theirs =
        json!({ "metadata": { "name": name, "uid": "theirs" }, "data": { "KOPIA_PASSWORD": "bm8=" } });
    story.server.put(&path, theirs);
    story.runs("a").await;
    assert!(story.job_of("a").is_none(), "nothing runs with it");
    assert_eq!(story.server.get(&path).unwrap()["data"]["KOPIA_PASSWORD"], "bm8=");
    let (status, reason, message) = story.said("a");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "ProjectedSecretTaken")
    );
    assert!(message.contains(&format!("backup/{name}")), "{message}");
    story.server.remove(&path);
    story.runs("a").await;
    assert!(story.job_of("a").is_some(), "it goes on by itself");
}

#[tokio::test]
async fn what_forbids_a_copy_is_said_in_the_servers_own_words() {
    let story = consenting();
    story.projecting("a");
    story.server.on_write(|write, _| {
        (write.method == Method::POST && write.path.ends_with("/secrets")).then_some(StatusCode::FORBIDDEN)
    });
    story.runs("a").await;
    assert!(story.job_of("a").is_none());
    let (_, reason, message) = story.said("a");
    assert_eq!(reason, "CredentialProjectionNotAllowed");
    // The feature is on: to set its value would be no advice. A quota answers 403 too.
    assert!(!message.contains("features."), "{message}");
    assert!(
        message.contains(": refused by the test. The feature is installed"),
        "{message}"
    );
}

#[tokio::test]
async fn a_job_that_is_annotated_gets_no_other_repositorys_secret() {
    let story = consenting();
    let other = SHARED.replace("shared", "bank");
    let mut bank = story.server.get(SHARED).unwrap();
    bank["metadata"] = json!({ "name": "bank", "uid": "bank-uid", "generation": 1 });
    bank["spec"]["encryption"]["passwordSecretRef"]["name"] = json!("bank-key");
    story.server.put(&other, bank);
    story.server.put(
        "/api/v1/namespaces/holdfast-system/secrets/bank-key",
        json!({ "metadata": { "name": "bank-key" }, "data": { "KOPIA_PASSWORD": "YmFuaw==" } }),
    );
    let annotate = |story: &Story| {
        story.server.edit(&format!("{JOBS}/a"), |j| {
            j["metadata"]["annotations"]["kopiur.home-operations.com/writes-to"] = json!("bank");
            j["metadata"]["annotations"]["kopiur.home-operations.com/projected-credentials"] = json!("mine");
            j["status"] = json!({ "active": 1, "ready": 1 });
        });
    };
    // The one who annotates it asks for a copy, of his own repository...
    story.projecting("a");
    story.runs("a").await;
    annotate(&story);
    story.run_pass("a").await;
    let copies = story.copies();
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0]["data"], json!({ "KOPIA_PASSWORD": "eA==" }));
    // ...or for none at all.
    story.server.edit(&policy_path(), |p| {
        p["spec"]["credentialProjection"] = Value::Null;
    });
    story.run_pass("a").await;
    story.run_pass("a").await;
    assert!(story.copies().is_empty());
    // A Job that another made is nobody's, whatever its labels say.
    story.projecting("b");
    story.runs("b").await;
    let copy = story.copies()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    story.server.remove(&format!("{SECRETS}/{copy}"));
    story.server.edit(&format!("{JOBS}/b"), |j| {
        j["metadata"]["ownerReferences"] = Value::Null;
        j["status"] = json!({ "active": 1, "ready": 1 });
    });
    story.run_pass("b").await;
    assert!(story.copies().is_empty());
}

#[tokio::test]
async fn a_copy_goes_with_each_consent_while_the_job_runs_and_comes_back_with_it() {
    for case in 0..3 {
        let story = consenting();
        story.projecting("a");
        story.runs("a").await;
        story.server.edit(&format!("{JOBS}/a"), |j| {
            j["status"] = json!({ "active": 1, "ready": 1 })
        });
        story.run_pass("a").await;
        assert_eq!(
            (story.copies().len(), story.said("a").1.as_str()),
            (1, "Projected")
        );
        let before = story.server.get(SHARED).unwrap();
        let (word, policy) = match case {
            0 => ("spec.credentialProjection.allowed", false),
            1 => ("spec.allowedNamespaces", false),
            _ => ("spec.credentialProjection.enabled", true),
        };
        story.server.edit(SHARED, |r| match case {
            0 => r["spec"]["credentialProjection"] = json!({ "allowed": false }),
            1 => r["spec"]["allowedNamespaces"] = json!({ "list": ["other"] }),
            _ => {}
        });
        if policy {
            story.server.edit(&policy_path(), |p| {
                p["spec"]["credentialProjection"] = json!({ "enabled": false });
            });
        }
        story.run_pass("a").await;
        assert!(story.copies().is_empty(), "{word}");
        let (status, reason, message) = story.said("a");
        assert_eq!(status, "False", "{word}");
        assert_eq!(reason, "CredentialProjectionNotAllowed");
        assert!(message.contains(word), "{message}");
        let running = story.server.get(&snapshot_path("a")).unwrap();
        assert_eq!(running["status"]["phase"], "Running");
        if policy {
            continue;
        }
        story.server.edit(SHARED, |r| *r = before.clone());
        story.run_pass("a").await;
        assert_eq!((story.copies().len(), story.said("a").0.as_str()), (1, "True"));
    }
}

#[tokio::test]
async fn a_copy_whose_job_never_was_goes_when_a_consent_does() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    // As after a crash between the two.
    story.server.remove(&format!("{JOBS}/a"));
    assert_eq!(story.copies().len(), 1);
    story.server.edit(SHARED, |r| {
        r["spec"]["credentialProjection"] = json!({ "allowed": false });
    });
    story.runs("a").await;
    assert!(story.job_of("a").is_none() && story.copies().is_empty());
    assert_eq!(story.said("a").1, "CredentialProjectionNotAllowed");
}

#[tokio::test]
async fn a_copy_that_cannot_be_written_is_replaced() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    let name = story.copies()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    story
        .server
        .edit(&format!("{SECRETS}/{name}"), |s| s["immutable"] = json!(true));
    story
        .server
        .edit(SOURCE, |s| s["data"]["KOPIA_PASSWORD"] = json!("eXk="));
    story.server.edit(&format!("{JOBS}/a"), |j| {
        j["status"] = json!({ "active": 1, "ready": 1 })
    });
    story.run_pass("a").await;
    let copies = story.copies();
    assert_eq!(copies[0]["data"]["KOPIA_PASSWORD"], "eXk=");
    assert!(copies[0]["immutable"].is_null(), "another one took its place");
}

#[tokio::test]
async fn twenty_days_of_thirty_five_daily_sources_leave_no_secret_behind() {
    let story = consenting();
    let mut most = 0;
    for day in 0..20 {
        let names: Vec<String> = (0..35).map(|n| format!("d{day}-{n}")).collect();
        for name in &names {
            story.projecting(name);
            story.runs(name).await;
        }
        most = most.max(story.copies().len());
        for (n, name) in names.iter().enumerate() {
            // Some end while the API server does not let the copy go: it goes with its Job.
            let refused = n % 7 == 0;
            story.server.on_write(move |write, _| {
                (refused && write.method == Method::DELETE && write.path.contains("/secrets/"))
                    .then_some(StatusCode::FORBIDDEN)
            });
            story.ends_well(name).await;
            let done = story.server.get(&snapshot_path(name)).unwrap();
            assert_eq!(done["status"]["phase"], "Succeeded");
        }
        story.server.on_write(|_, _| None);
        assert_eq!(story.copies().len(), 5, "day {day}: those that were refused");
        // The hour of the Jobs is over: what is theirs goes with them, as the garbage collector does.
        for name in &names {
            let uid = story.job_of(name).unwrap()["metadata"]["uid"].clone();
            for copy in story.copies() {
                if copy["metadata"]["ownerReferences"][0]["uid"] == uid {
                    let of = copy["metadata"]["name"].as_str().unwrap();
                    story.server.remove(&format!("{SECRETS}/{of}"));
                }
            }
            story.server.remove(&format!("{JOBS}/{name}"));
        }
        assert_eq!(story.copies().len(), 0, "day {day}");
    }
    assert_eq!(most, 35, "one for each run under way, and no other");
    assert_eq!(story.server.writes(&Method::POST, "/secrets").len(), 700);
}

#[tokio::test]
async fn a_snapshot_is_deleted_after_the_policy_that_projected_its_credentials_is_gone() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    story.ends_well("a").await;
    story.server.remove(&policy_path());
    let deleted = (Timestamp::now() - SignedDuration::from_secs(60)).strftime("%Y-%m-%dT%H:%M:%SZ");
    story.server.edit(&snapshot_path("a"), |s| {
        s["metadata"]["deletionTimestamp"] = json!(deleted.to_string());
    });
    story.pass().await;
    let jobs = story
        .server
        .under("/apis/batch/v1/namespaces/holdfast-system/jobs");
    assert_eq!(jobs.len(), 1, "where the Secret is that it was copied from");
    let (path, job) = &jobs[0];
    assert!(job.to_string().contains("\"secretName\":\"key\""));
    assert!(story.copies().is_empty());
    story.finish(path, Some("D"), None);
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none(), "released");
}

/// A Restore into a claim that asks for a copy; its path.
pub fn restoring(story: &Story) -> String {
    let path = snapshot_path("back").replace("/snapshots/", "/restores/");
    story.server.put(
        "/api/v1/namespaces/backup/persistentvolumeclaims/data",
        json!({ "metadata": { "name": "data", "uid": "data-uid" }, "spec": {} }),
    );
    story.server.put(
        &path,
        json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Restore",
            "metadata": { "name": "back", "namespace": "backup", "uid": "r-uid", "generation": 1 },
            "spec": {
                "credentialProjection": { "enabled": true },
                "repository": { "kind": "ClusterRepository", "name": "shared" },
                "source": { "identity": { "username": "p", "hostname": "backup" } },
                "target": { "pvcRef": { "name": "data" } },
            },
        }),
    );
    path
}

pub async fn restores(story: &Story) {
    for _ in 0..3 {
        let key = ObjectKey::new("backup", "back");
        restore::pass(&story.ctx, &key).await.expect("a pass");
    }
}

#[tokio::test]
async fn a_restore_reads_a_copy_too_and_lets_it_go() {
    let story = consenting();
    let path = restoring(&story);
    restores(&story).await;
    let jobs = story.server.under(JOBS);
    assert_eq!(jobs.len(), 1, "{:?}", story.server.get(&path));
    let copies = story.copies();
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0]["metadata"]["ownerReferences"][0]["kind"], "Job");
    // It answers that there is nothing: the Restore ends, and nothing needs the copy.
    let nothing = json!({
        "version": 1, "uniqueId": "id",
        "result": { "restore": { "resolved": { "found": null, "of_identity": 0, "paths": [] } } },
    });
    story.end(&jobs[0].0, &nothing.to_string(), true);
    restores(&story).await;
    assert!(story.copies().is_empty(), "{:?}", story.server.get(&path));
}

#[tokio::test]
async fn a_restores_copy_goes_with_a_consent_whether_its_job_is_there_or_not() {
    for there in [true, false] {
        let story = consenting();
        let path = restoring(&story);
        restores(&story).await;
        let (job, _) = story.server.under(JOBS).remove(0);
        assert_eq!(story.copies().len(), 1);
        if there {
            story.server.edit(&job, |j| {
                j["status"] = json!({ "active": 1, "ready": 1 });
                j["metadata"]["annotations"]["kopiur.home-operations.com/projected-credentials"] =
                    json!("mine");
            });
        } else {
            story.server.remove(&job);
        }
        story.server.edit(SHARED, |r| {
            r["spec"]["allowedNamespaces"] = json!({ "list": ["other"] })
        });
        restores(&story).await;
        assert!(story.copies().is_empty(), "{there}");
        let said = story.condition(&story.server.get(&path).unwrap(), "Ready");
        let word = if there { "was removed" } else { "may not use" };
        assert!(said.2.contains(word), "{said:?}");
    }
}
