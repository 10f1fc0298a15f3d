//! What every scenario about deletions does: delete, rescue, wait until objects are held, or gone.
//!
//! **Promises.** Discovered rows, which come in their own time, are left out everywhere.

use crate::scenario::{Scenario, release_command, shell, told};
use crate::seed::Member;
use crate::wait::{Look, until};
use anyhow::{Context, Result};
use holdfast_api::{Repository, Snapshot, conditions, names};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// UIDs of members.
#[must_use]
pub fn uids(members: &[Member]) -> BTreeSet<String> {
    members.iter().map(|m| m.uid.clone()).collect()
}

/// Whether a Snapshot is a row that a scan made.
#[must_use]
pub fn is_discovered(snapshot: &Snapshot) -> bool {
    snapshot
        .labels()
        .get(names::ORIGIN_LABEL)
        .is_some_and(|origin| origin == "discovered")
}

/// Whether the breaker holds a Snapshot.
#[must_use]
pub fn is_held(snapshot: &Snapshot) -> bool {
    let status = snapshot.status.as_ref();
    snapshot.metadata.deletion_timestamp.is_some()
        && status.is_some_and(|s| conditions::is_true(&s.conditions, conditions::DELETION_HELD))
}

impl Scenario {
    /// Every Snapshot of the namespace that is no discovered row.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn recorded(&self) -> Result<Vec<Snapshot>> {
        let mut all = self.snapshots().await?;
        all.retain(|s| !is_discovered(s));
        Ok(all)
    }

    /// Deletes a Snapshot, as a person would.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let api: Api<Snapshot> = self.lab.api(&self.namespace);
        api.delete(name, &DeleteParams::default())
            .await
            .with_context(|| format!("Snapshot {name}"))?;
        Ok(())
    }

    /// Deletes Snapshots one after another.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn delete_each(&self, members: &[Member]) -> Result<()> {
        for member in members {
            self.delete(&member.name).await?;
        }
        Ok(())
    }

    /// Puts the skip annotation on a Snapshot.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn skip(&self, name: &str) -> Result<()> {
        let skip = json!({ "metadata": { "annotations": { names::SKIP_SNAPSHOT_CLEANUP: "" } } });
        let api: Api<Snapshot> = self.lab.api(&self.namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(skip))
            .await?;
        Ok(())
    }

    /// Writes an acknowledgement on the repository.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn acknowledge(&self, value: &str) -> Result<()> {
        let yes = json!({ "metadata": { "annotations": { names::ALLOW_MASS_DELETION: value } } });
        let api: Api<Repository> = self.lab.api(&self.namespace);
        api.patch(
            crate::scenario::REPOSITORY,
            &PatchParams::default(),
            &Patch::Merge(yes),
        )
        .await?;
        Ok(())
    }

    /// Runs the command that the repository's condition shows.
    ///
    /// # Errors
    /// When there is none, or it fails.
    pub async fn release(&self) -> Result<()> {
        let said = self
            .repository_condition(conditions::MASS_DELETION_HELD, |c| c.status == "True")
            .await?;
        let line = release_command(&said.message)?;
        shell(&self.lab, &line, self.lab.kubeconfig.parent()).await?;
        Ok(())
    }

    /// Waits until a Snapshot is gone.
    ///
    /// # Errors
    /// When it stays for longer than `limit`.
    pub async fn gone_within(&self, name: &str, limit: Duration) -> Result<()> {
        until(&format!("Snapshot {name} to be gone"), limit, || async {
            Ok(match self.snapshot(name).await? {
                None => Look::Done(()),
                Some(there) => {
                    let list = there.status.unwrap_or_default().conditions;
                    Look::Not(told(&list, conditions::DELETION_BLOCKED))
                }
            })
        })
        .await
    }

    /// The same, for at most two minutes.
    ///
    /// # Errors
    /// When it stays.
    pub async fn gone(&self, name: &str) -> Result<()> {
        self.gone_within(name, Duration::from_secs(120)).await
    }

    /// Waits until exactly these are left, discovered rows apart.
    ///
    /// # Errors
    /// When others are.
    pub async fn left(&self, names: &[&str]) -> Result<()> {
        let wanted: BTreeSet<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let what = format!("exactly {} Snapshots to be left", wanted.len());
        until(&what, Duration::from_secs(120), || async {
            let left: BTreeSet<String> = self.recorded().await?.iter().map(ResourceExt::name_any).collect();
            Ok(if left == wanted {
                Look::Done(())
            } else {
                Look::Not(format!("{left:?}"))
            })
        })
        .await
    }

    /// Waits until exactly these are held.
    ///
    /// # Errors
    /// When others are.
    pub async fn held(&self, members: &[Member]) -> Result<()> {
        let wanted = uids(members);
        let what = format!("exactly {} Snapshots to be held", wanted.len());
        until(&what, Duration::from_secs(60), || async {
            let all = self.recorded().await?;
            let held: BTreeSet<String> = all
                .iter()
                .filter(|s| is_held(s))
                .filter_map(ResourceExt::uid)
                .collect();
            Ok(if held == wanted {
                Look::Done(())
            } else {
                Look::Not(format!("{} of {} are held", held.len(), all.len()))
            })
        })
        .await
    }

    /// Notes of the events of this reason.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn told(&self, reason: &str) -> Result<Vec<String>> {
        let api: Api<Event> = self.lab.api(&self.namespace);
        let of_reason = ListParams::default().fields(&format!("reason={reason}"));
        let all = api.list(&of_reason).await?.items;
        Ok(all.into_iter().filter_map(|e| e.note).collect())
    }

    /// Waits for as many events of this reason, each about another Snapshot, and returns them.
    ///
    /// # Errors
    /// When there are others.
    pub async fn events(&self, reason: &str, about: &BTreeSet<String>) -> Result<Vec<Event>> {
        let api: Api<Event> = self.lab.api(&self.namespace);
        let of_reason = ListParams::default().fields(&format!("reason={reason}"));
        until(
            &format!("an event {reason} for each"),
            Duration::from_secs(30),
            || async {
                let all = api.list(&of_reason).await?.items;
                let told: BTreeSet<String> = all
                    .iter()
                    .filter_map(|e| e.regarding.as_ref()?.uid.clone())
                    .collect();
                Ok(if all.len() == about.len() && told == *about {
                    Look::Done(all)
                } else {
                    Look::Not(format!("{} events about {}", all.len(), told.len()))
                })
            },
        )
        .await
    }
}
