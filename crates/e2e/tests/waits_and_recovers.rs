//! What is missing is named in a condition; once it is there, the work goes on by itself.

use anyhow::Result;
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{Repository, conditions};
use holdfast_e2e::scenario::{DATA_CLAIM, POLICY, REPOSITORY, SECRET, Scenario, VAULT_CLAIM, suffix};
use holdfast_e2e::{Lab, Look, objects, pods, until};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_missing_secret_is_named_and_waited_for() -> Result<()> {
    let Some(lab) = Lab::for_test("a_missing_secret_is_named_and_waited_for").await? else {
        return Ok(());
    };
    let scenario = Scenario::bare(&lab, "no-secret").await?;
    let ns = &scenario.namespace;
    lab.create(objects::repository(ns, REPOSITORY, VAULT_CLAIM, SECRET, None))
        .await?;
    let said = scenario
        .repository_condition(conditions::READY, |c| c.reason == "MissingCredentialsSecret")
        .await?;
    assert_eq!(said.status, "False");
    assert!(
        said.message.contains(&format!("Secret {ns}/{SECRET}")),
        "{}",
        said.message
    );
    // A backup that is asked for meanwhile waits too, and says for what.
    lab.create(objects::policy(ns, POLICY, REPOSITORY, DATA_CLAIM, None))
        .await?;
    lab.create(objects::snapshot(ns, "early", POLICY)).await?;
    scenario
        .snapshot_condition("early", conditions::READY, |c| c.reason == "RepositoryNotReady")
        .await?;

    let mut keyless = objects::secret(ns, SECRET, "a password");
    keyless["stringData"] = json!({ "OTHER": "x" });
    lab.create(keyless).await?;
    scenario
        .repository_condition(conditions::READY, |c| c.reason == "MissingCredentialsKey")
        .await?;
    let secrets: Api<Secret> = lab.api(ns);
    let key = Patch::Merge(json!({ "stringData": { objects::PASSWORD_KEY: "a password" } }));
    secrets.patch(SECRET, &PatchParams::default(), &key).await?;
    scenario.repository_ready().await?;
    scenario.succeeded("early").await?;
    scenario.end().await
}

#[tokio::test]
async fn a_wrong_password_is_said_and_a_right_one_heals() -> Result<()> {
    let Some(lab) = Lab::for_test("a_wrong_password_is_said_and_a_right_one_heals").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "wrong-password", None).await?;
    let ns = &scenario.namespace;
    let first = scenario
        .repository_ready()
        .await?
        .status
        .unwrap_or_default()
        .unique_id;
    let repositories: Api<Repository> = lab.api(ns);
    repositories
        .delete(REPOSITORY, &DeleteParams::background())
        .await?;
    until("the object to be gone", Duration::from_secs(30), || async {
        let there = repositories.get_opt(REPOSITORY).await?.is_some();
        Ok(if there {
            Look::Not("it is there".into())
        } else {
            Look::Done(())
        })
    })
    .await?;
    let secrets: Api<Secret> = lab.api(ns);
    let say = |password: &str| Patch::Merge(json!({ "stringData": { objects::PASSWORD_KEY: password } }));
    secrets
        .patch(SECRET, &PatchParams::default(), &say("wrong"))
        .await?;
    lab.create(objects::repository(ns, REPOSITORY, VAULT_CLAIM, SECRET, None))
        .await?;
    let said = scenario
        .repository_condition(conditions::BOOTSTRAPPED, |c| c.reason == "InvalidPassword")
        .await?;
    assert_eq!(said.status, "False");
    assert!(
        !said.message.contains("wrong"),
        "the password is in the message: {}",
        said.message
    );
    scenario
        .repository_condition(conditions::STALLED, |c| c.status == "True")
        .await?;

    secrets
        .patch(
            SECRET,
            &PatchParams::default(),
            &say("correct horse battery staple"),
        )
        .await?;
    let healed = scenario.repository_ready().await?;
    let again = healed.status.unwrap_or_default().unique_id;
    assert_eq!(again, first, "the repository was made anew");
    scenario.end().await
}

#[tokio::test]
async fn a_missing_source_claim_is_named_and_waited_for() -> Result<()> {
    let Some(lab) = Lab::for_test("a_missing_source_claim_is_named_and_waited_for").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "no-source", None).await?;
    let ns = &scenario.namespace;
    lab.create(objects::policy(ns, "later", REPOSITORY, "later", None))
        .await?;
    lab.create(objects::snapshot(ns, "waits", "later")).await?;
    let said = scenario
        .snapshot_condition("waits", conditions::SOURCE_PVC_AVAILABLE, |c| c.status == "False")
        .await?;
    assert_eq!(said.reason, "SourcePvcMissing");
    assert!(said.message.contains(&format!("{ns}/later")), "{}", said.message);
    lab.create(objects::claim(ns, "later")).await?;
    scenario.succeeded("waits").await?;
    scenario
        .snapshot_condition("waits", conditions::SOURCE_PVC_AVAILABLE, |c| c.status == "True")
        .await?;
    scenario.end().await
}

#[tokio::test]
async fn a_backend_that_goes_away_parks_one_run_and_comes_back_by_itself() -> Result<()> {
    let name = "a_backend_that_goes_away_parks_one_run_and_comes_back_by_itself";
    let Some(lab) = Lab::for_test(name).await? else {
        return Ok(());
    };
    let scenario = Scenario::bare(&lab, "goes-away").await?;
    let ns = &scenario.namespace;
    lab.create(objects::secret(ns, SECRET, objects::PASSWORD)).await?;
    let mut repository = objects::repository(ns, REPOSITORY, VAULT_CLAIM, SECRET, None);
    repository["spec"]["health"] = json!({ "probe": { "interval": "30s", "failureThreshold": 1 } });
    lab.create(repository).await?;
    scenario.repository_ready().await?;
    scenario
        .repository_condition(conditions::BACKEND_REACHABLE, |c| c.status == "True")
        .await?;
    lab.create(objects::policy(ns, POLICY, REPOSITORY, DATA_CLAIM, None))
        .await?;

    // All of it is there, and none of it may be read.
    locked(&lab, ns, true).await?;
    scenario
        .repository_condition(conditions::READY, |c| c.status == "False")
        .await?;
    let said = scenario
        .repository_condition(conditions::BACKEND_REACHABLE, |c| c.status == "False")
        .await?;
    assert_eq!(said.reason, "BackendUnreachable", "{}", said.message);
    let mut schedule = objects::schedule(ns, "often", POLICY, true, None);
    schedule["spec"]["schedule"]["cron"] = json!("* * * * *");
    schedule["spec"]["schedule"]["concurrencyPolicy"] = json!("Allow");
    lab.create(schedule).await?;
    // Two slots and more pass.
    let began = jiff::Timestamp::now();
    until("two slots to pass", Duration::from_secs(180), || async {
        let waited = jiff::Timestamp::now().duration_since(began).as_secs();
        let runs = scenario.snapshots().await?.len();
        anyhow::ensure!(runs <= 1, "{runs} runs while the backend is away");
        Ok(if waited > 130 && runs == 1 {
            Look::Done(())
        } else {
            Look::Not(format!("{waited} s, {runs} runs"))
        })
    })
    .await?;
    let parked = &scenario.snapshots().await?[0];
    let status = parked.status.clone().unwrap_or_default();
    assert_eq!(status.phase, Some(SnapshotPhase::Pending));

    locked(&lab, ns, false).await?;
    scenario.repository_ready().await?;
    let parked = parked.metadata.name.clone().unwrap_or_default();
    scenario.succeeded(&parked).await?;
    scenario.end().await
}

/// Takes the rights on the repository's files away from everybody, or gives them back.
async fn locked(lab: &Lab, namespace: &str, is: bool) -> Result<()> {
    let files = format!("/volumes/{VAULT_CLAIM}/*");
    let script = if is {
        format!("chmod a-rwx {files}")
    } else {
        format!("chmod u+rwx {files} && chmod -R u+rwX {files}")
    };
    let name = format!("lock-{}", suffix());
    let job = objects::shell_job(
        namespace,
        &name,
        &lab.tools_image,
        &[VAULT_CLAIM.to_owned()],
        &script,
    );
    pods::run(lab, job, Duration::from_secs(120)).await.map(drop)
}
