//! Restores as people write them, and what came back.

use crate::lab::Lab;
use crate::scenario::{remove_namespace, suffix, told};
use crate::wait::{Look, until};
use crate::{objects, pods};
use anyhow::{Context, Result, bail};
use holdfast_api::restore::{RestorePhase, RestoreStatus};
use holdfast_api::{Restore, conditions, names};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use std::path::PathBuf;
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
    let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(lab.client.clone());
    let patch = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": level } } });
    api.patch(namespace, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// Waits until a claim is bound.
///
/// # Errors
/// When it is not.
pub async fn claim(lab: &Lab, namespace: &str, name: &str) -> Result<PersistentVolumeClaim> {
    let api: Api<PersistentVolumeClaim> = lab.api(namespace);
    until(
        &format!("claim {name} to be bound"),
        Duration::from_secs(180),
        || async {
            let claim = api.get(name).await?;
            let phase = claim
                .status
                .as_ref()
                .and_then(|s| s.phase.clone())
                .unwrap_or_default();
            Ok(if phase == "Bound" {
                Look::Done(claim)
            } else {
                Look::Not(phase)
            })
        },
    )
    .await
}

/// Keeps the volume of a claim when its namespace goes, and gives it to a claim of the same name in another.
///
/// # Errors
/// When something is refused, or takes too long.
pub async fn carry_over(lab: &Lab, from: &str, to: &str, name: &str) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(lab.client.clone());
    let bound = claim(lab, from, name).await?;
    let volume = bound.spec.and_then(|s| s.volume_name).context("a volume")?;
    let keep = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    volumes
        .patch(&volume, &PatchParams::default(), &Patch::Merge(keep))
        .await?;
    remove_namespace(lab, from).await?;
    let free = json!({ "spec": { "claimRef": null } });
    volumes
        .patch(&volume, &PatchParams::default(), &Patch::Merge(free))
        .await?;
    lab.create(objects::namespace(to, "e2e")).await?;
    let mut again = objects::claim(to, name);
    again["spec"]["volumeName"] = json!(volume);
    lab.create(again).await?;
    claim(lab, to, name).await?;
    let goes = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
    volumes
        .patch(&volume, &PatchParams::default(), &Patch::Merge(goes))
        .await?;
    Ok(())
}

/// Where the files of a claim are on this machine, if the cluster runs on it.
///
/// # Errors
/// When the claim's volume cannot be read.
pub async fn folder(lab: &Lab, namespace: &str, name: &str) -> Result<Option<PathBuf>> {
    let bound = claim(lab, namespace, name).await?;
    let volumes: Api<PersistentVolume> = Api::all(lab.client.clone());
    let volume = bound.spec.and_then(|s| s.volume_name).context("a volume")?;
    let spec = volumes.get(&volume).await?.spec.unwrap_or_default();
    let path = spec.host_path.map(|place| PathBuf::from(place.path));
    Ok(path.filter(|path| path.is_dir()))
}

/// Gives a file of a claim an extended attribute. False, and standard error says so: the cluster is elsewhere.
///
/// # Errors
/// When it cannot be set.
pub async fn set_attribute(
    lab: &Lab,
    (namespace, claim): (&str, &str),
    file: &str,
    name: &str,
    value: &[u8],
) -> Result<bool> {
    let Some(folder) = folder(lab, namespace, claim).await? else {
        eprintln!("skipped: extended attributes, the cluster's volumes are not on this machine");
        return Ok(false);
    };
    let path = folder.join(file);
    xattr::set(&path, name, value).with_context(|| format!("{name} of {} cannot be set", path.display()))?;
    Ok(true)
}

/// Every extended attribute of the files of a claim, as `file name value`, sorted; none where the cluster is elsewhere.
///
/// # Errors
/// When they cannot be read.
pub async fn attributes(lab: &Lab, namespace: &str, claim: &str) -> Result<Vec<String>> {
    let Some(folder) = folder(lab, namespace, claim).await? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    let mut todo = vec![folder.clone()];
    while let Some(next) = todo.pop() {
        for entry in std::fs::read_dir(&next)? {
            let path = entry?.path();
            for name in xattr::list(&path)? {
                let value = xattr::get(&path, &name)?.unwrap_or_default();
                let shown = path.strip_prefix(&folder)?.display();
                found.push(format!("{shown} {} {value:?}", name.to_string_lossy()));
            }
            if path.is_dir() && !path.is_symlink() {
                todo.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
