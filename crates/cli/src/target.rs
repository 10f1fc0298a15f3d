//! What a person names on the command line: `KIND/NAME`.
//!
//! **Promises.** Kinds are known by their singular, plural and short names, as kubectl knows them.

use std::fmt;

use anyhow::{Result, bail};
use holdfast_core::deletion::RepositoryKey;

/// An object that can be asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A Snapshot.
    Snapshot {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A SnapshotSchedule.
    Schedule {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A SnapshotPolicy.
    Policy {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Either kind of repository.
    Repository(RepositoryKey),
    /// A namespace.
    Namespace(String),
}

impl Target {
    /// Reads `KIND/NAME`; `namespace` is where it is, if its kind has one.
    pub fn parse(text: &str, namespace: &str) -> Result<Self> {
        let Some((kind, name)) = text.split_once('/') else {
            bail!("{text:?} names no kind: write KIND/NAME, as in snapshotschedule/{text}");
        };
        if name.is_empty() || name.contains('/') {
            bail!("{text:?} names no object: write {kind}/NAME and choose the namespace with -n");
        }
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Ok(match kind.to_lowercase().as_str() {
            "snapshot" | "snapshots" | "kopiasnap" => Self::Snapshot { namespace, name },
            "snapshotschedule" | "snapshotschedules" | "kopiasched" => Self::Schedule { namespace, name },
            "snapshotpolicy" | "snapshotpolicies" | "kopiasp" => Self::Policy { namespace, name },
            "repository" | "repositories" | "kopiarepo" => {
                Self::Repository(RepositoryKey::Repository { namespace, name })
            }
            "clusterrepository" | "clusterrepositories" | "kopiacrepo" => {
                Self::Repository(RepositoryKey::ClusterRepository { name })
            }
            "namespace" | "namespaces" | "ns" => Self::Namespace(name),
            _ => bail!(
                "{kind} is no kind that Holdfast protects: snapshot, snapshotschedule, snapshotpolicy, repository, clusterrepository and namespace are"
            ),
        })
    }

    /// Reads `repository/NAME` or `clusterrepository/NAME`.
    pub fn repository(text: &str, namespace: &str) -> Result<RepositoryKey> {
        match Self::parse(text, namespace)? {
            Self::Repository(key) => Ok(key),
            other @ (Self::Snapshot { .. }
            | Self::Schedule { .. }
            | Self::Policy { .. }
            | Self::Namespace(_)) => {
                bail!(
                    "{other} holds no wave: name a repository, as in repository/NAME or clusterrepository/NAME"
                )
            }
        }
    }

    /// Reads `snapshot/NAME`.
    pub fn snapshot(text: &str, namespace: &str) -> Result<String> {
        if !text.contains('/') {
            bail!("{text:?} names no kind: write snapshot/{text}");
        }
        match Self::parse(text, namespace)? {
            Self::Snapshot { name, .. } => Ok(name),
            other @ (Self::Schedule { .. }
            | Self::Policy { .. }
            | Self::Repository(_)
            | Self::Namespace(_)) => {
                bail!("{other} cannot be explained: only Snapshots can, as in snapshot/NAME")
            }
        }
    }

    /// Reads `NAME` or `snapshotpolicy/NAME`.
    pub fn policy(text: &str, namespace: &str) -> Result<String> {
        if !text.contains('/') {
            return Ok(text.to_owned());
        }
        match Self::parse(text, namespace)? {
            Self::Policy { name, .. } => Ok(name),
            other @ (Self::Snapshot { .. }
            | Self::Schedule { .. }
            | Self::Repository(_)
            | Self::Namespace(_)) => {
                bail!("{other} has no retention: name a policy, as in snapshotpolicy/NAME")
            }
        }
    }

    /// The namespace to look at when not all can be.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Snapshot { namespace, .. }
            | Self::Schedule { namespace, .. }
            | Self::Policy { namespace, .. }
            | Self::Namespace(namespace) => Some(namespace),
            Self::Repository(key) => key.namespace(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot { namespace, name } => write!(f, "snapshot {namespace}/{name}"),
            Self::Schedule { namespace, name } => write!(f, "snapshotschedule {namespace}/{name}"),
            Self::Policy { namespace, name } => write!(f, "snapshotpolicy {namespace}/{name}"),
            Self::Repository(key) => key.fmt(f),
            Self::Namespace(name) => write!(f, "namespace {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_all_their_names() {
        for kind in ["snapshot", "Snapshots", "kopiasnap"] {
            let found = Target::parse(&format!("{kind}/x"), "a").unwrap();
            assert_eq!(found.to_string(), "snapshot a/x");
        }
        assert_eq!(Target::parse("ns/x", "a").unwrap().to_string(), "namespace x");
        let cluster = Target::parse("clusterrepository/x", "a").unwrap();
        assert_eq!(cluster.to_string(), "clusterrepository x");
        for bad in ["x", "pod/x", "snapshot/", "snapshot/a/b"] {
            Target::parse(bad, "a").expect_err(bad);
        }
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        let said = |result: Result<RepositoryKey>| result.unwrap_err().to_string();
        assert!(said(Target::repository("snapshot/x", "a")).contains("repository/NAME"));
        assert!(
            Target::snapshot("x", "a")
                .unwrap_err()
                .to_string()
                .contains("snapshot/x")
        );
        Target::snapshot("pod/x", "a").unwrap_err();
        assert_eq!(Target::snapshot("kopiasnap/x", "a").unwrap(), "x");
        assert_eq!(Target::policy("x", "a").unwrap(), "x");
        assert_eq!(Target::policy("kopiasp/x", "a").unwrap(), "x");
        let refused = Target::policy("ns/x", "a").unwrap_err().to_string();
        assert!(refused.contains("snapshotpolicy/NAME"), "{refused}");
    }
}
