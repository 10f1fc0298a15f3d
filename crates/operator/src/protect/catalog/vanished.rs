//! What a whole listing lacks although a live Snapshot records it.
//!
//! **Promises.** It is said on the Snapshot, and nothing else follows from a listing: nothing is deleted, nothing is
//! released, and what is not listed only counts no longer for retention, which then keeps more of the rest. Said once,
//! however often it is not listed. On doubt nothing is said.
//!
//! **Assumes.** The listing is whole, of the repository with this unique id. What is listed again is taken back by the
//! plan.

use super::news::is_newer_than_its_pin;
use super::plan::{Scan, is_row};
use crate::context::{Context, Error};
use crate::protect::snapshot::mark_vanished;
use crate::protect::wave::kept::{moment, moment_of};
use crate::world::views::{RepositoryView, SnapshotView};
use futures::{StreamExt, stream};
use holdfast_api::conditions;
use holdfast_api::snapshot::SnapshotPhase;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashSet;
use std::sync::Arc;

/// So long before the listing began a Snapshot has to be recorded: the two times are of two clocks, and a listing may
/// be behind what was just written.
const CERTAINLY_BEFORE: SignedDuration = SignedDuration::from_mins(5);
/// More than so many are told by one event on the repository instead of one on each Snapshot.
const TOLD_EACH: usize = 10;
/// Statuses written at once.
const AT_ONCE: usize = 8;
/// After this many failures the rest is left to the next scan: it is not about single objects.
const MOST_FAILURES: usize = 50;

/// The Snapshots of which the listing proves that their snapshots went away, and which do not say so yet.
#[must_use]
pub fn lacking(scan: &Scan<'_>) -> Vec<Arc<SnapshotView>> {
    let ids: HashSet<&str> = scan.listing.iter().map(|l| l.snapshot_id.as_str()).collect();
    let moments: HashSet<String> = scan
        .listing
        .iter()
        .map(|l| moment(&l.source, l.start_time))
        .collect();
    let tags: HashSet<&str> = scan
        .listing
        .iter()
        .filter_map(|l| l.snapshot_uid.as_deref())
        .collect();
    let is_lacking = |view: &&Arc<SnapshotView>| {
        let Some(id) = view.snapshot_id().filter(|id| !id.is_empty()) else {
            return false;
        };
        let certain = view.pinned_unique_id() == Some(scan.unique_id)
            && recorded_at(view).is_some_and(|t| t + CERTAINLY_BEFORE < scan.began);
        // An engine may have given it a new id: Kopia does so when it is pinned there.
        let is_under_another_id = || match moment_of(view) {
            Some(moment) => moments.contains(&moment),
            None => tags.contains(view.uid()),
        };
        view.metadata.deletion_timestamp.is_none()
            && view.phase() == Some(SnapshotPhase::Succeeded)
            && !is_row(view)
            && !view.is_vanished()
            && is_newer_than_its_pin(view, scan.began)
            && certain
            && !ids.contains(id)
            && !scan.touched.contains(id)
            && !is_under_another_id()
    };
    scan.snapshots.iter().filter(is_lacking).cloned().collect()
}

/// When its snapshot was certainly recorded. Whoever came back is known to have been there when that was said.
fn recorded_at(view: &SnapshotView) -> Option<Timestamp> {
    let status = view.status.as_ref()?;
    let said = [conditions::READY, conditions::VANISHED];
    let said = said.iter().filter_map(|kind| {
        let condition = conditions::get(&status.conditions, kind)?;
        Some(condition.last_transition_time.0)
    });
    let ended = status.timing.as_ref().and_then(|t| t.end_time);
    let made = view.metadata.creation_timestamp.as_ref()?.0;
    said.chain(ended).chain([made]).max()
}

/// Says it, and answers how many are left to the next scan because somebody else changed them.
///
/// # Errors
/// [`Error`], the first one; others were said all the same.
pub async fn say(
    ctx: &Context,
    view: &RepositoryView,
    lacking: &[Arc<SnapshotView>],
) -> Result<usize, Error> {
    let tell = lacking.len() <= TOLD_EACH;
    let repository = view.key.to_string();
    let marks: Vec<_> = lacking
        .iter()
        .map(|gone| {
            let message = message(gone, &repository);
            async move { mark_vanished(ctx, gone, &message, tell, ctx.clock.now()).await }
        })
        .collect();
    let mut running = stream::iter(marks).buffer_unordered(AT_ONCE);
    let (mut said, mut later, mut failures, mut first) = (0, 0, 0, None);
    while let Some(marked) = running.next().await {
        match marked {
            Ok(()) => said += 1,
            // Changed or gone in between.
            Err(Error::Conflict) => later += 1,
            Err(Error::NotLeader) => return Err(Error::NotLeader),
            Err(error) => {
                failures += 1;
                first.get_or_insert(error);
            }
        }
        if failures >= MOST_FAILURES {
            break;
        }
    }
    drop(running);
    if said > 0 && !tell {
        let note = format!(
            "{said} snapshots that Snapshots record are not in the repository, and none of these was deleted here: each says so (condition Vanished) and no longer counts for retention. Nothing is deleted on their account. Look whether the bucket was rolled back or emptied, or whether another program deletes in it."
        );
        ctx.warn_repository(view, "SnapshotVanished", &note, "CheckRepository")
            .await;
    }
    first.map_or(Ok(later), Err)
}

fn message(gone: &SnapshotView, repository: &str) -> String {
    format!(
        "The snapshot {} is not in {repository} although this object was not deleted: it no longer counts for retention, and nothing is pruned on its account. If it is not coming back, delete this object; if the bucket was rolled back or changed by another tool, look there first.",
        gone.snapshot_id().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::super::adopt::Facts;
    use super::super::plan::Bounds;
    use super::*;
    use crate::protect::wave::kept::LetGo;
    use holdfast_api::Repository;
    use holdfast_protocol::chunks::ListedSnapshot;
    use holdfast_protocol::work::Source;
    use serde_json::{Value, json};

    const BEGAN: i64 = 1_000_000;
    const START: i64 = 500_000;

    type Edit = fn(&mut Value);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// One of the listing, begun within the second `start`.
    fn listed(id: &str, path: &str, start: i64, uid: Option<&str>) -> ListedSnapshot {
        ListedSnapshot {
            snapshot_id: id.into(),
            source: Source {
                username: "p".into(),
                hostname: "a".into(),
                path: path.into(),
            },
            start_time: at(start) + SignedDuration::from_millis(250),
            size_bytes: None,
            cluster: None,
            snapshot_uid: uid.map(str::to_owned),
            pinned: false,
            pin_is_ours: false,
        }
    }

    /// A Snapshot of `x` that was recorded long before the listing began, changed by `edit`.
    fn recording(edit: impl FnOnce(&mut Value)) -> Arc<SnapshotView> {
        let mut value = json!({
            "metadata": {
                "name": "s", "namespace": "a", "uid": "uid-s",
                "creationTimestamp": at(START).to_string(),
                "labels": { "kopiur.home-operations.com/origin": "scheduled" },
            },
            "spec": { "policyRef": { "name": "p" } },
            "status": {
                "phase": "Succeeded", "origin": "scheduled",
                "snapshot": {
                    "kopiaSnapshotID": "x",
                    "identity": { "username": "p", "hostname": "a", "sourcePath": "/pvc/data" },
                },
                "timing": { "startTime": at(START).to_string(), "endTime": at(START + 60).to_string() },
                "resolved": { "uniqueId": "unique" },
                "conditions": [],
            },
        });
        edit(&mut value);
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn condition(kind: &str, status: &str, second: i64) -> Value {
        json!({
            "type": kind, "status": status, "reason": "R", "message": "",
            "lastTransitionTime": at(second).to_string(),
        })
    }

    fn is_lacking(view: Arc<SnapshotView>, listing: &[ListedSnapshot], touched: &[&str]) -> bool {
        let object: Repository = serde_json::from_value(json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Repository",
            "metadata": { "name": "vault", "namespace": "a", "uid": "repo-uid" },
            "spec": {
                "engine": "Restic",
                "backend": { "filesystem": { "volume": { "pvc": { "name": "repo" } } } },
                "encryption": { "passwordSecretRef": { "name": "s" } },
            },
            "status": { "uniqueId": "unique", "phase": "Ready" },
        }))
        .unwrap();
        let repository = RepositoryView::namespaced(object);
        let snapshots = [view];
        let touched = touched.iter().map(|id| (*id).to_owned()).collect();
        let scan = Scan {
            repository: &repository,
            unique_id: "unique",
            began: at(BEGAN),
            listing,
            snapshots: &snapshots,
            touched: &touched,
            bounds: Bounds::default(),
            watched: &HashSet::new(),
            adoption: Facts {
                repository: &repository,
                claimants: &[],
                let_go: &LetGo::default(),
                incomplete: false,
                cluster: "here",
                now: at(BEGAN),
            },
        };
        !lacking(&scan).is_empty()
    }

    #[test]
    fn what_a_whole_listing_lacks_is_reported_even_when_it_lists_nothing() {
        assert!(is_lacking(recording(|_| {}), &[], &[]));
        let others = [
            listed("y", "/pvc/data", START + 1, Some("uid-s")),
            listed("z", "/pvc/other", START, None),
        ];
        assert!(
            is_lacking(recording(|_| {}), &others, &["z"]),
            "another moment, another path, another's deletion: none of them is it"
        );
    }

    #[test]
    fn what_is_listed_is_not_reported_be_it_under_another_id() {
        let there = [listed("x", "/pvc/data", START, None)];
        assert!(!is_lacking(recording(|_| {}), &there, &[]));
        let renamed = [listed("y", "/pvc/data", START, None)];
        assert!(!is_lacking(recording(|_| {}), &renamed, &[]));
        // Nothing says what it is of: its tag does.
        let unknown = || recording(|o| o["status"]["timing"]["startTime"] = Value::Null);
        let tagged = |uid| [listed("y", "/pvc/data", START + 1, Some(uid))];
        assert!(!is_lacking(unknown(), &tagged("uid-s"), &[]));
        assert!(is_lacking(unknown(), &tagged("uid-t"), &[]));
    }

    #[test]
    fn what_a_batch_may_have_deleted_is_not_reported() {
        assert!(!is_lacking(recording(|_| {}), &[], &["x"]));
    }

    #[test]
    fn what_was_recorded_when_the_listing_began_or_later_is_not_reported() {
        let margin = CERTAINLY_BEFORE.as_secs();
        for (second, lacking) in [
            (BEGAN + 60, false),
            (BEGAN - margin, false),
            (BEGAN - margin - 1, true),
        ] {
            let ready =
                |o: &mut Value| o["status"]["conditions"] = json!([condition("Ready", "True", second)]);
            assert_eq!(is_lacking(recording(ready), &[], &[]), lacking, "{second}");
            let back =
                |o: &mut Value| o["status"]["conditions"] = json!([condition("Vanished", "False", second)]);
            assert_eq!(is_lacking(recording(back), &[], &[]), lacking, "{second}");
            let made = |o: &mut Value| o["metadata"]["creationTimestamp"] = json!(at(second).to_string());
            assert_eq!(is_lacking(recording(made), &[], &[]), lacking, "{second}");
        }
        let unknown = |o: &mut Value| o["metadata"]["creationTimestamp"] = Value::Null;
        assert!(
            !is_lacking(recording(unknown), &[], &[]),
            "nobody knows since when"
        );
    }

    #[test]
    fn only_live_succeeded_snapshots_of_this_repository_that_do_not_say_so_yet_are_reported() {
        let edits: [(&str, Edit); 10] = [
            ("being deleted", |o| {
                o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
            ("elsewhere", |o| {
                o["status"]["resolved"]["uniqueId"] = json!("other")
            }),
            ("nobody knows where", |o| o["status"]["resolved"] = Value::Null),
            ("running", |o| o["status"]["phase"] = json!("Running")),
            ("failed", |o| o["status"]["phase"] = json!("Failed")),
            ("without an id", |o| {
                o["status"]["snapshot"]["kopiaSnapshotID"] = json!("")
            }),
            ("a row", |o| {
                o["metadata"]["labels"]["kopiur.home-operations.com/origin"] = json!("discovered");
                o["status"]["origin"] = json!("discovered");
            }),
            ("said", |o| {
                o["status"]["conditions"] = json!([condition("Vanished", "True", 1)])
            }),
            ("a pin Job is at work", |o| {
                o["status"]["pin"] = json!({ "job": "s-pin" })
            }),
            ("its pin was read since", |o| {
                o["status"]["pin"] = json!({ "readAt": at(BEGAN + 1).to_string() })
            }),
        ];
        for (what, edit) in edits {
            assert!(!is_lacking(recording(edit), &[], &[]), "{what}");
        }
    }
}
