//! A namespace of its own with a repository in it, and what happens there.
//!
//! **Promises.** The namespace has a random suffix; [`Scenario::end`] removes it and waits until it is gone.

use crate::lab::Lab;
use crate::seed::{self, Home, Member, Set};
use crate::wait::{Look, until};
use crate::{count, objects, pods};
use anyhow::{Context, Result};
use holdfast_api::repository::{Repository, RepositoryPhase};
use holdfast_api::snapshot::{Snapshot, SnapshotPhase};
use holdfast_api::{ClusterRepository, SnapshotSchedule, conditions};
use k8s_openapi::api::core::v1::{LimitRange, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Names inside every scenario's namespace.
pub const REPOSITORY: &str = "vault";
/// The repository's claim.
pub const VAULT_CLAIM: &str = "vault";
/// The repository's Secret.
pub const SECRET: &str = "vault-password";
/// A claim with a few small files.
pub const DATA_CLAIM: &str = "data";
/// A policy for [`DATA_CLAIM`] that prunes nothing.
pub const POLICY: &str = "data";

/// A namespace and its cluster.
#[derive(Clone)]
pub struct Scenario {
    /// The cluster.
    pub lab: Lab,
    /// The namespace.
    pub namespace: String,
}

/// The last time that [`suffix`] used, in microseconds: scenarios that begin in one microsecond get different names.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Eight letters that were not used before: the time, in base 36.
#[must_use]
pub fn suffix() -> String {
    let now = u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default();
    let later = |last: u64| now.max(last.saturating_add(1));
    let last = LAST.update(Ordering::Relaxed, Ordering::Relaxed, later);
    let mut n = later(last);
    let mut text = String::new();
    for _ in 0..8 {
        let digit = u32::try_from(n % 36).unwrap_or_default();
        text.push(char::from_digit(digit, 36).unwrap_or('0'));
        n /= 36;
    }
    text
}

impl Scenario {
    /// A namespace with claims, a Secret and small source files, without a repository.
    ///
    /// # Errors
    /// When the cluster refuses something.
    pub async fn bare(lab: &Lab, name: &str) -> Result<Self> {
        let namespace = format!("{name}-{}", suffix());
        let this = Self {
            lab: lab.clone(),
            namespace,
        };
        lab.create(objects::namespace(&this.namespace, "e2e")).await?;
        for claim in [VAULT_CLAIM, DATA_CLAIM] {
            lab.create(objects::claim(&this.namespace, claim)).await?;
        }
        Self::fill(lab, &this.namespace, DATA_CLAIM).await?;
        Ok(this)
    }

    /// Puts a few small files into a claim.
    ///
    /// # Errors
    /// When the Job that does cannot run.
    pub async fn fill(lab: &Lab, namespace: &str, claim: &str) -> Result<()> {
        let script = format!(
            "cd /volumes/{claim} && mkdir -p notes && for i in 1 2 3 4; do seq $i 400 > notes/$i.txt; done && head -c 20000 /dev/urandom > blob"
        );
        let name = format!("fill-{}", suffix());
        let job = objects::shell_job(namespace, &name, &lab.tools_image, &[claim.to_owned()], &script);
        pods::run(lab, job, Duration::from_secs(120)).await?;
        Ok(())
    }

    /// The same as [`Scenario::bare`] with a connected repository and the policy [`POLICY`].
    ///
    /// # Errors
    /// When the cluster refuses something, or the repository does not become Ready.
    pub async fn with_repository(lab: &Lab, name: &str, threshold: Option<u32>) -> Result<Self> {
        let this = Self::bare(lab, name).await?;
        let ns = &this.namespace;
        lab.create(objects::secret(ns, SECRET, objects::PASSWORD)).await?;
        lab.create(objects::repository(
            ns,
            REPOSITORY,
            VAULT_CLAIM,
            SECRET,
            threshold,
        ))
        .await?;
        this.repository_ready().await?;
        lab.create(objects::policy(ns, POLICY, REPOSITORY, DATA_CLAIM, None))
            .await?;
        Ok(this)
    }

    /// Waits until the repository is Ready.
    ///
    /// # Errors
    /// When it does not become Ready.
    pub async fn repository_ready(&self) -> Result<Repository> {
        let api: Api<Repository> = self.lab.api(&self.namespace);
        until("the repository to be Ready", Duration::from_secs(120), || async {
            let repository = api.get(REPOSITORY).await?;
            let status = repository.status.clone().unwrap_or_default();
            if status.phase == Some(RepositoryPhase::Ready) && status.unique_id.is_some() {
                return Ok(Look::Done(repository));
            }
            Ok(Look::Not(told(&status.conditions, conditions::READY)))
        })
        .await
    }

    /// Waits until a condition of the repository satisfies `wanted`.
    ///
    /// # Errors
    /// When it does not.
    pub async fn repository_condition(
        &self,
        kind: &str,
        wanted: impl Fn(&Condition) -> bool,
    ) -> Result<Condition> {
        let api: Api<Repository> = self.lab.api(&self.namespace);
        until(
            &format!("the repository's condition {kind}"),
            Duration::from_secs(120),
            || async {
                let status = api.get(REPOSITORY).await?.status.unwrap_or_default();
                Ok(seek(&status.conditions, kind, &wanted))
            },
        )
        .await
    }

    /// A Snapshot, if it is there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn snapshot(&self, name: &str) -> Result<Option<Snapshot>> {
        Ok(self.lab.api::<Snapshot>(&self.namespace).get_opt(name).await?)
    }

    /// Every Snapshot of the namespace.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let api: Api<Snapshot> = self.lab.api(&self.namespace);
        Ok(api.list(&Default::default()).await?.items)
    }

    /// Waits until a condition of a Snapshot satisfies `wanted`.
    ///
    /// # Errors
    /// When it does not.
    pub async fn snapshot_condition(
        &self,
        name: &str,
        kind: &str,
        wanted: impl Fn(&Condition) -> bool,
    ) -> Result<Condition> {
        until(
            &format!("the condition {kind} of Snapshot {name}"),
            Duration::from_secs(120),
            || async {
                let snapshot = self.snapshot(name).await?.context("it is not there")?;
                Ok(seek(
                    &snapshot.status.unwrap_or_default().conditions,
                    kind,
                    &wanted,
                ))
            },
        )
        .await
    }

    /// Makes a Snapshot as a person would, and waits until it succeeded.
    ///
    /// # Errors
    /// When it does not succeed.
    pub async fn back_up(&self, name: &str, policy: &str) -> Result<Snapshot> {
        self.lab
            .create(objects::snapshot(&self.namespace, name, policy))
            .await?;
        self.succeeded(name).await
    }

    /// Waits until a Snapshot succeeded.
    ///
    /// # Errors
    /// When it does not.
    pub async fn succeeded(&self, name: &str) -> Result<Snapshot> {
        self.succeeded_within(name, Duration::from_secs(180)).await
    }

    /// The same, for at most `limit`.
    ///
    /// # Errors
    /// When it does not.
    pub async fn succeeded_within(&self, name: &str, limit: Duration) -> Result<Snapshot> {
        until(&format!("Snapshot {name} to succeed"), limit, || async {
            let snapshot = self.snapshot(name).await?.context("it is not there")?;
            let status = snapshot.status.clone().unwrap_or_default();
            if status.phase == Some(SnapshotPhase::Succeeded) {
                return Ok(Look::Done(snapshot));
            }
            let said = told(&status.conditions, conditions::READY);
            Ok(Look::Not(format!("{:?}, {said}", status.phase)))
        })
        .await
    }

    /// Creates a schedule and, owned by it, `count` Snapshot objects with real snapshots.
    ///
    /// # Errors
    /// When something is refused or fails.
    pub async fn seeded(
        &self,
        schedule: &str,
        on_delete: &'static str,
        count: usize,
    ) -> Result<(Set, Vec<Member>)> {
        let set = self.set(schedule, on_delete).await?;
        let members = seed::objects(&self.lab, &set, count).await?;
        let taken = seed::snapshots(&self.lab, &set, &members).await?;
        seed::record(&self.lab, &set, &members, &taken).await?;
        Ok((set, members))
    }

    /// Creates a schedule of [`POLICY`] and says what its Snapshots have in common.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn set(&self, schedule: &str, on_delete: &'static str) -> Result<Set> {
        let uid = self.schedule(schedule, on_delete).await?;
        Ok(Set {
            namespace: self.namespace.clone(),
            repository: REPOSITORY.into(),
            home: Home::repository(&self.namespace),
            policy: POLICY.into(),
            claim: DATA_CLAIM.into(),
            schedule: schedule.into(),
            schedule_uid: uid,
            on_schedule_delete: on_delete,
        })
    }

    /// Creates a schedule that does not come due, and returns its UID.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn schedule(&self, name: &str, on_delete: &str) -> Result<String> {
        let object = objects::schedule(&self.namespace, name, POLICY, false, Some(on_delete));
        let made = self.lab.create(object).await?;
        made.metadata.uid.context("the schedule has no UID")
    }

    /// Deletes a schedule; the garbage collector goes on from there.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub async fn delete_schedule(&self, name: &str) -> Result<()> {
        let api: Api<SnapshotSchedule> = self.lab.api(&self.namespace);
        api.delete(name, &DeleteParams::background()).await?;
        until("the schedule to be gone", Duration::from_secs(30), || async {
            let there = api.get_opt(name).await?.is_some();
            Ok(if there {
                Look::Not("it is there".into())
            } else {
                Look::Done(())
            })
        })
        .await
    }

    /// From now on each container that is made in the namespace asks for so much CPU and gets no more; `None` ends that.
    /// What was made before keeps what it was made with.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn cpu_of_new_containers(&self, cpu: Option<&str>) -> Result<()> {
        const NAME: &str = "cpu";
        let api: Api<LimitRange> = self.lab.api(&self.namespace);
        if api.get_opt(NAME).await?.is_some() {
            api.delete(NAME, &DeleteParams::default()).await?;
        }
        let Some(cpu) = cpu else { return Ok(()) };
        let much = json!({ "cpu": cpu });
        let limits = json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": NAME, "namespace": self.namespace },
            "spec": { "limits": [{ "type": "Container", "default": much, "defaultRequest": much }] },
        });
        self.lab.create(limits).await?;
        Ok(())
    }

    /// How many snapshots the repository's volume holds.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub async fn count(&self) -> Result<u64> {
        count::files(&self.lab, &self.namespace, VAULT_CLAIM).await
    }

    /// Removes the namespace and waits until it is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn end(self) -> Result<()> {
        remove_namespace(&self.lab, &self.namespace).await
    }
}

/// Waits until a ClusterRepository is Ready.
///
/// # Errors
/// When it does not become Ready.
pub async fn shared_ready(lab: &Lab, name: &str) -> Result<()> {
    let api: Api<ClusterRepository> = Api::all(lab.client.clone());
    until("the repository to be Ready", Duration::from_secs(120), || async {
        let list = api.get(name).await?.status.unwrap_or_default().conditions;
        Ok(if conditions::is_true(&list, conditions::READY) {
            Look::Done(())
        } else {
            Look::Not(told(&list, conditions::READY))
        })
    })
    .await
}

/// Deletes a namespace and waits until it is gone.
///
/// # Errors
/// When it stays.
pub async fn remove_namespace(lab: &Lab, namespace: &str) -> Result<()> {
    let api: Api<Namespace> = Api::all(lab.client.clone());
    if api.get_opt(namespace).await?.is_none() {
        return Ok(());
    }
    api.delete(namespace, &DeleteParams::default()).await?;
    until(
        &format!("the namespace {namespace} to be gone"),
        Duration::from_secs(240),
        || async {
            let Some(left) = api.get_opt(namespace).await? else {
                return Ok(Look::Done(()));
            };
            let conditions = left.status.and_then(|s| s.conditions).unwrap_or_default();
            let why: Vec<String> = conditions
                .into_iter()
                .filter(|c| c.status == "True")
                .filter_map(|c| c.message)
                .collect();
            lab.note(why.join("; "));
            Ok(Look::Not(why.join("; ")))
        },
    )
    .await
}

fn seek(conditions: &[Condition], kind: &str, wanted: impl Fn(&Condition) -> bool) -> Look<Condition> {
    match conditions::get(conditions, kind) {
        Some(condition) if wanted(condition) => Look::Done(condition.clone()),
        Some(_) | None => Look::Not(told(conditions, kind)),
    }
}

/// One condition in words, for messages.
#[must_use]
pub fn told(conditions: &[Condition], kind: &str) -> String {
    conditions::get(conditions, kind).map_or_else(
        || format!("no condition {kind}"),
        |c| format!("{kind}={} {}: {}", c.status, c.reason, c.message),
    )
}

/// The command in a condition's message that releases everything held.
///
/// # Errors
/// When the message has none.
pub fn release_command(message: &str) -> Result<String> {
    let (_, rest) = message
        .split_once("To delete all of them: ")
        .with_context(|| format!("no command in the message: {message}"))?;
    let (command, _) = rest
        .split_once(" --overwrite")
        .with_context(|| format!("no whole command in the message: {message}"))?;
    Ok(format!("{command} --overwrite"))
}

/// Runs a command line by `sh -c` with the cluster's kubeconfig and the folder `tools` first on `PATH`.
///
/// # Errors
/// When it ends with another code than 0.
pub async fn shell(lab: &Lab, line: &str, tools: Option<&std::path::Path>) -> Result<String> {
    let mut path = std::env::var("PATH").unwrap_or_default();
    if let Some(tools) = tools {
        path = format!("{}:{path}", tools.display());
    }
    let output = tokio::process::Command::new("sh")
        .args(["-c", line])
        .env("KUBECONFIG", &lab.kubeconfig)
        .env("PATH", path)
        .output()
        .await
        .context("sh could not be started")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(
        output.status.success(),
        "`{line}` ended with {}: {said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

/// A value of an object as JSON, for tests of what is written.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn json<T: serde::Serialize>(object: &T) -> Result<Value> {
    Ok(serde_json::to_value(object)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn scenarios_that_begin_at_once_get_names_of_their_own() {
        let threads: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| (0..1_000).map(|_| suffix()).collect::<Vec<String>>()))
            .collect();
        let all: Vec<String> = threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(all.iter().all(|one| one.len() == 8), "{:?}", all.first());
    }
}
