//! What a delete batch does to whom, as pure functions (`docs/design.md` 3.6).
//!
//! **Promises.** Only a snapshot that is listed, readable, of the member's source and start time, and not of
//! another cluster is ever named for deletion; two members on one snapshot name it once. What retention pruned is
//! named only if every snapshot that it kept instead is in the same listing (`docs/design.md` 3.7), and if the listing does
//! not say that it is pinned. A member is
//! confirmed only by a second listing that does not have its snapshot, and one that did not record that it was taken into
//! this repository only by its deletion: absent, it may be in another one. Where ids may change (pinning
//! writes a record anew), a stale id is healed to the one snapshot that is of the same source, start and
//! object; two candidates heal nothing, and a path alone never does.
//!
//! **Assumes.** Both listings are complete and of the recorded repository. A start time is compared to the second,
//! because that is what a Kubernetes time holds.

use holdfast_engine::{Listing, SnapshotInfo};
use holdfast_protocol::letters::Letter;
use holdfast_protocol::work::BatchMember;
use std::collections::{BTreeMap, BTreeSet};

/// What is to become of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its snapshot is deleted.
    Delete,
    /// Its snapshot is not in the listing: done already, if the read-back agrees.
    AlreadyGone,
    /// Its snapshot is left alone, for the reason the letter gives.
    Keep(Letter),
}

/// The plan of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// One fate per member, in member order.
    pub(crate) fates: Vec<Fate>,
    /// Ids to delete, each once, in the order of the first member that named it.
    pub(crate) ids: Vec<String>,
    /// Ids beyond the recorded ones, by member: what its snapshot is called now, or is called too. In `ids` as well.
    pub(crate) healed: BTreeMap<usize, String>,
    /// Kept ids that are not in the listing, of the groups that members point to, each once, in their order.
    pub(crate) missing: Vec<String>,
}

/// Whether a repository may rename a snapshot (`Engine::ids_may_change`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    /// An id is for ever.
    Fixed,
    /// It may be rewritten.
    MayChange,
}

/// Judges every member against the first listing.
pub(crate) fn plan(
    members: &[BatchMember],
    kept: &[Vec<String>],
    listing: &Listing,
    cluster: &str,
    ids: Ids,
) -> Plan {
    let groups: Vec<Group<'_>> = kept.iter().map(|ids| Group::new(ids, listing)).collect();
    let recorded: BTreeSet<&str> = members.iter().map(|m| m.snapshot_id.as_str()).collect();
    let mut healed = BTreeMap::new();
    let mut fates = Vec::new();
    for (number, member) in members.iter().enumerate() {
        let decided = fate(member, listing, cluster);
        let other = match (ids, decided) {
            (Ids::MayChange, Fate::Delete | Fate::AlreadyGone) => {
                other_id(member, listing, cluster, &recorded)
            }
            (Ids::MayChange, Fate::Keep(_)) | (Ids::Fixed, _) => None,
        };
        let decided = if other.is_some() { Fate::Delete } else { decided };
        let decided = match decided {
            Fate::Delete if keeps(member, listing, other) => Fate::Keep(Letter::Pinned),
            Fate::Delete => justified(member, &groups),
            Fate::AlreadyGone | Fate::Keep(_) => decided,
        };
        if let Some(id) = other.filter(|_| decided == Fate::Delete) {
            healed.insert(number, id.to_owned());
        }
        fates.push(decided);
    }
    let mut told = BTreeSet::new();
    let missing = members
        .iter()
        .zip(&fates)
        .filter(|(_, fate)| **fate == Fate::Keep(Letter::Unjustified))
        .filter_map(|(member, _)| group(member, &groups))
        .flat_map(|group| &group.missing)
        .filter(|id| told.insert(**id))
        .map(|id| (*id).to_owned())
        .collect();
    let mut seen = BTreeSet::new();
    let mut named = Vec::new();
    for (number, member) in members
        .iter()
        .enumerate()
        .filter(|(n, _)| fates[*n] == Fate::Delete)
    {
        let recorded = Some(&member.snapshot_id).filter(|id| listing.contains(id));
        for id in recorded.into_iter().chain(healed.get(&number)) {
            if seen.insert(id.clone()) {
                named.push(id.clone());
            }
        }
    }
    Plan {
        fates,
        ids: named,
        healed,
        missing,
    }
}

/// Whether retention pruned what the repository's own record says is to be kept, under either id: whoever pinned it there
/// need not have told anybody here. What a person deletes is deleted all the same.
fn keeps(member: &BatchMember, listing: &Listing, other: Option<&str>) -> bool {
    let called = [Some(member.snapshot_id.as_str()), other];
    member.justified_by.is_some()
        && called
            .into_iter()
            .flatten()
            .filter_map(|id| listing.find(id))
            .any(|found| found.pinned)
}

/// What the member's snapshot is called beside, or instead of, its recorded id: the one listed snapshot with the
/// same source and start that is recorded by no other member and carries no other object's tag. Beside the recorded
/// one it has to be a record of the very same files ([`is_another_record`]): a copy that a person repaired or rewrote is
/// another snapshot. The start is that of the recorded snapshot if it is there, else the member's; one that holds whole
/// seconds only is too coarse to tell two runs apart, so the tag has to be the member's own.
pub(crate) fn other_id<'a>(
    member: &BatchMember,
    listing: &'a Listing,
    cluster: &str,
    recorded: &BTreeSet<&str>,
) -> Option<&'a str> {
    let there = listing.find(&member.snapshot_id);
    let start = there.map(|s| s.start).or(member.start_time)?;
    let coarse = start.subsec_nanosecond() == 0;
    let source = &member.source;
    let same = |s: &&SnapshotInfo| {
        let theirs = &s.source;
        let of_the_source = source.username == theirs.username
            && source.hostname == theirs.hostname
            && source.path == theirs.path;
        let of_the_run = if coarse {
            s.start.as_second() == start.as_second() && s.snapshot_uid.as_deref() == Some(&member.uid)
        } else {
            s.start == start
                && (there.is_some() || s.snapshot_uid.as_deref().is_none_or(|uid| uid == member.uid))
        };
        let of_the_files = there.is_none_or(|there| is_another_record(there, s));
        let of_the_cluster = s.cluster.as_deref().is_none_or(|tagged| tagged == cluster);
        of_the_source && of_the_run && of_the_cluster && of_the_files
    };
    let mut candidates = listing
        .snapshots
        .iter()
        .filter(|s| s.id != member.snapshot_id)
        .filter(same);
    let only = candidates.next()?;
    let unique = candidates.next().is_none();
    (unique && !recorded.contains(only.id.as_str())).then_some(only.id.as_str())
}

/// Whether the second is a record of what the first is one of, written anew as pinning does: of the same source, run, cluster
/// and object, and of the very same files. Where it is not recorded which files these are, it is not.
pub(crate) fn is_another_record(one: &SnapshotInfo, other: &SnapshotInfo) -> bool {
    one.id != other.id
        && one.source == other.source
        && one.start == other.start
        && one.cluster == other.cluster
        && one.snapshot_uid == other.snapshot_uid
        && one.root.is_some()
        && one.root == other.root
}

/// What retention kept, as the listing has it.
struct Group<'a> {
    empty: bool,
    missing: Vec<&'a str>,
    unreadable: bool,
}

impl<'a> Group<'a> {
    fn new(ids: &'a [String], listing: &Listing) -> Self {
        let mut group = Self {
            empty: ids.is_empty(),
            missing: Vec::new(),
            unreadable: false,
        };
        for id in ids.iter().map(String::as_str) {
            // Snapshots are sorted by id, so the first that is not before a cut id is the one it was cut from.
            let place = listing.snapshots.partition_point(|s| s.id.as_str() < id);
            let found = listing.snapshots.get(place).is_some_and(|s| s.id.starts_with(id));
            if found && !id.is_empty() {
                continue;
            }
            if !id.is_empty() && listing.unreadable.iter().any(|u| u.starts_with(id)) {
                group.unreadable = true;
            } else {
                group.missing.push(id);
            }
        }
        group
    }
}

fn group<'g, 'a>(member: &BatchMember, groups: &'g [Group<'a>]) -> Option<&'g Group<'a>> {
    groups.get(usize::try_from(member.justified_by?).ok()?)
}

/// A prune stands only on what is there: a group that is not sent, or an empty one, justifies nothing.
fn justified(member: &BatchMember, groups: &[Group<'_>]) -> Fate {
    if member.justified_by.is_none() {
        return Fate::Delete;
    }
    match group(member, groups) {
        None => Fate::Keep(Letter::Unjustified),
        Some(group) if group.empty || !group.missing.is_empty() => Fate::Keep(Letter::Unjustified),
        // There, but nobody can say what it is: nothing is deleted in its favour.
        Some(group) if group.unreadable => Fate::Keep(Letter::Failed),
        Some(_) => Fate::Delete,
    }
}

pub(crate) fn fate(member: &BatchMember, listing: &Listing, cluster: &str) -> Fate {
    let Some(found) = listing.find(&member.snapshot_id) else {
        // There, but nobody can say what it is: not ours to delete.
        let unreadable = listing.contains(&member.snapshot_id);
        return if unreadable {
            Fate::Keep(Letter::Failed)
        } else {
            Fate::AlreadyGone
        };
    };
    if found.cluster.as_deref().is_some_and(|tagged| tagged != cluster) {
        return Fate::Keep(Letter::OtherCluster);
    }
    if is_the_recorded_one(member, found) {
        Fate::Delete
    } else {
        Fate::Keep(Letter::Mismatch)
    }
}

fn is_the_recorded_one(member: &BatchMember, found: &SnapshotInfo) -> bool {
    let source = &member.source;
    source.username == found.source.username
        && source.hostname == found.source.hostname
        && source.path == found.source.path
        && member
            .start_time
            .is_none_or(|recorded| recorded.as_second() == found.start.as_second())
}

/// One letter per member, from the plan, the ids that failed, and the second listing.
pub(crate) fn letters(
    members: &[BatchMember],
    plan: &Plan,
    failed: &BTreeSet<String>,
    readback: &Listing,
) -> Vec<Letter> {
    let judge = |number: usize, member: &BatchMember, fate: Fate| {
        let healed = plan.healed.get(&number);
        let mut called = [&member.snapshot_id].into_iter().chain(healed);
        let there = called.clone().any(|id| readback.contains(id));
        match fate {
            Fate::Keep(letter) => letter,
            Fate::AlreadyGone if there => Letter::StillThere,
            Fate::AlreadyGone if member.seen_here => Letter::Absent,
            Fate::AlreadyGone => Letter::NeverSeen,
            Fate::Delete if !there => Letter::Deleted,
            Fate::Delete if called.any(|id| failed.contains(id)) => Letter::Failed,
            Fate::Delete => Letter::StillThere,
        }
    };
    members
        .iter()
        .zip(&plan.fates)
        .enumerate()
        .map(|(number, (member, fate))| judge(number, member, *fate))
        .collect()
}

#[cfg(test)]
mod tests;
