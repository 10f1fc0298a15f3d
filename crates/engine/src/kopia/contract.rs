//! Recorded runs of the real program, replayed through what reads its answers. A run that fails and is not named
//! here fails the test: somebody has to say what it means.
#![allow(clippy::unwrap_used)]

use super::classify::{self, Doing};
use super::command::Ended;
use super::output::{self, Manifest, Status};
use crate::{ErrorClass, Listing};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Run {
    case: String,
    argv: Vec<String>,
    exit: i32,
    stdout: String,
    stderr: String,
}

fn runs() -> Vec<Run> {
    serde_json::from_str(include_str!("../../tests/fixtures/kopia-transcripts.json")).unwrap()
}

fn run(case: &str) -> Run {
    runs().into_iter().find(|r| r.case == case).unwrap()
}

fn listing(case: &str) -> Listing {
    let run = run(case);
    output::listing("it failed", run.stdout.as_bytes(), &run.stderr).unwrap()
}

#[test]
fn every_recorded_failure_has_its_class() {
    use Doing::{BackingUp, Connecting, Working};
    let means = [
        (
            "connect to an empty location",
            Connecting,
            ErrorClass::NotInitialized,
        ),
        (
            "create over an existing repository",
            Connecting,
            ErrorClass::Failed,
        ),
        ("connect, wrong password", Connecting, ErrorClass::InvalidPassword),
        (
            "connect to a path that does not exist",
            Connecting,
            ErrorClass::Unreachable,
        ),
        (
            "snapshot of a path that does not exist",
            BackingUp,
            ErrorClass::SourceUnreadable,
        ),
        ("delete one absent id", Working, ErrorClass::Failed),
        (
            "delete a present, an absent and a present id in one call: the call fails",
            Working,
            ErrorClass::Failed,
        ),
        ("restore an absent id", Working, ErrorClass::Failed),
    ];
    let failures: Vec<Run> = runs().into_iter().filter(|r| r.exit != 0).collect();
    assert_eq!(failures.len(), means.len());
    for failure in failures {
        let (_, doing, class) = means.iter().find(|(case, _, _)| *case == failure.case).unwrap();
        let ended = Ended {
            success: false,
            stdout: failure.stdout.into_bytes(),
            stderr: failure.stderr,
            cut: false,
        };
        let error = classify::failed("it failed", *doing, &ended);
        assert_eq!(error.class(), *class, "{}", failure.case);
        assert!(error.to_string().starts_with("it failed: "), "{error}");
    }
}

#[test]
fn the_recorded_listings_read_as_they_were() {
    let all = listing("list");
    assert_eq!((all.snapshots.len(), all.unreadable.len()), (5, 0));
    let first = all.find("2538cfac0f51c8f3e9eb2251cabb1bb8").unwrap();
    assert_eq!(first.source.username, "wiki");
    assert_eq!(
        (first.source.hostname.as_str(), first.source.path.as_str()),
        ("apps", "/data")
    );
    assert_eq!(first.start.to_string(), "2026-11-30T05:22:11.159073471Z");
    assert_eq!(first.end.unwrap().to_string(), "2026-11-30T05:22:11.162016653Z");
    // A tag is split at the first colon.
    assert_eq!(first.tags["kopiur"], "config:wiki");
    let sizes = first.sizes.unwrap();
    assert_eq!(
        (sizes.size_bytes, sizes.files_new, sizes.files_unchanged),
        (200_006, 2, 0)
    );
    assert_eq!(sizes.bytes_new, None, "the program does not record it");
    assert_eq!(listing("list with incomplete"), all);
    assert_eq!(listing("list after").snapshots.len(), 3);
}

#[test]
fn a_failed_deletion_deleted_nothing() {
    assert_eq!(
        listing("list after the failed call: nothing was deleted"),
        listing("list after pin")
    );
}

#[test]
fn pinning_changes_the_id_and_neither_source_nor_start() {
    let (before, after) = (listing("list"), listing("list after pin"));
    let old = before.find("0cc49d1e7f5e7d437fbe3d326630bc08").unwrap();
    let new = after.find("a1ba2cf5c9e4cf5846721b102ac32b08").unwrap();
    assert!(!after.contains(&old.id));
    assert_eq!((&old.source, old.start), (&new.source, new.start));
    let pinned = |listing: &Listing| listing.snapshots.iter().filter(|s| s.pinned).count();
    assert_eq!((pinned(&before), pinned(&after)), (0, 1));
    assert!(new.pinned);
}

#[test]
fn the_recorded_snapshots_and_the_status_read_as_they_were() {
    let taken: Vec<Run> = runs()
        .into_iter()
        .filter(|r| r.argv[..2] == ["snapshot", "create"] && r.exit == 0)
        .collect();
    assert_eq!(taken.len(), 5);
    let listed = listing("list");
    for run in taken {
        let manifest: Manifest = output::parse("it failed", run.stdout.as_bytes()).unwrap();
        assert!(manifest.complete() && manifest.fault().is_none());
        let info = manifest.info();
        assert!(output::is_manifest_id(&info.id));
        assert_eq!(listed.find(&info.id).unwrap().start, info.start);
    }
    let status: Status = output::parse("it failed", run("status").stdout.as_bytes()).unwrap();
    assert_eq!(
        status.unique_id,
        "ceafba2ba89ca77222aa2c92a920c37f6b95dc8a91e33b9bace79ac639f2ce8b"
    );
}

#[test]
fn a_fresh_repository_expires_snapshots_by_itself() {
    let run = run("show global policy (a fresh repository)");
    assert!(!super::policy::keeps_all(run.stdout.as_bytes()));
}
