//! What a Snapshot needs for its deletion goes before it: without its repository object it is let go and the data
//! stays; without its Secret it waits and says so. (Its policy: `policy_deleted.rs`.)

use crate::with;
use anyhow::Result;
use holdfast_api::{Repository, conditions};
use holdfast_e2e::scenario::{POLICY, REPOSITORY, SECRET};
use holdfast_e2e::{Look, objects, until};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams};
use std::time::Duration;

#[tokio::test]
async fn without_its_repository_it_is_let_go_and_the_data_stays() -> Result<()> {
    with("no-repository", Some(2), async |scenario, watch| {
        let (_, members) = scenario.seeded("nightly", "Delete", 3).await?;
        let repositories: Api<Repository> = scenario.lab.api(&scenario.namespace);
        repositories
            .delete(REPOSITORY, &DeleteParams::background())
            .await?;
        until("the repository to be gone", Duration::from_secs(30), || async {
            Ok(match repositories.get_opt(REPOSITORY).await? {
                None => Look::Done(()),
                Some(_) => Look::Not("it is there".to_owned()),
            })
        })
        .await?;
        scenario.delete_each(&members).await?;
        scenario.left(&[]).await?;
        assert!(watch.all().is_empty(), "a delete Job existed");
        assert_eq!(scenario.count().await?, 3);
        let about = holdfast_e2e::deletions::uids(&members);
        for event in scenario.events("SnapshotOrphaned", &about).await? {
            let note = event.note.unwrap_or_default();
            assert!(
                note.contains("the repository object it belongs to no longer exists"),
                "{note}"
            );
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn without_its_secret_it_waits_until_it_is_there_again() -> Result<()> {
    with("no-secret-left", None, async |scenario, watch| {
        scenario.back_up("doomed", POLICY).await?;
        let secrets: Api<Secret> = scenario.lab.api(&scenario.namespace);
        secrets.delete(SECRET, &DeleteParams::default()).await?;
        scenario.delete("doomed").await?;
        let said = scenario
            .repository_condition(conditions::DELETION_JOBS_FAILING, |c| c.status == "True")
            .await?;
        assert_eq!(said.reason, "MissingCredentialsSecret");
        assert!(
            said.message.contains(&format!("{}/{SECRET}", scenario.namespace)),
            "{}",
            said.message
        );
        scenario
            .snapshot_condition("doomed", conditions::DELETION_BLOCKED, |c| {
                c.status == "True" && c.reason == "RepositoryBackingOff"
            })
            .await?;
        let events: Api<Event> = scenario.lab.api(&scenario.namespace);
        let reason = ListParams::default().fields(&format!("reason={}", conditions::DELETION_JOBS_FAILING));
        assert_eq!(events.list(&reason).await?.items.len(), 1);
        assert!(watch.all().is_empty(), "a delete Job existed");

        let secret = objects::secret(&scenario.namespace, SECRET, "correct horse battery staple");
        scenario.lab.create(secret).await?;
        scenario.gone("doomed").await?;
        assert_eq!(scenario.count().await?, 0);
        scenario
            .repository_condition(conditions::DELETION_JOBS_FAILING, |c| c.status == "False")
            .await?;
        Ok(())
    })
    .await
}
