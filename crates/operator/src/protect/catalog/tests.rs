//! When a scan comes, and which rows it asks for.

use super::adopt::Facts;
use super::due::{Request, Settled, Want, connected, ended, keeps_data, put_off, wanted};
use super::plan::{Bounds, Plan, Scan, plan};
use super::row;
use crate::protect::wave::kept::LetGo;
use crate::world::keys::ObjectKey;
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::Repository;
use holdfast_api::repository::{CatalogRetain, CatalogStatus, ScanDue};
use holdfast_core::deletion::{DeleteReason, OrphanReason, ReleaseReason, RetainReason, Verdict};
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

const BEGAN: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn repository() -> RepositoryView {
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
    RepositoryView::namespaced(object)
}

fn listed(id: &str, uid: Option<&str>) -> ListedSnapshot {
    ListedSnapshot {
        snapshot_id: id.into(),
        source: Source {
            username: "p".into(),
            hostname: "a".into(),
            path: "/pvc/data".into(),
        },
        start_time: at(500),
        size_bytes: Some(7),
        cluster: Some("here".into()),
        snapshot_uid: uid.map(str::to_owned),
        pinned: false,
        pin_is_ours: false,
    }
}

/// A Snapshot object, changed by `edit`.
fn object(name: &str, edit: impl FnOnce(&mut Value)) -> Arc<SnapshotView> {
    let mut value = json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": at(BEGAN - 100).to_string(),
            "labels": { "kopiur.home-operations.com/origin": "scheduled" },
        },
        "spec": { "policyRef": { "name": "p" } },
        "status": { "phase": "Succeeded", "origin": "scheduled", "resolved": {
            "repository": { "kind": "Repository", "name": "vault", "namespace": "a" }, "uniqueId": "unique",
        } },
    });
    edit(&mut value);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn recording(name: &str, id: &str) -> Arc<SnapshotView> {
    object(name, |o| {
        o["status"]["snapshot"] = json!({ "kopiaSnapshotID": id })
    })
}

/// The row that the catalog makes for an id, as the watch delivers it.
fn row_of(id: &str, edit: impl FnOnce(&mut Value)) -> Arc<SnapshotView> {
    let repository = repository();
    let key = ObjectKey::new("a", row::name(&repository, id));
    let made = row::object(&repository, &key, &listed(id, None));
    let mut value = serde_json::to_value(made).unwrap();
    value["metadata"]["uid"] = json!(format!("row-{id}"));
    value["metadata"]["creationTimestamp"] = json!(at(BEGAN - 100).to_string());
    value["status"] = row::status(&repository, &listed(id, None), "here", Some(1), at(BEGAN - 99));
    edit(&mut value);
    Arc::new(serde_json::from_value(value).unwrap())
}

struct Found {
    create: Vec<String>,
    complete: Vec<String>,
    remove: Vec<String>,
    seen_again: Vec<String>,
    kept: usize,
    not_shown: usize,
    unplaced: usize,
    uncertain: usize,
}

fn scan_with(
    listing: &[ListedSnapshot],
    snapshots: &[Arc<SnapshotView>],
    touched: &[&str],
    place: impl Fn(&ListedSnapshot) -> Option<String>,
) -> Found {
    scan_within(Bounds::default(), listing, snapshots, touched, place)
}

fn scan_within(
    bounds: Bounds,
    listing: &[ListedSnapshot],
    snapshots: &[Arc<SnapshotView>],
    touched: &[&str],
    place: impl Fn(&ListedSnapshot) -> Option<String>,
) -> Found {
    let repository = repository();
    let touched: HashSet<String> = touched.iter().map(|t| (*t).to_owned()).collect();
    let scan = Scan {
        repository: &repository,
        unique_id: "unique",
        began: at(BEGAN),
        listing,
        snapshots,
        touched: &touched,
        bounds,
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
    let Plan {
        create,
        complete,
        adopt: _,
        told: _,
        remove,
        seen_again,
        news: _,
        kept,
        not_shown,
        unplaced,
        uncertain,
    } = plan(&scan, place);
    let name = |view: &Arc<SnapshotView>| view.metadata.name.clone().unwrap();
    Found {
        create: create.iter().map(|(_, l)| l.snapshot_id.clone()).collect(),
        complete: complete.iter().map(|(view, _)| name(view)).collect(),
        remove: remove.iter().map(|one| name(&one.row)).collect(),
        seen_again: seen_again.iter().map(name).collect(),
        kept,
        not_shown,
        unplaced,
        uncertain,
    }
}

fn scan(listing: &[ListedSnapshot], snapshots: &[Arc<SnapshotView>]) -> Found {
    scan_with(listing, snapshots, &[], |l| Some(l.source.hostname.clone()))
}

#[test]
fn what_no_object_records_gets_a_row() {
    let found = scan(
        &[
            listed("x", Some("uid-gone")),
            listed("y", None),
            listed("x", None),
        ],
        &[],
    );
    assert_eq!(
        found.create,
        ["x", "y"],
        "each once, whether it was tagged or not"
    );
    assert!(found.remove.is_empty());
}

#[test]
fn what_an_object_records_gets_none_even_while_it_is_being_deleted() {
    let live = recording("s", "x");
    let deleting = object("t", |o| {
        o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        o["status"]["snapshot"] = json!({ "kopiaSnapshotID": "y" });
    });
    let row = row_of("z", |_| {});
    let found = scan(
        &[listed("x", None), listed("y", None), listed("z", None)],
        &[live, deleting, row],
    );
    assert!(found.create.is_empty());
    assert!(found.remove.is_empty());
    assert_eq!(found.kept, 1);
}

#[test]
fn the_same_id_in_another_physical_repository_records_nothing_here() {
    let elsewhere = object("s", |o| {
        o["status"]["resolved"]["uniqueId"] = json!("other");
        o["status"]["snapshot"] = json!({ "kopiaSnapshotID": "x" });
    });
    assert_eq!(scan(&[listed("x", None)], &[elsewhere]).create, ["x"]);
    let unknown = object("s", |o| {
        o["status"]["resolved"] = Value::Null;
        o["status"]["snapshot"] = json!({ "kopiaSnapshotID": "x" });
    });
    assert!(
        scan(&[listed("x", None)], &[unknown]).create.is_empty(),
        "in doubt it records it"
    );
}

#[test]
fn a_run_whose_result_is_unread_may_still_record_what_it_took() {
    for phase in ["Pending", "Running", "Deleting", "OfANewerRelease"] {
        let run = object("s", |o| o["status"]["phase"] = json!(phase));
        let found = scan(&[listed("x", Some("uid-s"))], &[run]);
        assert!(found.create.is_empty(), "{phase}");
    }
    let no_status = object("s", |o| o["status"] = Value::Null);
    assert!(
        scan(&[listed("x", Some("uid-s"))], &[no_status])
            .create
            .is_empty()
    );
    for phase in ["Failed", "Unchanged"] {
        let over = object("s", |o| o["status"]["phase"] = json!(phase));
        let found = scan(&[listed("x", Some("uid-s"))], &[over]);
        assert_eq!(
            found.create,
            ["x"],
            "{phase}: nothing will ever be recorded for it"
        );
    }
}

#[test]
fn a_second_snapshot_of_one_run_gets_a_row_unless_the_id_may_have_been_changed() {
    let first = [recording("s", "x")];
    let both = [listed("x", Some("uid-s")), listed("y", Some("uid-s"))];
    assert_eq!(scan(&both, &first).create, ["y"]);
    assert!(scan(&both[1..], &first).create.is_empty(), "x may have become y");
}

#[test]
fn a_row_goes_when_a_whole_listing_that_began_after_it_lacks_its_snapshot() {
    let rows = [row_of("x", |_| {}), row_of("y", |_| {})];
    let found = scan(&[listed("y", None)], &rows);
    assert_eq!(found.remove, [row::name(&repository(), "x")]);
    assert_eq!(found.kept, 1);
    for second in [BEGAN, BEGAN + 1] {
        let young = row_of("x", |o| {
            o["metadata"]["creationTimestamp"] = json!(at(second).to_string())
        });
        assert!(
            scan(&[], &[young]).remove.is_empty(),
            "the listing proves nothing about it"
        );
    }
}

#[test]
fn only_rows_of_this_object_and_this_physical_repository_go() {
    type Edit = fn(&mut Value);
    let edits: [(&str, Edit); 6] = [
        ("no row", |o| {
            o["metadata"]["labels"]["kopiur.home-operations.com/origin"] = json!("scheduled")
        }),
        ("adopted", |o| o["status"]["origin"] = json!("adopted")),
        ("another object's", |o| {
            o["status"]["resolved"]["repository"]["name"] = json!("w")
        }),
        ("another repository's", |o| {
            o["status"]["resolved"]["uniqueId"] = json!("other")
        }),
        ("unpinned", |o| o["status"]["resolved"] = Value::Null),
        ("going already", |o| {
            o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
        }),
    ];
    for (what, edit) in edits {
        assert!(scan(&[], &[row_of("x", edit)]).remove.is_empty(), "{what}");
    }
}

#[test]
fn a_row_goes_when_a_live_object_records_its_snapshot() {
    let listing = [listed("x", None)];
    let found = scan(&listing, &[row_of("x", |_| {}), recording("s", "x")]);
    assert_eq!(found.remove.len(), 1);
    let going = object("s", |o| {
        o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        o["status"]["snapshot"] = json!({ "kopiaSnapshotID": "x" });
    });
    assert!(scan(&listing, &[row_of("x", |_| {}), going]).remove.is_empty());
}

#[test]
fn a_row_whose_status_was_never_written_is_completed_or_goes() {
    let id = "f".repeat(64);
    let begun = row_of(&id, |o| o["status"] = Value::Null);
    let name = begun.metadata.name.clone().unwrap();
    let found = scan(&[listed(&id, None)], std::slice::from_ref(&begun));
    assert_eq!(found.complete, std::slice::from_ref(&name));
    assert!(found.create.is_empty() && found.remove.is_empty());
    assert_eq!(scan(&[listed("y", None)], &[begun]).remove, [name]);
}

#[test]
fn what_a_delete_job_may_have_deleted_meanwhile_is_left_to_the_next_scan() {
    let found = scan_with(&[listed("x", None), listed("y", None)], &[], &["x"], |_| {
        Some("a".into())
    });
    assert_eq!((found.create, found.uncertain), (vec!["y".to_owned()], 1));
}

#[test]
fn without_a_namespace_there_is_no_row() {
    let found = scan_with(&[listed("x", None)], &[], &[], |_| None);
    assert_eq!((found.create.len(), found.unplaced), (0, 1));
}

#[test]
fn ten_thousand_are_planned_once_and_then_never_again() {
    let listing: Vec<ListedSnapshot> = (0..10_000).map(|n| listed(&format!("{n:064x}"), None)).collect();
    let found = scan(&listing, &[]);
    assert_eq!(found.create.len(), 10_000);
    let rows: Vec<Arc<SnapshotView>> = listing.iter().map(|l| row_of(&l.snapshot_id, |_| {})).collect();
    let names: HashSet<_> = rows.iter().map(|r| r.metadata.name.clone()).collect();
    assert_eq!(names.len(), 10_000);
    let again = scan(&listing, &rows);
    assert_eq!(
        (again.create.len(), again.remove.len(), again.kept),
        (0, 0, 10_000)
    );
}

#[test]
fn a_row_says_retain_three_times_and_carries_no_finalizer() {
    let row = row_of(&"e".repeat(64), |_| {});
    assert!(!row.has_finalizer());
    assert_eq!(row.label("kopiur.home-operations.com/origin"), Some("discovered"));
    assert_eq!(
        row.label("kopiur.home-operations.com/snapshot-id").unwrap().len(),
        63
    );
    let spec = serde_json::to_value(&row.spec).unwrap();
    assert_eq!(spec["deletionPolicy"], "Retain");
    let status = row::status(&repository(), &listed("x", None), "here", Some(1), at(0));
    assert_eq!(
        (&status["origin"], &status["phase"]),
        (&json!("discovered"), &json!("Discovered"))
    );
    assert_eq!(status["stats"], json!({ "sizeBytes": 7 }));
    assert_eq!(status["conditions"][0]["reason"], "Discovered");
    let foreign = row::status(&repository(), &listed("x", None), "elsewhere", Some(1), at(0));
    assert_eq!(foreign["conditions"][0]["reason"], "DiscoveredOfAnotherCluster");
    for id in ["x", "../..", "", &"A/".repeat(90)] {
        let name = row::name(&repository(), id);
        assert!(name.len() <= 63 && !name.ends_with('-'), "{name}");
        assert!(row::label(id).len() <= 63);
    }
}

// --- when

fn due(since: i64, second: i64) -> ScanDue {
    ScanDue {
        since: at(since),
        at: at(second),
    }
}

/// `Vanished` is taken back for a live Snapshot of this very repository that is listed, and for nobody else.
#[test]
fn what_vanished_and_is_listed_again_counts_again() {
    let vanished = |name: &str, id: &str, edit: fn(&mut Value)| {
        object(name, |o| {
            o["status"]["snapshot"] = json!({ "kopiaSnapshotID": id });
            o["status"]["conditions"] = json!([{
                "type": "Vanished", "status": "True", "reason": "NotListed", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
            edit(o);
        })
    };
    let snapshots = [
        vanished("back", "1", |_| {}),
        vanished("still-gone", "2", |_| {}),
        vanished("of-another-repository", "1", |o| {
            o["status"]["resolved"]["uniqueId"] = json!("other")
        }),
        vanished("of-no-known-repository", "1", |o| {
            o["status"]["resolved"]["uniqueId"] = Value::Null
        }),
        vanished("being-deleted", "1", |o| {
            o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
        recording("never-gone", "3"),
    ];
    let found = scan(&[listed("1", None), listed("3", None)], &snapshots);
    assert_eq!(found.seen_again, ["back"]);
}

fn listed_once() -> CatalogStatus {
    CatalogStatus {
        last_refresh_at: Some(at(1)),
        ..CatalogStatus::default()
    }
}

#[test]
fn what_stays_while_its_object_goes_asks_for_a_scan() {
    for reason in RetainReason::ALL {
        let expected = *reason != RetainReason::SharedSnapshot;
        assert_eq!(keeps_data(Verdict::Retain(*reason)), expected, "{reason:?}");
    }
    assert!(keeps_data(Verdict::Orphan(OrphanReason::Skip)));
    assert!(!keeps_data(Verdict::Orphan(OrphanReason::ApiGoingAway)));
    for reason in ReleaseReason::ALL {
        assert!(!keeps_data(Verdict::Release(*reason)));
    }
    for reason in DeleteReason::ALL {
        assert!(!keeps_data(Verdict::Delete(*reason)));
    }
}

#[test]
fn seven_hundred_released_over_a_minute_cost_one_scan_half_a_minute_after_the_last() {
    let (mut recorded, mut writes) = (None, 0);
    for n in 0..700 {
        if let Some(put) = put_off(recorded.as_ref(), at(1_000 + n * 60 / 700)) {
            recorded = Some(put);
            writes += 1;
        }
    }
    let scan = recorded.unwrap();
    assert_eq!(scan.since, at(1_000));
    assert!(scan.at >= at(1_059 + 30) && scan.at <= at(1_059 + 45));
    assert!(writes <= 5, "{writes} writes");
}

#[test]
fn a_trickle_does_not_put_a_scan_off_for_ever() {
    let (mut recorded, mut scans) = (None::<ScanDue>, 0);
    for second in (0..3_600).step_by(10) {
        if recorded.as_ref().is_some_and(|d| d.at <= at(second)) {
            scans += 1;
            recorded = None;
        }
        if let Some(put) = put_off(recorded.as_ref(), at(second)) {
            recorded = Some(put);
        }
    }
    assert!((5..=7).contains(&scans), "{scans}");
}

#[test]
fn what_is_kept_while_a_scan_runs_is_not_answered_by_it() {
    let mut catalog = listed_once();
    catalog.scan_due = Some(due(10, 50));
    let Want::Now(request) = wanted(&catalog, None, None, at(60)) else {
        panic!("due")
    };
    let whole = Ok(Settled::default());
    assert_eq!(ended(catalog.clone(), &request, &whole, at(70)).scan_due, None);
    catalog.scan_due = put_off(catalog.scan_due.as_ref(), at(65));
    assert_eq!(
        ended(catalog, &request, &whole, at(70)).scan_due,
        Some(due(65, 110))
    );
}

#[test]
fn a_scan_comes_once_for_each_request_on_the_first_look_and_when_it_is_due() {
    assert!(
        matches!(wanted(&CatalogStatus::default(), None, None, at(5)), Want::Now(r) if r == Request::default())
    );
    let mut catalog = listed_once();
    assert_eq!(wanted(&catalog, None, None, at(5)), Want::Nothing);
    let asked = Request {
        asked: Some("t1".into()),
        due: None,
    };
    catalog.scan_due = Some(due(5, 50));
    assert_eq!(
        wanted(&catalog, Some("t1"), None, at(5)),
        Want::Now(asked.clone())
    );
    let catalog = ended(catalog, &asked, &Ok(Settled::default()), at(6));
    assert_eq!(catalog.scan_request_honored.as_deref(), Some("t1"));
    assert_eq!(
        wanted(&catalog, Some("t1"), None, at(7)),
        Want::At(at(50)),
        "still due later"
    );
}

#[test]
fn a_void_scan_changes_nothing_and_is_repeated_ever_later() {
    let mut catalog = listed_once();
    catalog.discovered_backup_count = Some(3);
    let request = Request {
        asked: Some("t1".into()),
        due: None,
    };
    let mut waits = Vec::new();
    for n in 0..9 {
        let now = at(1_000 * (n + 1));
        catalog = ended(catalog, &request, &Err("void".into()), now);
        assert_eq!(
            (catalog.discovered_backup_count, catalog.last_refresh_at),
            (Some(3), Some(at(1)))
        );
        assert_eq!(catalog.last_error.as_deref(), Some("void"));
        catalog.scan_due = Some(due(0, 1));
        let Want::At(next) = wanted(&catalog, None, None, now) else {
            panic!("waits")
        };
        waits.push(next.duration_since(now).as_secs());
        let Want::At(asked) = wanted(&catalog, Some("t1"), None, now) else {
            panic!("open")
        };
        assert!(
            asked.duration_since(now).as_secs() <= 60,
            "a person does not wait for long"
        );
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
}

#[test]
fn what_could_not_be_written_is_said_and_tried_again() {
    let settled = Settled {
        discovered: 2,
        not_shown: 0,
        unplaced: 0,
        trouble: Some("quota".into()),
        again: false,
    };
    let catalog = ended(listed_once(), &Request::default(), &Ok(settled), at(100));
    assert_eq!(catalog.last_error.as_deref(), Some("quota"));
    assert_eq!(catalog.failures, 0);
    assert_eq!(wanted(&catalog, None, None, at(101)), Want::At(at(700)));
}

#[test]
fn a_new_connection_is_followed_by_a_scan_unless_the_repository_is_empty() {
    let empty = connected(CatalogStatus::default(), 0, true, at(5));
    assert_eq!(wanted(&empty, None, None, at(6)), Want::Nothing);
    let full = connected(listed_once(), 3, true, at(5));
    assert!(matches!(wanted(&full, None, None, at(6)), Want::Now(_)));
    let same = connected(listed_once(), 3, false, at(5));
    assert_eq!(wanted(&same, None, None, at(6)), Want::Nothing);
}

#[test]
fn a_repository_is_listed_again_after_its_interval_and_for_no_other_reason_sooner() {
    let hour = Some(SignedDuration::from_hours(1));
    let catalog = listed_once();
    assert_eq!(wanted(&catalog, None, hour, at(5)), Want::At(at(3_601)));
    let Want::Now(request) = wanted(&catalog, None, hour, at(3_601)) else {
        panic!("due")
    };
    // More than a second look: it is not put off for one.
    assert!(!request.is_second_look(&catalog));
    let after = ended(catalog, &request, &Ok(Settled::default()), at(3_610));
    assert_eq!(wanted(&after, None, hour, at(3_611)), Want::At(at(7_210)));

    // What is due for a reason is answered by the same listing, and what is due later is not.
    let mut both = listed_once();
    both.scan_due = Some(due(10, 50));
    let Want::Now(request) = wanted(&both, None, hour, at(4_000)) else {
        panic!("due")
    };
    assert_eq!(
        ended(both.clone(), &request, &Ok(Settled::default()), at(4_001)).scan_due,
        None
    );
    both.scan_due = Some(due(10, 9_000));
    let Want::Now(request) = wanted(&both, None, hour, at(4_000)) else {
        panic!("due")
    };
    let after = ended(both, &request, &Ok(Settled::default()), at(4_001));
    assert_eq!(after.scan_due, Some(due(10, 9_000)));
}

#[test]
fn within_bounds_the_newest_of_each_identity_are_shown_and_the_rest_is_only_counted() {
    let one = |id: &str, user: &str, begun: i64| {
        let mut listed = listed(id, None);
        listed.source.username = user.into();
        listed.start_time = at(begun);
        listed
    };
    let day = 86_400;
    let listing = [
        one("new", "p", BEGAN - 10),
        one("old", "p", BEGAN - 3 * day),
        one("older", "p", BEGAN - 4 * day),
        one("other", "q", BEGAN - 5 * day),
    ];
    let all = |bounds, snapshots: &[Arc<SnapshotView>]| {
        scan_within(bounds, &listing, snapshots, &[], |l| {
            Some(l.source.hostname.clone())
        })
    };
    let of = |per_identity, max_age_days| {
        let retain = CatalogRetain {
            per_identity,
            max_age_days,
        };
        Bounds::of(Some(&retain), at(BEGAN))
    };
    let found = all(of(None, None), &[]);
    assert_eq!((found.create.len(), found.not_shown), (4, 0));
    let found = all(of(Some(2), None), &[]);
    assert_eq!(
        (found.create, found.not_shown),
        (vec!["new".into(), "old".into(), "other".into()], 1)
    );
    let found = all(of(None, Some(3)), &[]);
    assert_eq!(
        (found.create, found.not_shown),
        (vec!["new".into(), "old".into()], 2)
    );
    let found = all(of(Some(0), None), &[]);
    assert_eq!((found.create.len(), found.not_shown), (0, 4));

    // A row that is beyond them goes; an object that a person or a schedule made is none, and takes no row's place.
    let found = all(
        of(Some(1), None),
        &[row_of("old", |_| ()), recording("mine", "new")],
    );
    assert_eq!(found.remove, [""; 0], "the newest that belongs to no object");
    assert_eq!((found.kept, found.not_shown), (1, 1));
    let found = all(of(Some(1), None), &[row_of("old", |_| ())]);
    let name = row_of("old", |_| ()).metadata.name.clone().unwrap();
    assert_eq!(found.remove, [name]);
    assert_eq!((found.kept, found.not_shown), (0, 2));
    // Kept while it is uncertain whether it was there before the listing.
    let young = row_of("old", |o| {
        o["metadata"]["creationTimestamp"] = json!(at(BEGAN + 1).to_string())
    });
    assert_eq!(all(of(Some(1), None), &[young]).remove, [""; 0]);
}
