//! The built mover against real repositories: bootstrap, backup, delete batch.

use crate::support::{Bench, PASSWORD, batch, member};
use holdfast_protocol::outcome::{FailureClass, OperationResult};
use holdfast_protocol::work::{BatchMember, Operation, cut};
use std::fs;
use std::process::Command;

#[test]
fn help_and_version_answer_and_other_arguments_are_refused() {
    let run = |argument: &str| {
        Command::new(env!("CARGO_BIN_EXE_holdfast-mover"))
            .arg(argument)
            .output()
            .unwrap()
    };
    let help = run("--help");
    assert!(help.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("HOLDFAST_WORK_PATH"));
    assert!(String::from_utf8_lossy(&run("--version").stdout).contains(env!("CARGO_PKG_VERSION")));
    let refused = run("--delete-everything");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--delete-everything"));
}

#[test]
fn bootstrap_creates_once_and_connects_ever_after() {
    let bench = Bench::empty();
    let refused = bench.run(Operation::Bootstrap { create: false });
    assert_eq!(
        (refused.code, refused.class()),
        (Some(1), Some(FailureClass::RepositoryNotInitialized))
    );
    let first = bench.run(Operation::Bootstrap { create: true });
    let created = OperationResult::Bootstrapped {
        created: true,
        snapshots: 0,
    };
    assert_eq!((first.code, &first.outcome().result), (Some(0), &created));
    bench.back_up_all(&first.outcome().unique_id);
    let second = bench.run(Operation::Bootstrap { create: true });
    let connected = OperationResult::Bootstrapped {
        created: false,
        snapshots: 1,
    };
    assert_eq!((second.code, &second.outcome().result), (Some(0), &connected));
    assert_eq!(first.outcome().unique_id, second.outcome().unique_id);
}

impl Bench {
    fn back_up_all(&self, unique_id: &Option<String>) {
        let mut document = self.document(Operation::Backup {
            items: vec![self.item("uid-0")],
        });
        document.repository.unique_id.clone_from(unique_id);
        assert_eq!(self.run_document(&document).code, Some(0));
    }
}

#[test]
fn a_recorded_repository_is_never_created_again() {
    let bench = Bench::new();
    fs::remove_dir_all(bench.path("repository")).unwrap();
    fs::create_dir(bench.path("repository")).unwrap();
    let asked = bench.run(Operation::Bootstrap { create: true });
    assert_eq!(
        (asked.code, asked.class()),
        (Some(1), Some(FailureClass::InvalidWork))
    );
    let gone = bench.run(Operation::Bootstrap { create: false });
    assert_eq!(
        (gone.code, gone.class()),
        (Some(1), Some(FailureClass::RepositoryNotInitialized))
    );
    assert_eq!(fs::read_dir(bench.path("repository")).unwrap().count(), 0);
}

#[test]
fn a_wrong_or_missing_password_is_named_and_shown_to_nobody() {
    let bench = Bench::new();
    fs::write(bench.path("secret/KOPIA_PASSWORD"), "wrong-but-also-secret").unwrap();
    let wrong = bench.run(Operation::Bootstrap { create: false });
    assert_eq!(
        (wrong.code, wrong.class()),
        (Some(1), Some(FailureClass::InvalidPassword))
    );
    assert!(!wrong.message.contains("wrong-but") && !wrong.stdout.contains("wrong-but"));
    assert!(wrong.message.contains("Secret"), "{}", wrong.message);
    for break_it in [
        |p: &std::path::Path| fs::write(p, "\n"),
        |p: &std::path::Path| fs::remove_file(p),
    ] {
        break_it(&bench.path("secret/KOPIA_PASSWORD")).unwrap();
        let missing = bench.run(Operation::Bootstrap { create: false });
        assert_eq!(
            (missing.code, missing.class()),
            (Some(1), Some(FailureClass::InvalidPassword))
        );
        assert!(missing.message.contains("KOPIA_PASSWORD"), "{}", missing.message);
    }
}

#[test]
fn another_repository_fails_every_operation() {
    let bench = Bench::new();
    let taken = bench.back_up(0..2);
    let mut other = Bench::new();
    other.unique_id.clone_from(&bench.unique_id);
    fs::rename(bench.path("repository/snapshots"), other.path("aside")).unwrap();
    fs::rename(other.path("aside"), other.path("repository/snapshots-of-bench")).unwrap();
    let members: Vec<_> = taken.iter().map(member).collect();
    for operation in [
        Operation::Bootstrap { create: false },
        Operation::Backup {
            items: vec![other.item("uid-9")],
        },
        batch(members),
        Operation::List {},
    ] {
        let run = other.run(operation.clone());
        assert_eq!(
            (run.code, run.class()),
            (Some(1), Some(FailureClass::RepositoryReplaced))
        );
        if matches!(operation, Operation::DeleteBatch { .. }) {
            assert_eq!(run.letters(), "RR");
        }
    }
    assert!(other.ids().is_empty());
}

#[test]
fn a_bad_document_is_refused_by_name() {
    let bench = Bench::new();
    let run = |text: &str| {
        let document = bench.document(Operation::List {});
        let mut command = bench.command(&document);
        fs::write(bench.path("work.json"), text).unwrap();
        assert_eq!(command.status().unwrap().code(), Some(1));
        fs::read_to_string(bench.path("termination")).unwrap()
    };
    assert!(run("").contains("InvalidWork"));
    assert!(run("{\"version\":99}").contains("version 99"));
    let mut value = serde_json::to_value(bench.document(Operation::List {})).unwrap();
    value["surprise"] = true.into();
    assert!(run(&value.to_string()).contains("surprise"));
    let mut unidentified = bench.document(batch(vec![]));
    unidentified.repository.unique_id = None;
    assert!(run(&serde_json::to_string(&unidentified).unwrap()).contains("unique id"));
}

#[test]
fn backups_are_reported_one_line_each() {
    let bench = Bench::new();
    let items = (0..3).map(|n| bench.item(&format!("uid-{n}"))).collect();
    let run = bench.run(Operation::Backup { items });
    assert_eq!(run.code, Some(0), "{}", run.message);
    let taken = run.taken();
    assert_eq!(
        taken.iter().map(|t| t.uid.as_str()).collect::<Vec<_>>(),
        ["uid-0", "uid-1", "uid-2"]
    );
    let first = Some(taken[0].clone());
    assert_eq!(
        run.outcome().result,
        OperationResult::BackedUp {
            taken: 3,
            first,
            vanished: Vec::new()
        }
    );
    assert_eq!(taken[0].size_bytes, 1500);
    assert!(taken[0].bytes_new > Some(0) && taken[0].files_new == 2);
    assert_eq!((taken[1].bytes_new, taken[1].files_unchanged), (Some(0), 2));
    let mut ids: Vec<_> = taken.into_iter().map(|t| t.snapshot_id).collect();
    ids.sort();
    assert_eq!(bench.ids(), ids);
}

#[test]
fn a_retried_backup_takes_nothing_twice() {
    let bench = Bench::new();
    let first = bench.back_up(0..2);
    // The Job died after two of four; it is run again as it was.
    fs::write(bench.path("source/new"), "written meanwhile").unwrap();
    let second = bench.back_up(0..4);
    assert_eq!(second[..2], first[..]);
    assert_eq!(bench.ids().len(), 4);
    // Another cluster's snapshot for the same UID is not ours.
    let mut document = bench.document(Operation::Backup {
        items: vec![bench.item("uid-0")],
    });
    document.cluster = "another cluster".to_owned();
    let run = bench.run_document(&document);
    assert_eq!(run.code, Some(0));
    assert_ne!(run.taken()[0].snapshot_id, first[0].snapshot_id);
    assert_eq!(bench.ids().len(), 5);
}

#[test]
fn an_unreadable_source_is_named_and_what_was_taken_before_is_reported() {
    let bench = Bench::new();
    let mut missing = bench.item("uid-1");
    missing.read_from = bench.path("absent").to_str().unwrap().to_owned();
    let run = bench.run(Operation::Backup {
        items: vec![bench.item("uid-0"), missing],
    });
    assert_eq!(
        (run.code, run.class()),
        (Some(1), Some(FailureClass::SourceUnreadable))
    );
    assert!(run.message.contains("absent"), "{}", run.message);
    assert_eq!(run.taken().len(), 1);
    assert_eq!(bench.ids().len(), 1);
}

#[test]
fn a_batch_deletes_the_present_and_only_what_matches() {
    let bench = Bench::new();
    let taken = bench.back_up(0..4);
    let mut theirs = bench.document(Operation::Backup {
        items: vec![bench.item("uid-9")],
    });
    theirs.cluster = "another cluster".to_owned();
    let theirs = bench.run_document(&theirs).taken();
    let mut absent = member(&taken[0]);
    absent.snapshot_id = "0".repeat(64);
    let mut twin = member(&taken[0]);
    twin.uid = "uid-twin".to_owned();
    let mut elsewhere = member(&taken[1]);
    elsewhere.source.path = "/pvc/other".to_owned();
    let mut earlier = member(&taken[2]);
    earlier.start_time = Some(jiff::Timestamp::UNIX_EPOCH);
    let members: Vec<BatchMember> = vec![
        member(&taken[0]),
        absent,
        twin,
        elsewhere,
        earlier,
        member(&theirs[0]),
        member(&taken[3]),
    ];
    let run = bench.run(batch(members));
    assert_eq!((run.letters(), run.code), ("DADMMCD", Some(1)));
    assert_eq!(run.class(), None);
    let mut left = [&taken[1], &taken[2], &theirs[0]].map(|t| t.snapshot_id.clone());
    left.sort();
    assert_eq!(bench.ids(), left);
    let again = bench.run(batch(vec![member(&taken[0]), member(&taken[3])]));
    assert_eq!((again.letters(), again.code), ("AA", Some(0)));
}

#[test]
fn a_prune_whose_kept_snapshots_are_not_all_there_is_not_carried_out() {
    let bench = Bench::new();
    let taken = bench.back_up(0..4);
    let vanished = "f".repeat(16);
    let kept = vec![
        vec![cut(&taken[3].snapshot_id).to_owned()],
        vec![cut(&taken[3].snapshot_id).to_owned(), vanished.clone()],
    ];
    let mut members: Vec<BatchMember> = taken[..3].iter().map(member).collect();
    members[0].justified_by = Some(0);
    members[1].justified_by = Some(1);
    let run = bench.run(Operation::DeleteBatch { members, kept });
    assert_eq!((run.letters(), run.code), ("DVD", Some(1)));
    assert_eq!(run.class(), Some(FailureClass::OperationFailed));
    assert!(run.message.contains(&vanished), "{}", run.message);
    assert!(run.stdout.contains(&vanished), "{}", run.stdout);
    let OperationResult::Batch { missing, .. } = &run.outcome().result else {
        panic!("a batch");
    };
    assert_eq!(*missing, [vanished]);
    let mut left = [&taken[1], &taken[3]].map(|t| t.snapshot_id.clone());
    left.sort();
    assert_eq!(bench.ids(), left);
}

#[test]
fn a_damaged_record_fails_alone() {
    let bench = Bench::new();
    let taken = bench.back_up(0..3);
    let damaged = bench.path("repository/snapshots").join(&taken[1].snapshot_id);
    fs::write(&damaged, "damaged").unwrap();
    let run = bench.run(batch(taken.iter().map(member).collect()));
    assert_eq!((run.letters(), run.code), ("DFD", Some(1)));
    assert!(run.message.contains(&taken[1].snapshot_id), "{}", run.message);
    assert_eq!(bench.ids(), [taken[1].snapshot_id.clone()]);
}

#[test]
fn a_directory_that_cannot_be_listed_confirms_nothing() {
    let bench = Bench::new();
    let taken = bench.back_up(0..2);
    fs::rename(bench.path("repository/snapshots"), bench.path("aside")).unwrap();
    let run = bench.run(batch(taken.iter().map(member).collect()));
    assert_eq!(
        (run.code, run.class()),
        (Some(1), Some(FailureClass::BackendUnreachable))
    );
    assert_eq!(run.outcome().result, OperationResult::None);
    fs::rename(bench.path("aside"), bench.path("repository/snapshots")).unwrap();
    assert_eq!(bench.ids().len(), 2);
}

#[test]
fn a_read_only_repository_loses_nothing() {
    let bench = Bench::new();
    let taken = bench.back_up(0..3);
    let members = taken.iter().map(member).collect();
    let document = bench.document(batch(members));
    let Some(command) = bench.command_read_only(&document) else {
        println!("skipped: mounting is not allowed here");
        return;
    };
    let run = bench.finish(command);
    assert_eq!(
        (run.code, run.class()),
        (Some(1), Some(FailureClass::BackendUnreachable))
    );
    assert_eq!(run.letters(), "FFF");
    let backup = bench.document(Operation::Backup {
        items: vec![bench.item("uid-9")],
    });
    let run = bench.finish(bench.command_read_only(&backup).unwrap());
    assert_eq!(
        (run.code, run.class()),
        (Some(1), Some(FailureClass::BackendUnreachable))
    );
    assert_eq!(bench.ids().len(), 3);
}

#[test]
fn an_outcome_that_cannot_be_written_is_a_failure() {
    let bench = Bench::new();
    let mut command = bench.command(&bench.document(Operation::Bootstrap { create: false }));
    let output = command
        .env("HOLDFAST_TERMINATION_PATH", bench.path("absent/file"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!String::from_utf8_lossy(&output.stderr).contains(PASSWORD));
}
