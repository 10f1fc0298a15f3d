//! Batches against repositories that fail in every way we know of.
#![allow(clippy::unwrap_used)]
use super::*;
use holdfast_engine::{
    BackupRequest, Depth, Effort, Listing, Maintainer, Meter, Reclaimed, RestoreOptions, Restored,
    SnapshotInfo, SourceIdentity,
};
use holdfast_protocol::letters::Letter;
use holdfast_protocol::work::Source;
use jiff::Timestamp;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;

/// What `delete` does with a call.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Deletes nothing of a call that has a poisonous id.
    AllOrNothing,
    /// Deletes what is before the first poisonous id.
    UpToPoison,
    /// Deletes all but the poisonous ids, then reports an error.
    AroundPoison,
    /// Deletes half and then fails, poison or not; a single id is deleted unless poisonous.
    Half,
    /// Panics on a poisonous id, having deleted nothing.
    Panic,
    /// Says that all went well and deletes nothing.
    Lie,
    /// Reports an error for every call and has deleted everything.
    FalseAlarm,
}

struct Fake {
    there: RefCell<BTreeSet<String>>,
    poison: BTreeSet<String>,
    manner: Manner,
    calls: RefCell<Vec<Vec<String>>>,
    lists: Cell<usize>,
    failing_list: Option<usize>,
}

fn broken(what: &str) -> EngineError {
    EngineError::new(
        ErrorClass::Unreachable,
        what,
        "input/output error",
        "Check the disk",
    )
}

fn id(n: usize) -> String {
    format!("{n:064}")
}

impl Fake {
    fn new(count: usize, poison: &[usize], manner: Manner) -> Self {
        Self {
            there: RefCell::new((0..count).map(id).collect()),
            poison: poison.iter().copied().map(id).collect(),
            manner,
            calls: RefCell::default(),
            lists: Cell::new(0),
            failing_list: None,
        }
    }

    fn remove<'a>(&self, ids: impl IntoIterator<Item = &'a String>) {
        for id in ids {
            self.there.borrow_mut().remove(id);
        }
    }
}

impl Repository for Fake {
    fn unique_id(&self) -> &'static str {
        "fake"
    }

    fn list(&self) -> Result<Listing, EngineError> {
        self.lists.set(self.lists.get() + 1);
        if self.failing_list == Some(self.lists.get()) {
            return Err(broken("the listing failed"));
        }
        let there = self.there.borrow();
        let snapshots = there.iter().map(|id| SnapshotInfo {
            id: id.clone(),
            source: SourceIdentity {
                username: "policy".to_owned(),
                hostname: "ns".to_owned(),
                path: "/pvc/data".to_owned(),
            },
            start: Timestamp::UNIX_EPOCH,
            end: None,
            cluster: None,
            snapshot_uid: None,
            pinned: false,
            pin_is_ours: false,
            root: Some("files".to_owned()),
            tags: std::collections::BTreeMap::new(),
            sizes: None,
        });
        Ok(Listing {
            snapshots: snapshots.collect(),
            unreadable: Vec::new(),
        })
    }

    fn back_up(
        &mut self,
        _requests: &[BackupRequest],
        _taken: &mut dyn FnMut(usize, &SnapshotInfo),
    ) -> Result<(), EngineError> {
        Err(broken("no backups here"))
    }

    fn pin(&self, id: &str, on: bool) -> Result<(), EngineError> {
        panic!("asked to pin {id}: {on}");
    }

    fn restore(
        &self,
        id: &str,
        _to: &Path,
        _how: &RestoreOptions,
        _meter: &Meter,
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

    fn delete(&self, ids: &[String]) -> Result<(), EngineError> {
        self.calls.borrow_mut().push(ids.to_vec());
        let poisonous = |id: &String| self.poison.contains(id);
        let first_bad = ids.iter().position(poisonous);
        match self.manner {
            Manner::Lie => return Ok(()),
            Manner::FalseAlarm => {
                self.remove(ids);
                return Err(broken("a false alarm"));
            }
            Manner::Half if ids.len() > 1 => {
                self.remove(ids[..ids.len() / 2].iter().filter(|i| !poisonous(i)));
                return Err(broken("half of it failed"));
            }
            Manner::Half
            | Manner::AllOrNothing
            | Manner::UpToPoison
            | Manner::AroundPoison
            | Manner::Panic => {}
        }
        let Some(bad) = first_bad else {
            self.remove(ids);
            return Ok(());
        };
        match self.manner {
            Manner::UpToPoison => self.remove(&ids[..bad]),
            Manner::AroundPoison => self.remove(ids.iter().filter(|i| !poisonous(i))),
            Manner::Panic => panic!("poison"),
            Manner::AllOrNothing | Manner::Half | Manner::Lie | Manner::FalseAlarm => {}
        }
        Err(broken("a poisonous id"))
    }
}

fn members(count: usize) -> Vec<BatchMember> {
    (0..count)
        .map(|n| BatchMember {
            uid: format!("uid-{n}"),
            snapshot_id: id(n),
            source: Source {
                username: "policy".to_owned(),
                hostname: "ns".to_owned(),
                path: "/pvc/data".to_owned(),
            },
            start_time: None,
            justified_by: None,
            seen_here: true,
        })
        .collect()
}

/// The letters, and the message if there is one.
fn carry_out(fake: &Fake, count: usize) -> (Option<Vec<Letter>>, Option<String>) {
    let (result, message) = match run(fake, "cluster", &members(count), &[], Ids::Fixed) {
        Ok(result) => (result, None),
        Err(failed) => (*failed.result, Some(failed.failure.message)),
    };
    let letters = match result {
        OperationResult::Batch { missing: _, letters } => Some(letters::read(&letters, count).unwrap()),
        OperationResult::None
        | OperationResult::Bootstrapped { .. }
        | OperationResult::BackedUp { .. }
        | OperationResult::Listed { .. }
        | OperationResult::Restore(_)
        | OperationResult::Maintained { .. }
        | OperationResult::Pinned { .. }
        | OperationResult::NotOwner { .. } => None,
    };
    (letters, message)
}

#[test]
fn when_all_goes_well_there_is_one_call_and_two_listings() {
    let fake = Fake::new(200, &[], Manner::AllOrNothing);
    assert_eq!(carry_out(&fake, 200), (Some(vec![Letter::Deleted; 200]), None));
    assert_eq!((fake.calls.borrow().len(), fake.lists.get()), (1, 2));
}

#[test]
fn nothing_to_delete_is_no_call() {
    let fake = Fake::new(0, &[], Manner::AllOrNothing);
    assert_eq!(carry_out(&fake, 3), (Some(vec![Letter::Absent; 3]), None));
    assert_eq!(fake.calls.borrow().len(), 0);
}

#[test]
fn one_poisonous_id_is_isolated() {
    let manners = [
        Manner::AllOrNothing,
        Manner::UpToPoison,
        Manner::AroundPoison,
        Manner::Half,
        Manner::Panic,
    ];
    for manner in manners {
        for bad in [0, 77, 199] {
            let fake = Fake::new(200, &[bad], manner);
            let (letters, message) = carry_out(&fake, 200);
            let mut expected = vec![Letter::Deleted; 200];
            expected[bad] = Letter::Failed;
            assert_eq!(letters, Some(expected), "{manner:?} {bad}");
            assert!(message.unwrap().contains(&id(bad)));
            let calls = fake.calls.borrow().len();
            assert!(calls <= 40, "{manner:?} {bad}: {calls} calls");
        }
    }
}

#[test]
fn a_repository_in_which_everything_fails_costs_few_listings() {
    let all: Vec<usize> = (0..200).collect();
    let fake = Fake::new(200, &all, Manner::AllOrNothing);
    assert_eq!(carry_out(&fake, 200).0, Some(vec![Letter::Failed; 200]));
    assert_eq!(fake.lists.get(), LOOKS + 2);
    assert!(fake.calls.borrow().len() < 250, "{}", fake.calls.borrow().len());
}

#[test]
fn a_lie_is_found_out_by_the_read_back() {
    let fake = Fake::new(5, &[], Manner::Lie);
    assert_eq!(carry_out(&fake, 5), (Some(vec![Letter::StillThere; 5]), None));
}

#[test]
fn a_false_alarm_is_a_success() {
    let fake = Fake::new(5, &[], Manner::FalseAlarm);
    assert_eq!(carry_out(&fake, 5), (Some(vec![Letter::Deleted; 5]), None));
    let single = Fake::new(1, &[], Manner::FalseAlarm);
    assert_eq!(carry_out(&single, 1), (Some(vec![Letter::Deleted]), None));
}

#[test]
fn a_listing_that_fails_confirms_nothing() {
    for failing in 1..=3 {
        let mut fake = Fake::new(5, &[2], Manner::AllOrNothing);
        fake.failing_list = Some(failing);
        let (letters, message) = carry_out(&fake, 5);
        assert_eq!(letters, None, "listing {failing}");
        assert!(message.unwrap().contains("the listing failed"));
    }
    let mut fake = Fake::new(5, &[], Manner::AllOrNothing);
    fake.failing_list = Some(2);
    assert_eq!(carry_out(&fake, 5).0, None, "the read-back");
}

proptest! {
    /// Whatever the engine does: a confirmed member's snapshot is gone, every id that can be deleted is, and
    /// nothing that was not asked for is touched.
    #[test]
    fn no_manner_of_failing_blocks_or_misleads(
        count in 1usize..60,
        poison in prop::collection::btree_set(0usize..60, 0..60),
        asked in 1usize..60,
        manner in prop::sample::select(vec![
            Manner::AllOrNothing, Manner::UpToPoison, Manner::AroundPoison, Manner::Half, Manner::Lie,
            Manner::FalseAlarm,
        ]),
    ) {
        let poison: Vec<usize> = poison.into_iter().collect();
        let fake = Fake::new(count, &poison, manner);
        let letters = carry_out(&fake, asked).0.unwrap();
        let there = fake.there.borrow();
        for (n, letter) in letters.into_iter().enumerate() {
            prop_assert_eq!(letter.confirms(), !there.contains(&id(n)));
            let blocked = poison.contains(&n) || matches!(manner, Manner::Lie);
            prop_assert!(letter.confirms() || blocked, "{:?} {}", manner, n);
        }
        for n in asked..count {
            prop_assert!(there.contains(&id(n)));
        }
        for call in fake.calls.borrow().iter() {
            let once: BTreeSet<_> = call.iter().collect();
            prop_assert_eq!(once.len(), call.len());
        }
    }
}
