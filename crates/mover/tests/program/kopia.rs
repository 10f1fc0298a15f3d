//! The built mover on Kopia repositories. Needs the program: `KOPIA_BIN`.

use crate::support::{Bench, PASSWORD, batch, member};
use holdfast_protocol::outcome::{FailureClass, OperationResult, TakenSnapshot};
use holdfast_protocol::work::{BatchMember, EngineKind, Operation};
use std::fs;
use std::process::Command;

/// A bench with a Kopia repository, or nothing and the line that makes the test count as skipped.
fn bench() -> Option<Bench> {
    if std::env::var_os("KOPIA_BIN").is_none_or(|name| name.is_empty()) {
        println!("skipped: no kopia");
        return None;
    }
    Some(Bench::with(EngineKind::Kopia))
}

/// What a person does with the program.
fn kopia(bench: &Bench, arguments: &[&str]) -> String {
    let output = Command::new(std::env::var_os("KOPIA_BIN").unwrap())
        .env("KOPIA_PASSWORD", PASSWORD)
        .env("KOPIA_CONFIG_PATH", bench.path("person.config"))
        .env("KOPIA_CACHE_DIRECTORY", bench.path("person-cache"))
        .env("KOPIA_LOG_DIR", bench.path("person-logs"))
        .env("KOPIA_CHECK_FOR_UPDATES", "false")
        .args(["--no-progress", "--no-auto-maintenance"])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn connect(bench: &Bench) {
    let path = bench.path("repository");
    kopia(
        bench,
        &[
            "repository",
            "connect",
            "filesystem",
            "--path",
            path.to_str().unwrap(),
        ],
    );
}

fn whole(taken: &TakenSnapshot) -> BatchMember {
    BatchMember {
        start_time: Some(taken.start_time),
        ..member(taken)
    }
}

#[test]
fn a_repository_is_created_backed_up_to_and_deleted_from() {
    let Some(bench) = bench() else { return };
    let again = bench.run(Operation::Bootstrap { create: false });
    let empty = OperationResult::Bootstrapped {
        created: false,
        snapshots: 0,
    };
    assert_eq!((again.code, &again.outcome().result), (Some(0), &empty));
    assert_eq!(again.outcome().unique_id, bench.unique_id);
    let taken = bench.back_up(0..3);
    assert_eq!((taken[0].size_bytes, taken[0].files_new), (1500, 2));
    assert_eq!((taken[2].bytes_new, taken[2].files_unchanged), (Some(0), 2));
    assert_eq!(bench.back_up(0..3).len(), 3, "what is there is reported again");
    let mut absent = member(&taken[0]);
    absent.snapshot_id = "0".repeat(32);
    let mut elsewhere = member(&taken[2]);
    elsewhere.source.path = "/pvc/other".to_owned();
    let run = bench.run(batch(vec![
        member(&taken[0]),
        absent,
        member(&taken[1]),
        elsewhere,
    ]));
    assert_eq!((run.letters(), run.code), ("DADM", Some(1)));
    connect(&bench);
    let left = kopia(&bench, &["snapshot", "list", "--all", "--json"]);
    assert!(
        left.contains(&taken[2].snapshot_id) && !left.contains(&taken[0].snapshot_id),
        "{left}"
    );
    let run = bench.run(batch(vec![member(&taken[2])]));
    assert_eq!((run.letters(), run.code), ("D", Some(0)));
}

#[test]
fn a_pinned_snapshot_is_found_under_its_new_id() {
    let Some(bench) = bench() else { return };
    let taken = bench.back_up(0..2);
    connect(&bench);
    kopia(
        &bench,
        &["snapshot", "pin", &taken[0].snapshot_id, "--add", "keep"],
    );
    let run = bench.run(batch(vec![whole(&taken[0])]));
    assert_eq!((run.letters(), run.code), ("D", Some(0)), "{}", run.stdout);
    let healed = run.stdout.lines().find(|l| l.contains("rewritten")).unwrap();
    assert!(healed.contains(&taken[0].snapshot_id), "{healed}");
    let left = kopia(&bench, &["snapshot", "list", "--all", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&left).unwrap();
    assert_eq!(rows.len(), 1, "{left}");
    assert_eq!(rows[0]["id"], taken[1].snapshot_id.as_str());
}

#[test]
fn failures_keep_their_class_and_the_password_stays_unseen() {
    let Some(bench) = bench() else { return };
    let taken = bench.back_up(0..1);
    fs::write(bench.path("secret/KOPIA_PASSWORD"), "wrong-but-also-secret").unwrap();
    let wrong = bench.run(Operation::Bootstrap { create: false });
    assert_eq!(
        (wrong.code, wrong.class()),
        (Some(1), Some(FailureClass::InvalidPassword))
    );
    assert!(!wrong.message.contains("wrong-but") && !wrong.stdout.contains("wrong-but"));
    fs::write(bench.path("secret/KOPIA_PASSWORD"), PASSWORD).unwrap();
    let mut missing = bench.item("uid-1");
    missing.read_from = bench.path("absent").to_str().unwrap().to_owned();
    let run = bench.run(Operation::Backup { items: vec![missing] });
    assert_eq!(
        (run.code, run.class()),
        (Some(1), Some(FailureClass::SourceUnreadable))
    );
    fs::rename(bench.path("repository/x"), bench.path("aside")).unwrap();
    let run = bench.run(batch(taken.iter().map(member).collect()));
    assert_eq!(
        (run.code, run.class()),
        (Some(1), Some(FailureClass::BackendUnreachable))
    );
    assert_eq!(
        run.outcome().result,
        OperationResult::None,
        "nothing is confirmed"
    );
}
