//! Several writers of one status, and what a writer of ours costs the others.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{ResourceQuota, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::lab::{COUNT, Lab, MANAGER, SIZE, refusal};

/// Case real 16, and a second writer that survives.
#[tokio::test]
async fn a_stale_put_is_refused_and_an_apply_leaves_the_other_writers_keys() {
    let Some(lab) = Lab::new("writers").await else {
        return;
    };
    lab.quota("cap", json!({ SIZE: "10Gi", COUNT: "5", "configmaps": "100" }))
        .await;
    let mut stale = lab.quotas().get("cap").await.expect("read");
    lab.publish("cap", json!({ SIZE: "3Gi" }))
        .await
        .expect("published");
    let second = PatchParams::apply("another-accountant");
    lab.apply(&second, "cap", json!({ COUNT: "4" }))
        .await
        .expect("applied");
    let used = stale.status.get_or_insert_default().used.get_or_insert_default();
    used.insert(SIZE.to_owned(), Quantity("9Gi".to_owned()));
    let answer = lab
        .quotas()
        .replace_status("cap", &PostParams::default(), &stale)
        .await;
    assert_eq!(refusal(answer).0, 409);

    lab.publish("cap", json!({ SIZE: "4Gi" }))
        .await
        .expect("published");
    lab.config_map("one").await.expect("admitted");
    lab.resync("cap").await;
    let used = lab.used("cap").await;
    assert_eq!((used[SIZE].as_str(), used[COUNT].as_str()), ("4Gi", "4"));
    lab.end().await;
}

/// Case real 27, the part of Kubernetes: a hand in the status is a conflict, which force ends.
#[tokio::test]
async fn an_edit_by_hand_is_a_conflict_and_force_wins() {
    let Some(lab) = Lab::new("edit").await else { return };
    lab.quota("cap", json!({ SIZE: "10Gi" })).await;
    lab.publish("cap", json!({ SIZE: "3Gi" }))
        .await
        .expect("published");
    lab.merge_status("cap", json!({ "used": { SIZE: "1Gi" } })).await;
    let polite = PatchParams::apply(MANAGER);
    assert_eq!(
        refusal(lab.apply(&polite, "cap", json!({ SIZE: "3Gi" })).await).0,
        409
    );
    lab.publish("cap", json!({ SIZE: "3Gi" }))
        .await
        .expect("published");
    assert_eq!(lab.used("cap").await[SIZE], "3Gi");
    lab.end().await;
}

/// Case real 19.
#[tokio::test]
async fn the_breakdown_annotation_needs_no_right_but_that_on_the_status() {
    let Some(lab) = Lab::new("annotation").await else {
        return;
    };
    lab.quota("cap", json!({ SIZE: "10Gi" })).await;
    let user = "holdfast-test-publisher";
    let role = json!({
        "metadata": { "name": "publisher" },
        "rules": [{ "apiGroups": [""], "resources": ["resourcequotas/status"], "verbs": ["patch"] }],
    });
    let binding = json!({
        "metadata": { "name": "publisher" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "publisher" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    });
    let role: Role = serde_json::from_value(role).expect("a Role");
    lab.api()
        .create(&PostParams::default(), &role)
        .await
        .expect("created");
    let binding: RoleBinding = serde_json::from_value(binding).expect("a RoleBinding");
    lab.api()
        .create(&PostParams::default(), &binding)
        .await
        .expect("created");
    let quotas: Api<ResourceQuota> = Api::namespaced(lab.as_user(user).await, &lab.namespace);
    let patch = Patch::Merge(json!({
        "metadata": { "annotations": { "ledger.backups.cozystack.io/breakdown": "{}" } },
    }));
    lab.until("the role to be in force", async || {
        quotas
            .patch_status("cap", &PatchParams::default(), &patch)
            .await
            .is_ok()
    })
    .await;
    let quota = lab.quotas().get("cap").await.expect("read");
    let annotations = quota.metadata.annotations.expect("annotations");
    assert_eq!(annotations["ledger.backups.cozystack.io/breakdown"], "{}");
    let hard = Patch::Merge(json!({ "spec": { "hard": { SIZE: "99Gi" } } }));
    let answer = quotas.patch("cap", &PatchParams::default(), &hard).await;
    assert_eq!(refusal(answer).0, 403);
    // Nor through the status: the spec of such a patch is dropped.
    quotas
        .patch_status("cap", &PatchParams::default(), &hard)
        .await
        .expect("stored");
    let spec = lab.quotas().get("cap").await.expect("read").spec.expect("a spec");
    assert_eq!(spec.hard.expect("hard")[SIZE].0, "10Gi");
    lab.end().await;
}

/// Writes figures until told to end; says how many.
async fn keep_writing(lab: &Lab, pause: Duration, end: &CancellationToken) -> u64 {
    let mut written = 0;
    while !end.is_cancelled() {
        written += 1;
        let figure = format!("{written}Mi");
        lab.publish("cap", json!({ SIZE: figure }))
            .await
            .expect("published");
        tokio::time::sleep(pause).await;
    }
    written
}

/// Fifty clients create 600 Secrets; how many of them were answered 409.
async fn conflicts(lab: &Lab, prefix: &str) -> usize {
    let secrets: Api<Secret> = lab.api();
    let clients: FuturesUnordered<_> = (0..50)
        .map(|client| {
            let secrets = secrets.clone();
            async move {
                let mut conflicts = 0;
                for turn in 0..12 {
                    let name = format!("{prefix}-{client}-{turn}");
                    let secret = json!({ "metadata": { "name": name } });
                    let secret: Secret = serde_json::from_value(secret).expect("a Secret");
                    match secrets.create(&PostParams::default(), &secret).await {
                        Ok(_) => {}
                        Err(kube::Error::Api(status)) if status.code == 409 => conflicts += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                conflicts
            }
        })
        .collect();
    clients.fold(0, async |sum, one| sum + one).await
}

/// Case real 17: a write a second, which is our pace at its fastest, costs ordinary creates nothing; a writer that does
/// not hold back does, and its number is printed.
#[tokio::test]
async fn fifty_clients_meet_no_conflict_while_a_figure_changes_every_second() {
    let Some(lab) = Lab::new("busy").await else { return };
    lab.quota("cap", json!({ SIZE: "10Gi", "secrets": "100000" }))
        .await;
    lab.until("secrets to be counted", async || {
        lab.used("cap").await.contains_key("secrets")
    })
    .await;
    for (pace, prefix, pause) in [
        ("a write a second", "calm", Duration::from_secs(1)),
        ("as fast as it can", "rash", Duration::ZERO),
    ] {
        let end = CancellationToken::new();
        let started = Instant::now();
        let work = async {
            let conflicts = conflicts(&lab, prefix).await;
            end.cancel();
            conflicts
        };
        let (conflicts, written) = tokio::join!(work, keep_writing(&lab, pause, &end));
        println!(
            "{pace}: {written} figures beside 600 creates of 50 clients in {:.1} s: {conflicts} answered 409",
            started.elapsed().as_secs_f64()
        );
        if prefix == "calm" {
            assert_eq!(conflicts, 0, "ordinary creates were answered 409");
        }
    }
    lab.end().await;
}

/// Case real 24, the part of Kubernetes: the answers are final ones.
#[tokio::test]
async fn in_a_namespace_that_goes_a_publication_ends_with_not_found() {
    let Some(lab) = Lab::new("goes").await else { return };
    lab.quota("cap", json!({ SIZE: "10Gi" })).await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(lab.client.clone());
    namespaces
        .delete(&lab.namespace, &Default::default())
        .await
        .expect("deleted");
    let mut last = None;
    lab.until("the quota to be gone", async || {
        match lab.publish("cap", json!({ SIZE: "1Gi" })).await {
            Ok(_) => false,
            Err(kube::Error::Api(status)) => {
                last = Some(status.code);
                true
            }
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    assert!(matches!(last, Some(403 | 404)), "{last:?}");
}
