//! 200 BackupJobs at once, room for one: never more than one is admitted, whoever leads.
//!
//! Fifty clients, each with connections of its own, ask over TLS through the API server, as people do; two replicas
//! stand ready, and in one of five rounds the leader is killed while they ask. What counts is what is there in the end:
//! an answer that was lost may have been a yes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::{join_all, try_join_all};
use holdfast_api::names;
use holdfast_e2e::kill::Leaders;
use holdfast_e2e::platform::{self, Asked, SIZED, Tenant};
use holdfast_e2e::{Lab, Look, until};
use serde_json::json;

const CLIENTS: usize = 50;
const JOBS: usize = 200;
const ROUNDS: usize = 5;
/// The round in which the leader is killed.
const KILLED: usize = 2;

/// Case webhook 2: exactly one.
#[tokio::test]
async fn of_two_hundred_at_once_with_room_for_one_never_more_than_one_is_admitted() -> Result<()> {
    let Some(lab) = Lab::for_test("quota_exact_under_load").await? else {
        return Ok(());
    };
    platform::install(&lab.client).await?;
    platform::class(&lab).await?;
    let leaders = Leaders::start(&lab);
    let labs = try_join_all((0..CLIENTS).map(|_| lab.another_client())).await?;
    for round in 0..ROUNDS {
        // Nobody takes these jobs up: each one that is admitted goes on being counted.
        let tenant = Tenant::new(&lab, "tenant-busy", json!({ names::QUOTA_COUNT: "1" })).await?;
        let admitted = AtomicUsize::new(0);
        let unanswered = AtomicUsize::new(0);
        let (asked, asked_after) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // Each client goes on until it has asked once after the kill.
        let dead = AtomicBool::new(false);
        let clients = labs.iter().enumerate().map(|(client, lab)| {
            let tenant = Tenant {
                lab: lab.clone(),
                ..tenant.clone()
            };
            let (admitted, unanswered, dead) = (&admitted, &unanswered, &dead);
            let (asked, asked_after) = (&asked, &asked_after);
            async move {
                let (mut turn, mut after): (usize, usize) = (0, 0);
                while turn < JOBS / CLIENTS || (round == KILLED && after == 0) {
                    turn += 1;
                    asked.fetch_add(1, Ordering::Relaxed);
                    if dead.load(Ordering::Relaxed) {
                        after += 1;
                        asked_after.fetch_add(1, Ordering::Relaxed);
                    }
                    let name = format!("job-{client}-{turn}");
                    match tenant.ask(&name, SIZED, &name, 1).await {
                        Ok(Asked::Admitted(_)) => {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(Asked::Refused(_)) => {}
                        // Nobody leads for a moment: the failure policy refuses.
                        Err(_) => {
                            unanswered.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            }
        });
        let ask = join_all(clients);
        if round == KILLED {
            let leader = leaders.other_than(None).await?;
            let kill = async {
                tokio::time::sleep(Duration::from_millis(150)).await;
                let killed = leader.kill(&lab).await;
                // The next questions meet nobody, or one that takes over.
                dead.store(true, Ordering::Relaxed);
                killed
            };
            let (_, killed) = tokio::join!(ask, kill);
            killed?;
        } else {
            ask.await;
        }
        let count = admitted.load(Ordering::Relaxed);
        let lost = unanswered.load(Ordering::Relaxed);
        let (asked, asked_after) = (asked.into_inner(), asked_after.into_inner());
        println!(
            "round {round}: {asked} asked, {count} admitted, {lost} not answered, {asked_after} asked after a kill"
        );
        ensure!(asked >= JOBS, "only {asked} were asked for");
        let there = tenant.jobs().await?;
        ensure!(
            there.len() <= 1,
            "{there:?} are there where there was room for one"
        );
        ensure!(count <= 1, "{count} were admitted where there was room for one");
        if round != KILLED {
            ensure!(count == 1, "there was room for one, and nobody got it");
        }
        // Also when everything has settled down.
        until(
            "somebody to lead and to refuse",
            Duration::from_secs(180),
            || async {
                Ok(match tenant.ask("after", SIZED, "after", 1).await {
                    Ok(Asked::Refused(why)) if why.contains("exceeded quota") => Look::Done(()),
                    Ok(Asked::Admitted(_)) if count == 0 => Look::Done(()),
                    Ok(Asked::Admitted(_)) => anyhow::bail!("another one was admitted in round {round}"),
                    Ok(Asked::Refused(why)) => Look::Not(why),
                    Err(error) => Look::Not(error.to_string()),
                })
            },
        )
        .await?;
        let there = tenant.jobs().await?;
        ensure!(there.len() == 1, "{there:?} are there in round {round}");
        tenant.end().await?;
    }
    Ok(())
}
