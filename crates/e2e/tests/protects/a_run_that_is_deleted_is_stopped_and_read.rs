//! A Snapshot that is deleted while its own mover runs: the mover is stopped, its result is read, then it is decided.
//! Whatever the moment, the object goes, and nothing stays in the repository without being seen.

use crate::with;
use anyhow::{Context, Result};
use holdfast_api::names;
use holdfast_e2e::scenario::{DATA_CLAIM, POLICY, Scenario, suffix};
use holdfast_e2e::{Look, objects, pods, until, until_every};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use std::time::Duration;

/// The backup Job of a Snapshot once a container of it runs.
async fn runs(scenario: &Scenario, uid: &str) -> Result<Job> {
    let jobs: Api<Job> = scenario.lab.api(&scenario.namespace);
    let pods: Api<Pod> = scenario.lab.api(&scenario.namespace);
    let of = ListParams::default().labels(&format!("{}={uid}", names::OWNER_UID_LABEL));
    until("the mover to run", Duration::from_secs(60), || async {
        let found = jobs.list(&of).await?.items.into_iter().next();
        let phases: Vec<String> = pods
            .list(&of)
            .await?
            .items
            .into_iter()
            .filter_map(|p| p.status?.phase)
            .collect();
        Ok(match found {
            Some(job) if phases.iter().any(|p| p == "Running") => Look::Done(job),
            Some(_) | None => Look::Not(format!("{phases:?}")),
        })
    })
    .await
}

/// Runs a script where the data is.
async fn in_data(scenario: &Scenario, script: &str) -> Result<()> {
    let (ns, image) = (&scenario.namespace, &scenario.lab.tools_image);
    let job = objects::shell_job(
        ns,
        &format!("data-{}", suffix()),
        image,
        &[DATA_CLAIM.to_owned()],
        script,
    );
    pods::run(&scenario.lab, job, Duration::from_secs(300)).await?;
    Ok(())
}

#[tokio::test]
async fn in_the_middle_of_a_long_run() -> Result<()> {
    with("stops-a-run", None, async |scenario, watch| {
        let ns = &scenario.namespace;
        // Random, so that all of it has to be written.
        let much = format!("/volumes/{DATA_CLAIM}/much");
        in_data(scenario, &format!("head -c 200000000 /dev/urandom > {much}")).await?;
        scenario.lab.create(objects::snapshot(ns, "long", POLICY)).await?;
        let made = scenario.snapshot("long").await?.context("it is gone")?;
        let job = runs(scenario, &made.metadata.uid.unwrap_or_default()).await?;
        scenario.delete("long").await?;
        scenario.gone("long").await?;
        let pods: Api<Pod> = scenario.lab.api(ns);
        let name = job.metadata.name.unwrap_or_default();
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let running = pods
            .list(&of_job)
            .await?
            .items
            .into_iter()
            .any(|p| p.status.and_then(|s| s.phase).as_deref() == Some("Running"));
        assert!(!running, "the object went while its mover ran");
        assert!(watch.all().is_empty(), "there was nothing to delete");
        assert_eq!(scenario.count().await?, 0);
        // The repository is none the worse.
        in_data(scenario, &format!("rm {much}")).await?;
        scenario.back_up("next", POLICY).await?;
        assert_eq!(scenario.count().await?, 1);
        Ok(())
    })
    .await
}

/// Its result may be unread when it is deleted; it is read before anything is decided, so the data goes too.
#[tokio::test]
async fn right_after_its_end() -> Result<()> {
    with("ends-a-run", None, async |scenario, watch| {
        let ns = &scenario.namespace;
        scenario
            .lab
            .create(objects::snapshot(ns, "short", POLICY))
            .await?;
        let made = scenario.snapshot("short").await?.context("it is gone")?;
        let uid = made.metadata.uid.unwrap_or_default();
        let api: Api<Pod> = scenario.lab.api(ns);
        let of = ListParams::default().labels(&format!("{}={uid}", names::OWNER_UID_LABEL));
        let pace = Duration::from_millis(20);
        until_every(pace, "the mover's end", Duration::from_secs(120), || async {
            let all = api.list(&of).await?.items;
            let ended = all.iter().any(|p| !pods::message(p).is_empty());
            Ok(if ended {
                Look::Done(())
            } else {
                Look::Not(format!("{} pods", all.len()))
            })
        })
        .await?;
        scenario.delete("short").await?;
        scenario.gone("short").await?;
        assert_eq!(scenario.count().await?, 0);
        let jobs = watch.all();
        assert_eq!(jobs.len(), 1, "recorded, so it had to be deleted");
        assert!(jobs[0].members.contains(&uid));
        Ok(())
    })
    .await
}

/// Short runs, deleted at moments from the creation on.
#[tokio::test]
async fn at_any_moment() -> Result<()> {
    with("stops-runs", None, async |scenario, _| {
        for (n, pause) in [0, 500, 1000, 1500, 2000, 3000].into_iter().enumerate() {
            let name = format!("run-{n}");
            scenario
                .lab
                .create(objects::snapshot(&scenario.namespace, &name, POLICY))
                .await?;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            scenario.delete(&name).await?;
        }
        scenario.left(&[]).await?;
        // What a mover had committed when it was stopped is data without a record: it is looked for.
        let stayed = scenario.count().await?;
        until("a row for each that stayed", Duration::from_secs(120), || async {
            let rows = scenario.snapshots().await?.len() as u64;
            Ok(if rows == stayed {
                Look::Done(())
            } else {
                Look::Not(format!("{rows} of {stayed}"))
            })
        })
        .await
    })
    .await
}
