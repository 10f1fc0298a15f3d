//! The Kopia engine against the conformance suite, and what is particular to it. Needs the program: `KOPIA_BIN`.
#![allow(clippy::unwrap_used, missing_docs)]

mod conformance;
mod person;

use conformance::{Bench, back_up, password};
use holdfast_engine::kopia::Kopia;
use holdfast_engine::{Engine, EngineError, ErrorClass, Repository, SnapshotInfo};
use person::{Person, program};
use std::fs;
use std::path::{Path, PathBuf};

macro_rules! conforms {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            if program().is_some() {
                conformance::$name(&Kopia::default());
            }
        })*
    };
}

conforms!(
    create_then_connect_have_one_stable_id,
    a_wrong_password_is_named_as_such,
    an_absent_repository_is_not_initialized,
    a_place_that_cannot_be_read_is_not_absent,
    creating_never_builds_over_anything,
    a_backup_is_listed_as_it_was_reported,
    a_change_is_stored_once,
    an_unreadable_source_writes_no_snapshot,
    a_source_that_is_only_partly_readable_writes_no_snapshot,
    reserved_tags_and_crooked_paths_are_refused,
    deleting_takes_present_absent_and_repeated_ids,
    our_pin_is_read_back_and_taken_back_and_binds_no_deletion,
    a_part_of_an_id_deletes_nothing,
    a_listing_is_fresh,
    another_repository_in_its_place_is_noticed,
    a_restore_is_the_source_as_it_was,
    a_restore_does_with_existing_files_what_it_is_told,
    reclaiming_keeps_what_is_needed_and_tells_what_is_not,
    only_who_is_recorded_reclaims,
);

#[test]
fn a_directory_that_went_away_is_never_empty() {
    if program().is_some() {
        // The folder `x` has the indexes: without them the program itself shows an empty repository.
        conformance::a_directory_that_went_away_is_never_empty(&Kopia::default(), &["", "x"]);
    }
}

#[test]
fn a_check_finds_damaged_data() {
    if program().is_some() {
        // Packs of files are in `p`, records and directories in `q`.
        conformance::a_check_finds_damaged_data(&Kopia::default(), |root| overwrite(&root.join("p")));
    }
}

fn overwrite(folder: &Path) {
    for pack in files(folder) {
        let length = fs::metadata(&pack).unwrap().len();
        fs::write(pack, vec![0; usize::try_from(length).unwrap()]).unwrap();
    }
}

#[test]
fn deletes_need_silence_and_ids_may_change() {
    let kopia = Kopia::default();
    assert!(kopia.deletes_need_silence() && kopia.ids_may_change());
}

#[test]
fn the_programs_own_retention_expires_nothing_of_ours() {
    let Some(program) = program() else { return };
    let bench = Bench::new();
    let mut repository = Kopia::default().create(&bench.repository(), &password()).unwrap();
    let uids: Vec<String> = (0..13).map(|n| format!("uid-{n}")).collect();
    back_up(
        &bench,
        repository.as_mut(),
        &uids.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert_eq!(
        repository.list().unwrap().snapshots.len(),
        13,
        "a fresh repository keeps 10"
    );
    // Someone tightens the policy of this very source: it is set right before the next snapshot is taken.
    let person = Person::at(&program, &bench.repository());
    person.ok(&["policy", "set", "policy@namespace:/pvc/data", "--keep-latest=2"]);
    person.ok(&["policy", "set", "--global", "--ignore-identical-snapshots=true"]);
    let mut repository = Kopia::default()
        .connect(&bench.repository(), &password())
        .unwrap();
    back_up(&bench, repository.as_mut(), &["another"]);
    assert_eq!(repository.list().unwrap().snapshots.len(), 14);
    // What is not ours is left as it is.
    let global = person.ok(&["policy", "show", "--global", "--json"]);
    assert!(global.contains("\"keepLatest\":10"), "{global}");
}

#[test]
fn what_a_person_pinned_is_listed_as_pinned_and_can_be_deleted_all_the_same() {
    let Some(program) = program() else { return };
    let bench = Bench::new();
    let mut repository = Kopia::default().create(&bench.repository(), &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one", "two"]);
    assert!(taken.iter().all(|info| !info.pinned));
    let person = Person::at(&program, &bench.repository());
    let pinned = |repository: &dyn Repository| -> Vec<SnapshotInfo> {
        let listed = repository.list().unwrap().snapshots.into_iter();
        listed.filter(|info| info.pinned).collect()
    };
    person.ok(&["snapshot", "pin", &taken[0].id, "--add", "keep"]);
    let there = pinned(repository.as_ref());
    assert_eq!(there.len(), 1);
    // Another id, and otherwise what it was.
    assert_ne!(there[0].id, taken[0].id);
    let before = SnapshotInfo {
        id: there[0].id.clone(),
        pinned: true,
        sizes: there[0].sizes,
        ..taken[0].clone()
    };
    assert_eq!(there[0], before);
    person.ok(&["snapshot", "pin", &there[0].id, "--remove", "keep"]);
    assert!(pinned(repository.as_ref()).is_empty());

    // Ours is another one: taking it back leaves theirs.
    person.ok(&["snapshot", "pin", &taken[1].id, "--add", "keep"]);
    let theirs = pinned(repository.as_ref()).remove(0);
    assert!(!theirs.pin_is_ours);
    repository.pin(&theirs.id, true).unwrap();
    let both = pinned(repository.as_ref()).remove(0);
    assert!(both.pin_is_ours);
    repository.pin(&both.id, false).unwrap();
    let theirs = pinned(repository.as_ref()).remove(0);
    assert!(!theirs.pin_is_ours);
    repository.pin(&theirs.id, false).unwrap();
    assert_eq!(pinned(repository.as_ref()), [theirs]);
    let id = pinned(repository.as_ref()).remove(0).id;
    repository.delete(std::slice::from_ref(&id)).unwrap();
    let left = repository.list().unwrap();
    assert!(!left.contains(&id));
    assert_eq!(left.snapshots.len(), 1);
}

#[test]
fn reading_leaves_the_repository_as_it_is() {
    let Some(program) = program() else { return };
    let bench = Bench::new();
    let mut repository = Kopia::default().create(&bench.repository(), &password()).unwrap();
    let person = Person::at(&program, &bench.repository());
    // The program rewrites the records when there are many, which is what must not happen here.
    let rewritten = (0..20).any(|number| {
        back_up(&bench, repository.as_mut(), &[&format!("uid-{number}")]);
        let before = files(&bench.repository());
        let reading = Kopia::default()
            .connect(&bench.repository(), &password())
            .unwrap();
        assert_eq!(reading.list().unwrap().snapshots.len(), number + 1);
        assert_eq!(files(&bench.repository()), before);
        person.ok(&["snapshot", "list", "--all"]);
        files(&bench.repository()) != before
    });
    assert!(
        rewritten,
        "an ordinary connection writes when it reads; else this test proves nothing"
    );
}

fn class<T>(result: Result<T, EngineError>) -> ErrorClass {
    result.err().unwrap().class()
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_damaged_pack_of_records_is_never_an_empty_repository() {
    if program().is_none() {
        return;
    }
    let bench = Bench::new();
    let mut repository = Kopia::default().create(&bench.repository(), &password()).unwrap();
    back_up(&bench, repository.as_mut(), &["one"]);
    for pack in files(&bench.repository().join("q")) {
        fs::write(pack, "damaged").unwrap();
    }
    let fresh = Kopia::default()
        .connect(&bench.repository(), &password())
        .unwrap();
    assert!(fresh.list().is_err());
}

#[test]
fn an_interrupted_creation_is_made_good() {
    if program().is_none() {
        return;
    }
    let bench = Bench::new();
    let root = bench.repository();
    Kopia::default().create(&root, &password()).unwrap();
    // What a crash before the format is written leaves.
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        }
    }
    fs::remove_file(root.join("kopia.repository.f")).unwrap();
    assert_eq!(
        class(Kopia::default().connect(&root, &password())),
        ErrorClass::NotInitialized
    );
    let mut repository = Kopia::default().create(&root, &password()).unwrap();
    back_up(&bench, repository.as_mut(), &["one"]);
}

#[test]
fn a_lost_format_is_not_built_over() {
    if program().is_none() {
        return;
    }
    let bench = Bench::new();
    let root = bench.repository();
    let mut repository = Kopia::default().create(&root, &password()).unwrap();
    back_up(&bench, repository.as_mut(), &["one"]);
    fs::remove_file(root.join("kopia.repository.f")).unwrap();
    assert_eq!(
        class(Kopia::default().connect(&root, &password())),
        ErrorClass::Failed
    );
    assert_eq!(
        class(Kopia::default().create(&root, &password())),
        ErrorClass::Failed
    );
    assert_eq!(class(repository.list()), ErrorClass::Unreachable);
}

#[test]
fn an_identity_that_the_program_would_misread_is_refused() {
    if program().is_none() {
        return;
    }
    let bench = Bench::new();
    let mut repository = Kopia::default().create(&bench.repository(), &password()).unwrap();
    for (username, hostname) in [
        ("a@b", "host"),
        ("a:b", "host"),
        ("user", "h:o"),
        ("", "host"),
        ("user", ""),
    ] {
        let mut crooked = bench.request("one");
        crooked.source.username = username.to_owned();
        crooked.source.hostname = hostname.to_owned();
        let result = repository.back_up(&[crooked], &mut |_, _| panic!("taken"));
        assert_eq!(result.unwrap_err().class(), ErrorClass::Failed);
    }
    assert!(repository.list().unwrap().snapshots.is_empty());
}
