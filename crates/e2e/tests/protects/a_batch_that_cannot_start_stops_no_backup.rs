//! A delete Job whose pod finds no place holds up no backup of its repository for more than five minutes; then it is
//! withdrawn, with the scheduler's own words, and planned anew.
//!
//! Where deletions need no silence a backup does not wait at all. Where they do it waits for that Job, says so, and goes
//! ahead of the next one.

use crate::with;
use anyhow::{Context, Result};
use holdfast_api::{conditions, names};
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::movers::Movers;
use holdfast_e2e::scenario::POLICY;
use holdfast_e2e::{Look, Scenario, objects, until};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use std::time::{Duration, Instant};

/// No node has so much CPU.
const MORE_THAN_THERE_IS: &str = "100000";
const FIVE_MINUTES: Duration = Duration::from_secs(300);

#[tokio::test]
async fn a_pod_without_a_place() -> Result<()> {
    with("unschedulable", None, async |scenario, watch| {
        let ns = &scenario.namespace;
        let movers = Movers::start(&scenario.lab.client, ns).await?;
        scenario.back_up("doomed", POLICY).await?;
        scenario.cpu_of_new_containers(Some(MORE_THAN_THERE_IS)).await?;
        scenario.delete("doomed").await?;
        let pods: Api<Pod> = scenario.lab.api(ns);
        until(
            "the delete Job's pod to find no place",
            Duration::from_secs(60),
            || async {
                let all = pods.list(&ListParams::default()).await?.items;
                let unschedulable = all.iter().any(|pod| {
                    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref());
                    let mut conditions = conditions.unwrap_or_default().iter();
                    conditions.any(|c| c.reason.as_deref() == Some("Unschedulable"))
                });
                let jobs = watch.all().len();
                Ok(if unschedulable && jobs == 1 {
                    Look::Done(())
                } else {
                    Look::Not(format!("{jobs} Jobs, {} pods", all.len()))
                })
            },
        )
        .await?;
        let stuck = watch.all()[0].seen;
        scenario.cpu_of_new_containers(None).await?;

        if objects::deletes_need_silence() {
            after_it(scenario, stuck).await?;
        } else {
            beside_it(scenario, watch, stuck).await?;
        }

        scenario
            .gone_within("doomed", FIVE_MINUTES + Duration::from_secs(120))
            .await?;
        assert!(stuck.elapsed() >= FIVE_MINUTES);
        let jobs = watch.all();
        assert_eq!(jobs.len(), 2, "{jobs:?}");
        assert!(!jobs[0].succeeded && jobs[1].succeeded);
        assert_eq!(watch.most(), 1, "the second came before the first was gone");
        if objects::deletes_need_silence() {
            let deletions = movers.that_did(names::OP_DELETE_BATCH);
            let backups = movers.that_did(names::OP_BACKUP);
            let (Some(meanwhile), [second]) = (backups.iter().find(|b| b.job == "meanwhile"), &deletions[..])
            else {
                anyhow::bail!("{backups:?} and {deletions:?}");
            };
            assert!(
                meanwhile.to.is_some_and(|end| end <= second.from),
                "the next delete Job did not wait for the backup: {meanwhile:?} {second:?}"
            );
        }
        let events = scenario.told(conditions::DELETION_JOBS_FAILING).await?;
        let [note] = &events[..] else {
            anyhow::bail!("{events:?}");
        };
        assert!(
            note.contains("no container of the delete Job started in time") && note.contains("Unschedulable"),
            "{note}"
        );
        scenario
            .repository_condition(conditions::DELETION_JOBS_FAILING, |c| c.status == "False")
            .await?;
        assert_eq!(scenario.count().await?, 1);
        Ok(())
    })
    .await
}

/// The backup runs while the delete Job waits for its place.
async fn beside_it(scenario: &Scenario, watch: &Watch, stuck: Instant) -> Result<()> {
    scenario.back_up("meanwhile", POLICY).await?;
    assert!(
        stuck.elapsed() < FIVE_MINUTES,
        "the backup waited {:?}",
        stuck.elapsed()
    );
    assert!(
        watch.all()[0].is_alive(),
        "the delete Job was given up before its time"
    );
    Ok(())
}

/// The backup waits until the delete Job is withdrawn, which it says, and has run before another one is created.
async fn after_it(scenario: &Scenario, stuck: Instant) -> Result<()> {
    let ns = &scenario.namespace;
    scenario
        .lab
        .create(objects::snapshot(ns, "meanwhile", POLICY))
        .await?;
    let said = scenario
        .snapshot_condition("meanwhile", conditions::READY, |c| c.reason == "DeletionsRunning")
        .await?;
    assert!(said.message.contains("A delete Job runs on"), "{}", said.message);
    scenario
        .succeeded_within("meanwhile", FIVE_MINUTES + Duration::from_secs(420))
        .await?;
    let jobs: Api<Job> = scenario.lab.api(ns);
    let began = jobs.get("meanwhile").await?.metadata.creation_timestamp;
    let waited = began
        .context("when it began")?
        .0
        .duration_since(Timestamp::now() - SignedDuration::try_from(stuck.elapsed())?);
    let promised = SignedDuration::try_from(FIVE_MINUTES)?;
    // Whole seconds; the delete Job has to be gone first, which takes a while.
    let about = promised - SignedDuration::from_secs(2)..promised + SignedDuration::from_secs(90);
    assert!(about.contains(&waited), "the backup waited {waited:#}");
    Ok(())
}
