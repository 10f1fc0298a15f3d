//! An S3 server over a folder.
//!
//! Assumes functional tests: each page of a listing walks the whole folder, so it is slow above some thousand keys,
//! and it knows no versions.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

/// Arguments of `holdfast-standin s3`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen.
    #[arg(long, default_value = "0.0.0.0:9000")]
    listen: SocketAddr,
    /// The folder with the buckets.
    #[arg(long)]
    folder: PathBuf,
    /// A bucket that is made if it is not there; may be repeated.
    #[arg(long = "bucket")]
    buckets: Vec<String>,
    /// Who may sign in.
    #[arg(long, env = "AWS_ACCESS_KEY_ID")]
    access_key_id: String,
    /// The secret, from the environment alone: arguments can be read by everyone on the machine.
    #[arg(skip = std::env::var("AWS_SECRET_ACCESS_KEY").unwrap_or_default())]
    secret_access_key: String,
}

/// Serves until the process is ended.
pub async fn run(args: &Args) -> Result<()> {
    if args.secret_access_key.is_empty() {
        return Err(anyhow!(
            "AWS_SECRET_ACCESS_KEY is not set: an open server would test nothing"
        ));
    }
    for bucket in &args.buckets {
        let folder = args.folder.join(bucket);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("the bucket {} cannot be made", folder.display()))?;
    }
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("{} cannot be listened on", args.listen))?;
    println!("serving {} on {}", args.folder.display(), args.listen);
    serve(
        listener,
        &args.folder,
        &args.access_key_id,
        &args.secret_access_key,
    )
    .await
}

/// Serves the folders in `folder` as buckets, to whoever signs in with these keys. Ends with an error only.
pub async fn serve(listener: TcpListener, folder: &Path, access_key_id: &str, secret: &str) -> Result<()> {
    let files = FileSystem::new(folder)
        .map_err(|error| anyhow!("{} cannot be served: {error:?}", folder.display()))?;
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(
        access_key_id.to_owned(),
        secret.to_owned(),
    ));
    let service = builder.build();
    loop {
        let (socket, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            // A client that hangs up is no business of ours.
            let _ = Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}
