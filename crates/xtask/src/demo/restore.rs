//! Step f: what was kept while its object went is restored, and is what it was.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_api::names;
use holdfast_api::snapshot::Snapshot;
use holdfast_e2e::restores::{completed, content, restore};
use holdfast_e2e::{Lab, Look, until_every};
use kube::api::{Api, ListParams};
use serde_json::json;

use super::prepare::Seeded;
use super::stage::Stage;
use crate::progress::{say, seconds};

/// The claim that is made, and the Restore that makes it.
const BACK: &str = "archive-back";

/// Restores one of the snapshots that step b kept, whose object is gone, and compares every file with the source.
pub async fn one_that_was_kept(stage: &mut Stage, seeded: &Seeded) -> Result<()> {
    let started = Instant::now();
    let (lab, ns) = (stage.lab.clone(), stage.namespace.clone());
    let before = stage.counted;
    say("\nf. A snapshot that step b kept, found again by the catalog, is restored into a new claim:");
    stage.scan().await?;
    let row = stage
        .during("waiting until one is seen again", a_row(&lab, &ns))
        .await?;
    let target = json!({ "pvc": { "name": BACK, "capacity": "1Gi" } });
    let object = restore(&ns, BACK, json!({ "snapshotRef": { "name": row } }), target);
    lab.create(object).await?;
    say(format!("   $ kubectl -n {ns} get restore {BACK} -o wide"));
    let status = stage
        .during("waiting for the restore", completed(&lab, &ns, BACK))
        .await?;
    let source = &seeded.set.claim;
    let compared = stage.during("comparing every file", async {
        let was = content(&lab, &ns, source).await?;
        let is = content(&lab, &ns, BACK).await?;
        ensure!(!was.entries.is_empty(), "the claim {source} holds nothing");
        ensure!(
            was.entries == is.entries,
            "the restored files differ from those of the claim {source}: {:?} and {:?}",
            was.entries,
            is.entries
        );
        Ok(was.entries.len())
    });
    let entries = compared.await?;
    let progress = status.progress.context("the Restore does not say how much")?;
    let after = stage.count().await?;
    ensure!(
        after == before,
        "the repository went from {before} to {after} snapshots"
    );
    say(format!(
        "   Snapshot {row}, whose schedule is long gone: {} files with {} bytes in claim {BACK}, all {entries} entries byte for byte, mode for mode as in the claim {source}; after {}. The repository holds {after} snapshots, as before.",
        progress.files_restored,
        progress.bytes_restored,
        seconds(started.elapsed())
    ));
    Ok(())
}

/// The name of a row that the catalog made.
async fn a_row(lab: &Lab, namespace: &str) -> Result<String> {
    let api: Api<Snapshot> = lab.api(namespace);
    let rows = ListParams::default()
        .labels(&format!("{}=discovered", names::ORIGIN_LABEL))
        .limit(1);
    until_every(
        Duration::from_secs(1),
        "a Snapshot with origin discovered",
        Duration::from_secs(120),
        || async {
            let found = api.list(&rows).await?.items.into_iter().next();
            let recorded = found.filter(|row| row.status.as_ref().is_some_and(|s| s.snapshot.is_some()));
            Ok(match recorded.and_then(|row| row.metadata.name) {
                Some(name) => Look::Done(name),
                None => Look::Not("none yet".into()),
            })
        },
    )
    .await
}
