//! A figure of ours that lags or is missing blocks nobody (`docs/design.md` 8, promise 10).

use serde_json::json;

use super::lab::{CONTROLLER_MANAGER, COUNT, Lab, SIZE, refusal};

/// Case real 5.
#[tokio::test]
async fn a_figure_that_was_never_published_blocks_no_pod() {
    let Some(lab) = Lab::new("lags").await else { return };
    lab.quota("cap", json!({ "pods": "5", SIZE: "1Gi" })).await;
    lab.until_used("cap", &[("pods", "0")]).await;
    lab.pod("one").await.expect("admitted");
    lab.end().await;
}

/// A figure over its limit, too, is our gate's business alone.
#[tokio::test]
async fn a_figure_over_its_limit_blocks_no_pod_and_no_other_object() {
    let Some(lab) = Lab::new("over").await else { return };
    lab.quota(
        "cap",
        json!({ "pods": "5", "configmaps": "100", SIZE: "1Gi", COUNT: "1" }),
    )
    .await;
    lab.publish("cap", json!({ SIZE: "9Gi", COUNT: "7" }))
        .await
        .expect("published");
    lab.pod("one").await.expect("admitted");
    lab.config_map("one").await.expect("admitted");
    assert_eq!(lab.used("cap").await[SIZE], "9Gi");
    lab.end().await;
}

/// Case real 7, and why the spelling that a chart may flatten the keys to is unusable: the API server takes it for a
/// resource that Pods request.
#[tokio::test]
async fn the_spelling_with_requests_blocks_pods_and_loses_its_figure() {
    let Some(lab) = Lab::new("requests").await else {
        return;
    };
    let _mine = lab.controller_manager().await;
    let wrong = format!("requests.{SIZE}");
    lab.quota("cap", json!({ wrong.as_str(): "10Gi", "configmaps": "100" }))
        .await;
    lab.publish("cap", json!({ wrong.as_str(): "3Gi" }))
        .await
        .expect("stored");
    lab.resync("cap").await;
    assert_eq!(
        lab.used("cap").await[&wrong],
        "0",
        "the controller manager counts it itself"
    );

    // The moment before the first sync, held still.
    lab.program("pause", CONTROLLER_MANAGER).await;
    lab.merge_status("cap", json!({ "used": { wrong.as_str(): null } }))
        .await;
    let mut answer = lab.pod("one").await;
    for attempt in 0..50 {
        // The admission looks into a cache: it may be some milliseconds behind.
        if answer.is_err() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        answer = lab.pod(&format!("one-{attempt}")).await;
    }
    lab.program("resume", CONTROLLER_MANAGER).await;
    let (code, message) = refusal(answer);
    assert_eq!(code, 403, "{message}");
    assert!(message.contains("status unknown for quota: cap"), "{message}");
    assert!(message.contains(&wrong), "{message}");
    lab.end().await;
}

/// The same moment with the spelling that we use.
#[tokio::test]
async fn the_spelling_without_it_blocks_nobody_in_the_same_moment() {
    let Some(lab) = Lab::new("plain").await else {
        return;
    };
    let _mine = lab.controller_manager().await;
    lab.quota("cap", json!({ SIZE: "10Gi", "pods": "50" })).await;
    lab.until_used("cap", &[("pods", "0")]).await;
    lab.program("pause", CONTROLLER_MANAGER).await;
    let mut answers = Vec::new();
    for attempt in 0..10 {
        answers.push(lab.pod(&format!("pod-{attempt}")).await.map(drop));
    }
    lab.program("resume", CONTROLLER_MANAGER).await;
    for answer in answers {
        answer.expect("admitted");
    }
    lab.end().await;
}
