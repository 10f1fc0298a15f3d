//! A pin reaches the repository and is taken back; what somebody else pinned there is kept; who deletes an object deletes
//! its data, pinned or not.

use anyhow::{Context, Result, ensure};
use holdfast_api::repository::Engine;
use holdfast_api::snapshot::SnapshotStatus;
use holdfast_api::{Snapshot, SnapshotPolicy, conditions};
use holdfast_e2e::scenario::{POLICY, REPOSITORY, Scenario, VAULT_CLAIM};
use holdfast_e2e::{Lab, Look, count, none_left, objects, until};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

async fn ask(scenario: &Scenario, name: &str, pin: bool) -> Result<()> {
    let api: Api<Snapshot> = scenario.lab.api(&scenario.namespace);
    let patch = Patch::Merge(json!({ "spec": { "pin": pin } }));
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Its status once the condition `Pinned` has this reason.
async fn says(scenario: &Scenario, name: &str, reason: &str) -> Result<SnapshotStatus> {
    scenario
        .snapshot_condition(name, conditions::PINNED, |c| c.reason == reason)
        .await?;
    let snapshot = scenario.snapshot(name).await?.context("it is there")?;
    snapshot.status.context("a status")
}

fn id(status: &SnapshotStatus) -> Result<String> {
    let recorded = status.snapshot.as_ref().context("a recorded snapshot")?;
    Ok(recorded.kopia_snapshot_id.clone())
}

/// What is on the repository's volume.
async fn there(scenario: &Scenario) -> Result<BTreeSet<String>> {
    count::ids(&scenario.lab, &scenario.namespace, VAULT_CLAIM).await
}

#[tokio::test]
async fn a_pin_is_written_taken_back_and_goes_with_its_object() -> Result<()> {
    let Some(lab) = Lab::for_test("a_pin_is_written_taken_back_and_goes_with_its_object").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "pins", None).await?;
    let taken = scenario.back_up("kept", POLICY).await?;
    scenario.back_up("other", POLICY).await?;
    let mut known = vec![id(&taken.status.context("a status")?)?];
    for (pin, reason) in [(true, "Pinned"), (false, "NotPinned"), (true, "Pinned")] {
        ask(&scenario, "kept", pin).await?;
        let status = says(&scenario, "kept", reason).await?;
        assert_eq!(status.pinned, Some(pin));
        let now = id(&status)?;
        ensure!(!known.contains(&now), "{now} is no new id: {known:?}");
        let listed = there(&scenario).await?;
        ensure!(listed.contains(&now) && listed.len() == 2, "{now}: {listed:?}");
        known.push(now);
    }
    let api: Api<Snapshot> = lab.api(&scenario.namespace);
    api.delete("kept", &DeleteParams::default()).await?;
    none_left(&api, "the deleted Snapshot", Duration::from_secs(120), |name| {
        name == "kept"
    })
    .await?;
    let listed = there(&scenario).await?;
    ensure!(listed.len() == 1, "one is left: {listed:?}");
    ensure!(
        !known.iter().any(|id| listed.contains(id)),
        "{known:?} {listed:?}"
    );
    scenario.end().await
}

#[tokio::test]
async fn what_somebody_pinned_with_the_program_is_known_kept_and_not_unpinned() -> Result<()> {
    let name = "what_somebody_pinned_with_the_program_is_known_kept_and_not_unpinned";
    let Some(lab) = Lab::for_test(name).await? else {
        return Ok(());
    };
    match objects::engine() {
        Engine::Kopia => {}
        Engine::Restic | Engine::Unknown => {
            println!("skipped: no program that pins in this format is in the images");
            return Ok(());
        }
    }
    let scenario = Scenario::with_repository(&lab, "pinned-there", None).await?;
    let taken = scenario.back_up("first", POLICY).await?;
    let old = id(&taken.status.context("a status")?)?;
    let ns = &scenario.namespace;
    let pin = ["snapshot", "pin", old.as_str(), "--add", "audit"];
    count::kopia(&lab, ns, VAULT_CLAIM, "pin-by-hand", None, &pin).await?;
    count::scan(&lab, ns, REPOSITORY).await?;
    let status = says(&scenario, "first", "PinnedInRepository").await?;
    assert_eq!(status.pinned, Some(true));
    let now = id(&status)?;
    ensure!(now != old, "its record was written anew");

    // Asked for and taken back here, it stays what somebody else wants.
    ask(&scenario, "first", true).await?;
    ask(&scenario, "first", false).await?;
    let policies: Api<SnapshotPolicy> = lab.api(ns);
    let keep = Patch::Merge(json!({ "spec": { "retention": { "keepLatest": 1 } } }));
    policies.patch(POLICY, &PatchParams::default(), &keep).await?;
    for another in ["second", "third"] {
        scenario.back_up(another, POLICY).await?;
    }
    let api: Api<Snapshot> = lab.api(ns);
    none_left(&api, "the pruned Snapshot", Duration::from_secs(180), |name| {
        name == "second"
    })
    .await?;
    until(
        "the pruned snapshot to be gone",
        Duration::from_secs(60),
        || async {
            let listed = there(&scenario).await?;
            Ok(if listed.len() == 2 && listed.contains(&now) {
                Look::Done(())
            } else {
                Look::Not(format!("{now}: {listed:?}"))
            })
        },
    )
    .await?;
    says(&scenario, "first", "PinnedInRepository").await?;
    scenario.end().await
}
