//! What stands in for the systems around Holdfast in tests and in the demo: an S3 server, and a driver that backs up
//! the way the platform's drivers do. Neither is part of Holdfast.

mod bucket;
mod driver;
mod remove;

use clap::{Parser, Subcommand};
use holdfast_standin::s3;

#[derive(Debug, Parser)]
#[command(
    name = "holdfast-standin",
    about = "An S3 server and a backup driver, for tests and the demo"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves a folder as an S3 server; each folder in it is a bucket.
    S3(s3::Args),
    /// Carries out BackupJobs of the kinds Etcd (reports sizes) and MongoDB (reports none).
    Driver(driver::Args),
    /// Removes everything below a path in a bucket, and tells nobody.
    Remove(remove::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another TLS provider was installed first"))?;
    match Cli::parse().command {
        Command::S3(args) => s3::run(&args).await,
        Command::Driver(args) => driver::run(&args).await,
        Command::Remove(args) => remove::run(&args).await,
    }
}
