//! Steps b and c: the schedule flaps, and nothing is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_api::repository::Repository;
use holdfast_api::snapshot::Snapshot;
use holdfast_api::{SnapshotSchedule, conditions, names};
use holdfast_e2e::scenario::told;
use holdfast_e2e::{Lab, Look, objects, until, until_every};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams};

use super::prepare::{KEEPS, Seeded, by_hand, of_set};
use super::stage::{Row, Stage, VAULT};
use crate::progress::{say, seconds};

/// Both deletions and both creations have to fit into this.
const FLAP: Duration = Duration::from_secs(30);
/// How long the flapping controller rests between its acts.
const REST: Duration = Duration::from_secs(3);

/// What is known about the held wave.
pub struct Wave {
    /// Message of the repository's condition `MassDeletionHeld`.
    pub message: String,
    /// Snapshots in the repository.
    pub count: u64,
}

/// Deletes the schedule and creates it anew, twice, as a flapping controller would.
async fn flap(lab: &Lab, seeded: &Seeded) -> Result<Duration> {
    let set = &seeded.set;
    let api: Api<SnapshotSchedule> = lab.api(&set.namespace);
    let started = Instant::now();
    for round in 1..=2 {
        api.delete(&set.schedule, &DeleteParams::background()).await?;
        until("the schedule to be gone", Duration::from_secs(20), || async {
            let there = api.get_opt(&set.schedule).await?.is_some();
            Ok(if there {
                Look::Not("it is there".into())
            } else {
                Look::Done(())
            })
        })
        .await?;
        lab.note(format!("deleted {round} of 2 times"));
        tokio::time::sleep(REST).await;
        let on_delete = Some(set.on_schedule_delete);
        lab.create(objects::schedule(
            &set.namespace,
            &set.schedule,
            &set.policy,
            false,
            on_delete,
        ))
        .await?;
        tokio::time::sleep(REST).await;
    }
    let took = started.elapsed();
    ensure!(
        took < FLAP,
        "the schedule could be flapped twice only within {}",
        seconds(took)
    );
    Ok(took)
}

/// Step b: with the default, every object goes and every snapshot stays.
pub async fn flap_kept(stage: &mut Stage, seeded: &Seeded) -> Result<()> {
    let started = Instant::now();
    let (lab, set, many) = (stage.lab.clone(), &seeded.set, seeded.size());
    say(format!(
        "\nb. The schedule {} is deleted and re-created twice, as a flapping controller would.",
        set.schedule
    ));
    let took = stage.during("flapping", flap(&lab, seeded)).await?;
    say(format!(
        "   Deleted and re-created twice within {}; the real garbage collector deletes its {many} Snapshots.",
        seconds(took)
    ));
    stage
        .during("waiting for the Snapshots to be gone", all_gone(&lab, seeded))
        .await?;
    let gone = started.elapsed();
    let jobs = stage.watch.all();
    ensure!(
        jobs.is_empty(),
        "{} batch delete Jobs existed, the first {}",
        jobs.len(),
        jobs[0].name
    );
    let after = stage.count().await?;
    ensure!(
        after == seeded.count,
        "the repository went from {} to {after} snapshots, none may be deleted",
        seeded.count
    );
    let events = warnings(&lab, seeded, "SnapshotRetainedOnScheduleDelete");
    let events = stage.during("counting the warning events", events).await?;
    say(format!(
        "   All {many} Snapshot objects are gone after {}. No delete Job ever existed. The repository holds {after} snapshots, as before. {events} Warning events SnapshotRetainedOnScheduleDelete, one for each Snapshot.",
        seconds(gone)
    ));
    stage.row(Row {
        what: "b. schedule flaps, Retain".into(),
        objects: many,
        jobs: "0".into(),
        most: "0".into(),
        took: started.elapsed(),
        before: seeded.count,
        after,
    });
    Ok(())
}

async fn all_gone(lab: &Lab, seeded: &Seeded) -> Result<()> {
    let api: Api<Snapshot> = lab.api(&seeded.set.namespace);
    let params = ListParams::default().labels(&format!("{}={}", names::SCHEDULE_LABEL, seeded.set.schedule));
    let many = seeded.size();
    until_every(
        Duration::from_secs(1),
        "every Snapshot to be gone",
        Duration::from_secs(300),
        || async {
            let left = api.list_metadata(&params).await?.items.len();
            lab.note(format!("{left} of {many} left"));
            Ok(if left == 0 {
                Look::Done(())
            } else {
                Look::Not(format!("{left} left"))
            })
        },
    )
    .await
}

/// Exactly one Warning event of this reason for each member; how many.
async fn warnings(lab: &Lab, seeded: &Seeded, reason: &str) -> Result<usize> {
    let api: Api<Event> = lab.api(&seeded.set.namespace);
    let params = ListParams::default().fields(&format!("reason={reason}"));
    let uids = seeded.uids();
    until_every(
        Duration::from_secs(1),
        &format!("an event {reason} for each Snapshot"),
        Duration::from_secs(60),
        || async {
            let mut times: BTreeMap<String, i32> = BTreeMap::new();
            for event in api.list(&params).await?.items {
                let Some(uid) = event
                    .regarding
                    .and_then(|r| r.uid)
                    .filter(|uid| uids.contains(uid))
                else {
                    continue;
                };
                ensure!(
                    event.type_.as_deref() == Some("Warning"),
                    "an event {reason} is not a Warning"
                );
                *times.entry(uid).or_default() += event.series.map_or(1, |s| s.count);
            }
            let more = times.values().filter(|n| **n > 1).count();
            if times.len() == uids.len() && more == 0 {
                return Ok(Look::Done(times.len()));
            }
            Ok(Look::Not(format!(
                "{} of {} Snapshots have one, {more} have more than one",
                times.len(),
                uids.len()
            )))
        },
    )
    .await
}

/// Step c: with `Delete` every deletion is held; other pruning goes on.
pub async fn flap_held(stage: &mut Stage, seeded: &Seeded) -> Result<Wave> {
    let started = Instant::now();
    let (lab, ns, set) = (stage.lab.clone(), stage.namespace.clone(), &seeded.set);
    let many = seeded.size();
    let known: BTreeSet<String> = stage.watch.all().into_iter().map(|b| b.name).collect();
    stage.watch.mark();
    say(format!(
        "\n   The same flap with onScheduleDelete: Delete: schedule {}.",
        set.schedule
    ));
    let took = stage.during("flapping", flap(&lab, seeded)).await?;
    say(format!(
        "   Deleted and re-created twice within {}.",
        seconds(took)
    ));

    let before_prunes = of_policy(&lab, &ns, KEEPS.0).await?;
    let fresh = [format!("{}-late-1", KEEPS.0), format!("{}-late-2", KEEPS.0)];
    let fresh: Vec<&str> = fresh.iter().map(String::as_str).collect();
    let pruned = stage.during("two more backups of a policy with retention", async {
        by_hand(&lab, &ns, KEEPS.0, &fresh).await?;
        pruned(&lab, &ns, &before_prunes).await
    });
    let pruned = pruned.await?;
    let prunes: BTreeSet<String> = pruned.iter().cloned().collect();

    stage
        .during("waiting until all are held", all_held(&lab, seeded))
        .await?;
    let held = started.elapsed();
    let message = stage
        .during(
            "waiting for the repository's condition",
            held_message(&lab, &ns, many),
        )
        .await?;
    let jobs = stage
        .watch
        .all()
        .into_iter()
        .filter(|b| !known.contains(&b.name))
        .collect::<Vec<_>>();
    for job in &jobs {
        ensure!(
            job.members.is_subset(&prunes),
            "the Job {} has members that are not prunes",
            job.name
        );
    }
    let of_wave = stage.watch.with_member_of(&seeded.uids()).len();
    ensure!(
        of_wave == 0,
        "{of_wave} delete Jobs have a member of the held wave"
    );
    let after = stage.count().await?;
    let expected = seeded.count + fresh.len() as u64 - pruned.len() as u64;
    ensure!(
        after == expected,
        "the repository holds {after} snapshots; {} before, {} backups, {} prunes make {expected}",
        seeded.count,
        fresh.len(),
        pruned.len()
    );
    say(format!(
        "   All {many} are held after {}: DeletionHeld is True on each, the threshold is {}, no Job has one of them as a member.",
        seconds(held),
        names::DEFAULT_THRESHOLD
    ));
    say(format!(
        "   Meanwhile policy {} (keepLatest: {}) went on: {} backups, {} prunes by {} Job(s) of their own. The repository holds {after} ({} + {} - {}).",
        KEEPS.0,
        KEEPS.1,
        fresh.len(),
        pruned.len(),
        jobs.len(),
        seeded.count,
        fresh.len(),
        pruned.len()
    ));
    stage.row(Row {
        what: "c. schedule flaps, Delete: held".into(),
        objects: many,
        jobs: format!("0 (+{} prunes)", jobs.len()),
        most: stage.watch.most_since_mark().to_string(),
        took: started.elapsed(),
        before: seeded.count,
        after,
    });
    Ok(Wave {
        message,
        count: after,
    })
}

/// UIDs of a policy's live Snapshots.
async fn of_policy(lab: &Lab, ns: &str, policy: &str) -> Result<BTreeSet<String>> {
    let api: Api<Snapshot> = lab.api(ns);
    let all = api.list(&ListParams::default()).await?.items;
    let of_it = all
        .into_iter()
        .filter(|s| s.spec.policy_ref.as_ref().is_some_and(|p| p.name == policy));
    Ok(of_it.filter_map(|s| s.metadata.uid).collect())
}

/// Waits until the policy keeps what it should, and returns the UIDs of those that went.
async fn pruned(lab: &Lab, ns: &str, before: &BTreeSet<String>) -> Result<Vec<String>> {
    until_every(
        Duration::from_secs(1),
        "retention to prune",
        Duration::from_secs(180),
        || async {
            let now = of_policy(lab, ns, KEEPS.0).await?;
            let gone: Vec<String> = before.difference(&now).cloned().collect();
            lab.note(format!("{} pruned, {} left", gone.len(), now.len()));
            Ok(if now.len() == KEEPS.1 as usize {
                Look::Done(gone)
            } else {
                Look::Not(format!(
                    "{} Snapshots of {}, which keeps {}",
                    now.len(),
                    KEEPS.0,
                    KEEPS.1
                ))
            })
        },
    )
    .await
}

async fn all_held(lab: &Lab, seeded: &Seeded) -> Result<()> {
    let many = seeded.size();
    until_every(
        Duration::from_secs(2),
        "every Snapshot to be held",
        Duration::from_secs(300),
        || async {
            let all = of_set(lab, &seeded.set).await?;
            ensure!(all.len() == many, "{} Snapshots are left of {many}", all.len());
            let pending = all
                .iter()
                .filter(|s| s.metadata.deletion_timestamp.is_some())
                .count();
            let held = all
                .iter()
                .filter_map(|s| s.status.as_ref())
                .filter(|s| conditions::is_true(&s.conditions, conditions::DELETION_HELD))
                .count();
            lab.note(format!(
                "{pending} of {many} deleted by the garbage collector, {held} held"
            ));
            Ok(if held == many {
                Look::Done(())
            } else {
                Look::Not(format!("{pending} pending, {held} held"))
            })
        },
    )
    .await
}

/// The message of the repository's condition once it speaks of all of them.
async fn held_message(lab: &Lab, ns: &str, many: usize) -> Result<String> {
    let api: Api<Repository> = lab.api(ns);
    until(
        "the condition MassDeletionHeld to name all",
        Duration::from_secs(60),
        || async {
            let status = api
                .get(VAULT)
                .await?
                .status
                .context("the repository has no status")?;
            let condition = conditions::get(&status.conditions, conditions::MASS_DELETION_HELD);
            let all = format!("{many} held");
            Ok(
                match condition.filter(|c| c.status == "True" && c.message.contains(&all)) {
                    Some(condition) => Look::Done(condition.message.clone()),
                    None => Look::Not(told(&status.conditions, conditions::MASS_DELETION_HELD)),
                },
            )
        },
    )
    .await
}
