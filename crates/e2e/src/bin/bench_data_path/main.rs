//! Measures the data path on a real cluster that runs on this machine: many small files and one large one are backed up
//! and restored by movers whose containers may hold so much memory and no more, and by the same engine's program by hand.
//!
//! Run by `cargo xtask bench data-path`, which deploys optimised movers and knows the limits; says on standard error what
//! it does and prints one line of JSON. What came back is compared byte by byte. The namespace is removed at the end.

mod files;
mod memory;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use holdfast_api::names;
use holdfast_api::repository::Engine;
use holdfast_e2e::restores::{claim, completed, folder, restore};
use holdfast_e2e::scenario::{REPOSITORY, SECRET, Scenario, VAULT_CLAIM, remove_namespace, suffix};
use holdfast_e2e::{Lab, objects};
use k8s_openapi::api::core::v1::{ContainerState, PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use memory::{Peak, Watch};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is measured, and with what.
#[derive(Debug, Parser)]
struct Args {
    /// Kubeconfig of an administrator.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Engine of the repository: Restic, or Kopia with the program that `KOPIA_BIN` names.
    #[arg(long, default_value = "Restic")]
    engine: String,
    /// Small files.
    #[arg(long, default_value_t = 100_000)]
    files: usize,
    /// Bytes of the large one.
    #[arg(long, default_value_t = 5 << 30)]
    bytes: u64,
    /// What a mover's container may hold, in MiB.
    #[arg(long, default_value_t = 512)]
    mebibytes: u32,
    /// Where the program by hand keeps its repository and what it restores.
    #[arg(long)]
    folder: PathBuf,
}

/// The longest that one run may take.
const PATIENCE: Duration = Duration::from_secs(1_800);

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let engine = match args.engine.as_str() {
        "Restic" => Engine::Restic,
        "Kopia" => Engine::Kopia,
        other => bail!("there is no engine {other}: Restic or Kopia"),
    };
    objects::choose(engine);
    let lab = Lab::open(&args.kubeconfig, holdfast_e2e::lab::TOOLS_IMAGE).await?;
    let namespace = format!("data-path-{}", suffix());
    let scenario = Scenario {
        lab: lab.clone(),
        namespace,
    };
    let measured = measure(&scenario, &args).await;
    let removed = remove_namespace(&lab, &scenario.namespace).await;
    println!("{}", measured?);
    removed
}

async fn measure(scenario: &Scenario, args: &Args) -> Result<Value> {
    let (lab, ns) = (&scenario.lab, scenario.namespace.as_str());
    lab.create(objects::namespace(ns, "bench")).await?;
    lab.create(objects::claim(ns, VAULT_CLAIM)).await?;
    lab.create(objects::secret(ns, SECRET, objects::PASSWORD)).await?;
    let mut repository = objects::repository(ns, REPOSITORY, VAULT_CLAIM, SECRET, None);
    let memory = format!("{}Mi", args.mebibytes);
    repository["spec"]["moverDefaults"] = json!({ "resources": { "limits": { "memory": memory } } });
    lab.create(repository).await?;
    scenario.repository_ready().await?;
    let mut runs = Vec::new();
    for (name, what) in [
        ("small", format!("{} small files", args.files)),
        ("large", format!("one file of {} MiB", args.bytes >> 20)),
    ] {
        lab.create(objects::claim(ns, name)).await?;
        let source = place(lab, ns, name).await?;
        eprintln!("writing {what}");
        match name {
            "small" => files::many(&source, args.files)?,
            _ => files::one(&source.join("file"), args.bytes)?,
        }
        lab.create(objects::policy(ns, name, REPOSITORY, name, None))
            .await?;
        eprintln!("backing up {what}");
        lab.create(objects::snapshot(ns, name, name)).await?;
        let watch = watched(lab, ns, names::OP_BACKUP, name).await?;
        scenario.succeeded_within(name, PATIENCE).await?;
        let backed_up = ended(watch, lab, ns, names::OP_BACKUP, name).await?;
        eprintln!("restoring {what}");
        let back = format!("{name}-back");
        let target = json!({ "pvc": { "name": back, "capacity": "10Gi" } });
        let from = json!({ "snapshotRef": { "name": name } });
        lab.create(restore(ns, name, from, target)).await?;
        let watch = watched(lab, ns, names::OP_RESTORE, name).await?;
        restored(lab, ns, name).await?;
        let brought_back = ended(watch, lab, ns, names::OP_RESTORE, name).await?;
        files::same(&source, &place(lab, ns, &back).await?)?;
        let claims: Api<PersistentVolumeClaim> = lab.api(ns);
        claims.delete(&back, &DeleteParams::default()).await?;
        eprintln!("the same by hand");
        let (hand_up, hand_back) = by_hand(&objects::engine(), &args.folder, &source)?;
        for (act, mover, hand) in [
            ("back up", backed_up, hand_up),
            ("restore", brought_back, hand_back),
        ] {
            runs.push(json!({ "what": format!("{act} {what}"), "mover": mover.json(), "hand": hand.json() }));
        }
    }
    Ok(json!({ "engine": args.engine, "limitMebibytes": args.mebibytes, "runs": runs }))
}

/// Waits for a restore of any length.
async fn restored(lab: &Lab, ns: &str, name: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        match completed(lab, ns, name).await {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() < PATIENCE && error.to_string().contains("waited") => {}
            Err(error) => return Err(error),
        }
    }
}

/// Where a claim's files are on this machine.
async fn place(lab: &Lab, ns: &str, name: &str) -> Result<PathBuf> {
    claim(lab, ns, name).await?;
    let found = folder(lab, ns, name).await?;
    found.context("the cluster's volumes are not on this machine; use one of `cargo xtask cluster up`")
}

/// The newest container of the mover that does `op` for the object `name`: its name, the runtime's id, its state.
async fn container(lab: &Lab, ns: &str, op: &str, name: &str) -> Result<Option<(String, ContainerState)>> {
    let pods: Api<Pod> = lab.api(ns);
    let movers = ListParams::default().labels(&format!("{}={op}", names::OP_LABEL));
    let mut found: Vec<Pod> = pods.list(&movers).await?.items;
    found.retain(|pod| {
        let labels = pod.metadata.labels.as_ref();
        let job = labels.and_then(|labels| labels.get("batch.kubernetes.io/job-name"));
        job.is_some_and(|job| job == name || job == &format!("{name}-restore"))
    });
    found.sort_by(|a, b| b.metadata.creation_timestamp.cmp(&a.metadata.creation_timestamp));
    let of_pod = |pod: Pod| pod.status?.container_statuses?.into_iter().next();
    Ok(found.into_iter().find_map(of_pod).and_then(|status| {
        let id = status.container_id?.rsplit('/').next()?.to_owned();
        Some((id, status.state?))
    }))
}

/// Looks on at the mover from its start.
async fn watched(lab: &Lab, ns: &str, op: &str, name: &str) -> Result<Watch> {
    let begun = Instant::now();
    loop {
        if let Some((id, _)) = container(lab, ns, op, name).await? {
            return Ok(Watch::container(id));
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(120),
            "no container of {op} for {name}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What it held, and how long its container ran by the kubelet's clock, in whole seconds.
async fn ended(watch: Watch, lab: &Lab, ns: &str, op: &str, name: &str) -> Result<Peak> {
    let mebibytes = watch
        .end()
        .with_context(|| format!("the mover of {op} for {name} was not seen at work"))?;
    let (_, state) = container(lab, ns, op, name).await?.context("its pod is gone")?;
    let ended = state.terminated.context("its container runs")?;
    let (from, to) = (
        ended.started_at.context("a start")?,
        ended.finished_at.context("an end")?,
    );
    Ok(Peak {
        seconds: to.0.duration_since(from.0).as_secs_f64(),
        mebibytes,
    })
}

/// The engine's own program, with its own defaults.
fn by_hand(engine: &Engine, folder: &Path, source: &Path) -> Result<(Peak, Peak)> {
    let place = std::path::absolute(folder.join(format!("by-hand-{}", suffix())))?;
    std::fs::create_dir_all(&place)?;
    let (repository, target) = (place.join("repository"), place.join("target"));
    let measured = match engine {
        Engine::Restic => {
            let restic = |words: &[&str]| {
                let mut command = Command::new("restic");
                command
                    .arg("--no-cache")
                    .arg("--quiet")
                    .arg("--repo")
                    .arg(&repository);
                command.args(words).env("RESTIC_PASSWORD", objects::PASSWORD);
                command
            };
            run(restic(&["init"]))?;
            let mut up = restic(&["backup", "."]);
            up.current_dir(source);
            let up = run(up)?;
            let mut back = restic(&["restore", "latest", "--target"]);
            back.arg(&target);
            (up, run(back)?)
        }
        Engine::Kopia => {
            let program = std::env::var_os("KOPIA_BIN").context("KOPIA_BIN names no kopia program")?;
            let kopia = |words: &[&str]| {
                let mut command = Command::new(&program);
                command
                    .args(["--no-progress", "--no-auto-maintenance"])
                    .args(words)
                    .env("KOPIA_PASSWORD", objects::PASSWORD)
                    .env("KOPIA_CONFIG_PATH", place.join("kopia.config"))
                    .env("KOPIA_CACHE_DIRECTORY", place.join("cache"))
                    .env("KOPIA_LOG_DIR", place.join("logs"))
                    .env("KOPIA_CHECK_FOR_UPDATES", "false");
                command
            };
            let mut create = kopia(&["repository", "create", "filesystem", "--path"]);
            create.arg(&repository);
            run(create)?;
            let mut up = kopia(&["snapshot", "create"]);
            up.arg(source);
            let up = run(up)?;
            let mut back = kopia(&["restore"]);
            back.arg(source).arg(&target);
            (up, run(back)?)
        }
        Engine::Unknown => bail!("no such engine"),
    };
    files::same(source, &target)?;
    std::fs::remove_dir_all(&place)?;
    Ok(measured)
}

/// Runs a program to its end.
fn run(mut command: Command) -> Result<Peak> {
    let shown = command.get_program().display().to_string();
    let begun = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = child
        .spawn()
        .with_context(|| format!("{shown} could not be started"))?;
    let watch = Watch::process(child.id());
    let ended = child.wait_with_output()?;
    let peak = watch.end();
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "{shown}: {} {said}", ended.status);
    Ok(Peak {
        seconds: begun.elapsed().as_secs_f64(),
        // One that ended before it was looked at held little.
        mebibytes: peak.unwrap_or(0.0),
    })
}
