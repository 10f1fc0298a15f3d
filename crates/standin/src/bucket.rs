//! The bucket that a command works on.

use anyhow::{Context, Result};
use object_store::aws::{AmazonS3, AmazonS3Builder};

/// Where it is. Credentials come from the environment, as every S3 client reads them.
#[derive(Debug, Clone, clap::Args)]
pub struct Bucket {
    /// URL of the S3 server.
    #[arg(long)]
    pub endpoint: String,
    /// Name of the bucket.
    #[arg(long = "bucket")]
    pub name: String,
}

impl Bucket {
    /// A client for it.
    pub fn open(&self) -> Result<AmazonS3> {
        AmazonS3Builder::from_env()
            .with_endpoint(&self.endpoint)
            .with_allow_http(true)
            .with_bucket_name(&self.name)
            .with_region("us-east-1")
            .build()
            .context("the bucket cannot be used")
    }
}
