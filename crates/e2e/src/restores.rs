//! Restores as people write them, and what came back.

use crate::lab::Lab;
use crate::scenario::{suffix, told};
use crate::wait::{Look, until};
use crate::{objects, pods};
use anyhow::{Context, Result, bail};
use holdfast_api::restore::{RestorePhase, RestoreStatus};
use holdfast_api::{Restore, conditions, names};
use kube::api::Api;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest wait for a restore here: one that fails is tried three times.
const PATIENCE: Duration = Duration::from_secs(300);

/// A Restore.
#[must_use]
pub fn restore(namespace: &str, name: &str, source: Value, target: Value) -> Value {
    json!({
        "apiVersion": names::API_VERSION, "kind": "Restore",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "source": source, "target": target },
    })
}

/// A claim that asks a Restore to fill it.
#[must_use]
pub fn asking_claim(namespace: &str, name: &str, restore: &str) -> Value {
    let mut claim = objects::claim(namespace, name);
    claim["spec"]["dataSourceRef"] = json!({ "apiGroup": names::GROUP, "kind": "Restore", "name": restore });
    claim
}

/// Waits until a Restore has ended, and returns how.
///
/// # Errors
/// When it does not end.
pub async fn ended(lab: &Lab, namespace: &str, name: &str) -> Result<RestoreStatus> {
    let api: Api<Restore> = lab.api(namespace);
    until(&format!("Restore {name} to end"), PATIENCE, || async {
        let status = api.get(name).await?.status.unwrap_or_default();
        match status.phase {
            Some(RestorePhase::Completed | RestorePhase::Failed) => Ok(Look::Done(status)),
            Some(
                RestorePhase::Pending
                | RestorePhase::Resolving
                | RestorePhase::Restoring
                | RestorePhase::Unknown,
            )
            | None => Ok(Look::Not(format!(
                "{:?}, {}",
                status.phase,
                told(&status.conditions, conditions::READY)
            ))),
        }
    })
    .await
}

/// The same, of one that has to succeed.
///
/// # Errors
/// When it fails or does not end.
pub async fn completed(lab: &Lab, namespace: &str, name: &str) -> Result<RestoreStatus> {
    let status = ended(lab, namespace, name).await?;
    if status.phase != Some(RestorePhase::Completed) {
        bail!("Restore {name}: {}", told(&status.conditions, conditions::READY));
    }
    Ok(status)
}

/// Waits until a Restore says this reason.
///
/// # Errors
/// When it does not.
pub async fn says(lab: &Lab, namespace: &str, name: &str, reason: &str) -> Result<RestoreStatus> {
    let api: Api<Restore> = lab.api(namespace);
    until(&format!("Restore {name} to say {reason}"), PATIENCE, || async {
        let status = api.get(name).await?.status.unwrap_or_default();
        let ready = conditions::get(&status.conditions, conditions::READY);
        if ready.is_some_and(|c| c.reason == reason) {
            return Ok(Look::Done(status));
        }
        Ok(Look::Not(told(&status.conditions, conditions::READY)))
    })
    .await
}

/// What a claim holds: a line for each entry with its kind, mode, length, links and either the digest of its content
/// or where it points; and its owners by path.
///
/// # Errors
/// When the Job that looks cannot run.
pub async fn content(lab: &Lab, namespace: &str, claim: &str) -> Result<Content> {
    let script = format!(
        r#"cd /volumes/{claim} && find . -mindepth 1 | grep -v -x ./lost+found | sort | while read -r f; do
  what=-
  if [ -L "$f" ]; then what=$(readlink "$f"); mode=link
  else mode=$(stat -c %a "$f"); fi
  if [ -f "$f" ] && [ ! -L "$f" ]; then what=$(sha256sum < "$f" | cut -c1-64); size=$(stat -c %s "$f"); else size=-; fi
  links=$(stat -c %h "$f"); [ -d "$f" ] && [ ! -L "$f" ] && links=-
  time=$(stat -c %Y "$f"); [ -L "$f" ] && time=-
  echo "ENTRY $(stat -c %F "$f" | tr ' ' _) $mode $size $links $time $what $f"
  echo "OWNER $(stat -c %u:%g "$f") $f"
  echo "BLOCKS $(stat -c %b "$f") $f"
done"#
    );
    let name = format!("look-{}", suffix());
    let job = objects::shell_job(namespace, &name, &lab.tools_image, &[claim.to_owned()], &script);
    let ended = pods::run(lab, job, Duration::from_secs(120)).await?;
    let of = |word: &str| -> Vec<String> {
        let lines = ended.log.lines().filter_map(|line| line.strip_prefix(word));
        lines.map(str::to_owned).collect()
    };
    Ok(Content {
        entries: of("ENTRY "),
        owners: of("OWNER "),
        blocks: of("BLOCKS "),
    })
}

/// What a claim holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Kind, mode, length, links, time and content of each entry, in the order of their paths.
    pub entries: Vec<String>,
    /// Its owner.
    pub owners: Vec<String>,
    /// Blocks it takes on the disk.
    pub blocks: Vec<String>,
}

impl Content {
    /// The entries that a snapshot of it has, as it has them: the format of the engine may know neither named pipes nor
    /// that two names are of one file.
    #[must_use]
    pub fn in_a_snapshot(&self) -> Vec<String> {
        if objects::keeps_every_kind_of_file() {
            return self.entries.clone();
        }
        let files = self.entries.iter().filter(|entry| !entry.starts_with("fifo "));
        files
            .map(|entry| {
                let mut parts: Vec<&str> = entry.splitn(7, ' ').collect();
                if let Some(links) = parts.get_mut(3).filter(|links| **links != "-") {
                    *links = "1";
                }
                parts.join(" ")
            })
            .collect()
    }

    /// Blocks of one file.
    ///
    /// # Errors
    /// When it is not there.
    pub fn blocks_of(&self, path: &str) -> Result<u64> {
        let end = format!(" ./{path}");
        let line = self.blocks.iter().find(|line| line.ends_with(&end));
        let line = line.with_context(|| format!("no {path}"))?;
        Ok(line.split(' ').next().unwrap_or_default().parse()?)
    }
}

/// Lets a Job's pod run as root, in a namespace that admits it.
pub fn as_root(job: &mut Value) {
    let pod = &mut job["spec"]["template"]["spec"];
    pod["securityContext"] = json!({ "runAsUser": 0, "runAsGroup": 0 });
    pod["containers"][0]["securityContext"] = json!({});
}

/// Lets a namespace admit any pod, or restricted ones only.
///
/// # Errors
/// When it cannot be changed.
pub async fn admit(lab: &Lab, namespace: &str, level: &str) -> Result<()> {
    use kube::api::{Patch, PatchParams};
    let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(lab.client.clone());
    let patch = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": level } } });
    api.patch(namespace, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}
