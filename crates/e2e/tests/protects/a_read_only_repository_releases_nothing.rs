//! The repository's files cannot be written: no finalizer goes, the delete is tried again and again, and once they
//! can be written everything drains.

use crate::with;
use anyhow::Result;
use holdfast_e2e::jobs::{Batch, Watch};
use holdfast_e2e::scenario::{Scenario, VAULT_CLAIM, suffix};
use holdfast_e2e::{Look, objects, pods, until};
use std::time::Duration;

/// Changes the mode of everything in the repository; its own folder is not the mover's.
async fn files(scenario: &Scenario, mode: &str) -> Result<()> {
    let job = objects::shell_job(
        &scenario.namespace,
        &format!("chmod-{}", suffix()),
        &scenario.lab.tools_image,
        &[VAULT_CLAIM.to_owned()],
        &format!("chmod -R {mode} /volumes/{VAULT_CLAIM}/*"),
    );
    pods::run(&scenario.lab, job, Duration::from_secs(120)).await?;
    Ok(())
}

/// Waits until this many Jobs have ended.
async fn ended(watch: &Watch, wanted: usize) -> Result<Vec<Batch>> {
    until(
        &format!("the end of {wanted} Jobs"),
        Duration::from_secs(180),
        || async {
            let all = watch.all();
            let ended = all.iter().filter(|b| b.ended.is_some()).count();
            Ok(if ended == wanted {
                Look::Done(all)
            } else {
                Look::Not(format!("{ended} of {} ended", all.len()))
            })
        },
    )
    .await
}

#[tokio::test]
async fn read_only_then_writable() -> Result<()> {
    with("read-only", None, async |scenario, watch| {
        let (_, members) = scenario.seeded("nightly", "Retain", 3).await?;
        files(scenario, "a-w").await?;
        scenario.delete_each(&members).await?;
        for generation in 1..=2 {
            let jobs = ended(watch, generation).await?;
            assert!(jobs.iter().all(|j| !j.succeeded), "{jobs:?}");
            let there = scenario.recorded().await?;
            assert_eq!(there.len(), 3, "a finalizer was released");
            assert_eq!(scenario.count().await?, 3);
        }
        files(scenario, "u+w").await?;
        until("everything to drain", Duration::from_secs(240), || async {
            let left = scenario.recorded().await?.len();
            Ok(if left == 0 {
                Look::Done(())
            } else {
                Look::Not(format!("{left} left"))
            })
        })
        .await?;
        assert_eq!(scenario.count().await?, 0);
        assert!(watch.all().len() >= 3 && watch.most() == 1);
        Ok(())
    })
    .await
}
