//! A schedule runs every policy it selects, with the settings that repository and policy give the movers.

use anyhow::{Context, Result};
use holdfast_api::{Repository, SnapshotSchedule};
use holdfast_e2e::scenario::{DATA_CLAIM, REPOSITORY, Scenario, json};
use holdfast_e2e::{Lab, Look, objects, until};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn each_selected_policy_is_backed_up_as_its_movers_are_set() -> Result<()> {
    let Some(lab) = Lab::for_test("each_selected_policy_is_backed_up_as_its_movers_are_set").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "selected", None).await?;
    let ns = &scenario.namespace;
    let defaults = json!({ "spec": {
        "moverDefaults": {
            "resources": { "limits": { "memory": "512Mi" }, "requests": { "cpu": "10m" } },
            "podSecurityContext": { "supplementalGroups": [4711] },
        },
        "scheduleDefaults": { "timezone": "Europe/Berlin", "jitter": "90s" },
    } });
    let repositories: Api<Repository> = lab.api(ns);
    repositories
        .patch(REPOSITORY, &PatchParams::default(), &Patch::Merge(defaults))
        .await?;
    for (name, tier) in [("one", "gold"), ("two", "gold"), ("three", "iron")] {
        let mut policy = objects::policy(ns, name, REPOSITORY, DATA_CLAIM, None);
        policy["metadata"]["labels"] = json!({ "tier": tier });
        if name == "two" {
            policy["spec"]["mover"] = json!({ "resources": { "requests": { "cpu": "20m" } } });
        }
        lab.create(policy).await?;
    }
    let mut schedule = objects::schedule(ns, "all", "", true, None);
    schedule["spec"]
        .as_object_mut()
        .context("a spec")?
        .remove("policyRef");
    schedule["spec"]["policySelector"] =
        json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["gold", "silver"] }] });
    lab.create(schedule).await?;
    let made = until("two Snapshots", Duration::from_secs(60), || async {
        let made = scenario.snapshots().await?;
        Ok(match made.len() {
            2 => Look::Done(made),
            count => Look::Not(format!("{count} Snapshots")),
        })
    })
    .await?;
    let jobs: Api<Job> = lab.api(ns);
    let mut policies = Vec::new();
    for snapshot in made {
        let name = snapshot.metadata.name.context("a name")?;
        let taken = scenario.succeeded(&name).await?;
        let identity = taken
            .status
            .and_then(|s| s.snapshot?.identity)
            .context("an identity")?;
        let job = json(&jobs.get(&name).await?)?;
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["supplementalGroups"], json!([4711]));
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        let given = &pod["containers"][0]["resources"];
        assert_eq!(given["limits"]["memory"], "512Mi");
        let cpu = if identity.username == "two" { "20m" } else { "10m" };
        assert_eq!(given["requests"]["cpu"], cpu);
        policies.push(identity.username);
    }
    policies.sort();
    assert_eq!(policies, ["one", "two"]);
    let schedules: Api<SnapshotSchedule> = lab.api(ns);
    let next = until("the next slot", Duration::from_secs(30), || async {
        let schedule = json(&schedules.get("all").await?)?;
        let next = schedule["status"]["nextSchedule"].clone();
        Ok(if next["timezone"].is_string() {
            Look::Done(next)
        } else {
            Look::Not(next.to_string())
        })
    })
    .await?;
    assert_eq!(
        (&next["timezone"], &next["jitter"]),
        (&json!("Europe/Berlin"), &json!("90s"))
    );
    scenario.end().await
}
