//! What was kept in the repository while its object went is seen again, and cannot be deleted by deleting what
//! shows it.

use anyhow::{Context, Result};
use holdfast_api::repository::CatalogStatus;
use holdfast_api::shared::{DeletionPolicy, Origin};
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{Repository, Snapshot, conditions, names};
use holdfast_e2e::deletions::uids;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::{POLICY, REPOSITORY, Scenario};
use holdfast_e2e::{Lab, Look, count, until};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Rows with a status, by the id they record.
async fn rows(scenario: &Scenario) -> Result<BTreeMap<String, Snapshot>> {
    let all = scenario.snapshots().await?.into_iter();
    Ok(all
        .filter(|s| {
            s.labels()
                .get(names::ORIGIN_LABEL)
                .is_some_and(|o| o == "discovered")
        })
        .filter_map(|s| Some((id(&s)?, s)))
        .collect())
}

fn id(snapshot: &Snapshot) -> Option<String> {
    Some(
        snapshot
            .status
            .as_ref()?
            .snapshot
            .as_ref()?
            .kopia_snapshot_id
            .clone(),
    )
}

async fn rows_are(scenario: &Scenario, wanted: &BTreeSet<String>) -> Result<BTreeMap<String, Snapshot>> {
    until("the rows of what was kept", Duration::from_secs(180), || async {
        let there = rows(scenario).await?;
        let ids: BTreeSet<String> = there.keys().cloned().collect();
        Ok(if ids == *wanted {
            Look::Done(there)
        } else {
            Look::Not(format!("{} of {}", ids.len(), wanted.len()))
        })
    })
    .await
}

/// What the repository says once a scan has ended with this many rows.
async fn ended(scenario: &Scenario, rows: i64) -> Result<CatalogStatus> {
    let api: Api<Repository> = scenario.lab.api(&scenario.namespace);
    until("the end of the scan", Duration::from_secs(60), || async {
        let status = api.get(REPOSITORY).await?.status.context("a status")?;
        let catalog = status.catalog.context("what the scan saw")?;
        Ok(if catalog.discovered_backup_count == Some(rows) {
            Look::Done(catalog)
        } else {
            Look::Not(format!("{catalog:?}"))
        })
    })
    .await
}

#[tokio::test]
async fn kept_data_reappears_by_itself_and_its_rows_never_touch_it() -> Result<()> {
    let test = "kept_data_reappears_by_itself_and_its_rows_never_touch_it";
    let Some(lab) = Lab::for_test(test).await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "rediscovers", Some(3)).await?;
    let ns = &scenario.namespace;
    let watch = Watch::start(&lab.client, ns).await?;
    let (_, members) = scenario.seeded("nightly", "Retain", 5).await?;
    scenario.back_up("by-hand", POLICY).await?;
    let kept: BTreeSet<String> = scenario
        .snapshots()
        .await?
        .iter()
        .filter(|s| s.name_any() != "by-hand")
        .filter_map(id)
        .collect();
    assert_eq!(kept.len(), 5);

    // With the default, the objects go with their schedule and the data stays; then it is seen again.
    let started = Instant::now();
    scenario.delete_schedule("nightly").await?;
    let told = scenario
        .events("SnapshotRetainedOnScheduleDelete", &uids(&members))
        .await?;
    assert!(told.iter().all(|e| e.type_.as_deref() == Some("Warning")));
    let made = rows_are(&scenario, &kept).await?;
    assert_eq!(scenario.count().await?, 6, "nothing was deleted");
    assert!(
        started.elapsed() >= Duration::from_secs(30),
        "one scan after the last release, not one for each"
    );
    for (id, row) in &made {
        assert_eq!(row.spec.deletion_policy, Some(DeletionPolicy::Retain));
        assert_eq!(row.spec.policy_ref, None);
        assert!(row.finalizers().is_empty(), "nothing to be released");
        // What a label has room for.
        assert_eq!(row.labels()[names::SNAPSHOT_ID_LABEL], id[..id.len().min(63)]);
        let status = row.status.as_ref().context("a status")?;
        assert_eq!(status.phase, Some(SnapshotPhase::Discovered));
        assert_eq!(status.origin, Some(Origin::Discovered));
        assert!(conditions::is_true(&status.conditions, conditions::READY));
        assert!(!conditions::is_true(&status.conditions, conditions::STATUS_LOST));
        assert_eq!(
            status
                .snapshot
                .as_ref()
                .and_then(|s| s.identity.as_ref())
                .map(|i| &i.hostname),
            Some(ns)
        );
    }
    let seen = ended(&scenario, 5).await?;
    assert_eq!((seen.scan_due, seen.last_error), (None, None));
    assert!(
        scenario.snapshot("by-hand").await?.is_some(),
        "what has an object gets no row"
    );

    // They are Retain, whatever somebody writes into them.
    let api: Api<Snapshot> = lab.api(ns);
    let delete = Patch::Merge(json!({ "spec": { "deletionPolicy": "Delete" } }));
    for row in made.values() {
        api.patch(&row.name_any(), &PatchParams::default(), &delete)
            .await?;
    }
    // Deleting rows, more of them than the threshold, is no wave and deletes nothing; the next scan undoes it.
    for row in made.values() {
        api.delete(&row.name_any(), &DeleteParams::default()).await?;
        assert!(api.get_opt(&row.name_any()).await?.is_none(), "gone at once");
    }
    assert_eq!(scenario.count().await?, 6);
    assert_eq!(count::scan(&lab, ns, REPOSITORY).await?, 6);
    let again = rows_are(&scenario, &kept).await?;
    assert_eq!(
        again.values().map(ResourceExt::name_any).collect::<BTreeSet<_>>(),
        made.values().map(ResourceExt::name_any).collect(),
        "under the same names"
    );
    let said = scenario.repository_ready().await?.status.unwrap_or_default();
    assert!(!conditions::is_true(
        &said.conditions,
        conditions::MASS_DELETION_HELD
    ));
    assert!(watch.all().is_empty(), "a delete Job existed");
    scenario.end().await
}
