//! Which limits and which figures the API server stores.

use serde_json::json;

use super::lab::{COUNT, Lab, SIZE, refusal};

/// Cases real 14 and 15, and the largest figure there can be.
#[tokio::test]
async fn only_whole_bytes_that_are_not_negative_and_below_about_eight_pebibytes() {
    let Some(lab) = Lab::new("values").await else {
        return;
    };
    let quota = async |name: &str, key: &str, value: &str| {
        lab.try_quota(name, json!({ "hard": { key: value } })).await
    };
    for (name, key, value) in [
        ("a", SIZE, "10Gi"),
        ("b", SIZE, "1.5Gi"),
        ("c", SIZE, "500M"),
        ("d", SIZE, "0"),
        ("e", SIZE, "1e9"),
        ("f", SIZE, "8Pi"),
        ("g", COUNT, "2.0"),
    ] {
        if let Err(error) = quota(name, key, value).await {
            panic!("{value} is refused: {error}");
        }
    }
    for value in ["0.1Gi", "1500m", "-1Gi", "3.5", "9Pi", "1Ei"] {
        let (code, message) = refusal(quota("refused", SIZE, value).await);
        assert_eq!(code, 422, "{value}: {message}");
    }
    assert_eq!(refusal(quota("refused", COUNT, "2.5").await).0, 422);
    let two = lab
        .quotas()
        .get("g")
        .await
        .expect("read")
        .spec
        .and_then(|spec| spec.hard);
    assert_eq!(two.expect("hard")[COUNT].0, "2", "2.0 is stored as 2");
    lab.end().await;
}

/// A ledger above that would lose its whole publication, so ours clamps.
#[tokio::test]
async fn a_figure_above_the_largest_is_refused_whole_and_the_largest_is_stored() {
    let Some(lab) = Lab::new("clamp").await else {
        return;
    };
    lab.quota("cap", json!({ SIZE: "8Pi", COUNT: "9" })).await;
    let answer = lab.publish("cap", json!({ SIZE: "9Pi", COUNT: "1" })).await;
    let (code, message) = refusal(answer);
    assert_eq!(code, 422, "{message}");
    assert!(
        !lab.used("cap").await.contains_key(COUNT),
        "the other key is refused with it"
    );
    lab.publish("cap", json!({ SIZE: "8Pi", COUNT: "1" }))
        .await
        .expect("stored");
    let used = lab.used("cap").await;
    assert_eq!((used[SIZE].as_str(), used[COUNT].as_str()), ("8Pi", "1"));
    lab.end().await;
}
