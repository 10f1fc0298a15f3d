//! Measures Account on a real API server: many Backups, a real operator in a process of its own.
//!
//! Run by `cargo xtask bench account`, which brings the control plane up and knows the limits; says on standard error
//! what it does and prints one line of JSON. The cluster is used up afterwards.

mod cluster;
mod figures;
mod load;
mod operator;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use cluster::Cluster;
use figures::Figures;
use operator::Operator;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What is measured, and with what.
#[derive(Debug, Parser)]
struct Args {
    /// Kubeconfig of an administrator.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Where the operator's words go.
    #[arg(long)]
    log: PathBuf,
    /// Backups.
    #[arg(long)]
    backups: usize,
    /// Namespaces that they are spread over.
    #[arg(long)]
    namespaces: usize,
}

/// Questions to the gate.
const QUESTIONS: usize = 20_000;
/// How long ordinary objects are created beside a busy ledger.
const BUSY: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another TLS provider was installed before ours"))?;
    let cluster = Cluster::open(&args.kubeconfig, args.namespaces, args.backups).await?;
    println!("{}", measure(&args, &cluster).await?);
    Ok(())
}

async fn measure(args: &Args, cluster: &Cluster) -> Result<Value> {
    cluster.install().await?;
    let filling = Instant::now();
    cluster.fill().await?;
    let counted = cluster.count_backups().await?;
    ensure!(
        counted == args.backups,
        "a LIST shows {counted} Backups instead of {}",
        args.backups
    );
    eprintln!(
        "{counted} Backups created and listed in {:.0} s",
        filling.elapsed().as_secs_f64()
    );
    let figures = Figures::watch(&cluster.client);

    eprintln!("starting the operator, no record is written yet");
    let operator = Operator::start(args)?;
    let first_start = figures.until_right(cluster, "the first figures").await?;
    let records = cluster.count_records().await?;
    ensure!(
        records == args.backups,
        "{records} records of {} Backups",
        args.backups
    );
    settle().await;
    let first_memory = operator.memory()?;
    operator.stop().await?;

    cluster.wipe_figures().await?;
    figures.until_wiped(cluster).await?;
    eprintln!("starting the operator again, every record is there");
    let operator = Operator::start(args)?;
    let start = figures.until_right(cluster, "the figures").await?;
    settle().await;
    let memory = operator.memory()?;

    let spread = load::change_one_in_each(cluster, &figures).await?;
    let burst = load::change_many_in_one(cluster, &figures).await?;
    operator.is_alive()?;
    let admission = load::ask(cluster, &operator, QUESTIONS).await?;
    let conflicts = load::create_beside_busy_ledger(cluster, &figures, BUSY).await?;
    let last_memory = operator.memory()?;
    operator.stop().await?;
    Ok(json!({
        "backups": args.backups,
        "namespaces": args.namespaces,
        "firstStartSeconds": first_start.as_secs_f64(),
        "startSeconds": start.as_secs_f64(),
        "firstMemory": first_memory,
        "memory": memory,
        "lastMemory": last_memory,
        "writesPerChange": { "spread": spread, "burst": burst },
        "admission": admission,
        "conflicts": conflicts,
    }))
}

/// What was allocated for the start is given back a moment later.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(5)).await;
}

/// A figure of a text in the format of Prometheus, summed over the lines that have all of `labels`.
fn sum(text: &str, name: &str, labels: &[&str]) -> Result<f64> {
    let mut total = 0.0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        if !rest.starts_with(['{', ' ']) || !labels.iter().all(|label| rest.contains(label)) {
            continue;
        }
        let value = rest.rsplit_once('}').map_or(rest, |(_, value)| value);
        let number = value.split_ascii_whitespace().next().unwrap_or_default();
        total += number
            .parse::<f64>()
            .with_context(|| format!("{line:?} has no number"))?;
    }
    Ok(total)
}
