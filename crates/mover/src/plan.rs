//! What a delete batch does to whom, as pure functions (`docs/design.md` 3.6).
//!
//! **Promises.** Only a snapshot that is listed, readable, of the member's source and start time, and not of
//! another cluster is ever named for deletion; two members on one snapshot name it once. What retention pruned is
//! named only if every snapshot that it kept instead is in the same listing (`docs/design.md` 3.7). A member is
//! confirmed only by a second listing that does not have its snapshot.
//!
//! **Assumes.** Both listings are complete and of the recorded repository. A start time is compared to the second,
//! because that is what a Kubernetes time holds.

use holdfast_engine::{Listing, SnapshotInfo};
use holdfast_protocol::letters::Letter;
use holdfast_protocol::work::BatchMember;
use std::collections::BTreeSet;

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
    /// Kept ids that are not in the listing, of the groups that members point to, each once, in their order.
    pub(crate) missing: Vec<String>,
}

/// Judges every member against the first listing.
pub(crate) fn plan(members: &[BatchMember], kept: &[Vec<String>], listing: &Listing, cluster: &str) -> Plan {
    let groups: Vec<Group<'_>> = kept.iter().map(|ids| Group::new(ids, listing)).collect();
    let fates: Vec<Fate> = members
        .iter()
        .map(|m| match fate(m, listing, cluster) {
            Fate::Delete => justified(m, &groups),
            decided @ (Fate::AlreadyGone | Fate::Keep(_)) => decided,
        })
        .collect();
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
    let ids = members
        .iter()
        .zip(&fates)
        .filter(|(member, fate)| **fate == Fate::Delete && seen.insert(&member.snapshot_id))
        .map(|(member, _)| member.snapshot_id.clone())
        .collect();
    Plan { fates, ids, missing }
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

fn fate(member: &BatchMember, listing: &Listing, cluster: &str) -> Fate {
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
    let judge = |member: &BatchMember, fate: Fate| {
        let there = readback.contains(&member.snapshot_id);
        match fate {
            Fate::Keep(letter) => letter,
            Fate::AlreadyGone if there => Letter::StillThere,
            Fate::AlreadyGone => Letter::Absent,
            Fate::Delete if !there => Letter::Deleted,
            Fate::Delete if failed.contains(&member.snapshot_id) => Letter::Failed,
            Fate::Delete => Letter::StillThere,
        }
    };
    members
        .iter()
        .zip(&plan.fates)
        .map(|(member, fate)| judge(member, *fate))
        .collect()
}

#[cfg(test)]
mod tests;
