//! Whether a BackupJob of a name exists, asked live.

use holdfast_api::backups::BackupJob;
use kube::{Api, Client};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Well within the time that the API server gives a webhook.
const PATIENCE: Duration = Duration::from_secs(2);

/// The name could not be looked up.
#[derive(Debug, Clone, thiserror::Error)]
#[error("whether a BackupJob {namespace}/{name} exists could not be read: {why}; try again")]
pub struct NameError {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// What the API server said.
    pub why: String,
}

/// An answer that takes a moment.
pub type Looked<'a> = Pin<Box<dyn Future<Output = Result<bool, NameError>> + Send + 'a>>;

/// Looks names up.
pub trait Names: Send + Sync + 'static {
    /// Whether a BackupJob of this name exists now.
    fn exists<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looked<'a>;
}

/// On the API server.
pub struct KubeNames(pub Client);

impl Names for KubeNames {
    fn exists<'a>(&'a self, namespace: &'a str, name: &'a str) -> Looked<'a> {
        Box::pin(async move {
            let jobs: Api<BackupJob> = Api::namespaced(self.0.clone(), namespace);
            let error = |why: String| NameError {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                why,
            };
            match tokio::time::timeout(PATIENCE, jobs.get_metadata_opt(name)).await {
                Ok(Ok(job)) => Ok(job.is_some()),
                Ok(Err(refused)) => Err(error(refused.to_string())),
                Err(_) => Err(error(format!("no answer within {} s", PATIENCE.as_secs()))),
            }
        })
    }
}
