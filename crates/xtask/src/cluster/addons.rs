//! What a cluster needs beside upstream's programs: volumes for claims, and names for Services.
//!
//! Both run in one detached process of this program, in the cluster's network and on the host's
//! files. Each goes on by itself when the other fails, and starts again when it fails itself.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::{Running, dns, provisioner};

/// Arguments of the process.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The administrator's kubeconfig.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The folder of the volumes.
    #[arg(long)]
    volumes: PathBuf,
    /// Where to answer DNS questions.
    #[arg(long)]
    dns: SocketAddr,
}

/// Creates the StorageClasses and starts the process.
pub fn start(running: &mut Running) -> Result<()> {
    running.apply("create the StorageClasses", &provisioner::classes())?;
    let data = running.paths.data.clone();
    let volumes = data.join("volumes");
    fs::create_dir_all(&volumes)?;
    // The kubeconfig outside the checkout, and a copy of this program: `target/` may be removed,
    // and cargo may replace this program, while the cluster is there.
    let program = data.join("xtask");
    fs::copy("/proc/self/exe", &program).context("this program cannot be copied")?;
    let args = vec![
        "cluster".to_owned(),
        "addons".to_owned(),
        format!("--kubeconfig={}", data.join("pki/admin.kubeconfig").display()),
        format!("--volumes={}", volumes.display()),
        format!("--dns={}:53", running.state.address),
    ];
    running.start_in_net("addons", &program, args)
}

/// Serves until the process is ended.
pub fn run(args: &Args) -> Result<()> {
    // Another provider may be installed already; either will do.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = client(&args.kubeconfig).await?;
        tokio::join!(
            again("volumes", || provisioner::serve(client.clone(), &args.volumes)),
            again("names", || dns::serve(client.clone(), args.dns)),
        );
        Ok(())
    })
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn again<F: Future<Output = Result<()>>>(what: &str, serve: impl Fn() -> F) {
    loop {
        if let Err(error) = serve().await {
            eprintln!("{what}: {error:#}; trying again");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
