//! A repository in a bucket of an S3 server: backed up to, deleted from, shared; its keys are seen nowhere.

use anyhow::{Context, Result};
use holdfast_api::conditions;
use holdfast_api::repository::{Repository, RepositoryPhase};
use holdfast_e2e::scenario::{
    DATA_CLAIM, POLICY, REPOSITORY, SECRET, Scenario, json, remove_namespace, suffix, told,
};
use holdfast_e2e::{Lab, Look, objects, standin, until};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_bucket_is_backed_up_to_and_deleted_from_by_one_lane() -> Result<()> {
    let Some(lab) = Lab::for_test("a_bucket_is_backed_up_to_and_deleted_from_by_one_lane").await? else {
        return Ok(());
    };
    let store = format!("s3-{}", suffix());
    let endpoint = standin::s3(&lab, &store).await?;
    let scenario = Scenario::bare(&lab, "bucket").await?;
    let ns = &scenario.namespace;
    let repository = |name: &str| objects::repository_in_bucket(ns, name, &endpoint, "cluster-a/", SECRET);
    lab.create(repository(REPOSITORY)).await?;
    // What is missing is said, with its name, and nothing runs.
    scenario
        .repository_condition(conditions::READY, |c| c.reason == "MissingCredentialsSecret")
        .await?;
    lab.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": SECRET, "namespace": ns },
        "stringData": {
            objects::PASSWORD_KEY: objects::PASSWORD,
            "AWS_ACCESS_KEY_ID": standin::KEYS.0,
            "AWS_SECRET_ACCESS_KEY": standin::KEYS.1,
        },
    }))
    .await?;
    let ready = scenario.repository_ready().await?.status.unwrap_or_default();
    assert_eq!(ready.backend.as_deref(), Some("s3"));
    lab.create(objects::policy(ns, POLICY, REPOSITORY, DATA_CLAIM, None))
        .await?;
    scenario.back_up("one", POLICY).await?;
    scenario.back_up("two", POLICY).await?;

    // Keys are files of the mover: neither in its pod nor in its Job.
    let pods: Api<Pod> = lab.api(ns);
    let jobs: Api<Job> = lab.api(ns);
    let of_job = ListParams::default().labels("batch.kubernetes.io/job-name=one");
    let pod = pods
        .list(&of_job)
        .await?
        .items
        .into_iter()
        .next()
        .context("the mover's pod")?;
    for object in [json(&pod)?, json(&jobs.get("one").await?)?] {
        let text = object.to_string();
        assert!(
            !text.contains(standin::KEYS.1) && !text.contains(objects::PASSWORD),
            "{text}"
        );
    }
    let log = pods
        .logs(
            pod.metadata.name.as_deref().unwrap_or_default(),
            &Default::default(),
        )
        .await?;
    assert!(
        log.contains("cluster-a/") && !log.contains(standin::KEYS.1),
        "{log}"
    );

    // Another object over the same bucket and prefix is the same repository.
    lab.create(repository("second")).await?;
    let repositories: Api<Repository> = lab.api(ns);
    let second = until(
        "the second object to be Ready",
        Duration::from_secs(120),
        || async {
            let status = repositories.get("second").await?.status.unwrap_or_default();
            Ok(match status.phase {
                Some(RepositoryPhase::Ready) if status.unique_id.is_some() => Look::Done(status),
                _ => Look::Not(told(&status.conditions, conditions::READY)),
            })
        },
    )
    .await?;
    assert_eq!(second.unique_id, ready.unique_id);
    scenario
        .repository_condition(conditions::SHARED_REPOSITORY, |c| {
            c.status == "True" && c.message.contains("second")
        })
        .await?;

    // Deleted means read back: the object goes when the bucket no longer lists its data.
    let snapshots: Api<holdfast_api::Snapshot> = lab.api(ns);
    snapshots.delete("one", &DeleteParams::default()).await?;
    until("Snapshot one to be gone", Duration::from_secs(180), || async {
        let Some(left) = scenario.snapshot("one").await? else {
            return Ok(Look::Done(()));
        };
        let status = left.status.unwrap_or_default();
        Ok(Look::Not(told(&status.conditions, conditions::DELETION_BLOCKED)))
    })
    .await?;
    assert!(scenario.snapshot("two").await?.is_some());
    scenario.back_up("three", POLICY).await?;
    scenario.end().await?;
    remove_namespace(&lab, &store).await
}
