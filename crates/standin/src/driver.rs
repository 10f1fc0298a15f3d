//! A driver that does what the platform's drivers do, as far as an accountant can see it.
//!
//! Promise: real archives in a real bucket. As with the real ones, a run goes on when its BackupJob is deleted, a
//! Backup is made once and already Ready, some milliseconds before its job turns Succeeded, and deleting it frees
//! nothing. Kinds: `Etcd` records where the archive is, its size and checksum; `MongoDB` records only where.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use futures::TryStreamExt as _;
use holdfast_api::backups::{Backup, BackupClass, BackupJob};
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use object_store::ObjectStoreExt as _;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::bucket::Bucket;

/// Annotation on a BackupJob: how many bytes its archive is to have.
const BYTES: &str = "standin.holdfast/bytes";
/// What an archive has when the job does not say.
const DEFAULT_BYTES: usize = 1 << 20;
/// Group of the strategies that the platform's controllers carry out.
const GROUP: &str = "strategy.backups.cozystack.io";

/// Arguments of `holdfast-standin driver`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    bucket: Bucket,
}

/// Carries out BackupJobs until the process is ended.
pub async fn run(args: &Args) -> Result<()> {
    let client = Client::try_default().await?;
    let store = args.bucket.open()?;
    let driver = Arc::new(Driver {
        client: client.clone(),
        store,
        bucket: args.bucket.name.clone(),
        taken: Mutex::default(),
    });
    println!("carrying out BackupJobs into s3://{}", args.bucket.name);
    watcher(Api::<BackupJob>::all(client), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .try_for_each(|job| {
            let driver = Arc::clone(&driver);
            async move {
                let uid = job.uid().unwrap_or_default();
                let fresh = job.status.as_ref().is_none_or(|status| status.phase.is_none())
                    && driver.taken.lock().is_ok_and(|mut taken| taken.insert(uid));
                if fresh {
                    tokio::spawn(async move {
                        let name = format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any());
                        match driver.carry_out(&job).await {
                            Ok(what) => println!("{name}: {what}"),
                            Err(error) => println!("{name}: {error:#}"),
                        }
                    });
                }
                Ok(())
            }
        })
        .await?;
    Ok(())
}

struct Driver {
    client: Client,
    store: AmazonS3,
    bucket: String,
    /// UIDs of jobs that were begun: a watch may show one twice.
    taken: Mutex<HashSet<String>>,
}

/// What an archive's Backup says of it.
struct Made {
    uri: String,
    artifact: Value,
    metadata: Value,
}

impl Driver {
    async fn carry_out(&self, job: &BackupJob) -> Result<String> {
        let classes: Api<BackupClass> = Api::all(self.client.clone());
        let class = classes
            .get(&job.spec.backup_class_name)
            .await
            .with_context(|| format!("the BackupClass {}", job.spec.backup_class_name))?;
        let Some(strategy) = class.spec.strategy_for(&job.spec.application_ref).cloned() else {
            return Ok("its class has no strategy for this kind of application".to_owned());
        };
        if strategy.api_group.as_deref() != Some(GROUP) {
            return Ok("its strategy is somebody else's".to_owned());
        }
        let namespace = job.namespace().context("a job has a namespace")?;
        let jobs: Api<BackupJob> = Api::namespaced(self.client.clone(), &namespace);
        let began = Timestamp::now();
        self.status(&jobs, job, &json!({ "phase": "Running", "startedAt": began }))
            .await?;
        let bytes = job
            .annotations()
            .get(BYTES)
            .map_or(Ok(DEFAULT_BYTES), |text| text.parse())
            .with_context(|| format!("annotation {BYTES}"))?;
        let folder = format!("{namespace}/{}", job.spec.application_ref.name);
        let made = match strategy.kind.as_str() {
            "Etcd" => self.etcd(&folder, &job.name_any(), bytes).await?,
            "MongoDB" => self.mongodb(&folder, &job.name_any(), bytes).await?,
            other => return Ok(format!("a strategy of kind {other} is not stood in for")),
        };
        if jobs.get_opt(&job.name_any()).await?.and_then(|now| now.uid()) != job.uid() {
            return Ok(format!("{} was written, and nobody is left to tell", made.uri));
        }
        let backup = json!({
            "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "Backup",
            "metadata": { "name": job.name_any(), "namespace": namespace },
            "spec": {
                "applicationRef": job.spec.application_ref,
                "planRef": job.spec.plan_ref,
                "strategyRef": strategy,
                "takenAt": began,
                "driverMetadata": made.metadata,
            },
            "status": { "phase": "Ready", "artifact": made.artifact },
        });
        let backup: Backup = serde_json::from_value(backup)?;
        let backups: Api<Backup> = Api::namespaced(self.client.clone(), &namespace);
        match backups.create(&PostParams::default(), &backup).await {
            Ok(_) => {}
            // The drivers take an existing record for their own.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).context("the Backup cannot be made"),
        }
        let done = json!({
            "phase": "Succeeded", "completedAt": Timestamp::now(),
            "backupRef": { "name": job.name_any() },
        });
        self.status(&jobs, job, &done).await?;
        Ok(format!("{} was written", made.uri))
    }

    async fn status(&self, jobs: &Api<BackupJob>, job: &BackupJob, status: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        match jobs
            .patch_status(&job.name_any(), &PatchParams::default(), &patch)
            .await
        {
            Ok(_) => Ok(()),
            // Deleted meanwhile: the run goes on.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).context("the BackupJob's status cannot be written"),
        }
    }

    async fn etcd(&self, folder: &str, name: &str, bytes: usize) -> Result<Made> {
        let key = format!("{folder}/{name}.db");
        let content = vec![b'e'; bytes];
        let checksum: String = Sha256::digest(&content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.store.put(&Path::from(key.as_str()), content.into()).await?;
        let uri = format!("s3://{}/{key}", self.bucket);
        Ok(Made {
            artifact: json!({ "uri": uri, "sizeBytes": bytes, "checksum": format!("sha256:{checksum}") }),
            metadata: json!({
                "etcd.aenix.io/backup-name": name,
                "etcd.aenix.io/bucket": self.bucket,
                "etcd.aenix.io/key": format!("{folder}/"),
            }),
            uri,
        })
    }

    /// Two files under one prefix, as a dump is: its metadata and its data.
    async fn mongodb(&self, folder: &str, name: &str, bytes: usize) -> Result<Made> {
        let key = format!("{folder}/{name}");
        let half = bytes / 2;
        for (file, size) in [("metadata.json", half), ("data.gz", bytes - half)] {
            let path = Path::from(format!("{key}/{file}"));
            self.store.put(&path, vec![b'm'; size].into()).await?;
        }
        let uri = format!("s3://{}/{key}", self.bucket);
        Ok(Made {
            artifact: json!({ "uri": uri }),
            metadata: json!({
                "psmdb.percona.com/backup-name": name,
                "psmdb.percona.com/destination": uri,
            }),
            uri,
        })
    }
}
