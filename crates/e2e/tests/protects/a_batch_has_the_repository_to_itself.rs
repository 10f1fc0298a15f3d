//! Where deletions need silence (`docs/design.md` 3.6), a delete batch has its repository to itself: it waits for the
//! backup that runs; one whose pod waits for a place is suspended; one that is wanted meanwhile gets no Job. All three say
//! why. Then the batch runs alone and reads back, the others go on, and the second look is due ten minutes later.
//!
//! Where they need none, nobody waits for anybody.

use crate::with;
use anyhow::{Context, Result, ensure};
use holdfast_api::snapshot::{Snapshot, SnapshotPhase};
use holdfast_api::{conditions, names};
use holdfast_e2e::deletions::uids;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::movers::{Movers, Ran};
use holdfast_e2e::scenario::{DATA_CLAIM, POLICY, Scenario};
use holdfast_e2e::{Look, objects, pods, until};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use std::time::Duration;

/// No node has so much.
const MORE_THAN_THERE_IS: &str = "100000";
/// What waits for a container with [`little`].
const SLOWLY: Duration = Duration::from_secs(420);
/// From a batch to its second look.
const SECOND_LOOK: SignedDuration = SignedDuration::from_mins(10);

/// CPU enough for a container to start, and so little that a backup takes longer than the quiet window. The engine in the
/// mover itself works harder for one than the program.
fn little() -> &'static str {
    if objects::deletes_need_silence() {
        "50m"
    } else {
        "150m"
    }
}

/// A Snapshot that a person makes, and its UID.
async fn wanted(scenario: &Scenario, name: &str) -> Result<String> {
    let object = objects::snapshot(&scenario.namespace, name, POLICY);
    let made = scenario.lab.create(object).await?;
    made.metadata.uid.context("it has no UID")
}

/// Waits until a pod of the Snapshot shows what is asked for.
async fn pod_of(scenario: &Scenario, uid: &str, what: &str, shows: impl Fn(&Pod) -> bool) -> Result<()> {
    let api: Api<Pod> = scenario.lab.api(&scenario.namespace);
    let of = ListParams::default().labels(&format!("{}={uid}", names::OWNER_UID_LABEL));
    until(what, Duration::from_secs(120), || async {
        let all = api.list(&of).await?.items;
        let phases: Vec<_> = all
            .iter()
            .filter_map(|p| p.status.as_ref()?.phase.clone())
            .collect();
        Ok(if all.iter().any(&shows) {
            Look::Done(())
        } else {
            Look::Not(format!("{phases:?}"))
        })
    })
    .await
}

fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running")
}

fn has_no_place(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|c| c.reason.as_deref() == Some("Unschedulable"))
}

/// The backup Jobs of a Snapshot.
async fn jobs_of(scenario: &Scenario, uid: &str) -> Result<Vec<Job>> {
    let api: Api<Job> = scenario.lab.api(&scenario.namespace);
    let of = ListParams::default().labels(&format!("{}={uid}", names::OWNER_UID_LABEL));
    Ok(api.list(&of).await?.items)
}

/// Enough bytes, not to be deduplicated, that a backup of them takes a while.
async fn more_data(scenario: &Scenario) -> Result<()> {
    let (ns, image) = (&scenario.namespace, &scenario.lab.tools_image);
    let script = format!("head -c 50000000 /dev/urandom > /volumes/{DATA_CLAIM}/more");
    let job = objects::shell_job(ns, "more", image, &[DATA_CLAIM.to_owned()], &script);
    pods::run(&scenario.lab, job, Duration::from_secs(120)).await?;
    Ok(())
}

/// Starts a backup that takes a while, and returns once its container runs.
async fn long_backup(scenario: &Scenario) -> Result<()> {
    scenario.cpu_of_new_containers(Some(little())).await?;
    let long = wanted(scenario, "long").await?;
    pod_of(scenario, &long, "the long backup to run", runs).await
}

/// Waits until the delete Job has a pod, which keeps what it was made with.
async fn first_batch(watch: &Watch, limit: Duration) -> Result<()> {
    until("the delete Job to have a pod", limit, || async {
        let all = watch.all();
        Ok(if all.iter().any(|batch| batch.started) {
            Look::Done(())
        } else {
            Look::Not(format!("{} Jobs", all.len()))
        })
    })
    .await
}

#[tokio::test]
async fn backups_and_a_batch_take_turns() -> Result<()> {
    with("turns", None, async |scenario, watch| {
        let (_, doomed) = scenario.seeded("nightly", "Retain", 3).await?;
        more_data(scenario).await?;
        let movers = Movers::start(&scenario.lab.client, &scenario.namespace).await?;
        if !objects::deletes_need_silence() {
            return nobody_waits(scenario, watch, &movers, &doomed).await;
        }
        scenario.cpu_of_new_containers(Some(MORE_THAN_THERE_IS)).await?;
        let queued = wanted(scenario, "queued").await?;
        pod_of(scenario, &queued, "its pod to find no place", has_no_place).await?;
        long_backup(scenario).await?;

        // The one that runs ends first.
        scenario.delete_each(&doomed).await?;
        for member in &doomed {
            scenario
                .snapshot_condition(&member.name, conditions::DELETION_BLOCKED, |c| {
                    c.reason == "WritersRunning"
                })
                .await?;
        }
        ensure!(watch.all().is_empty(), "a delete Job did not wait for the backup");
        first_batch(watch, SLOWLY).await?;
        scenario.cpu_of_new_containers(None).await?;
        let long = scenario.snapshot("long").await?.context("it is gone")?;
        ensure!(
            phase(&long) == Some(SnapshotPhase::Succeeded),
            "a delete Job began while the backup is {:?}",
            phase(&long)
        );

        // Who wants to write now waits, and says for what.
        let late = wanted(scenario, "late").await?;
        let said = held_back(scenario, "late").await?;
        assert!(said.contains("A delete Job runs on"), "{said}");
        let said = held_back(scenario, "queued").await?;
        assert!(said.contains("is suspended"), "{said}");
        let suspended = jobs_of(scenario, &queued).await?;
        let [job] = &suspended[..] else {
            anyhow::bail!("{} Jobs of the Snapshot queued", suspended.len());
        };
        let at = job
            .metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get(names::SUSPENDED_AT));
        assert!(
            job.spec.as_ref().and_then(|s| s.suspend) == Some(true) && at.is_some(),
            "{job:?}"
        );
        let none = jobs_of(scenario, &late).await?;
        let batch = watch.all().remove(0);
        ensure!(
            batch.is_alive(),
            "the delete Job ended before it could be looked at"
        );
        assert!(none.is_empty(), "a backup began beside the delete Job: {none:?}");

        // Read back, and only then gone; the others go on.
        for member in &doomed {
            scenario.gone_within(&member.name, SLOWLY).await?;
        }
        for name in ["queued", "late"] {
            scenario.succeeded(name).await?;
        }
        let batches = watch.all();
        let [batch] = &batches[..] else {
            anyhow::bail!("{batches:?}");
        };
        assert!(batch.succeeded && batch.members == uids(&doomed), "{batch:?}");
        assert_eq!(scenario.count().await?, 3, "long, queued and late");
        let deletions = movers.that_did(names::OP_DELETE_BATCH);
        let [deletion] = &deletions[..] else {
            anyhow::bail!("{deletions:?}");
        };
        let backups = movers.that_did(names::OP_BACKUP);
        let order: Vec<&str> = backups.iter().map(|b| b.job.as_str()).collect();
        assert_eq!(order.first(), Some(&"long"), "{order:?}");
        assert_eq!(backups.len(), 3, "{backups:?}");
        assert_eq!(movers.backups_beside_deletions(), []);
        let after = |ran: &Ran| deletion.to.is_some_and(|end| end <= ran.from);
        assert!(backups[1..].iter().all(after), "{deletion:?} {backups:?}");

        // The second look comes after.
        let status = scenario.repository_ready().await?.status.unwrap_or_default();
        let due = status
            .catalog
            .and_then(|c| c.second_look_at)
            .context("no second look is due")?;
        let ended = deletion.to.context("the delete Job's end")?;
        let pause = due.duration_since(ended);
        assert!(
            pause >= SECOND_LOOK && pause < SECOND_LOOK + SignedDuration::from_mins(2),
            "{pause:#}"
        );
        assert!(due > Timestamp::now());
        Ok(())
    })
    .await
}

fn phase(snapshot: &Snapshot) -> Option<SnapshotPhase> {
    snapshot.status.as_ref().and_then(|s| s.phase)
}

/// Waits until the Snapshot says that a batch holds it back, and returns how.
async fn held_back(scenario: &Scenario, name: &str) -> Result<String> {
    let said = scenario
        .snapshot_condition(name, conditions::READY, |c| c.reason == "DeletionsRunning")
        .await?;
    Ok(said.message)
}

/// The batch is done while the backup that ran before it still runs.
async fn nobody_waits(
    scenario: &Scenario,
    watch: &Watch,
    movers: &Movers,
    doomed: &[holdfast_e2e::seed::Member],
) -> Result<()> {
    long_backup(scenario).await?;
    scenario.cpu_of_new_containers(None).await?;
    scenario.delete_each(doomed).await?;
    for member in doomed {
        scenario.gone(&member.name).await?;
    }
    let long = movers.that_did(names::OP_BACKUP);
    let [long] = &long[..] else {
        anyhow::bail!("{long:?}");
    };
    ensure!(
        long.to.is_none(),
        "the backup was too short to be beside anything"
    );
    assert_eq!(watch.all().len(), 1);
    assert_eq!(movers.backups_beside_deletions().len(), 1);
    scenario.succeeded_within("long", SLOWLY).await?;
    assert_eq!(scenario.count().await?, 1);
    Ok(())
}
