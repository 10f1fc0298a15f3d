//! Manifests as people write them, word for word but for names of namespaces and of a repository, at work on a cluster:
//! the ones that `docs/reference/manifests.md` says so of.
//!
//! Nothing here waits for a night: what the operator has written down as the next slot is moved to now in the object's
//! status, and the rest is its own doing.

use anyhow::{Context, Result};
use holdfast_api::maintenance::Maintenance;
use holdfast_api::repository::Engine;
use holdfast_api::{ClusterRepository, SnapshotSchedule, conditions, names};
use holdfast_e2e::scenario::{DATA_CLAIM, REPOSITORY, Scenario, json, shared_ready, suffix, told};
use holdfast_e2e::{Lab, Look, objects, until};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

/// The only document of a file.
fn manifest(file: &str) -> Result<Value> {
    let path = format!(
        "{}/../api/tests/fixtures/kopia/{file}",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).with_context(|| path)?;
    serde_saphyr::from_str(&text).context("not YAML")
}

/// The operator's next slot of a schedule, once it is written down.
async fn next_slot(schedules: &Api<SnapshotSchedule>, name: &str) -> Result<Value> {
    until("the next slot", Duration::from_secs(60), || async {
        let next = json(&schedules.get(name).await?)?["status"]["nextSchedule"].clone();
        Ok(if next["at"].is_string() {
            Look::Done(next)
        } else {
            Look::Not(next.to_string())
        })
    })
    .await
}

/// As if the next slot were now.
async fn now_is_the_slot(schedules: &Api<SnapshotSchedule>, name: &str) -> Result<()> {
    let now = jiff::Timestamp::now().to_string();
    let patch = Patch::Merge(json!({ "status": { "nextSchedule": { "at": now } } }));
    schedules
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// The names of the Snapshots of a namespace, once there are so many.
async fn made(scenario: &Scenario, count: usize) -> Result<Vec<String>> {
    until(&format!("{count} Snapshots"), Duration::from_secs(60), || async {
        let all = scenario.snapshots().await?;
        Ok(if all.len() == count {
            Look::Done(all.into_iter().filter_map(|s| s.metadata.name).collect())
        } else {
            Look::Not(format!("{} Snapshots", all.len()))
        })
    })
    .await
}

#[tokio::test]
async fn schedule_with_jitter_runs() -> Result<()> {
    let Some(lab) = Lab::for_test("schedule_with_jitter_runs").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "jitter", None).await?;
    let ns = &scenario.namespace;
    lab.create(objects::policy(ns, "wiki", REPOSITORY, DATA_CLAIM, None))
        .await?;
    let mut schedule = manifest("11-schedule-hourly-jitter-deletion.yaml")?;
    schedule["metadata"]["namespace"] = json!(ns);
    lab.create(schedule).await?;
    let schedules: Api<SnapshotSchedule> = lab.api(ns);
    let next = next_slot(&schedules, "wiki").await?;
    let at: jiff::Timestamp = next["at"].as_str().context("a time")?.parse()?;
    // The hour of the manifest in its own time zone; two minutes of jitter may pass its end.
    let there = at.in_tz("Europe/Oslo")?;
    let past_four = there.hour() == 5 && there.minute() < 2;
    assert!(there.hour() == 4 || past_four, "{there}");
    assert_eq!(
        (&next["timezone"], &next["jitter"]),
        (&json!("Europe/Oslo"), &json!("2m"))
    );

    now_is_the_slot(&schedules, "wiki").await?;
    let names = made(&scenario, 1).await?;
    let taken = scenario.succeeded(&names[0]).await?;
    assert_eq!(
        json(&taken)?["spec"]["onScheduleDelete"],
        "Retain",
        "what the manifest says of its children"
    );
    scenario.delete_schedule("wiki").await?;
    scenario.gone(&names[0]).await?;
    assert_eq!(
        scenario.count().await?,
        1,
        "the data of a schedule that went stays"
    );
    scenario.end().await
}

#[tokio::test]
async fn selector_fans_out() -> Result<()> {
    let Some(lab) = Lab::for_test("selector_fans_out").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "fan-out", None).await?;
    let ns = &scenario.namespace;
    for (name, tier) in [("one", "one"), ("two", "one"), ("other", "two")] {
        let mut policy = objects::policy(ns, name, REPOSITORY, DATA_CLAIM, None);
        policy["metadata"]["labels"] = json!({ "backup.example.org/tier": tier });
        lab.create(policy).await?;
    }
    let mut schedule = manifest("12-schedule-selector-optin-cascade.yaml")?;
    schedule["metadata"]["namespace"] = json!(ns);
    lab.create(schedule).await?;
    let schedules: Api<SnapshotSchedule> = lab.api(ns);
    next_slot(&schedules, "tier-one-nightly").await?;
    assert!(scenario.snapshots().await?.is_empty(), "runOnCreate: false");

    now_is_the_slot(&schedules, "tier-one-nightly").await?;
    let names = made(&scenario, 2).await?;
    let mut policies = Vec::new();
    for name in &names {
        policies.push(json(&scenario.succeeded(name).await?)?["spec"]["policyRef"]["name"].clone());
    }
    policies.sort_by_key(Value::to_string);
    assert_eq!(policies, [json!("one"), json!("two")]);
    assert_eq!(scenario.count().await?, 2);
    // It asks for its children's data to go with it, and two are below the threshold.
    scenario.delete_schedule("tier-one-nightly").await?;
    for name in &names {
        scenario.gone(name).await?;
    }
    assert_eq!(scenario.count().await?, 0);
    scenario.end().await
}

#[tokio::test]
async fn external_maintenance_runs() -> Result<()> {
    let Some(lab) = Lab::for_test("external_maintenance_runs").await? else {
        return Ok(());
    };
    let ns = names::OPERATOR_NAMESPACE;
    let name = format!("shared-nas-{}", suffix());
    lab.create(objects::claim(ns, &name)).await?;
    lab.create(objects::secret(ns, &name, objects::PASSWORD)).await?;
    let repository = objects::repository(ns, &name, &name, &name, None);
    lab.create(objects::shared(repository, json!({ "all": true })))
        .await?;
    let repositories: Api<ClusterRepository> = Api::all(lab.client.clone());
    shared_ready(&lab, &name).await?;

    let mut maintenance = manifest("15-maintenance-external-ownership.yaml")?;
    maintenance["metadata"] = json!({ "name": name, "namespace": ns });
    maintenance["spec"]["repository"]["name"] = json!(name);
    let owner = maintenance["spec"]["ownership"]["owner"].clone();
    lab.create(maintenance).await?;
    let api: Api<Maintenance> = lab.api(ns);
    match objects::engine() {
        Engine::Kopia => {
            let status = until("both slots", Duration::from_secs(60), || async {
                let status = json(&api.get(&name).await?)?["status"].clone();
                let next = |of: &str| status[of]["nextScheduledAt"].is_string();
                Ok(if next("quick") && next("full") {
                    Look::Done(status)
                } else {
                    Look::Not(status.to_string())
                })
            })
            .await?;
            assert_eq!(status["full"]["lastRunAt"], Value::Null);
            let now = jiff::Timestamp::now().to_string();
            let patch = Patch::Merge(json!({ "status": { "quick": { "nextScheduledAt": now } } }));
            api.patch_status(&name, &PatchParams::default(), &patch).await?;
            let status = until("a quick run", Duration::from_secs(240), || async {
                let status = json(&api.get(&name).await?)?["status"].clone();
                Ok(if status["quick"]["lastRunAt"].is_string() {
                    Look::Done(status)
                } else {
                    Look::Not(status.to_string())
                })
            })
            .await?;
            assert_eq!(status["ownership"]["owner"], owner);
            assert_eq!(status["quick"]["consecutiveFailures"], 0);
        }
        Engine::Restic | Engine::Unknown => {
            // The format has no record of who maintains a repository: said, rather than without effect.
            until("the refusal", Duration::from_secs(60), || async {
                let list = api.get(&name).await?.status.unwrap_or_default().conditions;
                let said = told(&list, conditions::READY);
                Ok(
                    if said.contains("InvalidSpec") && said.contains("spec.ownership") {
                        Look::Done(())
                    } else {
                        Look::Not(said)
                    },
                )
            })
            .await?;
        }
    }
    api.delete(&name, &DeleteParams::default()).await?;
    repositories.delete(&name, &DeleteParams::default()).await?;
    lab.api::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(ns)
        .delete(&name, &DeleteParams::default())
        .await?;
    lab.api::<k8s_openapi::api::core::v1::Secret>(ns)
        .delete(&name, &DeleteParams::default())
        .await?;
    scenario_free(&lab, &name).await
}

/// Waits until the repository is gone, so that nothing of it meets another test.
async fn scenario_free(lab: &Lab, name: &str) -> Result<()> {
    let repositories: Api<ClusterRepository> = Api::all(lab.client.clone());
    until("the repository to be gone", Duration::from_secs(60), || async {
        Ok(match repositories.get_opt(name).await? {
            None => Look::Done(()),
            Some(_) => Look::Not("it is there".into()),
        })
    })
    .await
}
