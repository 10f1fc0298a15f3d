//! How many snapshots a repository holds.
//!
//! **Promises.** Two ways that share nothing: [`files`] counts the records on the repository's volume without any
//! code of Holdfast, [`scan`] asks the operator for a listing through a mover and its HTTPS port.

use crate::lab::Lab;
use crate::wait::{Look, until};
use crate::{objects, pods};
use anyhow::{Context, Result};
use holdfast_api::repository::Engine;
use holdfast_api::{Repository, names};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// Counts the snapshots on the repository's volume: the records in its directory `snapshots`, or what the kopia
/// program lists.
///
/// # Errors
/// When the Job that looks cannot run.
pub async fn files(lab: &Lab, namespace: &str, claim: &str) -> Result<u64> {
    let name = format!("count-{}", crate::scenario::suffix());
    match objects::engine() {
        Engine::Kopia => return listed_by_kopia(lab, namespace, claim, &name).await,
        Engine::Restic | Engine::Unknown => {}
    }
    let script = format!("ls /volumes/{claim}/snapshots | wc -l > /dev/termination-log");
    let job = objects::shell_job(namespace, &name, &lab.tools_image, &[claim.to_owned()], &script);
    let ended = pods::run(lab, job, Duration::from_secs(120)).await?;
    let text = ended.message.trim();
    text.parse()
        .with_context(|| format!("the counting Job said {text:?}"))
}

/// The mover's image has the program and no shell: one container connects, the next lists.
async fn listed_by_kopia(lab: &Lab, namespace: &str, claim: &str, name: &str) -> Result<u64> {
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
    connect["command"] = json!([
        "/usr/bin/kopia",
        "repository",
        "connect",
        "filesystem",
        "--readonly",
        path
    ]);
    container["command"] = json!([
        "/usr/bin/kopia",
        "snapshot",
        "list",
        "--all",
        "--json",
        "--no-retention"
    ]);
    pod["initContainers"] = json!([connect]);
    pod["containers"] = json!([container]);
    let ended = pods::run(lab, job, Duration::from_secs(120)).await?;
    let from = ended.log.find('[').context("the counting Job listed nothing")?;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&ended.log[from..])
        .with_context(|| format!("the counting Job said {:?}", ended.log))?;
    Ok(rows.len() as u64)
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
