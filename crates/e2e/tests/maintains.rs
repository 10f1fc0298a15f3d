//! A repository is maintained on schedules and when a person asks, says what that freed, and is left to whoever it says
//! maintains it.

use anyhow::{Context, Result};
use holdfast_api::maintenance::{Maintenance, MaintenanceStatus};
use holdfast_api::repository::Engine;
use holdfast_api::{Repository, conditions, names};
use holdfast_e2e::scenario::{POLICY, REPOSITORY, Scenario, told};
use holdfast_e2e::{Lab, Look, objects, until};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

const NAME: &str = "care";
/// A time that does not come in a test.
const NOT_NOW: &str = "0 0 29 2 *";

fn maintenance(namespace: &str, quick: &str, ownership: Value) -> Value {
    let mut object = json!({
        "apiVersion": names::API_VERSION, "kind": "Maintenance",
        "metadata": { "name": NAME, "namespace": namespace },
        "spec": {
            "repository": { "name": REPOSITORY },
            "schedule": { "quick": { "cron": quick }, "full": { "cron": NOT_NOW } },
        },
    });
    if !ownership.is_null() {
        object["spec"]["ownership"] = ownership;
    }
    object
}

/// Waits until its status satisfies `wanted`.
async fn until_it(
    scenario: &Scenario,
    what: &str,
    wanted: impl Fn(&MaintenanceStatus) -> bool,
) -> Result<MaintenanceStatus> {
    let api: Api<Maintenance> = scenario.lab.api(&scenario.namespace);
    until(what, Duration::from_secs(240), || async {
        let status = api.get(NAME).await?.status.unwrap_or_default();
        if wanted(&status) {
            return Ok(Look::Done(status));
        }
        Ok(Look::Not(told(&status.conditions, conditions::READY)))
    })
    .await
}

fn says(status: &MaintenanceStatus, reason: &str) -> bool {
    conditions::get(&status.conditions, conditions::READY).is_some_and(|c| c.reason == reason)
}

/// Asks for a run as a person does, and answers with what was written.
async fn ask(scenario: &Scenario, mode: &str) -> Result<String> {
    let at = jiff::Timestamp::now().to_string();
    let api: Api<Maintenance> = scenario.lab.api(&scenario.namespace);
    let annotations = json!({ names::RUN_REQUESTED: at, names::RUN_MODE: mode });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    api.patch(NAME, &PatchParams::default(), &patch).await?;
    Ok(at)
}

async fn answered(scenario: &Scenario, at: &str) -> Result<MaintenanceStatus> {
    until_it(scenario, "the run that was asked for", |status| {
        status
            .manual_run
            .as_ref()
            .is_some_and(|run| run.requested_at == at)
    })
    .await
}

#[tokio::test]
async fn what_a_deletion_leaves_is_found_when_it_was_looked_whether_it_stayed_away() -> Result<()> {
    let name = "what_a_deletion_leaves_is_found_when_it_was_looked_whether_it_stayed_away";
    let Some(lab) = Lab::for_test(name).await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "maintains", None).await?;
    let ns = &scenario.namespace;
    scenario
        .repository_condition(conditions::MAINTENANCE_CONFIGURED, |c| c.status == "False")
        .await?;
    lab.create(maintenance(ns, NOT_NOW, Value::Null)).await?;
    scenario
        .repository_condition(conditions::MAINTENANCE_CONFIGURED, |c| c.status == "True")
        .await?;
    let status = answered(&scenario, &ask(&scenario, "full").await?).await?;
    let run = status.manual_run.context("the run")?;
    assert!(run.succeeded, "{}", run.message);
    let full = status.full.context("status.full")?;
    assert_eq!(full.last_content_reclaimed_bytes, Some(0));
    assert!(full.last_run_at.is_some());

    scenario.back_up("doomed", POLICY).await?;
    scenario.delete("doomed").await?;
    scenario.gone("doomed").await?;
    let at = ask(&scenario, "full").await?;
    until_it(&scenario, "the wait for the second look", |s| {
        says(s, "SecondLookDue")
    })
    .await?;
    // Minutes are not waited for in a test: as if it had been looked.
    let repositories: Api<Repository> = lab.api(ns);
    let looked = Patch::Merge(json!({ "status": { "catalog": { "secondLookAt": null } } }));
    repositories
        .patch_status(REPOSITORY, &PatchParams::default(), &looked)
        .await?;
    let status = answered(&scenario, &at).await?;
    let run = status.manual_run.context("the run")?;
    assert!(run.succeeded, "{}", run.message);
    let full = status.full.context("status.full")?;
    // The file without a pattern is that long; it is freed when the engine's safety period is over.
    assert!(full.last_content_marked_bytes > Some(15_000), "{full:?}");
    assert_eq!(full.last_content_reclaimed_bytes, Some(0), "{full:?}");
    assert!(status.stored_bytes > Some(0));
    scenario.end().await
}

#[tokio::test]
async fn a_slot_comes_due_and_runs() -> Result<()> {
    let Some(lab) = Lab::for_test("a_slot_comes_due_and_runs").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "slots", None).await?;
    lab.create(maintenance(&scenario.namespace, "* * * * *", Value::Null))
        .await?;
    let status = until_it(&scenario, "a quick run, and the next slot", |status| {
        let quick = status.quick.as_ref();
        quick.is_some_and(|q| q.last_run_at.is_some() && q.next_scheduled_at > q.last_handled_at)
    })
    .await?;
    let quick = status.quick.context("status.quick")?;
    assert_eq!(quick.consecutive_failures, 0);
    assert!(quick.last_handled_at.is_some());
    assert_eq!(status.full.context("status.full")?.last_run_at, None);
    scenario.end().await
}

#[tokio::test]
async fn a_repository_is_left_to_its_owner_until_it_is_taken_over() -> Result<()> {
    let Some(lab) = Lab::for_test("a_repository_is_left_to_its_owner_until_it_is_taken_over").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "owners", None).await?;
    let ns = &scenario.namespace;
    let own = |owner: &str, policy: &str| json!({ "owner": owner, "takeoverPolicy": policy });
    lab.create(maintenance(ns, NOT_NOW, own("first/vault", "Never")))
        .await?;
    match objects::engine() {
        Engine::Kopia => {}
        Engine::Restic | Engine::Unknown => {
            // No record of it in the format: refused rather than without effect.
            let status = until_it(&scenario, "the refusal", |s| says(s, "InvalidSpec")).await?;
            let said = told(&status.conditions, conditions::READY);
            assert!(said.contains("spec.ownership"), "{said}");
            return scenario.end().await;
        }
    }
    let status = answered(&scenario, &ask(&scenario, "quick").await?).await?;
    assert_eq!(status.ownership.context("an owner")?.owner, "first/vault");
    assert!(conditions::is_true(&status.conditions, conditions::LEASE_OWNED));

    let api: Api<Maintenance> = lab.api(ns);
    api.delete(NAME, &DeleteParams::background()).await?;
    until("it to be gone", Duration::from_secs(30), || async {
        Ok(match api.get_opt(NAME).await? {
            None => Look::Done(()),
            Some(_) => Look::Not("it is there".into()),
        })
    })
    .await?;
    lab.create(maintenance(ns, NOT_NOW, own("second/vault", "PromptCondition")))
        .await?;
    let status = answered(&scenario, &ask(&scenario, "quick").await?).await?;
    assert!(!status.manual_run.context("the run")?.succeeded);
    let theirs = status.ownership.context("an owner")?;
    assert_eq!((theirs.owner.as_str(), theirs.claimed_at), ("first/vault", None));
    let said = told(&status.conditions, conditions::READY);
    assert!(
        said.contains("TakeoverNeeded") && said.contains("kubectl patch"),
        "{said}"
    );

    let force = Patch::Merge(json!({ "spec": { "ownership": { "takeoverPolicy": "Force" } } }));
    api.patch(NAME, &PatchParams::default(), &force).await?;
    let status = answered(&scenario, &ask(&scenario, "quick").await?).await?;
    assert_eq!(status.ownership.context("an owner")?.owner, "second/vault");
    assert!(status.manual_run.context("the run")?.succeeded);
    scenario.end().await
}
