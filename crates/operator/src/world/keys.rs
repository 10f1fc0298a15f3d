//! Keys: how the operator names objects and lanes to itself.

use holdfast_api::shared::{RepositoryKind, RepositoryRef};
use std::fmt;

/// A namespaced object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// Builds a key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Key of a namespaced object as read from the API.
    pub fn of<K: kube::Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

pub use holdfast_core::deletion::RepositoryKey;

/// Resolves a reference made in `namespace`. `None` for a kind of a newer release.
#[must_use]
pub fn resolve(reference: &RepositoryRef, namespace: &str) -> Option<RepositoryKey> {
    match reference.kind {
        RepositoryKind::Repository => Some(RepositoryKey::Repository {
            namespace: reference
                .namespace
                .clone()
                .unwrap_or_else(|| namespace.to_owned()),
            name: reference.name.clone(),
        }),
        RepositoryKind::ClusterRepository => Some(RepositoryKey::ClusterRepository {
            name: reference.name.clone(),
        }),
        RepositoryKind::Unknown => None,
    }
}

/// The reference that pins an object to a repository, independent of the referring namespace.
#[must_use]
pub fn pin_to(key: &RepositoryKey) -> RepositoryRef {
    match key {
        RepositoryKey::Repository { namespace, name } => RepositoryRef {
            kind: RepositoryKind::Repository,
            name: name.clone(),
            namespace: Some(namespace.clone()),
        },
        RepositoryKey::ClusterRepository { name } => RepositoryRef {
            kind: RepositoryKind::ClusterRepository,
            name: name.clone(),
            namespace: None,
        },
    }
}

/// A lane: the queue of one physical repository (`docs/design.md` 3.1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKey {
    /// Engine and unique id as read when connecting.
    Physical(String),
    /// A repository object whose unique id is not known yet: nothing fires.
    Unconnected(RepositoryKey),
    /// Snapshots that resolve to no repository: they can only be released or orphaned.
    Unresolved,
}

impl fmt::Display for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Physical(id) => write!(f, "lane {id}"),
            Self::Unconnected(key) => write!(f, "lane of unconnected {key}"),
            Self::Unresolved => write!(f, "lane of unresolved Snapshots"),
        }
    }
}
