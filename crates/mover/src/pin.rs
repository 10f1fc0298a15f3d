//! Pinning a snapshot in the repository, and taking that back.
//!
//! **Promises.** Only the snapshot that the object records is touched: by its id, or, where its record was written anew, by
//! the rule that heals ids in a delete batch. What is answered was read back after the last write, with the id that the
//! snapshot has then. What is so already is only answered, so a Job that is run again after a crash finds the new id and
//! writes nothing. Nothing is deleted: where a crash left the snapshot under two ids, the one that is as asked for is
//! answered, and deleting the object deletes both.
//!
//! **Assumes.** No delete batch runs beside it where the engine minds: the operator sees to that.

use crate::plan::{self, Fate, Ids};
use crate::run::{Failed, failure, say};
use holdfast_engine::{Listing, Repository, SnapshotInfo};
use holdfast_protocol::letters::Letter;
use holdfast_protocol::outcome::{FailureClass, OperationResult};
use holdfast_protocol::work::{BatchMember, PinItem};
use std::collections::BTreeSet;

/// Pins or unpins.
pub(crate) fn run(
    repository: &dyn Repository,
    cluster: &str,
    item: &PinItem,
    ids: Ids,
) -> Result<OperationResult, Failed> {
    let found = find(&repository.list()?, cluster, item, ids)?;
    if is_as_asked(&found, item) {
        say(&format!("snapshot {} is so already", found.id));
        return Ok(answer(item, &found));
    }
    repository.pin(&found.id, item.on)?;
    let now = read_back(&repository.list()?, &found, item)?;
    if !is_as_asked(&now, item) {
        return Err(failed(format!(
            "the program reported success, and snapshot {} is {} as before; it is tried again",
            now.id,
            if now.pinned { "pinned" } else { "not pinned" }
        )));
    }
    say(&format!("snapshot {} is called {} now", found.id, now.id));
    Ok(answer(item, &now))
}

/// Pinned by anybody is pinned; only our own pin is ever taken back.
fn is_as_asked(found: &SnapshotInfo, item: &PinItem) -> bool {
    if item.on { found.pinned } else { !found.pin_is_ours }
}

fn answer(item: &PinItem, found: &SnapshotInfo) -> OperationResult {
    OperationResult::Pinned {
        uid: item.uid.clone(),
        snapshot_id: found.id.clone(),
        pinned: found.pinned,
        ours: found.pin_is_ours,
    }
}

/// The snapshot that the object records, by what it is called now.
fn find(listing: &Listing, cluster: &str, item: &PinItem, ids: Ids) -> Result<SnapshotInfo, Failed> {
    let member = BatchMember {
        uid: item.uid.clone(),
        snapshot_id: item.snapshot_id.clone(),
        source: item.source.clone(),
        start_time: item.start_time,
        justified_by: None,
        seen_here: true,
    };
    let id = &item.snapshot_id;
    let recorded = match plan::fate(&member, listing, cluster) {
        Fate::Delete => listing.find(id),
        Fate::AlreadyGone => None,
        Fate::Keep(Letter::OtherCluster) => {
            return Err(failed(format!(
                "snapshot {id} carries the tag of another cluster and was not touched; pin it there, or with the repository's own program"
            )));
        }
        Fate::Keep(
            Letter::Deleted
            | Letter::Absent
            | Letter::NeverSeen
            | Letter::Failed
            | Letter::StillThere
            | Letter::Mismatch
            | Letter::RepositoryReplaced
            | Letter::Unjustified
            | Letter::Pinned,
        ) => {
            return Err(failed(format!(
                "snapshot {id} cannot be read, or has another source or start time than the object records, and was not touched; check the repository"
            )));
        }
    };
    let other = match ids {
        Ids::MayChange => plan::other_id(&member, listing, cluster, &BTreeSet::from([id.as_str()])),
        Ids::Fixed => None,
    };
    let other = other.and_then(|other| listing.find(other));
    let called = [recorded, other].into_iter().flatten();
    let mut called: Vec<&SnapshotInfo> = called.collect();
    // Of two, the one that is as asked for.
    called.sort_by_key(|found| !is_as_asked(found, item));
    called.first().map(|found| (*found).clone()).ok_or_else(|| {
        failed(format!(
            "snapshot {id} is not in the repository, under this id or another one; look for another program that deletes there"
        ))
    })
}

/// What it is called now: it was seen a moment ago, so that it is known again whoever's tag it carries.
fn read_back(listing: &Listing, before: &SnapshotInfo, item: &PinItem) -> Result<SnapshotInfo, Failed> {
    let all = listing.snapshots.iter();
    let is_it = |one: &&SnapshotInfo| one.id == before.id || plan::is_another_record(before, one);
    all.filter(is_it)
        .min_by_key(|one| !is_as_asked(one, item))
        .cloned()
        .ok_or_else(|| {
            failed(format!(
                "snapshot {} is not in the repository any more after it was written to, under this id or another one; look for another program that deletes there",
                before.id
            ))
        })
}

fn failed(message: String) -> Failed {
    failure(FailureClass::OperationFailed, message).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use holdfast_engine::{
        BackupRequest, Depth, Effort, EngineError, Maintainer, Meter, Reclaimed, RestoreOptions, Restored,
        SourceIdentity,
    };
    use holdfast_protocol::work::Source;
    use jiff::Timestamp;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::path::Path;

    /// A repository that gives what it pins another id.
    struct Fake {
        there: RefCell<Vec<SnapshotInfo>>,
        writes: Cell<usize>,
        /// Its writes are lost.
        deaf: bool,
    }

    fn start() -> Timestamp {
        Timestamp::new(1, 5).unwrap()
    }

    fn snapshot(id: &str, (pinned, ours): (bool, bool)) -> SnapshotInfo {
        SnapshotInfo {
            id: id.to_owned(),
            source: SourceIdentity {
                username: "policy".to_owned(),
                hostname: "ns".to_owned(),
                path: "/data".to_owned(),
            },
            start: start(),
            end: None,
            cluster: Some("here".to_owned()),
            snapshot_uid: Some("uid".to_owned()),
            pinned,
            pin_is_ours: ours,
            root: Some("files".to_owned()),
            tags: BTreeMap::new(),
            sizes: None,
        }
    }

    fn item(id: &str, on: bool) -> PinItem {
        PinItem {
            uid: "uid".to_owned(),
            snapshot_id: id.to_owned(),
            source: Source {
                username: "policy".to_owned(),
                hostname: "ns".to_owned(),
                path: "/data".to_owned(),
            },
            start_time: Some(start()),
            on,
        }
    }

    fn fake(there: &[SnapshotInfo]) -> Fake {
        Fake {
            there: RefCell::new(there.to_vec()),
            writes: Cell::new(0),
            deaf: false,
        }
    }

    impl Repository for Fake {
        fn unique_id(&self) -> &'static str {
            "fake"
        }
        fn list(&self) -> Result<Listing, EngineError> {
            let mut snapshots = self.there.borrow().clone();
            snapshots.sort_by(|a, b| a.id.cmp(&b.id));
            Ok(Listing {
                snapshots,
                unreadable: Vec::new(),
            })
        }
        fn back_up(
            &mut self,
            _: &[BackupRequest],
            _: &mut dyn FnMut(usize, &SnapshotInfo),
        ) -> Result<(), EngineError> {
            panic!("asked to back up");
        }
        fn delete(&self, ids: &[String]) -> Result<(), EngineError> {
            panic!("asked to delete {ids:?}");
        }
        fn pin(&self, id: &str, on: bool) -> Result<(), EngineError> {
            self.writes.set(self.writes.get() + 1);
            if self.deaf {
                return Ok(());
            }
            for one in self.there.borrow_mut().iter_mut().filter(|one| one.id == id) {
                one.id = format!("{id}-{}", self.writes.get());
                (one.pinned, one.pin_is_ours) = (on, on);
            }
            Ok(())
        }
        fn restore(
            &self,
            id: &str,
            _: &Path,
            _: &RestoreOptions,
            _: &Meter,
        ) -> Result<Restored, EngineError> {
            panic!("asked to restore {id}");
        }
        fn check(&self, depth: Depth) -> Result<(), EngineError> {
            panic!("asked to check {depth:?}");
        }
        fn reclaim(&mut self, _: Effort, _: Option<&str>) -> Result<Reclaimed, EngineError> {
            panic!("asked to reclaim");
        }
        fn maintainer(&self) -> Result<Option<Maintainer>, EngineError> {
            panic!("asked who maintains");
        }
        fn set_maintainer(&mut self, _: &str) -> Result<(), EngineError> {
            panic!("told who maintains");
        }
        fn stored_bytes(&self) -> Result<u64, EngineError> {
            panic!("asked for the size");
        }
    }

    fn told(fake: &Fake, item: &PinItem) -> Result<(String, bool, bool), String> {
        match run(fake, "here", item, Ids::MayChange) {
            Ok(OperationResult::Pinned {
                uid,
                snapshot_id,
                pinned,
                ours,
            }) => {
                assert_eq!(uid, "uid");
                Ok((snapshot_id, pinned, ours))
            }
            Ok(other) => panic!("{other:?}"),
            Err(failed) => Err(failed.failure.message),
        }
    }

    #[test]
    fn the_new_id_is_told_and_a_repeated_job_finds_it_and_writes_nothing() {
        let there = fake(&[snapshot("a", (false, false))]);
        let pinned = Ok(("a-1".to_owned(), true, true));
        assert_eq!(told(&there, &item("a", true)), pinned);
        // The first Job's answer was lost: the object still records the old id.
        assert_eq!(told(&there, &item("a", true)), pinned);
        assert_eq!(there.writes.get(), 1);
        assert_eq!(
            told(&there, &item("a-1", false)),
            Ok(("a-1-2".to_owned(), false, false))
        );
    }

    #[test]
    fn what_was_adopted_carries_the_tag_of_the_object_before_and_is_found_after_the_write() {
        let mut adopted = snapshot("a", (false, false));
        adopted.snapshot_uid = Some("of-the-object-before".to_owned());
        let there = fake(&[adopted]);
        assert_eq!(told(&there, &item("a", true)), Ok(("a-1".to_owned(), true, true)));
        assert_eq!(
            told(&there, &item("a-1", false)),
            Ok(("a-1-2".to_owned(), false, false))
        );
    }

    #[test]
    fn anothers_pin_is_enough_and_is_never_taken_back() {
        let there = fake(&[snapshot("a", (true, false))]);
        for on in [true, false] {
            assert_eq!(told(&there, &item("a", on)), Ok(("a".to_owned(), true, false)));
        }
        assert_eq!(there.writes.get(), 0);
    }

    #[test]
    fn of_two_records_of_one_snapshot_the_one_as_asked_is_told_and_none_is_deleted() {
        let there = fake(&[snapshot("a", (false, false)), snapshot("b", (true, true))]);
        assert_eq!(told(&there, &item("a", true)), Ok(("b".to_owned(), true, true)));
        assert_eq!(
            told(&there, &item("b", false)),
            Ok(("a".to_owned(), false, false))
        );
        assert_eq!((there.writes.get(), there.there.borrow().len()), (0, 2));
    }

    #[test]
    fn what_is_not_certainly_it_is_not_touched() {
        let other = |change: &dyn Fn(&mut SnapshotInfo)| {
            let mut one = snapshot("a", (false, false));
            change(&mut one);
            fake(&[one])
        };
        for there in [
            fake(&[]),
            fake(&[snapshot("b", (false, false)), snapshot("c", (false, false))]),
            other(&|one| one.cluster = Some("there".to_owned())),
            other(&|one| one.source.path = "/elsewhere".to_owned()),
            other(&|one| one.start = Timestamp::from_second(9).unwrap()),
        ] {
            assert!(told(&there, &item("a", true)).is_err());
            assert_eq!(there.writes.get(), 0);
        }
    }

    #[test]
    fn success_without_effect_is_a_failure() {
        let there = Fake {
            deaf: true,
            ..fake(&[snapshot("a", (false, false))])
        };
        let why = told(&there, &item("a", true)).unwrap_err();
        assert!(why.contains("not pinned as before"), "{why}");
    }
}
