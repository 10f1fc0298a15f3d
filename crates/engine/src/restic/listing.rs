//! A listing that others write beside.
//!
//! **Promises.** What was in the repository from before the listing began until after it ended is in it, also if its record
//! was written anew meanwhile, as pinning does. One that is listed and not found is in doubt, and counts as present.

use crate::{Listing, SnapshotInfo};
use rayon::prelude::*;
use std::collections::BTreeSet;

/// Reads all that is listed, and what came in the place of what went away while it was read.
pub(super) fn whole<I, E>(
    mut list: impl FnMut() -> Result<Vec<I>, E>,
    read: impl Fn(I) -> Option<Result<SnapshotInfo, String>> + Sync,
    hex: impl Fn(I) -> String,
) -> Result<Listing, E>
where
    I: Copy + Ord + Send + Sync,
{
    let mut listing = Listing::default();
    let mut unread = list()?;
    let mut seen: BTreeSet<I> = unread.iter().copied().collect();
    while !unread.is_empty() {
        let rows: Vec<_> = unread.par_iter().map(|id| (*id, read(*id))).collect();
        let mut dropped = BTreeSet::new();
        for (id, row) in rows {
            match row {
                Some(Ok(info)) => listing.snapshots.push(info),
                Some(Err(id)) => listing.unreadable.push(id),
                None => {
                    dropped.insert(id);
                }
            }
        }
        if dropped.is_empty() {
            break;
        }
        // One that went away is not listed any more; a server that lists it and does not find it is in doubt. It may have
        // gone because it was written anew, under an id that was not listed before.
        let now = list()?;
        let still = now.iter().copied().filter(|id| dropped.contains(id));
        listing.unreadable.extend(still.map(&hex));
        unread = now.into_iter().filter(|id| seen.insert(*id)).collect();
    }
    listing.snapshots.sort_by(|a, b| a.id.cmp(&b.id));
    listing.unreadable.sort();
    Ok(listing)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::SourceIdentity;
    use jiff::Timestamp;
    use std::collections::BTreeMap;

    fn info(id: u32) -> SnapshotInfo {
        SnapshotInfo {
            id: id.to_string(),
            source: SourceIdentity {
                username: String::new(),
                hostname: String::new(),
                path: String::new(),
            },
            start: Timestamp::UNIX_EPOCH,
            end: None,
            cluster: None,
            snapshot_uid: None,
            pinned: false,
            pin_is_ours: false,
            root: None,
            tags: BTreeMap::new(),
            sizes: None,
        }
    }

    /// What a listing has, where the ids are these in turn and those of `there` can be read.
    fn made(turns: &[&[u32]], there: &[u32]) -> (Vec<String>, Vec<String>) {
        let mut turns = turns.iter();
        let listing = whole(
            || Ok::<_, ()>(turns.next().expect("another turn").to_vec()),
            |id| there.contains(&id).then(|| Ok(info(id))),
            |id| id.to_string(),
        );
        assert!(turns.next().is_none(), "it was not listed often enough");
        let listing = listing.unwrap();
        let ids = listing.snapshots.into_iter().map(|one| one.id).collect();
        (ids, listing.unreadable)
    }

    fn texts(ids: &[u32]) -> Vec<String> {
        ids.iter().map(u32::to_string).collect()
    }

    #[test]
    fn one_that_is_written_anew_while_it_is_read_is_there_under_its_new_id() {
        assert_eq!(made(&[&[1, 2]], &[1, 2]), (texts(&[1, 2]), vec![]));
        assert_eq!(made(&[&[1, 2], &[2, 3]], &[2, 3]), (texts(&[2, 3]), vec![]));
        // And once more while that is read.
        assert_eq!(
            made(&[&[1, 2], &[2, 3], &[2, 4]], &[2, 4]),
            (texts(&[2, 4]), vec![])
        );
    }

    #[test]
    fn one_that_went_is_gone_and_one_that_is_listed_and_not_found_is_in_doubt() {
        assert_eq!(made(&[&[1, 2], &[2]], &[2]), (texts(&[2]), vec![]));
        assert_eq!(made(&[&[1, 2], &[1, 2]], &[2]), (texts(&[2]), texts(&[1])));
    }
}
