//! Steps d and e: the wave is acknowledged by the command in the condition, and one Snapshot goes by hand.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_api::names;
use holdfast_api::snapshot::Snapshot;
use holdfast_e2e::scenario::{release_command, shell};
use holdfast_e2e::{Lab, Look, until, until_every};
use kube::api::{Api, ListParams};

use super::prepare::Seeded;
use super::stage::{Row, Stage};
use super::waves::Wave;
use crate::progress::{say, seconds};

/// Most members of a batch.
const BATCH: usize = 200;
/// The Snapshot that is deleted by hand: the first of its schedule.
const BY_HAND: &str = "mail-1";

/// Step d.
pub async fn acknowledge(stage: &mut Stage, seeded: &Seeded, wave: &Wave) -> Result<()> {
    let (lab, many) = (stage.lab.clone(), seeded.size());
    let most_batches = many.div_ceil(BATCH);
    let command = release_command(&wave.message)?;
    say(
        "\nd. All are pending. The repository's condition says how to release them; the command is run to the letter:",
    );
    say(format!("   $ {command}"));
    stage.watch.mark();
    let started = Instant::now();
    shell(&lab, &command, stage.kubectl.as_deref()).await?;
    let draining = drained(stage, &lab, seeded);
    stage.during("the wave drains", draining).await?;
    let took = started.elapsed();
    let uids = seeded.uids();
    stage
        .during("waiting until its Jobs are reaped", reaped(stage, &uids))
        .await?;
    let batches = stage.watch.with_member_of(&uids);
    ensure!(
        (1..=most_batches).contains(&batches.len()),
        "the wave took {} batch Jobs, at most {most_batches} are expected",
        batches.len()
    );
    let strangers = batches
        .iter()
        .flat_map(|b| &b.members)
        .filter(|m| !uids.contains(*m))
        .count();
    let carried: BTreeSet<&String> = batches.iter().flat_map(|b| &b.members).collect();
    ensure!(
        carried.len() == many + strangers,
        "the batches carried {} members of the wave, not {many}",
        carried.len() - strangers
    );
    let most = stage.watch.most_since_mark();
    ensure!(most <= 1, "{most} batch delete Jobs were alive at once");
    let after = stage.count().await?;
    let (backups, prunes) = (0, strangers as u64);
    let expected = wave.count - many as u64 - prunes + backups;
    ensure!(
        after == expected,
        "the repository holds {after} snapshots; {} before, {many} of the wave, {prunes} prunes and {backups} backups make {expected}",
        wave.count
    );
    let sizes: Vec<String> = batches.iter().map(|b| b.members.len().to_string()).collect();
    say(format!(
        "   Drained in {}: {} batch Jobs ({} members), never two at once, all reaped. All {many} objects are gone; the repository went from {} to {after} ({many} less; {prunes} prunes and {backups} backups in that time).",
        seconds(took),
        batches.len(),
        sizes.join(" + "),
        wave.count
    ));
    stage.row(Row {
        what: "d. acknowledged: drains".into(),
        objects: many,
        jobs: batches.len().to_string(),
        most: most.to_string(),
        took,
        before: wave.count,
        after,
    });
    Ok(())
}

async fn drained(stage: &Stage, lab: &Lab, seeded: &Seeded) -> Result<()> {
    let api: Api<Snapshot> = lab.api(&seeded.set.namespace);
    let params = ListParams::default().labels(&format!("{}={}", names::SCHEDULE_LABEL, seeded.set.schedule));
    let (uids, many) = (seeded.uids(), seeded.size());
    until_every(
        Duration::from_secs(1),
        "the wave to drain",
        Duration::from_secs(600),
        || async {
            let left = api.list_metadata(&params).await?.items.len();
            let jobs = stage.watch.with_member_of(&uids).len();
            let seen = format!("{left} of {many} objects left, {jobs} batch Jobs so far");
            lab.note(&seen);
            Ok(if left == 0 {
                Look::Done(())
            } else {
                Look::Not(seen)
            })
        },
    )
    .await
}

/// Waits until every batch Job with one of these members is removed.
async fn reaped(stage: &Stage, uids: &BTreeSet<String>) -> Result<()> {
    until(
        "every batch Job to be reaped",
        Duration::from_secs(60),
        || async {
            let left: Vec<String> = stage
                .watch
                .with_member_of(uids)
                .into_iter()
                .filter(|b| b.removed.is_none())
                .map(|b| b.name)
                .collect();
            Ok(if left.is_empty() {
                Look::Done(())
            } else {
                Look::Not(left.join(", "))
            })
        },
    )
    .await
}

/// Step e.
pub async fn one_by_hand(stage: &mut Stage) -> Result<()> {
    let (lab, ns) = (stage.lab.clone(), stage.namespace.clone());
    let api: Api<Snapshot> = lab.api(&ns);
    let of_schedule = ListParams::default().labels(&format!("{}={BY_HAND}", names::SCHEDULE_LABEL));
    let found = api.list(&of_schedule).await?.items.into_iter().next();
    let one = found.with_context(|| format!("schedule {BY_HAND} has no Snapshot"))?;
    let name = one.metadata.name.unwrap_or_default();
    let uids = BTreeSet::from([one.metadata.uid.unwrap_or_default()]);
    let before = stage.counted;
    stage.watch.mark();
    let command = format!(
        "kubectl -n {ns} delete snapshot.{} {name} --wait=false",
        names::GROUP
    );
    say("\ne. One Snapshot is deleted by hand:");
    say(format!("   $ {command}"));
    let started = Instant::now();
    shell(&lab, &command, stage.kubectl.as_deref()).await?;
    let going = until("the Snapshot to be gone", Duration::from_secs(120), || async {
        let there = api.get_opt(&name).await?.is_some();
        Ok(if there {
            Look::Not("it is there".into())
        } else {
            Look::Done(())
        })
    });
    stage.during("waiting for it to be gone", going).await?;
    let took = started.elapsed();
    stage
        .during("waiting until its Job is reaped", reaped(stage, &uids))
        .await?;
    let batches = stage.watch.with_member_of(&uids);
    let [batch] = &batches[..] else {
        anyhow::bail!("{} batch Jobs for one Snapshot", batches.len());
    };
    ensure!(
        batch.members.len() == 1,
        "the Job {} has {} members",
        batch.name,
        batch.members.len()
    );
    let waited = batch.seen.duration_since(started);
    ensure!(
        waited >= Duration::from_secs(8) && waited < Duration::from_secs(25),
        "the Job came after {}, about ten seconds are promised",
        seconds(waited)
    );
    let after = stage.count().await?;
    ensure!(
        after + 1 == before,
        "the repository went from {before} to {after} snapshots"
    );
    say(format!(
        "   Its Job {} came after the quiet window of {}, with one member; object and snapshot were gone after {}. The repository went from {before} to {after}.",
        batch.name,
        seconds(waited),
        seconds(took)
    ));
    stage.row(Row {
        what: "e. one by hand".into(),
        objects: 1,
        jobs: "1".into(),
        most: stage.watch.most_since_mark().to_string(),
        took,
        before,
        after,
    });
    Ok(())
}
