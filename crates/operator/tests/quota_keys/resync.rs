//! The controller manager carries our figures through, whatever it does for itself.

use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::DeleteParams;
use serde_json::json;

use super::lab::{CONTROLLER_MANAGER, COUNT, Lab, MANAGER, SIZE};

/// The managers that own our key in `status.used`.
fn owners(quota: &ResourceQuota) -> Vec<String> {
    let key = format!("f:{SIZE}");
    quota
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| {
            entry
                .fields_v1
                .as_ref()
                .is_some_and(|fields| fields.0["f:status"]["f:used"].get(&key).is_some())
        })
        .filter_map(|entry| entry.manager.clone())
        .collect()
}

/// Cases real 1 and 2.
#[tokio::test]
async fn a_fresh_quota_has_no_figure_and_a_published_one_survives_three_resyncs_and_stays_ours() {
    let Some(lab) = Lab::new("resync").await else {
        return;
    };
    lab.quota("cap", json!({ SIZE: "10Gi", "configmaps": "100" }))
        .await;
    assert!(
        !lab.used("cap").await.contains_key(SIZE),
        "a figure out of nothing"
    );
    lab.publish("cap", json!({ SIZE: "3Gi" }))
        .await
        .expect("published");
    for _ in 0..3 {
        lab.resync("cap").await;
        assert_eq!(lab.used("cap").await.get(SIZE).map(String::as_str), Some("3Gi"));
    }
    let quota = lab.quotas().get("cap").await.expect("read");
    assert_eq!(owners(&quota), [MANAGER]);
    lab.end().await;
}

/// Cases real 3 and 4.
#[tokio::test]
async fn it_stands_beside_counted_pods_through_a_sync_and_through_an_admission() {
    let Some(lab) = Lab::new("pods").await else { return };
    lab.quota("cap", json!({ SIZE: "10Gi", "configmaps": "100", "pods": "10" }))
        .await;
    lab.publish("cap", json!({ SIZE: "3Gi" }))
        .await
        .expect("published");
    lab.pod("one").await.expect("admitted");
    lab.pod("two").await.expect("admitted");
    lab.resync("cap").await;
    let used = lab.used("cap").await;
    assert_eq!((used["pods"].as_str(), used[SIZE].as_str()), ("2", "3Gi"));
    lab.pod("three").await.expect("admitted");
    let used = lab.used("cap").await;
    assert_eq!((used["pods"].as_str(), used[SIZE].as_str()), ("3", "3Gi"));
    lab.end().await;
}

/// Cases real 8 and 9.
#[tokio::test]
async fn a_key_that_leaves_the_limits_leaves_the_figures_and_returns_only_when_published() {
    let Some(lab) = Lab::new("key").await else { return };
    lab.quota("cap", json!({ SIZE: "10Gi", COUNT: "5", "configmaps": "100" }))
        .await;
    lab.publish("cap", json!({ SIZE: "3Gi", COUNT: "2" }))
        .await
        .expect("published");
    lab.merge_hard("cap", json!({ SIZE: null })).await;
    lab.until("the key to be masked away", async || {
        !lab.used("cap").await.contains_key(SIZE)
    })
    .await;
    assert_eq!(lab.used("cap").await[COUNT], "2");
    // A publisher that does not look at the limits puts it back, until the next sync: why ours looks.
    lab.publish("cap", json!({ SIZE: "3Gi", COUNT: "2" }))
        .await
        .expect("published");
    lab.resync("cap").await;
    assert!(!lab.used("cap").await.contains_key(SIZE));

    lab.merge_hard("cap", json!({ SIZE: "10Gi" })).await;
    lab.resync("cap").await;
    assert!(
        !lab.used("cap").await.contains_key(SIZE),
        "nobody published it yet"
    );
    lab.publish("cap", json!({ SIZE: "4Gi", COUNT: "2" }))
        .await
        .expect("published");
    lab.resync("cap").await;
    assert_eq!(lab.used("cap").await[SIZE], "4Gi");
    lab.end().await;
}

/// Case real 10: why no record may live in a quota.
#[tokio::test]
async fn a_quota_made_anew_under_its_name_has_lost_the_figures() {
    let Some(lab) = Lab::new("anew").await else { return };
    let hard = json!({ SIZE: "10Gi" });
    lab.quota("cap", hard.clone()).await;
    lab.publish("cap", json!({ SIZE: "3Gi" }))
        .await
        .expect("published");
    lab.quotas()
        .delete("cap", &DeleteParams::default())
        .await
        .expect("deleted");
    lab.quota("cap", hard).await;
    assert!(!lab.used("cap").await.contains_key(SIZE));
    lab.end().await;
}

/// Case real 12.
#[tokio::test]
async fn a_scoped_quota_is_stored_and_never_gets_a_figure_by_itself() {
    let Some(lab) = Lab::new("scoped").await else {
        return;
    };
    let spec = json!({ "hard": { SIZE: "1Gi", "pods": "5" }, "scopes": ["BestEffort"] });
    lab.try_quota("scoped", spec).await.expect("created");
    lab.until_used("scoped", &[("pods", "0")]).await;
    lab.end().await;
}

/// Case real 23.
#[tokio::test]
async fn a_restart_of_the_controller_manager_between_two_publications_loses_nothing() {
    let Some(lab) = Lab::new("restart").await else {
        return;
    };
    let _mine = lab.controller_manager().await;
    lab.quota("cap", json!({ SIZE: "10Gi", "configmaps": "100" }))
        .await;
    lab.publish("cap", json!({ SIZE: "3Gi" }))
        .await
        .expect("published");
    lab.program("restart", CONTROLLER_MANAGER).await;
    // The new process starts from what it lists: one that dropped foreign keys would do so now.
    lab.resync("cap").await;
    lab.resync("cap").await;
    assert_eq!(lab.used("cap").await[SIZE], "3Gi");
    lab.end().await;
}

/// Case real 25.
#[tokio::test]
async fn a_quota_with_our_keys_alone_is_not_written_again_and_again() {
    let Some(lab) = Lab::new("quiet").await else {
        return;
    };
    lab.quota("cap", json!({ SIZE: "10Gi", COUNT: "5" })).await;
    // A neighbour tells when syncs have passed: all quotas are synced together.
    lab.quota("clock", json!({ "configmaps": "100" })).await;
    lab.resync("clock").await;
    let before = lab
        .quotas()
        .get("cap")
        .await
        .expect("read")
        .metadata
        .resource_version;
    for _ in 0..2 {
        lab.resync("clock").await;
    }
    let after = lab
        .quotas()
        .get("cap")
        .await
        .expect("read")
        .metadata
        .resource_version;
    assert_eq!(
        before, after,
        "the controller manager wrote a quota that nothing changed"
    );
    lab.end().await;
}

/// Case real 18, the part of Kubernetes: the limit that is in force at once stands in `spec.hard`.
#[tokio::test]
async fn without_a_controller_manager_a_raised_limit_shows_in_the_spec_alone() {
    let Some(lab) = Lab::new("raised").await else {
        return;
    };
    let _mine = lab.controller_manager().await;
    lab.quota("cap", json!({ SIZE: "1Gi" })).await;
    lab.publish("cap", json!({ SIZE: "1Gi" }))
        .await
        .expect("published");
    lab.program("pause", CONTROLLER_MANAGER).await;
    lab.merge_hard("cap", json!({ SIZE: "2Gi" })).await;
    lab.publish("cap", json!({ SIZE: "1536Mi" }))
        .await
        .expect("a figure needs no controller manager");
    let quota = lab.quotas().get("cap").await.expect("read");
    let hard = |map: Option<std::collections::BTreeMap<String, _>>| {
        map.and_then(|map| map.get(SIZE).cloned())
            .map(|q: k8s_openapi::apimachinery::pkg::api::resource::Quantity| q.0)
    };
    let (spec, status) = (quota.spec.expect("a spec"), quota.status.expect("a status"));
    lab.program("resume", CONTROLLER_MANAGER).await;
    assert_eq!(hard(spec.hard).as_deref(), Some("2Gi"));
    assert_eq!(hard(status.hard).as_deref(), Some("1Gi"));
    assert_eq!(status.used.expect("used")[SIZE].0, "1536Mi");
    lab.end().await;
}
