//! The second act, steps g to k: a tenant fills its space, and no deletion of objects empties it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use holdfast_api::ledger::{ArtifactState, BackupStore};
use holdfast_api::names;
use holdfast_e2e::platform::{self, Asked, SIZED, Tenant, UNSIZED};
use holdfast_e2e::scenario::{remove_namespace, suffix};
use holdfast_e2e::standin::{BUCKET, CREDENTIALS, Standins};
use holdfast_e2e::{Lab, Look, until};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::stage::Shown;
use crate::progress::{say, seconds};

const MIB: u64 = 1 << 20;
/// Figures are published within a second or two; a busy machine gets more.
const SOON: Duration = Duration::from_secs(90);
/// The application whose driver reports sizes, and the one whose driver does not.
const DATABASE: &str = "control";
const EVENTS: &str = "events";

/// Plays it and cleans up after itself.
pub async fn play(lab: &Lab, shown: &Shown, image: &str, kubectl: Option<&Path>) -> Result<()> {
    let started = Instant::now();
    let unique = suffix();
    say("\nSecond act: a tenant may store 3Mi of backups.");
    let standins = shown
        .during("starting an S3 server and a backup driver", async {
            platform::install(&lab.client).await?;
            platform::class(lab).await?;
            Standins::start(lab, &format!("standins-{unique}"), image).await
        })
        .await?;
    let hard = json!({ names::QUOTA_SIZE: "3Mi", names::QUOTA_COUNT: "20" });
    let tenant = shown
        .during("making the tenant", Tenant::new(lab, "tenant-demo", hard))
        .await?;
    fill(shown, &tenant).await?;
    delete_all(shown, &tenant).await?;
    let store = Store::new(lab, &standins, &tenant).await?;
    measure(shown, &tenant, &store).await?;
    prune(shown, &tenant, &store, &standins).await?;
    write_off(shown, &tenant, kubectl).await?;
    store.end().await?;
    let namespace = tenant.namespace.clone();
    shown
        .during("cleaning up", async {
            remove_namespace(lab, &namespace).await?;
            standins.end(lab).await
        })
        .await?;
    say(format!("   The second act took {}.", seconds(started.elapsed())));
    Ok(())
}

/// Step g: backups until the limit is reached.
async fn fill(shown: &Shown, tenant: &Tenant) -> Result<()> {
    say("\ng. Two backups whose driver reports no size, three of 1Mi whose driver does:");
    shown
        .during("backing up", async {
            admitted(tenant, "events-1", UNSIZED, EVENTS, MIB / 2).await?;
            tenant.back_up("events-2", UNSIZED, EVENTS, MIB / 2).await?;
            for n in 1..=3 {
                tenant
                    .back_up(&format!("control-{n}"), SIZED, DATABASE, MIB)
                    .await?;
            }
            tenant.until_used("3Mi", "5", SOON).await
        })
        .await?;
    let message = refused(tenant, "control-4").await?;
    say(format!(
        "   5 artifacts, 3Mi of 3Mi used (the two unsized ones count nothing yet). The next BackupJob is refused:\n   {message}"
    ));
    Ok(())
}

/// Step h: every Backup goes, and nothing is freed.
async fn delete_all(shown: &Shown, tenant: &Tenant) -> Result<()> {
    let deleted = tenant.delete_backups().await?;
    ensure!(deleted == 5, "{deleted} Backups were recorded, not 5");
    shown
        .during("waiting until their records are retained", async {
            until("five retained records", SOON, || async {
                let states = states(tenant).await?;
                Ok(if states == [ArtifactState::Retained; 5] {
                    Look::Done(())
                } else {
                    Look::Not(format!("{states:?}"))
                })
            })
            .await?;
            tenant.until_used("3Mi", "5", SOON).await
        })
        .await?;
    refused(tenant, "control-5").await?;
    say(
        "\nh. `kubectl delete backups --all`: 5 Backups are gone, the bytes are not. Still 3Mi of 3Mi used, and the next BackupJob is still refused.",
    );
    Ok(())
}

/// Step i: a listing of the bucket measures what the driver did not report.
async fn measure(shown: &Shown, tenant: &Tenant, store: &Store) -> Result<()> {
    shown
        .during("waiting for the first listing of the bucket", async {
            store.listed().await?;
            tenant.until_used("4Mi", "5", SOON).await
        })
        .await?;
    say("\ni. The bucket is listed: the two unsized archives are measured, 4Mi used.");
    Ok(())
}

/// Step j: an archive is removed behind everybody's back.
async fn prune(shown: &Shown, tenant: &Tenant, store: &Store, standins: &Standins) -> Result<()> {
    let path = format!("{}/{DATABASE}/control-1.db", tenant.namespace);
    shown
        .during("removing an archive, and listing the bucket twice", async {
            standins.prune(&tenant.lab, &path).await?;
            store.list_again().await?;
            tenant.until_used("4Mi", "5", SOON).await?;
            store.list_again().await?;
            tenant.until_used("3Mi", "4", SOON).await
        })
        .await?;
    say(
        "\nj. One archive was removed from the bucket behind everybody's back. One listing that misses it changes nothing, the second releases it: 3Mi used.",
    );
    Ok(())
}

/// Step k: an administrator writes a record off.
async fn write_off(shown: &Shown, tenant: &Tenant, kubectl: Option<&Path>) -> Result<()> {
    let records = tenant.records().await?;
    let record = records
        .iter()
        .find(|record| {
            record
                .spec
                .key
                .as_deref()
                .is_some_and(|key| key.ends_with("control-2.db"))
        })
        .context("there is no record of control-2")?
        .name_any();
    let command = format!("kubectl holdfast quota write-off {record} --yes");
    let output = shown
        .during("writing a record off", holdfast(tenant, &record, kubectl))
        .await?;
    shown
        .during("waiting for the figures", tenant.until_used("2Mi", "3", SOON))
        .await?;
    shown
        .during(
            "backing up again",
            admitted(tenant, "control-6", SIZED, DATABASE, MIB),
        )
        .await?;
    say(format!(
        "\nk. An administrator writes a record off:\n   $ {command}\n   {}\n   2Mi used: there is room, and the next BackupJob is admitted.",
        output.trim().replace('\n', "\n   ")
    ));
    Ok(())
}

async fn holdfast(tenant: &Tenant, record: &str, kubectl: Option<&Path>) -> Result<String> {
    let mut command = crate::checks::cargo();
    command
        .args(["run", "--quiet", "--package=kubectl-holdfast", "--"])
        .args(["quota", "write-off", record, "--yes"])
        .env("KUBECONFIG", &tenant.lab.kubeconfig);
    if let Some(folder) = kubectl {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", folder.display()));
    }
    tokio::task::spawn_blocking(move || output(&mut command)).await?
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("cargo could not be started")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "kubectl holdfast quota write-off ended with {}: {said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

async fn states(tenant: &Tenant) -> Result<Vec<ArtifactState>> {
    let records = tenant.records().await?;
    Ok(records
        .iter()
        .filter_map(|record| Some(record.status.as_ref()?.state))
        .collect())
}

/// A backup that is admitted as soon as the gate lets it in; after a change of leaders it waits a minute.
async fn admitted(tenant: &Tenant, name: &str, kind: &str, application: &str, bytes: u64) -> Result<()> {
    until(
        &format!("{name} to be admitted"),
        Duration::from_secs(120),
        || async {
            Ok(match tenant.ask(name, kind, application, bytes).await {
                Ok(Asked::Admitted(_)) => Look::Done(()),
                Ok(Asked::Refused(why)) => Look::Not(why),
                Err(error) => Look::Not(format!("{error:#}")),
            })
        },
    )
    .await?;
    tenant.succeeded(name).await
}

async fn refused(tenant: &Tenant, name: &str) -> Result<String> {
    match tenant.ask(name, SIZED, DATABASE, MIB).await? {
        Asked::Refused(message) if message.contains("exceeded quota") => Ok(message),
        Asked::Refused(message) => bail!("{name} was refused for another reason: {message}"),
        Asked::Admitted(_) => bail!("{name} was admitted over the limit"),
    }
}

/// The description of the bucket.
struct Store {
    stores: Api<BackupStore>,
    name: String,
}

impl Store {
    async fn new(lab: &Lab, standins: &Standins, tenant: &Tenant) -> Result<Self> {
        let name = tenant.namespace.clone();
        lab.create(json!({
            "apiVersion": format!("{}/{}", names::LEDGER_GROUP, names::BACKUPS_VERSION),
            "kind": "BackupStore", "metadata": { "name": name },
            "spec": {
                "bucket": BUCKET, "endpoint": standins.endpoint,
                "credentials": { "name": CREDENTIALS, "namespace": standins.namespace },
                "layout": { "path": "{namespace}/{application}/{artifact...}" },
            },
        }))
        .await?;
        Ok(Self {
            stores: Api::all(lab.client.clone()),
            name,
        })
    }

    async fn last(&self) -> Result<Option<jiff::Timestamp>> {
        let status = self.stores.get(&self.name).await?.status.unwrap_or_default();
        Ok(status.last_complete_listing.map(|listing| listing.started_at))
    }

    async fn listed(&self) -> Result<()> {
        self.listed_after(None).await
    }

    async fn listed_after(&self, before: Option<jiff::Timestamp>) -> Result<()> {
        until("a complete listing", Duration::from_secs(120), || async {
            let last = self.last().await?;
            Ok(if last > before {
                Look::Done(())
            } else {
                let status = self.stores.get(&self.name).await?.status;
                Look::Not(format!("{status:?}"))
            })
        })
        .await
    }

    async fn list_again(&self) -> Result<()> {
        let before = self.last().await?;
        let asked = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { names::LIST_REQUESTED_AT: asked } } });
        self.stores
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.listed_after(before).await
    }

    async fn end(self) -> Result<()> {
        self.stores.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}
