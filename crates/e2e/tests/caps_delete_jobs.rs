//! With `maxConcurrentDeleteJobs: 1`, two repositories take turns: at any instant at most one delete Job is alive in
//! the cluster, and both drain.
//!
//! Changes a setting of the operator, so it is alone in its program.

use anyhow::Result;
use holdfast_api::conditions;
use holdfast_e2e::deletions::uids;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::{Lab, Look, Scenario, kill, until};
use std::time::Duration;

const CAP: &str = "KOPIUR_MAX_CONCURRENT_DELETE_JOBS";
/// Movers take this long to connect, so that the first Job lives long enough for the second lane to say that it waits.
const DELAY: (&str, &str) = ("HOLDFAST_TEST_CONNECT_DELAY_SECONDS", "10");

#[tokio::test]
async fn two_repositories_take_turns() -> Result<()> {
    let Some(lab) = Lab::for_test("two_repositories_take_turns").await? else {
        return Ok(());
    };
    let changed = [(CAP, "1"), DELAY].map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
    let before = kill::operator_environment(&lab, &changed).await?;
    let result = take_turns(&lab).await;
    kill::operator_environment(&lab, &before).await?;
    result
}

async fn take_turns(lab: &Lab) -> Result<()> {
    let watch = Watch::everywhere(&lab.client).await?;
    let (left, right) = tokio::try_join!(
        Scenario::with_repository(lab, "capped", None),
        Scenario::with_repository(lab, "capped-too", None),
    )?;
    let ((_, of_left), (_, of_right)) = tokio::try_join!(
        left.seeded("nightly", "Retain", 5),
        right.seeded("nightly", "Retain", 5),
    )?;
    tokio::try_join!(left.delete_each(&of_left), right.delete_each(&of_right))?;
    // The one that has to wait says for what.
    until("one to wait for the other", Duration::from_secs(60), || async {
        let waits = |s: &holdfast_api::Snapshot| {
            let list = s.status.as_ref().map(|s| s.conditions.as_slice());
            conditions::get(list.unwrap_or_default(), conditions::DELETION_BLOCKED)
                .is_some_and(|c| c.status == "True" && c.reason == "JobCapReached")
        };
        let all = [left.recorded().await?, right.recorded().await?].concat();
        let waiting = all.iter().filter(|s| waits(s)).count();
        Ok(if waiting > 0 {
            Look::Done(())
        } else {
            Look::Not(format!("none of {} does", all.len()))
        })
    })
    .await?;
    tokio::try_join!(left.left(&[]), right.left(&[]))?;
    assert_eq!(watch.most(), 1, "two delete Jobs were alive at once");
    assert_eq!(watch.with_member_of(&uids(&of_left)).len(), 1);
    assert_eq!(watch.with_member_of(&uids(&of_right)).len(), 1);
    let (in_left, in_right) = tokio::try_join!(left.count(), right.count())?;
    assert_eq!((in_left, in_right), (0, 0));
    tokio::try_join!(left.end(), right.end())?;
    Ok(())
}
