//! Taking snapshots.
//!
//! **Promises.** One snapshot per item and UID, however often the Job is retried: a snapshot that carries this
//! cluster's and the item's UID is reported instead of taken again. Each snapshot is one JSON line on standard
//! output, `{"taken": …}`, written after it is committed; those found already there come first. Snapshots of the same
//! sources that went away during the run are named: Kopia expires by its own policy, which the engine switches off.
//!
//! **Assumes.** UIDs of Snapshot objects are unique in a cluster and never used again.

use crate::run::{Failed, failure, failure_of, say};
use holdfast_engine::{BackupRequest, Listing, Repository, SnapshotInfo, SourceIdentity};
use holdfast_protocol::outcome::{FailureClass, MISSING_LIMIT, OperationResult, TakenSnapshot};
use holdfast_protocol::work::{BackupItem, cut};
use std::collections::{BTreeMap, BTreeSet};

/// Takes what is not there yet, in item order.
pub(crate) fn run(
    repository: &mut dyn Repository,
    cluster: &str,
    items: &[BackupItem],
) -> Result<OperationResult, Failed> {
    refuse_repeated(items)?;
    let mut known: BTreeMap<String, SnapshotInfo> = BTreeMap::new();
    let before = repository.list()?;
    for snapshot in before.snapshots.clone() {
        let Some(uid) = snapshot
            .snapshot_uid
            .clone()
            .filter(|_| snapshot.cluster.as_deref() == Some(cluster))
        else {
            continue;
        };
        // Of several for one UID the oldest is the one that was, or should have been, reported.
        if known.get(&uid).is_none_or(|held| snapshot.start < held.start) {
            known.insert(uid, snapshot);
        }
    }
    let mut taken = 0;
    let mut first = None;
    let mut todo = Vec::new();
    for (number, item) in items.iter().enumerate() {
        match known.get(&item.uid) {
            Some(info) => {
                say(&format!(
                    "a snapshot for {} is there already; it is not taken again",
                    item.uid
                ));
                report(&item.uid, info, number == 0, &mut taken, &mut first);
            }
            None => todo.push((number, request(cluster, item))),
        }
    }
    let requests: Vec<BackupRequest> = todo.iter().map(|(_, r)| r.clone()).collect();
    let done = repository.back_up(&requests, &mut |place, info| {
        let Some((number, request)) = todo.get(place) else {
            return;
        };
        report(&request.snapshot_uid, info, *number == 0, &mut taken, &mut first);
    });
    // A snapshot taken is a snapshot taken: a listing that fails now is no failure of the backup.
    let vanished = match repository.list() {
        Ok(after) => vanished(items, &before, &after),
        Err(error) => {
            say(&format!(
                "whether older snapshots vanished meanwhile is not known: {error}"
            ));
            Vec::new()
        }
    };
    if !vanished.is_empty() {
        say(&format!(
            "{} older snapshots of these sources vanished during the run, the first is {}; this run deleted nothing",
            vanished.len(),
            vanished[0]
        ));
    }
    let vanished = vanished
        .iter()
        .take(MISSING_LIMIT)
        .map(|id| cut(id).to_owned())
        .collect();
    let result = OperationResult::BackedUp {
        taken,
        first,
        vanished,
    };
    match done {
        Ok(()) => Ok(result),
        Err(error) => Err(Failed {
            failure: failure_of(&error),
            result: Box::new(result),
        }),
    }
}

/// Ids of the items' sources that only the first listing has. One whose record was written anew under another id, as
/// pinning does, is there.
fn vanished(items: &[BackupItem], before: &Listing, after: &Listing) -> Vec<String> {
    let renamed = |s: &SnapshotInfo| {
        let same = |now: &SnapshotInfo| {
            (&now.source, now.start, &now.snapshot_uid) == (&s.source, s.start, &s.snapshot_uid)
        };
        after
            .snapshots
            .iter()
            .any(|now| same(now) && before.find(&now.id).is_none())
    };
    let of_ours = |s: &&SnapshotInfo| {
        items.iter().any(|item| {
            let source = &item.source;
            source.username == s.source.username
                && source.hostname == s.source.hostname
                && source.path == s.source.path
        })
    };
    let gone = before
        .snapshots
        .iter()
        .filter(of_ours)
        .filter(|s| !after.contains(&s.id) && !renamed(s));
    gone.map(|s| s.id.clone()).collect()
}

fn refuse_repeated(items: &[BackupItem]) -> Result<(), Failed> {
    let mut seen = BTreeSet::new();
    match items.iter().find(|item| !seen.insert(&item.uid)) {
        None => Ok(()),
        Some(item) => {
            let message = format!("the work document has two items for {}; send one", item.uid);
            Err(failure(FailureClass::InvalidWork, message).into())
        }
    }
}

fn request(cluster: &str, item: &BackupItem) -> BackupRequest {
    BackupRequest {
        read_from: item.read_from.clone().into(),
        source: SourceIdentity {
            username: item.source.username.clone(),
            hostname: item.source.hostname.clone(),
            path: item.source.path.clone(),
        },
        cluster: cluster.to_owned(),
        snapshot_uid: item.uid.clone(),
        tags: item.tags.clone(),
    }
}

fn report(
    uid: &str,
    info: &SnapshotInfo,
    is_first: bool,
    taken: &mut u64,
    first: &mut Option<TakenSnapshot>,
) {
    let sizes = info.sizes.unwrap_or_default();
    let snapshot = TakenSnapshot {
        uid: uid.to_owned(),
        snapshot_id: info.id.clone(),
        start_time: info.start,
        end_time: info.end.unwrap_or(info.start),
        size_bytes: sizes.size_bytes,
        bytes_new: sizes.bytes_new,
        files_new: sizes.files_new,
        files_modified: sizes.files_modified,
        files_unchanged: sizes.files_unchanged,
    };
    say(&serde_json::json!({ "taken": snapshot }).to_string());
    *taken += 1;
    if is_first {
        *first = Some(snapshot);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use holdfast_engine::{
        Depth, Effort, EngineError, Maintainer, Meter, Reclaimed, RestoreOptions, Restored,
    };
    use holdfast_protocol::work::Source;
    use jiff::Timestamp;
    use std::cell::RefCell;
    use std::path::Path;

    /// A repository whose program expires the oldest snapshot with every new one.
    struct Expiring(RefCell<Vec<SnapshotInfo>>);

    fn source(path: &str) -> Source {
        Source {
            username: "policy".to_owned(),
            hostname: "ns".to_owned(),
            path: path.to_owned(),
        }
    }

    fn snapshot(id: &str, path: &str) -> SnapshotInfo {
        SnapshotInfo {
            id: id.to_owned(),
            source: SourceIdentity {
                username: "policy".to_owned(),
                hostname: "ns".to_owned(),
                path: path.to_owned(),
            },
            start: Timestamp::UNIX_EPOCH,
            end: None,
            cluster: None,
            snapshot_uid: None,
            pinned: false,
            pin_is_ours: false,
            root: Some("files".to_owned()),
            tags: BTreeMap::new(),
            sizes: None,
        }
    }

    impl Repository for Expiring {
        fn unique_id(&self) -> &str {
            "unique"
        }

        fn list(&self) -> Result<Listing, EngineError> {
            Ok(Listing {
                snapshots: self.0.borrow().clone(),
                unreadable: Vec::new(),
            })
        }

        fn back_up(
            &mut self,
            requests: &[BackupRequest],
            taken: &mut dyn FnMut(usize, &SnapshotInfo),
        ) -> Result<(), EngineError> {
            for (number, request) in requests.iter().enumerate() {
                let new = SnapshotInfo {
                    start: Timestamp::from_second(1).unwrap(),
                    ..snapshot(&format!("new-{number}"), &request.source.path)
                };
                taken(number, &new);
                let mut all = self.0.borrow_mut();
                all.remove(0);
                all.push(new);
            }
            Ok(())
        }

        fn delete(&self, ids: &[String]) -> Result<(), EngineError> {
            panic!("asked to delete {ids:?}");
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
    }

    #[test]
    fn one_that_was_pinned_meanwhile_has_not_vanished() {
        let listing = |snapshots: &[SnapshotInfo]| Listing {
            snapshots: snapshots.to_vec(),
            unreadable: Vec::new(),
        };
        let item = BackupItem {
            uid: "one".to_owned(),
            read_from: "/".to_owned(),
            source: source("/data"),
            tags: BTreeMap::new(),
        };
        let (a, renamed) = (snapshot("a", "/data"), snapshot("b", "/data"));
        let gone = |after: &[SnapshotInfo]| {
            vanished(
                std::slice::from_ref(&item),
                &listing(std::slice::from_ref(&a)),
                &listing(after),
            )
        };
        assert!(gone(std::slice::from_ref(&renamed)).is_empty());
        let another = SnapshotInfo {
            start: Timestamp::from_second(1).unwrap(),
            ..renamed
        };
        assert_eq!(gone(&[another]), ["a"]);
    }

    #[test]
    fn snapshots_of_the_same_source_that_vanished_are_named() {
        let there = [("a", "/other"), ("b", "/data"), ("c", "/data")].map(|(id, path)| snapshot(id, path));
        let mut repository = Expiring(RefCell::new(there.into()));
        let item = |uid: &str| BackupItem {
            uid: uid.to_owned(),
            read_from: "/".to_owned(),
            source: source("/data"),
            tags: BTreeMap::new(),
        };
        let Ok(result) = run(&mut repository, "cluster", &[item("one"), item("two")]) else {
            panic!("a success");
        };
        let OperationResult::BackedUp { taken, vanished, .. } = result else {
            panic!("a backup");
        };
        assert_eq!((taken, vanished), (2, vec!["b".to_owned()]));
    }
}
