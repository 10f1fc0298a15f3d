//! `quota` and what is below it, as people run it: the built program, a real API server, users with rights of their own.
//!
//! No operator runs: records and published figures are made by hand. Runs where `HOLDFAST_E2E_CONTROL_PLANE` names a
//! kubeconfig; elsewhere each test says that it was skipped.

mod lab;

use holdfast_api::ledger::ArtifactState;
use holdfast_api::{Artifact, names};
use kube::Api;
use lab::{Lab, Rights};
use serde_json::{Value, json};

const MI: i64 = 1 << 20;

/// The one namespace that was asked for.
fn only(told: &Value) -> &Value {
    let all = told["namespaces"].as_array().expect("a list");
    assert_eq!(all.len(), 1, "{told}");
    &all[0]
}

#[tokio::test]
async fn who_may_read_the_records_is_told_of_each_and_a_tenant_what_is_published() {
    let Some(lab) = Lab::new("told").await else { return };
    let kept = lab.record("kept", 3 * MI, false).await;
    let left = lab.record("left", 2 * MI, true).await;
    lab.quota("10Gi", "5Mi", r#"{"attributed":3145728,"retained":2097152}"#)
        .await;

    let told = lab.user(Rights::Accountant).await.json(&["quota"]);
    let namespace = only(&told);
    for (field, value) in [
        ("namespace", json!(lab.namespace)),
        ("alive", json!(true)),
        ("from", json!("ledger")),
        ("usedBytes", json!(5 * MI)),
        ("usedCount", json!(2)),
        ("hardBytes", json!(10_i64 << 30)),
        ("attributed", json!(3 * MI)),
        ("retained", json!(2 * MI)),
        ("inFlight", json!(0)),
        ("warnings", json!([])),
    ] {
        assert_eq!(namespace[field], value, "{field} of {namespace:#}");
    }
    let keys = &namespace["quotas"][0]["keys"][0];
    assert_eq!(
        *keys,
        json!({ "key": names::QUOTA_SIZE, "used": "5Mi", "hard": "10Gi" })
    );
    let largest: Vec<(&str, &str)> = namespace["largest"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| {
            (
                item["name"].as_str().unwrap_or_default(),
                item["state"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(
        largest,
        [(kept.as_str(), "Attributed"), (left.as_str(), "Retained")]
    );
    assert_eq!(told["notes"], json!([]));

    let told = lab.user(Rights::Tenant).await.json(&["quota"]);
    let namespace = only(&told);
    for (field, value) in [
        ("from", json!("breakdown")),
        ("usedBytes", json!(5 * MI)),
        ("attributed", json!(3 * MI)),
        ("retained", json!(2 * MI)),
        ("largest", json!([])),
    ] {
        assert_eq!(namespace[field], value, "{field} of {namespace:#}");
    }
    let notes = told["notes"].to_string();
    assert!(
        notes.contains("list artifacts") && notes.contains("holdfast-accountant"),
        "{notes}"
    );

    let refused = lab.user(Rights::None).await.run(&["quota", "-o", "json"]);
    assert_eq!((refused.code, refused.out.as_str()), (3, ""), "{}", refused.error);
    let missing = format!("you may not list resourcequotas in namespace {}", lab.namespace);
    assert!(refused.error.contains(&missing), "{}", refused.error);
    lab.end().await;
}

#[tokio::test]
async fn capabilities_are_told_with_who_declared_them_and_what_may_not_be_read_is_said() {
    let Some(lab) = Lab::new("capabilities").await else {
        return;
    };
    let declared = lab
        .strategy("declared", Some(r#"{"deletion":"confirmed"}"#))
        .await;
    let plain = lab.strategy("plain", None).await;
    let wrong = lab.strategy("wrong", Some(r#"{"deletoin":"none"}"#)).await;
    let found = lab
        .user(Rights::Accountant)
        .await
        .json(&["quota", "capabilities"]);
    let of = |name: &str| -> Value {
        let all = found["strategies"].as_array().expect("a list");
        let one = all
            .iter()
            .find(|one| one["kind"] == "Etcd" && one["name"] == name);
        one.cloned()
            .unwrap_or_else(|| panic!("{name} is not in {found:#}"))
    };
    for (name, deletion, from) in [
        (&declared, "confirmed", "annotation"),
        (&plain, "none", "builtIn"),
        (&wrong, "none", "builtIn"),
    ] {
        let told = of(name);
        assert_eq!(
            (&told["deletion"], &told["from"]),
            (&json!(deletion), &json!(from)),
            "{told:#}"
        );
        assert_eq!(told["size"], "driver", "{told:#}");
    }
    let error = of(&wrong)["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("deletoin"), "{error}");
    assert!(of(&declared)["error"].is_null());

    // What is built in is no secret; whether something overrides it is not known.
    let found = lab.user(Rights::None).await.json(&["quota", "capabilities"]);
    let notes = found["notes"].to_string();
    assert!(
        notes.contains("you may not list etcds.strategy.backups.cozystack.io"),
        "{notes}"
    );
    assert!(!found.to_string().contains(&declared), "{found:#}");
    lab.end().await;
}

#[tokio::test]
async fn only_with_the_verb_and_a_yes_a_record_is_written_off_once() {
    let Some(lab) = Lab::new("write-off").await else {
        return;
    };
    let kept = lab.record("kept", 3 * MI, false).await;
    let left = lab.record("left", 2 * MI, true).await;
    let records: Api<Artifact> = Api::all(lab.client.clone());
    let state = async || {
        let record = records.get(&left).await.expect("there");
        record.status.expect("a status")
    };

    // May patch the status, and lacks the one verb.
    let command = ["quota", "write-off", left.as_str(), "--yes", "-o", "json"];
    let refused = lab.user(Rights::Patcher).await.run(&command);
    assert_eq!((refused.code, refused.out.as_str()), (3, ""), "{}", refused.error);
    let missing = format!("you lack the verb write-off on artifacts.ledger.backups.cozystack.io {left}");
    assert!(refused.error.contains(&missing), "{}", refused.error);
    assert!(refused.error.contains("holdfast-accountant"), "{}", refused.error);
    assert_eq!(state().await.state, ArtifactState::Retained);

    let accountant = lab.user(Rights::Accountant).await;
    let asked = accountant.run(&["quota", "write-off", &left]);
    assert_eq!(asked.code, 4, "nobody said yes: {}", asked.error);
    assert_eq!(state().await.state, ArtifactState::Retained);
    let refused = accountant.run(&["quota", "write-off", &left, &kept, "--yes"]);
    assert_eq!(refused.code, 1, "{}", refused.error);
    assert!(
        refused.error.contains("delete the Backup first"),
        "{}",
        refused.error
    );
    assert_eq!(state().await.state, ArtifactState::Retained, "all or nothing");

    let done: Value = accountant.json(&command[..4]);
    assert_eq!(done["bytes"], 2 * MI, "{done:#}");
    assert_eq!(done["writtenOff"][0]["name"], left.as_str(), "{done:#}");
    assert_eq!((&done["already"], &done["failed"]), (&json!([]), &json!([])));
    let after = state().await;
    assert_eq!(after.state, ArtifactState::WrittenOff);
    assert_eq!(after.written_off_by.as_deref(), Some(accountant.name.as_str()));
    assert_eq!(after.size_bytes, Some(2 * MI), "the rest stays");
    let again = accountant.json(&command[..4]);
    assert_eq!(
        (&again["already"], &again["writtenOff"]),
        (&json!([left]), &json!([]))
    );
    assert_eq!(state().await, after, "a second time changes nothing");

    let told = accountant.json(&["quota"]);
    let namespace = only(&told);
    assert_eq!(
        (&namespace["usedBytes"], &namespace["writtenOff"]),
        (&json!(3 * MI), &json!(2 * MI))
    );
    lab.end().await;
}
