//! What is missing is named in a condition; once it is there, the work goes on by itself.

use anyhow::Result;
use holdfast_api::{Repository, conditions};
use holdfast_e2e::scenario::{DATA_CLAIM, POLICY, REPOSITORY, SECRET, Scenario, VAULT_CLAIM};
use holdfast_e2e::{Lab, Look, objects, until};
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
