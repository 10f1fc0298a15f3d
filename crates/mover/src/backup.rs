//! Taking snapshots.
//!
//! **Promises.** One snapshot per item and UID, however often the Job is retried: a snapshot that carries this
//! cluster's and the item's UID is reported instead of taken again. Each snapshot is one JSON line on standard
//! output, `{"taken": …}`, written after it is committed; those found already there come first.
//!
//! **Assumes.** UIDs of Snapshot objects are unique in a cluster and never used again.

use crate::run::{Failed, failure, failure_of, say};
use holdfast_engine::{BackupRequest, Repository, SnapshotInfo, SourceIdentity};
use holdfast_protocol::outcome::{FailureClass, OperationResult, TakenSnapshot};
use holdfast_protocol::work::BackupItem;
use std::collections::{BTreeMap, BTreeSet};

/// Takes what is not there yet, in item order.
pub(crate) fn run(
    repository: &mut dyn Repository,
    cluster: &str,
    items: &[BackupItem],
) -> Result<OperationResult, Failed> {
    refuse_repeated(items)?;
    let mut known: BTreeMap<String, SnapshotInfo> = BTreeMap::new();
    for snapshot in repository.list()?.snapshots {
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
    let result = OperationResult::BackedUp { taken, first };
    match done {
        Ok(()) => Ok(result),
        Err(error) => Err(Failed {
            failure: failure_of(&error),
            result: Box::new(result),
        }),
    }
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
