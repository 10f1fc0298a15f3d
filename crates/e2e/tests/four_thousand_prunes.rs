//! Thousands of pending prunes in one lane, with the real mover, which takes two seconds longer to connect than it
//! would: never more than one live delete Job of the lane, 200 members each, connections of second looks counted apart,
//! and another lane's single deletion does not wait for them.
//!
//! 1,200 of them, which is six batches; `HOLDFAST_E2E_PRUNES=4000` makes it twenty. Changes a setting of the operator, so
//! it is alone in its program. Most of its time goes into what is to be pruned.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use holdfast_api::{Repository, Snapshot, SnapshotPolicy, conditions, names};
use holdfast_e2e::deletions::uids;
use holdfast_e2e::jobs::{Batch, Watch};
use holdfast_e2e::scenario::{POLICY, REPOSITORY, told};
use holdfast_e2e::seed::{Member, PER_JOB};
use holdfast_e2e::{Lab, Look, Scenario, kill, until, until_every};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Members of a batch.
const EACH: usize = 200;
/// Movers take so many seconds longer to connect.
const DELAY: (&str, &str) = ("HOLDFAST_TEST_CONNECT_DELAY_SECONDS", "2");
/// How long all of them may take.
const LIMIT: Duration = Duration::from_secs(1_500);

/// How many are pruned: 1,200, or what `HOLDFAST_E2E_PRUNES` says, a larger multiple of 200.
fn prunes() -> Result<usize> {
    let Ok(said) = std::env::var("HOLDFAST_E2E_PRUNES") else {
        return Ok(6 * EACH);
    };
    let count: usize = said
        .parse()
        .with_context(|| format!("HOLDFAST_E2E_PRUNES is {said:?}"))?;
    ensure!(
        count >= 6 * EACH && count.is_multiple_of(EACH),
        "HOLDFAST_E2E_PRUNES is {count}: set it to a multiple of {EACH} from {} on",
        6 * EACH
    );
    Ok(count)
}

/// Schedules whose Snapshots are made at once.
const AT_ONCE: usize = 3;
/// How often what is left is counted.
const PACE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn one_lane_drains_batch_by_batch_and_holds_up_nobody() -> Result<()> {
    let Some(lab) = Lab::for_test("one_lane_drains_batch_by_batch_and_holds_up_nobody").await? else {
        return Ok(());
    };
    let begun = Instant::now();
    let many = Scenario::with_repository(&lab, "thousands", None).await?;
    let one = Scenario::with_repository(&lab, "beside", None).await?;
    let prunes = prunes()?;
    // One is kept.
    let (members, (_, single)) =
        tokio::try_join!(seeded(&many, prunes + 1), one.seeded("nightly", "Retain", 1))?;
    println!(
        "{} snapshots made in {:.0} s",
        members.len(),
        begun.elapsed().as_secs_f64()
    );
    let delay = [(DELAY.0.to_owned(), Some(DELAY.1.to_owned()))];
    let before = kill::operator_environment(&lab, &delay).await?;
    let result = drain(&many, &one, &members, &single).await;
    kill::operator_environment(&lab, &before).await?;
    result?;
    tokio::try_join!(many.end(), one.end())?;
    Ok(())
}

async fn drain(many: &Scenario, one: &Scenario, members: &[Member], single: &[Member]) -> Result<()> {
    let prunes = members.len() - 1;
    let lab = &many.lab;
    let watch = Watch::start(&lab.client, &many.namespace).await?;
    let listings = Watch::listings(&lab.client, &many.namespace).await?;
    let listed_before = listings.all().len();
    let begun = Instant::now();
    suspend(many, true).await?;
    keep_one_and_prune_the_others(many, prunes).await?;
    until_every(PACE, "all of them to be pending", LIMIT, || async {
        let pending = pending(lab, &many.namespace).await?;
        Ok(if pending == prunes {
            Look::Done(())
        } else {
            Look::Not(format!("{pending} are"))
        })
    })
    .await?;
    println!("{prunes} pending after {:.0} s", begun.elapsed().as_secs_f64());
    ensure!(
        watch.all().is_empty(),
        "a delete Job was created while the repository is suspended"
    );
    suspend(many, false).await?;
    let started = Instant::now();

    let left: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (drained, took) = tokio::join!(
        until_every(PACE, "the lane to be drained", LIMIT, || async {
            let count = counted(lab, &many.namespace).await?;
            left.lock().unwrap_or_else(PoisonError::into_inner).push(count);
            Ok(if count == 1 {
                Look::Done(())
            } else {
                Look::Not(format!("{count} are left"))
            })
        }),
        beside(&watch, one, single),
    );
    let left = left.lock().unwrap_or_else(PoisonError::into_inner).clone();
    println!("left every {} s: {left:?}", PACE.as_secs());
    drained?;
    let (took, meanwhile) = took?;
    let whole = started.elapsed();
    let looks = listings.all().len() - listed_before;
    let ours = uids(members);
    let batches = watch.with_member_of(&ours);
    let lived: Vec<f64> = batches.iter().filter_map(lifetime).collect();
    println!(
        "{prunes} prunes in {:.0} s: {} batches, at most {} at once, each alive for {lived:.0?} s; {looks} listings for second looks; the other lane's single deletion took {:.0} s, when {meanwhile} batches had begun",
        whole.as_secs_f64(),
        batches.len(),
        watch.most(),
        took.as_secs_f64(),
    );

    // No assertion panics: the setting of the operator has to be taken back.
    ensure!(watch.interruptions() == 0, "a Job may have come and gone unseen");
    ensure!(
        watch.most() == 1,
        "two delete Jobs of one lane were alive at once"
    );
    ensure!(batches.len() == prunes / EACH, "batches of {EACH}");
    ensure!(
        batches.iter().all(|b| b.members.len() == EACH && b.succeeded),
        "a batch is not whole, or failed"
    );
    let pruned: usize = batches
        .iter()
        .map(|b| b.members.intersection(&ours).count())
        .sum();
    ensure!(pruned == prunes, "each once: {pruned}");
    ensure!(
        lived.len() == batches.len() && lived.iter().all(|seconds| *seconds >= 2.0),
        "{lived:?}"
    );
    // Seconds are printed and belong to the machine; that it did not wait for the lane is what is asserted.
    ensure!(meanwhile < batches.len(), "the other lane waited for all of them");
    // Progress: what is left never grows, and shows long before the end.
    ensure!(left.windows(2).all(|w| w[1] <= w[0]), "{left:?}");
    let steps = left.windows(2).filter(|w| w[1] < w[0]).count();
    ensure!(steps >= batches.len() / 2, "{left:?}");
    // The first look is due ten minutes after the first batch; none is a connection of a batch.
    let due = usize::try_from(whole.as_secs() / 600)?;
    ensure!(looks <= due + 1, "{looks} listings in {whole:?}");
    let catalog = many.repository_ready().await?.status.and_then(|s| s.catalog);
    ensure!(
        catalog.is_some_and(|c| c.second_look_at.is_some()),
        "the next look is not due"
    );
    let (of_many, of_one) = tokio::try_join!(many.count(), one.count())?;
    ensure!(
        (of_many, of_one) == (1, 0),
        "{of_many} and {of_one} are left in the repositories"
    );
    Ok(())
}

/// So many Snapshots with real snapshots, from several schedules at once: while one is made, another is recorded.
async fn seeded(many: &Scenario, count: usize) -> Result<Vec<Member>> {
    let sets = (0..count)
        .step_by(PER_JOB)
        .map(|from| (from, PER_JOB.min(count - from)));
    let made: Vec<Vec<Member>> = stream::iter(sets)
        .map(|(from, some)| async move {
            let (_, members) = many.seeded(&format!("nightly-{from}"), "Retain", some).await?;
            anyhow::Ok(members)
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(made.concat())
}

/// From when the watch saw it to when it saw it ended.
fn lifetime(batch: &Batch) -> Option<f64> {
    Some((batch.ended? - batch.seen).as_secs_f64())
}

/// Nothing of the repository fires while it is suspended.
async fn suspend(many: &Scenario, on: bool) -> Result<()> {
    let api: Api<Repository> = many.lab.api(&many.namespace);
    let patch = Patch::Merge(json!({ "spec": { "suspend": on } }));
    api.patch(REPOSITORY, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Edits the policy, which holds so many, and allows it.
async fn keep_one_and_prune_the_others(many: &Scenario, prunes: usize) -> Result<()> {
    let api: Api<SnapshotPolicy> = many.lab.api(&many.namespace);
    let change = async |patch: Value| {
        api.patch(POLICY, &PatchParams::default(), &Patch::Merge(patch))
            .await
    };
    let edited = change(json!({ "spec": { "retention": { "keepLatest": 1 } } })).await?;
    let generation = edited.metadata.generation.context("a generation")?;
    let kind = conditions::MASS_PRUNE_HELD;
    until("so many prunes to be held", Duration::from_secs(120), || async {
        let list = api.get(POLICY).await?.status.unwrap_or_default().conditions;
        Ok(if conditions::is_true(&list, kind) {
            Look::Done(())
        } else {
            Look::Not(told(&list, kind))
        })
    })
    .await?;
    ensure!(
        counted(&many.lab, &many.namespace).await? == prunes + 1,
        "one went"
    );
    let allow = json!({ names::ALLOW_MASS_PRUNE: generation.to_string() });
    change(json!({ "metadata": { "annotations": allow } })).await?;
    Ok(())
}

/// Once the first batch is there, deletes the other lane's only Snapshot. Answers with how long that took, and how many
/// batches there were then.
async fn beside(watch: &Watch, one: &Scenario, single: &[Member]) -> Result<(Duration, usize)> {
    until("the first batch", Duration::from_secs(600), || async {
        Ok(if watch.all().is_empty() {
            Look::Not("none".into())
        } else {
            Look::Done(())
        })
    })
    .await?;
    let name = &single.first().context("a single Snapshot")?.name;
    let asked = Instant::now();
    one.delete(name).await?;
    one.gone(name).await?;
    Ok((asked.elapsed(), watch.all().len()))
}

/// How many Snapshots are being deleted.
async fn pending(lab: &Lab, namespace: &str) -> Result<usize> {
    let api: Api<Snapshot> = lab.api(namespace);
    let all = api.list_metadata(&ListParams::default()).await?.items;
    Ok(all
        .iter()
        .filter(|s| s.metadata.deletion_timestamp.is_some())
        .count())
}

/// How many Snapshots a namespace has, without reading them all.
async fn counted(lab: &Lab, namespace: &str) -> Result<usize> {
    let api: Api<Snapshot> = lab.api(namespace);
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    let others = list.metadata.remaining_item_count.unwrap_or_default();
    Ok(list.items.len() + usize::try_from(others)?)
}
