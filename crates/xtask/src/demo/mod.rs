//! `cargo xtask demo`: the incident, for real, not happening.
//!
//! Promise: every sentence that is printed was checked just before; at the first step that does not hold the
//! command ends with an error that says which and what was seen instead. Figures are measured beside the operator
//! (a watch of our own, the files on the repository's volume).
//! Assumes that nobody else works in the demo's namespace meanwhile.

mod prepare;
mod release;
mod restore;
mod stage;
mod tenant;
mod waves;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use holdfast_api::repository::Engine;
use holdfast_e2e::scenario::{remove_namespace, suffix};
use holdfast_e2e::{Lab, lab, objects};

use self::stage::Stage;
use crate::cluster::{self, Options};
use crate::deploy;
use crate::image;
use crate::paths::{self, DEFAULT_CLUSTER};
use crate::progress::{say, seconds};

/// The demo's namespace.
const NAMESPACE: &str = "holdfast-demo";

/// Arguments of `cargo xtask demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Name of the local cluster; it is brought up if it does not run.
    #[arg(long, default_value = DEFAULT_CLUSTER, conflicts_with = "kubeconfig")]
    name: String,
    /// Another cluster than a local one.
    #[arg(long, requires = "image_prefix")]
    kubeconfig: Option<PathBuf>,
    /// Registry and path of the images for another cluster, as in registry.example/team.
    #[arg(long, requires = "kubeconfig")]
    image_prefix: Option<String>,
    /// Keeps what an earlier run left, and plays in a new namespace beside it.
    #[arg(long)]
    keep: bool,
    /// The engine of the first act's repository. Kopia needs KOPIA_BIN, which names its program.
    #[arg(long, value_enum, default_value_t = EngineName::Restic)]
    engine: EngineName,
    /// Objects of each of the first act's two sets; each has a real snapshot.
    #[arg(long, default_value_t = prepare::SET as u64, value_parser = clap::value_parser!(u64).range(50..=2000))]
    objects: u64,
    /// Only the first act (deletions) or the second (storage).
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
    act: Option<u8>,
}

/// An engine of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum EngineName {
    /// In the mover itself.
    Restic,
    /// The official program.
    Kopia,
}

impl EngineName {
    fn of_repository(self) -> Engine {
        match self {
            Self::Restic => Engine::Restic,
            Self::Kopia => Engine::Kopia,
        }
    }
}

/// Whether a kopia program is at hand for the mover's image.
pub fn has_kopia() -> bool {
    std::env::var_os("KOPIA_BIN").is_some_and(|program| !program.is_empty())
}

impl Args {
    /// On a local cluster.
    pub fn here(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kubeconfig: None,
            image_prefix: None,
            keep: false,
            engine: EngineName::Restic,
            objects: prepare::SET as u64,
            act: None,
        }
    }

    /// The first act with this engine and as many objects in a set; the second asks none.
    pub fn first_act_on(self, engine: EngineName, objects: u64) -> Self {
        Self {
            engine,
            objects,
            act: Some(1),
            ..self
        }
    }

    /// On another cluster.
    pub fn elsewhere(kubeconfig: PathBuf, image_prefix: String) -> Self {
        Self {
            kubeconfig: Some(kubeconfig),
            image_prefix: Some(image_prefix),
            ..Self::here(DEFAULT_CLUSTER)
        }
    }
}

/// Where the story plays.
struct Place {
    kubeconfig: PathBuf,
    tools_image: String,
    standin_image: String,
    /// The folder of our kubectl; none for another cluster, where the one on `PATH` is used.
    kubectl: Option<PathBuf>,
}

/// Runs `cargo xtask demo`.
pub fn run(args: &Args) -> Result<()> {
    let started = Instant::now();
    let workspace = paths::workspace()?;
    if args.engine == EngineName::Kopia && !has_kopia() {
        bail!("--engine Kopia needs the program: set KOPIA_BIN to a kopia executable");
    }
    objects::choose(args.engine.of_repository());
    let place = set_up(&workspace, args)?;
    let namespace = if args.keep {
        format!("{NAMESPACE}-{}", suffix())
    } else {
        NAMESPACE.to_owned()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(play(&place, &namespace, args))?;
    where_to_go_on(args, &place, &namespace);
    say(format!(
        "demo: every step held ({} in all)",
        seconds(started.elapsed())
    ));
    Ok(())
}

/// Brings up the cluster and installs Holdfast in it.
fn set_up(workspace: &Path, args: &Args) -> Result<Place> {
    let Some(kubeconfig) = &args.kubeconfig else {
        let running = cluster::up(&Options {
            workspace: workspace.to_path_buf(),
            name: args.name.clone(),
            minor: None,
            control_plane_only: false,
        })?;
        let images = deploy::build_images(workspace, "localhost")?;
        let standin = deploy::build_standin(workspace, "localhost")?;
        deploy::load(&running, &images)?;
        image::load(&running.paths, &standin)?;
        deploy::install(workspace, &running.kubeconfig(), &images, &settings())?;
        return Ok(Place {
            kubeconfig: running.kubeconfig(),
            tools_image: lab::TOOLS_IMAGE.to_owned(),
            standin_image: standin.reference,
            kubectl: Some(running.paths.out.clone()),
        });
    };
    let prefix = args
        .image_prefix
        .as_deref()
        .context("--kubeconfig needs --image-prefix")?;
    let images = deploy::build_images(workspace, prefix)?;
    let tools = image::tools(&workspace.join("target/images"), prefix)?;
    say("these images have to be where that cluster finds them:");
    let standin = deploy::build_standin(workspace, prefix)?;
    for image in [&images.operator, &images.mover, &tools, &standin] {
        say(format!("  {} from {}", image.reference, image.archive.display()));
    }
    deploy::install(workspace, kubeconfig, &images, &settings())?;
    Ok(Place {
        kubeconfig: kubeconfig.clone(),
        tools_image: tools.reference,
        standin_image: standin.reference,
        kubectl: None,
    })
}

/// What the demo tells the chart: the second act needs the gate.
fn settings() -> [String; 1] {
    ["quota.enforcement=true".to_owned()]
}

/// The story, from an empty namespace to the table.
async fn play(place: &Place, namespace: &str, args: &Args) -> Result<()> {
    let shown = stage::Shown::default();
    let heard = shown.clone();
    let lab = Lab::open(&place.kubeconfig, &place.tools_image)
        .await?
        .heard_by(Arc::new(move |text: &str| heard.note(text)));
    if args.act != Some(2) {
        let objects = usize::try_from(args.objects)?;
        first_act(place, namespace, lab.clone(), shown.clone(), objects).await?;
    }
    if args.act != Some(1) {
        tenant::play(&lab, &shown, &place.standin_image, place.kubectl.as_deref()).await?;
    }
    Ok(())
}

/// Steps a to f.
async fn first_act(
    place: &Place,
    namespace: &str,
    lab: Lab,
    shown: stage::Shown,
    objects: usize,
) -> Result<()> {
    shown
        .during(
            "cleaning up what an earlier run left",
            remove_namespace(&lab, namespace),
        )
        .await?;
    let mut stage = Stage::new(lab, namespace, shown, place.kubectl.clone(), objects).await?;
    prepare::twenty_four(&mut stage).await?;
    let first = prepare::one_schedule(&mut stage, "nightly", "Retain").await?;
    waves::flap_kept(&mut stage, &first).await?;
    say("\nc. A second set, as the first.");
    let second = prepare::one_schedule(&mut stage, "hourly", "Delete").await?;
    let wave = waves::flap_held(&mut stage, &second).await?;
    release::acknowledge(&mut stage, &second, &wave).await?;
    release::one_by_hand(&mut stage).await?;
    restore::one_that_was_kept(&mut stage, &first).await?;
    stage.close().await
}

fn where_to_go_on(args: &Args, place: &Place, namespace: &str) {
    let kubectl = place.kubectl.as_ref().map_or_else(
        || "kubectl".to_owned(),
        |folder| folder.join("kubectl").display().to_string(),
    );
    say(format!(
        "
Where to go on:
  export KUBECONFIG={}
  {kubectl} -n {namespace} get repositories,snapshotpolicies,snapshots
  {kubectl} -n {namespace} describe repository vault
  {kubectl} -n {namespace} get events --field-selector reason=SnapshotDeletionHeld
  {kubectl} -n {} logs deployment/holdfast-operator",
        place.kubeconfig.display(),
        deploy::NAMESPACE,
    ));
    if args.kubeconfig.is_none() {
        let named = if args.name == DEFAULT_CLUSTER {
            String::new()
        } else {
            format!(" --name {}", args.name)
        };
        say(format!("  cargo xtask cluster down{named}"));
    } else {
        say(format!("  {kubectl} delete namespace {namespace}"));
    }
}
