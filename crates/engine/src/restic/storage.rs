//! The two kinds of place that a repository can be in.
//!
//! **Promises.** Whatever the kind: a listing is complete or an error, and doubt counts as present.

use super::backend::{self, StrictLocal};
use super::bucket::{Client, StrictBucket};
use super::faults::Faults;
use super::place::{self, Place};
use crate::{EngineError, ErrorClass, Location};
use rustic_core::{RusticResult, WriteBackend};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a repository is.
#[derive(Debug, Clone)]
pub(super) enum Storage {
    Directory(PathBuf),
    Bucket(Arc<Client>),
}

impl Storage {
    /// # Errors
    /// [`ErrorClass::Failed`] when the bucket's description cannot be used.
    pub(super) fn at(what: &str, location: &Location) -> Result<Self, EngineError> {
        Ok(match location {
            Location::Directory(path) => Self::Directory(path.clone()),
            Location::Bucket(bucket) => Self::Bucket(Arc::new(Client::new(what, bucket)?)),
        })
    }

    /// The backend; every call of it is strict.
    pub(super) fn backend(&self, faults: &Arc<Faults>) -> RusticResult<Arc<dyn WriteBackend>> {
        Ok(match self {
            Self::Directory(root) => Arc::new(StrictLocal::new(root, Arc::clone(faults))?),
            Self::Bucket(client) => Arc::new(StrictBucket::new(Arc::clone(client), Arc::clone(faults))),
        })
    }

    /// What is there.
    ///
    /// # Errors
    /// [`ErrorClass::Unreachable`] when it cannot be read.
    pub(super) fn look(&self, what: &str) -> Result<Place, EngineError> {
        match self {
            Self::Directory(root) => place::look(root),
            Self::Bucket(client) => client.look(what),
        }
    }

    /// Clears the way for a creation; a directory stays locked until the answer is dropped. In a bucket the config is
    /// written only where none is.
    ///
    /// # Errors
    /// [`ErrorClass::Failed`] with what is in the way, [`ErrorClass::Unreachable`] when it cannot be read or written.
    pub(super) fn prepare(&self, what: &str) -> Result<Option<File>, EngineError> {
        match self {
            Self::Directory(root) => {
                // Judged before anything is written, and again under the lock.
                place::look(root)?;
                let lock = crate::lock::creation(what, root)?;
                place::prepare(root)?;
                Ok(Some(lock))
            }
            Self::Bucket(client) => {
                place::free(client.look(what)?, client.bucket())?;
                client.forget_keys(what)?;
                Ok(None)
            }
        }
    }

    /// Whether a snapshot's file is there. Only a clear "no" makes it absent.
    pub(super) fn may_have(&self, snapshot: &str) -> bool {
        match self {
            Self::Directory(root) => {
                let path = root.join("snapshots").join(snapshot);
                matches!(path.try_exists(), Ok(true) | Err(_))
            }
            Self::Bucket(client) => client.may_have(snapshot),
        }
    }

    /// Makes deletions of snapshots durable.
    ///
    /// # Errors
    /// [`ErrorClass::Unreachable`].
    pub(super) fn synced(&self, what: &str) -> Result<(), EngineError> {
        match self {
            Self::Directory(root) => backend::sync_directory(&root.join("snapshots")).map_err(|cause| {
                let next = "Check that the volume is mounted";
                EngineError::new(ErrorClass::Unreachable, what, cause, next)
            }),
            // What the server said is done is done.
            Self::Bucket(_) => Ok(()),
        }
    }
}
