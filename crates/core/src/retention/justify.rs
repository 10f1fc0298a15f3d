//! What a prune stands on (`docs/design.md` 3.7): the ids that retention kept when it pruned.
//!
//! **Promises.** A prune in favour of a snapshot that vanished is void. Kept ids whose own Snapshots were deleted
//! since, each by a decision of its own, do not count any more; where none is left, what retention keeps now stands
//! in for them, and where that is nothing either, the prune is void: the last one is never pruned.
//!
//! **Assumes.** The mover checks what travels against its own listing; here only records are compared.

use super::gfs::{Completed, Retained};
use std::collections::{BTreeMap, BTreeSet};

/// Most ids that travel with a prune, the newest: an annotation, and a work document, must hold them.
pub const LIMIT: usize = 256;

/// What is recorded now about a snapshot that retention kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A live Snapshot records it.
    Kept,
    /// A live Snapshot records it and has the condition `Vanished`.
    Vanished,
    /// No live Snapshot records it any more.
    Gone,
}

/// Whether a prune may still be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Justified {
    /// Only if all of these are in the mover's listing; never empty.
    By(Vec<String>),
    /// It may not, because these vanished; none: because nothing is kept any more.
    Void(Vec<String>),
}

/// Judges a prune by the ids that its stamp names and by those of its group that retention keeps now.
#[must_use]
pub fn justify(stamped: &[&str], standing: impl Fn(&str) -> Standing, kept_now: Vec<String>) -> Justified {
    let mut kept = Vec::new();
    let mut vanished = Vec::new();
    for id in stamped {
        match standing(id) {
            Standing::Kept => kept.push((*id).to_owned()),
            Standing::Vanished => vanished.push((*id).to_owned()),
            Standing::Gone => {}
        }
    }
    if !vanished.is_empty() {
        return Justified::Void(vanished);
    }
    if kept.is_empty() {
        kept = kept_now;
    }
    kept.truncate(LIMIT);
    if kept.is_empty() {
        Justified::Void(Vec::new())
    } else {
        Justified::By(kept)
    }
}

/// For each group the ids that were kept, newest first, each once, at most [`LIMIT`].
#[must_use]
pub fn kept_ids(snapshots: &[Completed], retained: &Retained) -> BTreeMap<String, Vec<String>> {
    let by_uid: BTreeMap<&str, &Completed> = snapshots.iter().map(|s| (s.uid.as_str(), s)).collect();
    let mut seen = BTreeSet::new();
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kept in retained.keep.iter().filter_map(|uid| by_uid.get(uid.as_str())) {
        let ids = groups.entry(kept.group.clone()).or_default();
        if ids.len() < LIMIT && seen.insert((&kept.group, &kept.id)) {
            ids.push(kept.id.clone());
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retention::{Keep, retain};
    use jiff::Timestamp;

    fn now(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn world(id: &str) -> Standing {
        match id.chars().next() {
            Some('k') => Standing::Kept,
            Some('v') => Standing::Vanished,
            _ => Standing::Gone,
        }
    }

    #[test]
    fn what_is_still_kept_travels_and_what_was_deleted_since_does_not() {
        let by = justify(&["k1", "gone", "k2"], world, now(&["k9"]));
        assert_eq!(by, Justified::By(now(&["k1", "k2"])));
    }

    #[test]
    fn nothing_is_pruned_on_account_of_what_vanished() {
        let void = justify(&["k1", "v1", "v2"], world, now(&["k9"]));
        assert_eq!(void, Justified::Void(now(&["v1", "v2"])));
    }

    #[test]
    fn what_is_kept_now_stands_in_and_the_last_one_is_never_pruned() {
        assert_eq!(
            justify(&["gone"], world, now(&["k9"])),
            Justified::By(now(&["k9"]))
        );
        // An older release wrote no ids.
        assert_eq!(justify(&[], world, now(&["k9"])), Justified::By(now(&["k9"])));
        assert_eq!(justify(&["gone"], world, Vec::new()), Justified::Void(Vec::new()));
        assert_eq!(justify(&[], world, Vec::new()), Justified::Void(Vec::new()));
    }

    #[test]
    fn the_newest_of_each_group_travel_each_once() {
        let snapshot = |n: i64, group: &str, id: String| Completed {
            uid: format!("{group}-{n}"),
            id,
            group: group.to_owned(),
            ended_at: Timestamp::from_second(n).expect("time"),
            pinned: false,
            vanished: false,
        };
        let mut all: Vec<Completed> = (0..400).map(|n| snapshot(n, "big", format!("b{n}"))).collect();
        all.extend((0..3).map(|n| snapshot(n, "twice", "same".to_owned())));
        let keep = Keep {
            latest: Some(300),
            ..Keep::default()
        };
        let ids = kept_ids(&all, &retain(&all, Some(&keep)));
        assert_eq!((ids["big"].len(), ids["big"][0].as_str()), (LIMIT, "b399"));
        assert_eq!(ids["twice"], ["same"]);
    }
}
