//! The Kopia engine against a stand-in for the program: which calls it makes, and what it concludes from answers
//! that the real program gives rarely. The answers are recorded ones (`fixtures/kopia-transcripts.json`).
#![allow(clippy::unwrap_used, missing_docs)]

use holdfast_engine::kopia::Kopia;
use holdfast_engine::{
    BackupRequest, Engine, EngineError, ErrorClass, Password, Repository, SnapshotInfo, SourceIdentity,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Answers `<noun>-<verb>` from the files of its folder: `<noun>-<verb>.<n>` for the n-th such call, the last one
/// from then on. Each call is noted with the name of its config file.
const PROGRAM: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$(basename "$KOPIA_CONFIG_PATH") $*" >> "$here/calls"
words=""
for word in "$@"; do case "$word" in -*) ;; *) words="$words $word" ;; esac; done
set -- $words
name="$1-$2"
number=$(cat "$here/$name.count" 2>/dev/null || echo 0)
number=$((number + 1))
while [ $number -gt 1 ] && [ ! -e "$here/$name.$number.exit" ]; do number=$((number - 1)); done
echo $number > "$here/$name.count"
[ "$name" = repository-connect ] && touch "$KOPIA_CONFIG_PATH"
cat "$here/$name.$number.out"
cat "$here/$name.$number.err" >&2
exit "$(cat "$here/$name.$number.exit")"
"#;

struct StandIn {
    dir: TempDir,
}

struct Answer {
    exit: i64,
    stdout: String,
    stderr: String,
}

fn recorded(case: &str) -> Answer {
    let runs: Vec<Value> = serde_json::from_str(include_str!("fixtures/kopia-transcripts.json")).unwrap();
    let run = runs.iter().find(|r| r["case"] == case).unwrap();
    Answer {
        exit: run["exit"].as_i64().unwrap(),
        stdout: run["stdout"].as_str().unwrap().to_owned(),
        stderr: run["stderr"].as_str().unwrap().to_owned(),
    }
}

fn says(stdout: &str) -> Answer {
    Answer {
        exit: 0,
        stdout: stdout.to_owned(),
        stderr: String::new(),
    }
}

impl StandIn {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Written by another process: a file that ours holds open for writing could not be started meanwhile.
        let write = "printf '%s' \"$1\" > \"$0\"; chmod 755 \"$0\"";
        let path = dir.path().join("kopia");
        let written = Command::new("sh")
            .args(["-c", write])
            .arg(path)
            .arg(PROGRAM)
            .status();
        assert!(written.unwrap().success());
        let stand_in = Self { dir };
        fs::create_dir_all(stand_in.repository()).unwrap();
        fs::write(stand_in.repository().join("kopia.repository.f"), "x").unwrap();
        fs::create_dir_all(stand_in.source()).unwrap();
        stand_in.answers("repository-connect", &[recorded("connect")]);
        stand_in.answers("repository-status", &[recorded("status")]);
        stand_in.answers(
            "policy-show",
            &[says(r#"{"retention":{"keepLatest":2147483647}}"#)],
        );
        stand_in
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn answers(&self, name: &str, answers: &[Answer]) {
        for (n, answer) in answers.iter().enumerate() {
            let write = |part: &str, text: &str| {
                fs::write(self.dir.path().join(format!("{name}.{}.{part}", n + 1)), text).unwrap();
            };
            write("out", &answer.stdout);
            write("err", &answer.stderr);
            write("exit", &answer.exit.to_string());
        }
    }

    fn connect(&self) -> Result<Box<dyn Repository>, EngineError> {
        let program = self.dir.path().join("kopia");
        Kopia::using(program).connect(&self.repository(), &Password::new("open sesame"))
    }

    /// The calls so far, each with its config file, and without what every call has.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("calls")).unwrap();
        assert!(!text.contains("open sesame"), "{text}");
        let common = "--no-progress --no-auto-maintenance --disable-file-logging ";
        text.lines().map(|line| line.replace(common, "")).collect()
    }

    fn called(&self, verb: &str) -> Vec<String> {
        self.calls().into_iter().filter(|c| c.contains(verb)).collect()
    }

    fn back_up(&self) -> Result<Vec<SnapshotInfo>, EngineError> {
        let request = BackupRequest {
            read_from: self.source(),
            source: SourceIdentity {
                username: "wiki".to_owned(),
                hostname: "apps".to_owned(),
                path: "/data".to_owned(),
            },
            cluster: "cluster".to_owned(),
            snapshot_uid: "uid".to_owned(),
            tags: BTreeMap::new(),
        };
        let mut taken = Vec::new();
        self.connect()?
            .back_up(&[request], &mut |_, info| taken.push(info.clone()))?;
        Ok(taken)
    }
}

const FIRST: &str = "2538cfac0f51c8f3e9eb2251cabb1bb8";
const SECOND: &str = "3852e00e6e756d90551476e225232a1c";
const ABSENT: &str = "00000000000000000000000000000000";

#[test]
fn recorded_refusals_to_connect_keep_their_meaning() {
    for (case, class) in [
        ("connect to an empty location", ErrorClass::NotInitialized),
        ("connect, wrong password", ErrorClass::InvalidPassword),
        ("connect to a path that does not exist", ErrorClass::Unreachable),
    ] {
        let stand_in = StandIn::new();
        stand_in.answers("repository-connect", &[recorded(case)]);
        let error = stand_in.connect().err().unwrap();
        assert_eq!(error.class(), class, "{case}: {error}");
    }
}

#[test]
fn what_reads_connects_read_only_and_sees_the_storage_as_it_is() {
    let stand_in = StandIn::new();
    stand_in.answers("snapshot-list", &[recorded("list")]);
    stand_in.connect().unwrap().list().unwrap();
    let calls = stand_in.calls();
    assert!(
        calls.iter().all(|c| c.starts_with("reading.config ")),
        "{calls:?}"
    );
    for flag in [
        "--readonly",
        "--max-list-cache-duration=0s",
        "--disable-repository-format-cache",
    ] {
        assert!(calls[0].contains(flag), "{calls:?}");
    }
}

#[test]
fn only_ids_that_were_just_listed_are_named_each_once() {
    let stand_in = StandIn::new();
    stand_in.answers("snapshot-list", &[recorded("list")]);
    stand_in.answers(
        "snapshot-delete",
        &[recorded("delete two present ids in one call")],
    );
    let repository = stand_in.connect().unwrap();
    let asked = [SECOND, ABSENT, FIRST, SECOND].map(str::to_owned);
    repository.delete(&asked).unwrap();
    let deletions = stand_in.called("snapshot delete");
    assert_eq!(
        deletions,
        [format!(
            "writing.config snapshot delete --delete {FIRST} {SECOND}"
        )]
    );
    // Exit code 0, and they are still listed: that is what counts.
    assert!(repository.list().unwrap().contains(FIRST));
}

#[test]
fn nothing_is_called_for_ids_that_are_absent_or_none() {
    let stand_in = StandIn::new();
    stand_in.answers("snapshot-list", &[recorded("list")]);
    let repository = stand_in.connect().unwrap();
    repository.delete(&[ABSENT.to_owned()]).unwrap();
    for crooked in [
        "latest",
        "",
        "k5f3a888bfa685b1232139a37c1dd5896",
        &FIRST[..31],
        "--all-snapshots-for-source",
    ] {
        assert!(
            repository
                .delete(&[FIRST.to_owned(), crooked.to_owned()])
                .is_err()
        );
    }
    assert!(stand_in.called("snapshot delete").is_empty());
}

#[test]
fn a_pin_has_our_name_and_a_listed_id() {
    let stand_in = StandIn::new();
    stand_in.answers("snapshot-list", &[recorded("list")]);
    stand_in.answers("snapshot-pin", &[recorded("pin rewrites the id")]);
    let repository = stand_in.connect().unwrap();
    for no in [ABSENT, "latest", "", "k5f3a888bfa685b1232139a37c1dd5896"] {
        assert!(repository.pin(no, true).is_err(), "{no}");
    }
    // It carries no pin of ours.
    repository.pin(FIRST, false).unwrap();
    assert!(stand_in.called("snapshot pin").is_empty());
    repository.pin(FIRST, true).unwrap();
    assert_eq!(
        stand_in.called("snapshot pin"),
        [format!("writing.config snapshot pin {FIRST} --add holdfast")]
    );
}

#[test]
fn a_pin_that_failed_is_an_error() {
    let stand_in = StandIn::new();
    stand_in.answers("snapshot-list", &[recorded("list")]);
    stand_in.answers("snapshot-pin", &[recorded("delete one absent id")]);
    let error = stand_in.connect().unwrap().pin(FIRST, true).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Failed);
}

#[test]
fn a_failed_deletion_is_an_error_whatever_it_printed() {
    let stand_in = StandIn::new();
    let failed = "delete a present, an absent and a present id in one call: the call fails";
    stand_in.answers("snapshot-list", &[recorded("list")]);
    stand_in.answers("snapshot-delete", &[recorded(failed)]);
    let error = stand_in
        .connect()
        .unwrap()
        .delete(&[FIRST.to_owned()])
        .unwrap_err();
    assert_eq!(error.class(), ErrorClass::Failed);
}

#[test]
fn no_snapshot_is_taken_while_the_programs_own_retention_is_on() {
    let stand_in = StandIn::new();
    stand_in.answers(
        "policy-show",
        &[recorded("show global policy (a fresh repository)")],
    );
    stand_in.answers(
        "policy-set",
        &[recorded("set policy: kopia must never expire by itself")],
    );
    let error = stand_in.back_up().unwrap_err();
    assert!(error.to_string().contains("retention"), "{error}");
    assert!(stand_in.called("snapshot create").is_empty());
    let set = stand_in.called("policy set");
    assert_eq!(set.len(), 1);
    assert!(set[0].starts_with("writing.config policy set wiki@apps:/data --keep-latest=2147483647"));
}

#[test]
fn a_snapshot_is_reported_when_another_process_has_seen_it() {
    let stand_in = StandIn::new();
    stand_in.answers("snapshot-create", &[recorded("first snapshot")]);
    stand_in.answers("snapshot-list", &[recorded("list")]);
    let taken = stand_in.back_up().unwrap();
    assert_eq!(taken[0].id, FIRST);
    assert_eq!(taken[0].sizes.unwrap().size_bytes, 200_006);
    let created = stand_in.called("snapshot create");
    for part in [
        "--fail-fast",
        "--override-source=wiki@apps:/data",
        "--tags=holdfast-cluster:cluster",
        "--tags=holdfast-snapshot:uid",
    ] {
        assert!(created[0].contains(part), "{created:?}");
    }
}

#[test]
fn exit_code_0_alone_reports_nothing() {
    for (created, listed) in [
        (says(""), recorded("list")),
        (says("{}"), recorded("list")),
        (recorded("first snapshot"), says("[]")),
        (recorded("first snapshot"), recorded("list after")),
    ] {
        let stand_in = StandIn::new();
        stand_in.answers("snapshot-create", &[created]);
        stand_in.answers("snapshot-list", &[listed]);
        assert_eq!(stand_in.back_up().unwrap_err().class(), ErrorClass::Failed);
    }
}

#[test]
fn a_partly_read_source_that_was_recorded_as_whole_is_removed() {
    let stand_in = StandIn::new();
    let mut partly = recorded("first snapshot");
    partly.exit = 1;
    partly.stdout = partly.stdout.replace("\"numFailed\":0", "\"numFailed\":1");
    stand_in.answers("snapshot-create", &[partly]);
    stand_in.answers("snapshot-list", &[recorded("list")]);
    stand_in.answers("snapshot-delete", &[says("")]);
    assert_eq!(
        stand_in.back_up().unwrap_err().class(),
        ErrorClass::SourceUnreadable
    );
    let deletions = stand_in.called("snapshot delete");
    assert_eq!(
        deletions,
        [format!("writing.config snapshot delete --delete {FIRST}")]
    );
}

#[test]
fn an_empty_listing_is_believed_only_with_evidence() {
    let packs = r#"[{"id":"kopia.repository"},{"id":"q0123"}]"#;
    let policies = r#"[{"id":"0123","labels":{"type":"policy"}}]"#;
    for (manifests, blobs, believed) in [
        (policies, packs, true),
        ("[]", r#"[{"id":"kopia.repository"}]"#, true),
        ("[]", packs, false),
    ] {
        let stand_in = StandIn::new();
        stand_in.answers("snapshot-list", &[says("[]")]);
        stand_in.answers("manifest-list", &[says(manifests)]);
        stand_in.answers("blob-list", &[says(blobs)]);
        let listed = stand_in.connect().unwrap().list();
        match believed {
            true => assert!(listed.unwrap().snapshots.is_empty()),
            false => assert_eq!(listed.unwrap_err().class(), ErrorClass::Unreachable),
        }
    }
}

#[test]
fn another_unique_id_is_another_repository() {
    let stand_in = StandIn::new();
    let mut other = recorded("status");
    other.stdout = other.stdout.replace("ceafba2b", "00000000");
    stand_in.answers("repository-status", &[recorded("status"), other]);
    stand_in.answers("snapshot-list", &[recorded("list")]);
    stand_in.answers("snapshot-delete", &[says("")]);
    let error = stand_in
        .connect()
        .unwrap()
        .delete(&[FIRST.to_owned()])
        .unwrap_err();
    assert_eq!(error.class(), ErrorClass::Replaced);
    assert!(stand_in.called("snapshot delete").is_empty());
}
