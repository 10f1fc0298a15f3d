//! What a driver's own retention, or a person with keys, does to a bucket.

use anyhow::{Result, ensure};
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _};

use crate::bucket::Bucket;

/// Arguments of `holdfast-standin remove`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    bucket: Bucket,
    /// The path; an object's name, or what its name begins with up to a slash.
    path: String,
}

/// Removes it; an error if nothing was there.
pub async fn run(args: &Args) -> Result<()> {
    let store = args.bucket.open()?;
    let path = Path::from(args.path.as_str());
    let mut keys: Vec<Path> = store
        .list(Some(&path))
        .map_ok(|object| object.location)
        .try_collect()
        .await?;
    if store.head(&path).await.is_ok() {
        keys.push(path);
    }
    ensure!(!keys.is_empty(), "nothing lies below {}", args.path);
    for key in &keys {
        store.delete(key).await?;
        println!("{key} was removed");
    }
    Ok(())
}
