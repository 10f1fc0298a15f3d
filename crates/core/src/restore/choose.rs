//! Which snapshot of an identity.

use jiff::Timestamp;
use std::collections::BTreeSet;

/// One snapshot as a repository lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Id.
    pub id: String,
    /// User name.
    pub username: String,
    /// Host name.
    pub hostname: String,
    /// Path.
    pub path: String,
    /// When it was begun.
    pub start: Timestamp,
    /// UID of the cluster that took it, if recorded.
    pub cluster: Option<String>,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// User name.
    pub username: String,
    /// Host name.
    pub hostname: String,
    /// Path; any when there is only one.
    pub path: Option<String>,
    /// How many to go back from the newest.
    pub offset: u32,
    /// Only what was begun at this time or before.
    pub as_of: Option<Timestamp>,
    /// UID of this cluster.
    pub cluster: String,
}

/// What was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice<'a> {
    /// This one.
    Found(&'a Candidate),
    /// Nothing fits; how many snapshots the identity has at all.
    Nothing {
        /// Snapshots of the identity, whenever they were begun.
        of_identity: usize,
    },
    /// No path was named, and the identity has snapshots of these.
    Ambiguous(Vec<String>),
}

/// Chooses: of the identity's snapshots that were begun in time, the one `offset` places behind the newest. Of two
/// begun at the same time the one with the greater id is the newer. Where this cluster has snapshots of the identity,
/// those of other clusters are left out: they are of other volumes under the same name.
#[must_use]
pub fn choose<'a>(candidates: &'a [Candidate], wanted: &Wanted) -> Choice<'a> {
    let of_identity: Vec<&Candidate> = candidates
        .iter()
        .filter(|c| c.username == wanted.username && c.hostname == wanted.hostname)
        .filter(|c| wanted.path.as_ref().is_none_or(|path| *path == c.path))
        .collect();
    let is_ours = |c: &&Candidate| c.cluster.as_deref() == Some(wanted.cluster.as_str());
    let ours_only = of_identity.iter().any(is_ours);
    let mut left: Vec<&Candidate> = of_identity
        .iter()
        .copied()
        .filter(|c| !ours_only || is_ours(c))
        .collect();
    let paths: BTreeSet<&str> = left.iter().map(|c| c.path.as_str()).collect();
    if paths.len() > 1 {
        return Choice::Ambiguous(paths.into_iter().map(str::to_owned).collect());
    }
    left.retain(|c| wanted.as_of.is_none_or(|as_of| c.start <= as_of));
    left.sort_by(|a, b| (b.start, &b.id).cmp(&(a.start, &a.id)));
    let place = usize::try_from(wanted.offset).unwrap_or(usize::MAX);
    match left.get(place) {
        Some(found) => Choice::Found(found),
        None => Choice::Nothing {
            of_identity: of_identity.len(),
        },
    }
}
