//! Under which other names a namespace has snapshots of the path that is asked for.

use super::{Candidate, Wanted};
use crate::identity::{namespace_of, recorded_namespace};
use std::collections::BTreeSet;

/// Whose snapshots of the path are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whose {
    /// This namespace's; none: all, the repository is of one namespace.
    pub namespace: Option<String>,
    /// `spec.identityDefaults.cluster` of the repository.
    pub cluster: Option<String>,
}

/// The names, as `user@host`, under which the path has snapshots while the identity that is asked for has none: it may
/// have been another one when they were taken. None where no path is asked for.
#[must_use]
pub fn other_names(candidates: &[Candidate], wanted: &Wanted, whose: &Whose) -> BTreeSet<String> {
    let of_path = || {
        let path = wanted.path.as_ref();
        candidates.iter().filter(move |c| path == Some(&c.path))
    };
    let is_asked_for = |c: &Candidate| c.username == wanted.username && c.hostname == wanted.hostname;
    if of_path().any(is_asked_for) {
        return BTreeSet::new();
    }
    of_path()
        .filter(|c| is_of(c, wanted, whose))
        .map(|c| format!("{}@{}", c.username, c.hostname))
        .collect()
}

/// A host name that this cluster recorded says its namespace whatever the repository says now; another one as it says.
fn is_of(candidate: &Candidate, wanted: &Wanted, whose: &Whose) -> bool {
    let Some(namespace) = &whose.namespace else {
        return true;
    };
    // A policy of this namespace is asked for under that host: another user of it is.
    if candidate.hostname == wanted.hostname {
        return true;
    }
    let ours = candidate.cluster.as_deref() == Some(wanted.cluster.as_str());
    let of = if ours {
        recorded_namespace(&candidate.hostname)
    } else {
        namespace_of(&candidate.hostname, whose.cluster.as_deref())
    };
    of == namespace
}
