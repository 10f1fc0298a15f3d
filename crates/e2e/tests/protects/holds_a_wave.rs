//! At the threshold every deletion is held, the hold outlives rescues, and only the command in the condition ends it.

use anyhow::Result;
use holdfast_api::{Snapshot, conditions, names};
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::{Scenario, release_command, shell};
use holdfast_e2e::seed::Member;
use holdfast_e2e::{Lab, Look, until};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// The Snapshots of the schedule: what was rescued comes back as discovered rows in its own time.
async fn wave(scenario: &Scenario) -> Result<Vec<Snapshot>> {
    let mut all = scenario.snapshots().await?;
    all.retain(|s| s.labels().contains_key(names::SCHEDULE_LABEL));
    Ok(all)
}

async fn held(scenario: &Scenario, wanted: usize) -> Result<()> {
    until(
        &format!("{wanted} Snapshots to be held"),
        Duration::from_secs(60),
        || async {
            let all = wave(scenario).await?;
            let held = all
                .iter()
                .filter(|s| s.metadata.deletion_timestamp.is_some())
                .filter_map(|s| s.status.as_ref())
                .filter(|s| conditions::is_true(&s.conditions, conditions::DELETION_HELD))
                .count();
            let seen = format!("{held} of {} are held", all.len());
            Ok(if held == wanted && all.len() == wanted {
                Look::Done(())
            } else {
                Look::Not(seen)
            })
        },
    )
    .await
}

#[tokio::test]
async fn held_latched_acknowledged_drained() -> Result<()> {
    let Some(lab) = Lab::for_test("held_latched_acknowledged_drained").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "holds", Some(3)).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    let (_, members) = scenario.seeded("nightly", "Retain", 5).await?;
    let api: Api<Snapshot> = lab.api(&scenario.namespace);
    for Member { name, .. } in &members {
        api.delete(name, &DeleteParams::default()).await?;
    }
    held(&scenario, 5).await?;
    let said = scenario
        .repository_condition(conditions::MASS_DELETION_HELD, |c| {
            c.status == "True" && c.message.contains("5 held")
        })
        .await?;
    assert!(said.message.contains("the threshold is 3"), "{}", said.message);
    let events: Api<Event> = lab.api(&scenario.namespace);
    let reason = ListParams::default().fields("reason=SnapshotDeletionHeld");
    until("one event for each", Duration::from_secs(30), || async {
        let about: Vec<String> = events
            .list(&reason)
            .await?
            .items
            .into_iter()
            .filter_map(|e| e.regarding?.uid)
            .collect();
        let distinct: BTreeSet<&String> = about.iter().collect();
        Ok(if about.len() == 5 && distinct.len() == 5 {
            Look::Done(())
        } else {
            Look::Not(format!("{}", about.len()))
        })
    })
    .await?;

    // Three are rescued: two are left, which is below the threshold, and they stay held.
    for Member { name, .. } in &members[..3] {
        let skip =
            Patch::Merge(json!({ "metadata": { "annotations": { names::SKIP_SNAPSHOT_CLEANUP: "" } } }));
        api.patch(name, &PatchParams::default(), &skip).await?;
    }
    held(&scenario, 2).await?;
    tokio::time::sleep(Duration::from_secs(15)).await;
    held(&scenario, 2).await?;
    assert!(
        watch.all().is_empty(),
        "a delete Job existed while the wave was held"
    );
    let said = scenario
        .repository_condition(conditions::MASS_DELETION_HELD, |c| {
            c.status == "True" && c.message.contains("2 held")
        })
        .await?;

    // A value that is no time is ignored, and said.
    let nonsense =
        Patch::Merge(json!({ "metadata": { "annotations": { names::ALLOW_MASS_DELETION: "yes" } } }));
    let repositories: Api<holdfast_api::Repository> = lab.api(&scenario.namespace);
    repositories
        .patch("vault", &PatchParams::default(), &nonsense)
        .await?;
    let invalid = ListParams::default().fields("reason=InvalidMassDeletionAck");
    until(
        "the event InvalidMassDeletionAck",
        Duration::from_secs(30),
        || async {
            let seen = events.list(&invalid).await?.items.len();
            Ok(if seen > 0 {
                Look::Done(())
            } else {
                Look::Not("none".into())
            })
        },
    )
    .await?;
    held(&scenario, 2).await?;

    shell(&lab, &release_command(&said.message)?, lab.kubeconfig.parent()).await?;
    until("the wave to drain", Duration::from_secs(90), || async {
        let left = wave(&scenario).await?.len();
        Ok(if left == 0 {
            Look::Done(())
        } else {
            Look::Not(format!("{left} left"))
        })
    })
    .await?;
    let batches = watch.all();
    let carried: BTreeSet<String> = batches.iter().flat_map(|b| b.members.clone()).collect();
    let expected: BTreeSet<String> = members[3..].iter().map(|m| m.uid.clone()).collect();
    assert_eq!(carried, expected);
    assert_eq!(
        scenario.count().await?,
        3,
        "the rescued ones are kept, the others are gone"
    );
    scenario
        .repository_condition(conditions::MASS_DELETION_HELD, |c| c.status == "False")
        .await?;
    scenario.end().await
}
