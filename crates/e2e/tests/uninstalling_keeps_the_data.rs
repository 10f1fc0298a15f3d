//! The definitions are deleted while Snapshots exist: every object goes, no data does, and after a new installation
//! all of it is seen again.
//!
//! Takes the objects of the whole cluster along, so it is alone in its program, and does nothing in a cluster in which
//! anything else is backed up.

use anyhow::Result;
use holdfast_api::{crd, names};
use holdfast_e2e::deletions::is_discovered;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::{POLICY, REPOSITORY, SECRET, VAULT_CLAIM, remove_namespace};
use holdfast_e2e::{Lab, Look, Scenario, kill, none_left, objects, until};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, PostParams};
use kube::core::gvk::GroupVersionKind;
use kube::discovery::ApiResource;
use std::time::Duration;

const KINDS: [&str; 6] = [
    "Repository",
    "ClusterRepository",
    "SnapshotPolicy",
    "SnapshotSchedule",
    "Snapshot",
    "Restore",
];

/// The definitions of what backs up; those of what only counts stay.
fn definitions() -> Vec<String> {
    let ours = crd::all().into_iter().filter(|c| c.spec.group == names::GROUP);
    ours.map(|c| c.name_any()).collect()
}

/// Every object of ours in the cluster, `kind namespace/name`.
async fn everything(lab: &Lab) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for kind in KINDS {
        let gvk = GroupVersionKind::gvk(names::GROUP, names::VERSION, kind);
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = Api::all_with(lab.client.clone(), &resource);
        for object in api.list(&ListParams::default()).await? {
            let namespace = object.namespace().unwrap_or_default();
            found.push(format!("{kind} {namespace}/{}", object.name_any()));
        }
    }
    Ok(found)
}

/// Waits until no definition of ours is left.
async fn no_definitions(api: &Api<CustomResourceDefinition>) -> Result<()> {
    none_left(
        api,
        "the definitions to be gone",
        Duration::from_secs(120),
        |name| name.ends_with(names::GROUP),
    )
    .await
}

/// Creates the definition again if it is gone, and waits until it is served.
async fn put_back(api: &Api<CustomResourceDefinition>, stored: &CustomResourceDefinition) -> Result<()> {
    let name = stored.name_any();
    let fresh = CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: stored.metadata.labels.clone(),
            annotations: stored.metadata.annotations.clone(),
            ..ObjectMeta::default()
        },
        spec: stored.spec.clone(),
        status: None,
    };
    until(
        &format!("{name} to be served"),
        Duration::from_secs(120),
        || async {
            let Some(found) = api.get_opt(&name).await? else {
                api.create(&PostParams::default(), &fresh).await?;
                return Ok(Look::Not("made".to_owned()));
            };
            let conditions = found.status.and_then(|s| s.conditions).unwrap_or_default();
            let served = conditions
                .iter()
                .any(|c| c.type_ == "Established" && c.status == "True");
            Ok(if served && found.metadata.deletion_timestamp.is_none() {
                Look::Done(())
            } else {
                Look::Not("not yet".to_owned())
            })
        },
    )
    .await
}

#[tokio::test]
async fn definitions_go_and_the_data_stays() -> Result<()> {
    let Some(lab) = Lab::for_test("definitions_go_and_the_data_stays").await? else {
        return Ok(());
    };
    let others = everything(&lab).await?;
    if let Some(one) = others.first() {
        println!(
            "skipped: the cluster has {} other objects of Holdfast, such as {one}",
            others.len()
        );
        return Ok(());
    }
    let api: Api<CustomResourceDefinition> = Api::all(lab.client.clone());
    let mut stored = Vec::new();
    for name in definitions() {
        stored.push(api.get(&name).await?);
    }
    let scenario = Scenario::with_repository(&lab, "uninstalls", None).await?;
    let gone = uninstall(&scenario, &api).await;
    // Whatever happened, those who come next find an installation.
    for definition in &stored {
        put_back(&api, definition).await?;
    }
    gone?;
    kill::rolled_out(&lab).await?;

    // The same repository, described again: connected, not made anew, and what it holds is seen.
    let ns = &scenario.namespace;
    lab.create(objects::repository(ns, REPOSITORY, VAULT_CLAIM, SECRET, None))
        .await?;
    scenario.repository_ready().await?;
    until("a row for each snapshot", Duration::from_secs(120), || async {
        let all = scenario.snapshots().await?;
        let rows = all.iter().filter(|s| is_discovered(s)).count();
        Ok(if rows == 5 && all.len() == 5 {
            Look::Done(())
        } else {
            Look::Not(format!("{rows} of {}", all.len()))
        })
    })
    .await?;
    lab.create(objects::policy(
        ns,
        POLICY,
        REPOSITORY,
        holdfast_e2e::scenario::DATA_CLAIM,
        None,
    ))
    .await?;
    scenario.back_up("after", POLICY).await?;
    assert_eq!(scenario.count().await?, 6);
    remove_namespace(&lab, ns).await
}

/// All definitions at once, and not first that of Snapshot: rougher than `docs/install.md` says. The Snapshots are
/// fewer than the threshold and may go with their schedule, so nothing else keeps them.
async fn uninstall(scenario: &Scenario, api: &Api<CustomResourceDefinition>) -> Result<()> {
    let watch = Watch::start(&scenario.lab.client, &scenario.namespace).await?;
    scenario.seeded("nightly", "Delete", 5).await?;
    for name in definitions() {
        api.delete(&name, &DeleteParams::default()).await?;
    }
    no_definitions(api).await?;
    assert!(watch.all().is_empty(), "a delete Job existed");
    assert_eq!(scenario.count().await?, 5, "data went with the definitions");
    let events: Api<Event> = scenario.lab.api(&scenario.namespace);
    let orphaned = ListParams::default().fields("reason=SnapshotOrphaned");
    let told = events.list(&orphaned).await?.items;
    assert_eq!(told.len(), 5);
    for event in told {
        let note = event.note.unwrap_or_default();
        assert!(
            note.contains("the Snapshot CRD itself is being deleted"),
            "{note}"
        );
    }
    Ok(())
}
