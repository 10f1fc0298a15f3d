//! Lost deletions: an engine that does what kopia was seen to do (it exits with 0 and some deletions are undone at once,
//! some come back a minute later), under the mover's own code and the lane's.
//!
//! **Promises.** No finalizer goes while the snapshot of its object is listed, and nothing is left behind at the end:
//! what is undone at once is tried again by its own object, what comes back later by the second look.

use crate::reappeared::look_at;
use crate::server::objects::Objects;
use crate::story::{Story, snapshot_path};
use holdfast_engine::{
    BackupRequest, Depth, Effort, EngineError, ErrorClass, Listing, Maintainer, Meter, Reclaimed, Repository,
    RestoreOptions, Restored, SnapshotInfo, SourceIdentity,
};
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Repository and engine: deletions are lost by a fixed rule, so that a failure can be repeated.
#[derive(Clone, Default)]
struct Kopia(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    there: BTreeSet<String>,
    /// Deletions of an id that are undone at once, and such that come back after the batch.
    undone: BTreeMap<String, u32>,
    comes_back: BTreeMap<String, u32>,
    back_later: BTreeSet<String>,
    deletions: usize,
    lost: usize,
}

impl Kopia {
    fn ids(&self) -> Vec<String> {
        self.0.lock().unwrap().there.iter().cloned().collect()
    }

    fn has(&self, id: &str) -> bool {
        self.0.lock().unwrap().there.contains(id)
    }

    /// A minute later: a writer with an older view has brought entries back.
    fn a_minute_later(&self) {
        let mut inner = self.0.lock().unwrap();
        let back = std::mem::take(&mut inner.back_later);
        inner.there.extend(back);
    }
}

impl Repository for Kopia {
    fn unique_id(&self) -> &'static str {
        "id"
    }

    fn list(&self) -> Result<Listing, EngineError> {
        let ids = self.ids();
        let snapshots = ids.into_iter().map(|id| SnapshotInfo {
            id,
            source: SourceIdentity {
                username: "p".to_owned(),
                hostname: "backup".to_owned(),
                path: "/pvc/data".to_owned(),
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
        });
        Ok(Listing {
            snapshots: snapshots.collect(),
            unreadable: Vec::new(),
        })
    }

    fn back_up(
        &mut self,
        _: &[BackupRequest],
        _: &mut dyn FnMut(usize, &SnapshotInfo),
    ) -> Result<(), EngineError> {
        Err(EngineError::new(
            ErrorClass::Failed,
            "no backups here",
            "a test",
            "none",
        ))
    }

    fn pin(&self, id: &str, on: bool) -> Result<(), EngineError> {
        panic!("asked to pin {id}: {on}");
    }

    fn restore(&self, id: &str, _: &Path, _: &RestoreOptions, _: &Meter) -> Result<Restored, EngineError> {
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

    /// Never an error, whatever is lost.
    fn delete(&self, ids: &[String]) -> Result<(), EngineError> {
        let mut inner = self.0.lock().unwrap();
        for id in ids {
            inner.deletions += 1;
            if let Some(times) = inner.undone.get_mut(id).filter(|times| **times > 0) {
                *times -= 1;
                inner.lost += 1;
                continue;
            }
            inner.there.remove(id);
            if let Some(times) = inner.comes_back.get_mut(id).filter(|times| **times > 0) {
                *times -= 1;
                inner.lost += 1;
                inner.back_later.insert(id.clone());
            }
        }
        Ok(())
    }
}

fn listed(id: &str) -> ListedSnapshot {
    ListedSnapshot {
        snapshot_id: id.to_owned(),
        source: Source {
            username: "p".into(),
            hostname: "backup".into(),
            path: "/pvc/data".into(),
        },
        start_time: Timestamp::UNIX_EPOCH,
        size_bytes: None,
        cluster: None,
        snapshot_uid: None,
        pinned: false,
        pin_is_ours: false,
    }
}

/// The mover of a Job: its own code, on the work document that the Job carries.
fn work(story: &Story, kopia: &Kopia) -> bool {
    let Some((path, job)) = story.job() else {
        return false;
    };
    if !job["status"]["conditions"].is_null() {
        return false;
    }
    let document = &job["spec"]["template"]["metadata"]["annotations"][holdfast_protocol::WORK_ANNOTATION];
    let outcome = holdfast_mover::on(&mut kopia.clone(), document.as_str().unwrap());
    let letters = serde_json::to_value(&outcome).unwrap()["result"]["batch"]["letters"].clone();
    let well = letters.as_str().unwrap().chars().all(|l| matches!(l, 'D' | 'A'));
    story.end(&path, &outcome.encode(), well);
    true
}

/// Whatever waits for its time has waited.
fn hurry(story: &Story) {
    let edit = |path: &str, object: &mut Value| {
        let status = &mut object["status"];
        if path.contains("/snapshots/") && !status["deletion"].is_null() {
            status["deletion"]["nextAttemptAt"] = Value::Null;
        } else if path.contains("/repositories/") {
            let protection = &mut status["deletionProtection"];
            for part in ["jobs", "reappeared"] {
                if !protection[part].is_null() {
                    protection[part]["nextAttemptAt"] = Value::Null;
                }
            }
        }
    };
    let paths: Vec<String> = story.server.objects().by_path.keys().cloned().collect();
    for path in paths
        .iter()
        .filter(|p| p.contains("home-operations.com/v1alpha1/namespaces/backup/"))
    {
        story.server.edit(path, |object| edit(path, object));
    }
}

/// 40 deletions; every third is undone at once once or twice, every fifth comes back a minute later, one of them twice.
#[tokio::test]
async fn lost_deletions_never_release_a_finalizer_over_a_snapshot_that_is_listed() {
    let story = Story::new(100);
    let kopia = Kopia::default();
    let names: Vec<String> = (0..40).map(|n| format!("s{n:02}")).collect();
    {
        let mut inner = kopia.0.lock().unwrap();
        for (n, name) in names.iter().enumerate() {
            let id = format!("id-{name}");
            story.snapshot(name, json!({}));
            inner.there.insert(id.clone());
            if n % 3 == 0 {
                inner.undone.insert(id.clone(), 1 + u32::from(n % 2 == 0));
            }
            if n % 5 == 0 {
                inner.comes_back.insert(id, 1 + u32::from(n == 20));
            }
        }
        inner.there.insert("id-of-somebody-else".to_owned());
    }
    // The moment a finalizer goes, its snapshot is not listed.
    let watched = kopia.clone();
    let broken: Arc<Mutex<Vec<String>>> = Arc::default();
    let found = Arc::clone(&broken);
    let known = Mutex::new(
        names
            .iter()
            .map(|n| snapshot_path(n))
            .collect::<BTreeSet<String>>(),
    );
    story.server.after_write(move |_, objects: &mut Objects| {
        let mut known = known.lock().unwrap();
        known.retain(|path| {
            let there = objects.by_path.contains_key(path);
            let id = format!("id-{}", path.rsplit('/').next().unwrap());
            if !there && watched.has(&id) {
                found.lock().unwrap().push(id);
            }
            there
        });
    });
    let mut batches = 0;
    for _ in 0..60 {
        hurry(&story);
        story.pass().await;
        batches += usize::from(work(&story, &kopia));
        let left = names
            .iter()
            .filter(|n| story.server.get(&snapshot_path(n)).is_some())
            .count();
        if left == 0 && story.job().is_none() {
            break;
        }
    }
    assert!(
        names
            .iter()
            .all(|n| story.server.get(&snapshot_path(n)).is_none())
    );
    assert!(batches >= 3, "{batches} batches");
    assert!(
        broken.lock().unwrap().is_empty(),
        "released over what is listed: {broken:?}"
    );
    assert_eq!(kopia.ids(), ["id-of-somebody-else"], "read back");

    // A minute later some are back, without an object that could say so.
    for round in 0..3 {
        kopia.a_minute_later();
        let back = kopia.ids().len() - 1;
        assert_eq!(back, [8, 1, 0][round]);
        let listing: Vec<ListedSnapshot> = kopia.ids().iter().map(|id| listed(id)).collect();
        look_at(
            &story,
            &listing,
            SignedDuration::from_hours(1 + i64::try_from(round).unwrap()),
        )
        .await;
        for _ in 0..8 {
            hurry(&story);
            story.pass().await;
            work(&story, &kopia);
        }
        assert!(story.job().is_none());
    }
    assert_eq!(
        kopia.ids(),
        ["id-of-somebody-else"],
        "none is left behind, and nothing else was touched"
    );
    let inner = kopia.0.lock().unwrap();
    println!(
        "{} deletions asked for, {} lost, none left behind",
        inner.deletions, inner.lost
    );
    assert!(inner.lost > 20);
    assert!(
        story.ctx.metrics.text().contains(
            "kopiur_deleted_snapshots_reappeared_total{repo_kind=\"Repository\",repo_name=\"nas\"} 9"
        )
    );
}
