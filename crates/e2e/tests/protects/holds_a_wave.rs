//! At the threshold every deletion is held, the hold outlives rescues, and only the command in the condition ends it.

use anyhow::Result;
use holdfast_api::conditions;
use holdfast_e2e::deletions::uids;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::{Scenario, release_command, shell};
use holdfast_e2e::{Lab, Look, until};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test]
async fn held_latched_acknowledged_drained() -> Result<()> {
    let Some(lab) = Lab::for_test("held_latched_acknowledged_drained").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "holds", Some(3)).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    let (_, members) = scenario.seeded("nightly", "Retain", 5).await?;
    scenario.delete_each(&members).await?;
    scenario.held(&members).await?;
    let said = scenario
        .repository_condition(conditions::MASS_DELETION_HELD, |c| {
            c.status == "True" && c.message.contains("5 held")
        })
        .await?;
    assert!(said.message.contains("the threshold is 3"), "{}", said.message);
    scenario.events("SnapshotDeletionHeld", &uids(&members)).await?;

    // Three are rescued: two are left, which is below the threshold, and they stay held.
    for member in &members[..3] {
        scenario.skip(&member.name).await?;
    }
    scenario.held(&members[3..]).await?;
    tokio::time::sleep(Duration::from_secs(15)).await;
    scenario.held(&members[3..]).await?;
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
    scenario.acknowledge("yes").await?;
    let events: Api<Event> = lab.api(&scenario.namespace);
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
    scenario.held(&members[3..]).await?;

    shell(&lab, &release_command(&said.message)?, lab.kubeconfig.parent()).await?;
    scenario.left(&[]).await?;
    let batches = watch.all();
    let carried: BTreeSet<String> = batches.iter().flat_map(|b| b.members.clone()).collect();
    assert_eq!(carried, uids(&members[3..]));
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
