//! Forty deletions while twenty-four backups are wanted on the same repository: none is left behind, and no finalizer goes
//! over a snapshot that is still listed. It is the race that Kopia loses when nobody arranges who writes when
//! (`docs/design.md` 3.6): runs were seen in which every deletion succeeded and all forty snapshots stayed.
//!
//! Ten rounds on an engine whose deletions need silence, one on another; `HOLDFAST_E2E_RACE_ROUNDS` says another number.
//! Twenty-four movers at once fill the node, so it is alone in its program.

use anyhow::{Context, Result, ensure};
use holdfast_api::{Repository, Snapshot, conditions, names};
use holdfast_e2e::deletions::uids;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::movers::Movers;
use holdfast_e2e::scenario::{POLICY, REPOSITORY, VAULT_CLAIM, told};
use holdfast_e2e::seed::Member;
use holdfast_e2e::{Lab, Look, Scenario, count, objects, until, until_every};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const DELETIONS: usize = 40;
const BACKUPS: usize = 24;
/// More than is deleted at once: nothing is held.
const THRESHOLD: u32 = 100;
/// Backups that are wanted before a delete Job is there; the others once one is.
const BEFORE: usize = 16;
/// Between one wish for a backup and the next.
const PACE: Duration = Duration::from_millis(500);
/// How long a round's deletions, and then its backups, may take.
const LIMIT: Duration = Duration::from_secs(900);

fn rounds() -> Result<usize> {
    match std::env::var("HOLDFAST_E2E_RACE_ROUNDS") {
        Ok(said) => said
            .parse()
            .with_context(|| format!("HOLDFAST_E2E_RACE_ROUNDS is {said:?}")),
        Err(_) if objects::deletes_need_silence() => Ok(10),
        Err(_) => Ok(1),
    }
}

#[tokio::test]
async fn forty_go_while_twenty_four_come() -> Result<()> {
    let Some(lab) = Lab::for_test("forty_go_while_twenty_four_come").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "race", Some(THRESHOLD)).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    let movers = Movers::start(&lab.client, &scenario.namespace).await?;
    let rounds = rounds()?;
    let mut kept = BTreeSet::new();
    for n in 1..=rounds {
        round(&scenario, &watch, &movers, n, &mut kept).await?;
    }
    // Nothing came back, as far as the operator has looked.
    let api: Api<Repository> = lab.api(&scenario.namespace);
    let status = api.get(REPOSITORY).await?.status.unwrap_or_default();
    let reappeared = status.deletion_protection.and_then(|p| p.reappeared);
    assert!(
        reappeared.is_none(),
        "{reappeared:?}: {}",
        told(&status.conditions, conditions::DELETED_SNAPSHOTS_REAPPEARED)
    );
    assert_eq!(watch.interruptions(), 0, "a Job may have come and gone unseen");
    assert_eq!(watch.most(), 1, "two delete Jobs of one lane were alive at once");
    scenario.end().await
}

async fn round(
    scenario: &Scenario,
    watch: &Watch,
    movers: &Movers,
    n: usize,
    kept: &mut BTreeSet<String>,
) -> Result<()> {
    let (lab, ns) = (&scenario.lab, &scenario.namespace);
    let (_, doomed) = scenario
        .seeded(&format!("round-{n}"), "Retain", DELETIONS)
        .await?;
    let doomed_ids = recorded(scenario, &doomed).await?;
    let before = count::ids(lab, ns, VAULT_CLAIM).await?;
    ensure!(
        before == kept.union(&doomed_ids).cloned().collect(),
        "round {n}: {} snapshots are in the repository, {} and {DELETIONS} should be",
        before.len(),
        kept.len()
    );

    let started = Instant::now();
    let ours = uids(&doomed);
    let wanting = async {
        let mut wanted = Vec::new();
        for run in 1..=BACKUPS {
            if run > BEFORE {
                until("the delete Job", LIMIT, || async {
                    Ok(match watch.with_member_of(&ours).len() {
                        0 => Look::Not("none yet".into()),
                        _ => Look::Done(()),
                    })
                })
                .await?;
            }
            let name = format!("backup-{n}-{run}");
            let made = lab.create(objects::snapshot(ns, &name, POLICY)).await?;
            let uid = made.metadata.uid.context("it has no UID")?;
            wanted.push(Member { name, uid });
            tokio::time::sleep(PACE).await;
        }
        anyhow::Ok(wanted)
    };
    let (wanted, ()) = tokio::try_join!(wanting, scenario.delete_each(&doomed))?;
    until_every(Duration::from_secs(1), "the forty to be gone", LIMIT, || async {
        let all = scenario.snapshots().await?;
        let left = all
            .iter()
            .filter(|s| s.uid().is_some_and(|uid| ours.contains(&uid)));
        Ok(match left.clone().next() {
            None => Look::Done(()),
            Some(one) => Look::Not(format!("{} are there; {}", left.count(), why(one))),
        })
    })
    .await?;
    let gone = started.elapsed();
    // Released, so not listed.
    let listed = count::ids(lab, ns, VAULT_CLAIM).await?;
    let over: Vec<&String> = listed.intersection(&doomed_ids).collect();
    ensure!(over.is_empty(), "round {n}: released and listed: {over:?}");

    for one in &wanted {
        scenario.succeeded_within(&one.name, LIMIT).await?;
    }
    let whole = started.elapsed();
    kept.extend(recorded(scenario, &wanted).await?);
    // Whoever wrote last has not brought one back, nor was a backup lost.
    let after = count::ids(lab, ns, VAULT_CLAIM).await?;
    let back: Vec<&String> = after.intersection(&doomed_ids).collect();
    ensure!(back.is_empty(), "round {n}: left behind: {back:?}");
    ensure!(
        after == *kept,
        "round {n}: {} snapshots are in the repository, {} were taken",
        after.len(),
        kept.len()
    );

    let batches = watch.with_member_of(&ours);
    let beside = movers.backups_beside_deletions();
    println!(
        "round {n}: {DELETIONS} gone after {:.0} s by {} delete Jobs, {BACKUPS} backups done after {:.0} s, {} beside a delete Job; {} snapshots in the repository",
        gone.as_secs_f64(),
        batches.len(),
        whole.as_secs_f64(),
        beside.len(),
        after.len()
    );
    if objects::deletes_need_silence() {
        ensure!(beside.is_empty(), "round {n}: {beside:?}");
    }
    ensure!(
        movers.that_did(names::OP_BACKUP).len() >= n * BACKUPS,
        "round {n}: the watch missed a backup"
    );
    Ok(())
}

/// Ids that these Snapshots record, each another one.
async fn recorded(scenario: &Scenario, members: &[Member]) -> Result<BTreeSet<String>> {
    let api: Api<Snapshot> = scenario.lab.api(&scenario.namespace);
    let of = uids(members);
    let all = api.list(&ListParams::default()).await?.items;
    let ids: BTreeSet<String> = all
        .into_iter()
        .filter(|s| s.uid().is_some_and(|uid| of.contains(&uid)))
        .filter_map(|s| Some(s.status?.snapshot?.kopia_snapshot_id))
        .collect();
    ensure!(
        ids.len() == members.len(),
        "{} ids for {} Snapshots",
        ids.len(),
        members.len()
    );
    Ok(ids)
}

fn why(snapshot: &Snapshot) -> String {
    let list = snapshot.status.as_ref().map(|s| s.conditions.as_slice());
    told(list.unwrap_or_default(), conditions::DELETION_BLOCKED)
}
