//! How many snapshots a repository holds.
//!
//! **Promises.** Two ways that share nothing: [`files`] counts the records on the repository's volume without any
//! code of Holdfast, [`scan`] asks the operator for a listing through a mover and its HTTPS port.

use crate::lab::Lab;
use crate::wait::{Look, until};
use crate::{objects, pods};
use anyhow::{Context, Result, ensure};
use holdfast_api::repository::Engine;
use holdfast_api::{Repository, names};
use kube::api::{Api, Patch, PatchParams};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Counts the snapshots on the repository's volume: the records in its directory `snapshots`, or what the kopia
/// program lists.
///
/// # Errors
/// When the Job that looks cannot run.
pub async fn files(lab: &Lab, namespace: &str, claim: &str) -> Result<u64> {
    let name = format!("count-{}", crate::scenario::suffix());
    match objects::engine() {
        Engine::Kopia => return Ok(listed_by_kopia(lab, namespace, claim, &name).await?.len() as u64),
        Engine::Restic | Engine::Unknown => {}
    }
    Ok(records(lab, namespace, claim, &name).await?.0)
}

/// Ids of the snapshots on the repository's volume, seen the same way as by [`files`].
///
/// # Errors
/// When the Job that looks cannot run.
pub async fn ids(lab: &Lab, namespace: &str, claim: &str) -> Result<BTreeSet<String>> {
    let name = format!("look-{}", crate::scenario::suffix());
    match objects::engine() {
        Engine::Kopia => return listed_by_kopia(lab, namespace, claim, &name).await,
        Engine::Restic | Engine::Unknown => {}
    }
    let (count, ids) = records(lab, namespace, claim, &name).await?;
    ensure!(
        ids.len() as u64 == count,
        "the looking Job counted {count} records and named {}",
        ids.len()
    );
    Ok(ids)
}

/// How many records there are, and their names: the log, which carries these, may not be whole.
async fn records(lab: &Lab, namespace: &str, claim: &str, name: &str) -> Result<(u64, BTreeSet<String>)> {
    let script = format!("ls /volumes/{claim}/snapshots | tee /dev/stderr | wc -l > /dev/termination-log");
    let job = objects::shell_job(namespace, name, &lab.tools_image, &[claim.to_owned()], &script);
    let ended = pods::run(lab, job, Duration::from_secs(120)).await?;
    let text = ended.message.trim();
    let count = text
        .parse()
        .with_context(|| format!("the counting Job said {text:?}"))?;
    Ok((count, ended.log.lines().map(str::to_owned).collect()))
}

/// A row of kopia's listing.
#[derive(Deserialize)]
struct Listed {
    id: String,
}

async fn listed_by_kopia(lab: &Lab, namespace: &str, claim: &str, name: &str) -> Result<BTreeSet<String>> {
    let list = ["snapshot", "list", "--all", "--json", "--no-retention"];
    let ended = kopia(lab, namespace, claim, name, Some("--readonly"), &list).await?;
    let from = ended.log.find('[').context("the counting Job listed nothing")?;
    let rows: Vec<Listed> = serde_json::from_str(&ended.log[from..])
        .with_context(|| format!("the counting Job said {:?}", ended.log))?;
    let (count, ids): (usize, BTreeSet<String>) = (rows.len(), rows.into_iter().map(|row| row.id).collect());
    ensure!(ids.len() == count, "an id is listed twice: {:?}", ended.log);
    Ok(ids)
}

/// What a person does with the kopia program. The mover's image has it and no shell: one container connects, the next does
/// it. `how` is a further option of the connection.
///
/// # Errors
/// When the Job cannot run, or the program fails.
pub async fn kopia(
    lab: &Lab,
    namespace: &str,
    claim: &str,
    name: &str,
    how: Option<&str>,
    arguments: &[&str],
) -> Result<pods::Ended> {
    let mut job = objects::shell_job(namespace, name, &lab.mover_image, &[claim.to_owned()], "");
    let pod = &mut job["spec"]["template"]["spec"];
    if let Some(volumes) = pod["volumes"].as_array_mut() {
        volumes.push(json!({ "name": "tmp", "emptyDir": {} }));
    }
    let mut container = pod["containers"][0].clone();
    if let Some(mounts) = container["volumeMounts"].as_array_mut() {
        mounts.push(json!({ "name": "tmp", "mountPath": "/tmp" }));
    }
    container["env"] = json!([
        { "name": "HOME", "value": "/tmp" },
        { "name": "KOPIA_PASSWORD", "value": objects::PASSWORD },
        { "name": "KOPIA_CONFIG_PATH", "value": "/tmp/config" },
        { "name": "KOPIA_CACHE_DIRECTORY", "value": "/tmp/cache" },
        { "name": "KOPIA_LOG_DIR", "value": "/tmp/logs" },
        { "name": "KOPIA_CHECK_FOR_UPDATES", "value": "false" },
        { "name": "KOPIA_PERSIST_CREDENTIALS_ON_CONNECT", "value": "false" },
    ]);
    let mut connect = container.clone();
    connect["name"] = json!("connect");
    let path = format!("--path=/volumes/{claim}");
    let mut connects = vec!["/usr/bin/kopia", "repository", "connect", "filesystem", &path];
    connects.extend(how);
    connect["command"] = json!(connects);
    let mut does = vec!["/usr/bin/kopia"];
    does.extend(arguments);
    container["command"] = json!(does);
    pod["initContainers"] = json!([connect]);
    pod["containers"] = json!([container]);
    pods::run(lab, job, Duration::from_secs(120)).await
}

/// Asks the operator for a listing and returns how many snapshots arrived.
///
/// # Errors
/// When no complete listing arrives in time.
pub async fn scan(lab: &Lab, namespace: &str, repository: &str) -> Result<u64> {
    let request = jiff::Timestamp::now().to_string();
    let api: Api<Repository> = lab.api(namespace);
    let ask = json!({ "metadata": { "annotations": { names::SCAN_REQUESTED_AT: request } } });
    api.patch(repository, &PatchParams::default(), &Patch::Merge(ask))
        .await?;
    until(
        "the listing through the operator's HTTPS port",
        Duration::from_secs(120),
        || async {
            let status = api.get(repository).await?.status.unwrap_or_default();
            let catalog = status.catalog.unwrap_or_default();
            if catalog.scan_request_honored.as_deref() == Some(request.as_str()) {
                let count = status.storage_stats.and_then(|s| s.snapshot_count);
                return Ok(Look::Done(count.and_then(|n| u64::try_from(n).ok())));
            }
            Ok(Look::Not(
                catalog.last_error.unwrap_or_else(|| "no answer yet".into()),
            ))
        },
    )
    .await?
    .context("the listing arrived without a count")
}
