//! The Restic engine against the conformance suite, and what is particular to it.
#![allow(clippy::unwrap_used, missing_docs)]

mod conformance;

use conformance::{Bench, PASSWORD, back_up, password};
use holdfast_engine::restic::Restic;
use holdfast_engine::{Effort, Engine, ErrorClass, Meter, RestoreOptions};
use std::fs;
use std::process::Command;

macro_rules! conforms {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            conformance::$name(&Restic);
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
    conformance::a_directory_that_went_away_is_never_empty(&Restic, &["", "snapshots"]);
}

#[test]
fn a_damaged_record_counts_as_present() {
    let bench = Bench::new();
    let mut repository = Restic.create(&bench.repository(), &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one", "two"]);
    let record = bench.repository().join("snapshots").join(&taken[0].id);
    fs::write(record, "damaged").unwrap();
    let listing = repository.list().unwrap();
    assert!(listing.contains(&taken[0].id));
    assert_eq!(listing.unreadable, [taken[0].id.clone()]);
    assert_eq!(conformance::ids(&listing), [taken[1].id.as_str()]);
    back_up(&bench, repository.as_mut(), &["three"]);
}

#[test]
fn a_check_finds_damaged_data() {
    conformance::a_check_finds_damaged_data(&Restic, |root| {
        for folder in fs::read_dir(root.join("data")).unwrap() {
            for pack in fs::read_dir(folder.unwrap().path()).unwrap() {
                let pack = pack.unwrap();
                let length = usize::try_from(pack.metadata().unwrap().len()).unwrap();
                fs::write(pack.path(), vec![0; length]).unwrap();
            }
        }
    });
}

#[test]
fn deletes_need_no_silence() {
    assert!(!Restic.deletes_need_silence());
}

#[test]
fn an_interrupted_creation_is_made_good() {
    let bench = Bench::new();
    let root = bench.repository();
    Restic.create(&root, &password()).unwrap();
    // What a crash before the config's last rename leaves: folders, a key, an unfinished config.
    fs::rename(root.join("config"), root.join("config-tmp-")).unwrap();
    assert_eq!(
        Restic.connect(&root, &password()).err().unwrap().class(),
        ErrorClass::NotInitialized
    );
    Restic.create(&root, &password()).unwrap();
    assert_eq!(
        fs::read_dir(root.join("keys")).unwrap().count(),
        1,
        "no key of the first attempt is left"
    );
    let mut repository = Restic.connect(&root, &password()).unwrap();
    back_up(&bench, repository.as_mut(), &["one"]);
}

#[test]
fn a_lost_config_is_not_built_over() {
    let bench = Bench::new();
    let root = bench.repository();
    let mut repository = Restic.create(&root, &password()).unwrap();
    back_up(&bench, repository.as_mut(), &["one"]);
    fs::remove_file(root.join("config")).unwrap();
    assert_eq!(
        Restic.connect(&root, &password()).err().unwrap().class(),
        ErrorClass::Failed
    );
    assert_eq!(
        Restic.create(&root, &password()).err().unwrap().class(),
        ErrorClass::Failed
    );
}

#[test]
fn restic_itself_agrees() {
    let restic = Command::new("restic").arg("version").output();
    if restic.is_err() {
        println!("skipped: no restic");
        return;
    }
    let bench = Bench::new();
    let mut repository = Restic.create(&bench.repository(), &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one", "two"]);
    repository.delete(&[taken[0].id.clone()]).unwrap();
    let run = |args: &[&str]| {
        let output = Command::new("restic")
            .arg("--no-cache")
            .arg("--repo")
            .arg(bench.repository())
            .args(args)
            .env("RESTIC_PASSWORD", PASSWORD)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["check", "--read-data"]);
    let listed = run(&["snapshots", "--json"]);
    let has = |id: &str| listed.contains(&format!("\"id\":\"{id}\""));
    assert!(has(&taken[1].id) && !has(&taken[0].id), "{listed}");
    assert!(
        listed.contains("/pvc/data") && listed.contains("holdfast-snapshot=two"),
        "{listed}"
    );
    assert_eq!(run(&["dump", &taken[1].id, "/pvc/data/sub/b"]), "b".repeat(500));
    // The same after what the deleted one needed was marked, and restored by either.
    repository.reclaim(Effort::Full, None).unwrap();
    run(&["check", "--read-data"]);
    let (ours, theirs) = (
        bench.repository().join("../ours"),
        bench.repository().join("../theirs"),
    );
    repository
        .restore(&taken[1].id, &ours, &RestoreOptions::default(), &Meter::default())
        .unwrap();
    run(&["restore", &taken[1].id, "--target", theirs.to_str().unwrap()]);
    for file in ["a", "sub/b"] {
        let theirs = fs::read(theirs.join("pvc/data").join(file)).unwrap();
        assert_eq!(fs::read(ours.join(file)).unwrap(), theirs, "{file}");
    }
}

#[test]
fn links_holes_attributes_and_odd_modes_come_back_and_what_differs_is_told() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("one"), "twice").unwrap();
    fs::hard_link(source.join("one"), source.join("two")).unwrap();
    let holed = fs::File::create(source.join("holed")).unwrap();
    holed.set_len(64 * 1024 * 1024).unwrap();
    drop(holed);
    fs::write(source.join("tool"), "#!").unwrap();
    fs::set_permissions(source.join("tool"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::write(source.join("locked"), "").unwrap();
    fs::set_permissions(source.join("locked"), fs::Permissions::from_mode(0o400)).unwrap();
    let attributes = xattr::set(source.join("one"), "user.colour", b"green").is_ok();
    let password = holdfast_engine::Password::new("p");
    let mut repository = Restic.create(&dir.path().join("repository"), &password).unwrap();
    let request = holdfast_engine::BackupRequest {
        read_from: source.clone(),
        source: holdfast_engine::SourceIdentity {
            username: "p".into(),
            hostname: "n".into(),
            path: "/pvc/data".into(),
        },
        cluster: "c".into(),
        snapshot_uid: "u".into(),
        tags: Default::default(),
    };
    let mut id = String::new();
    repository
        .back_up(&[request], &mut |_, info| id.clone_from(&info.id))
        .unwrap();
    let target = dir.path().join("target");
    let how = RestoreOptions {
        sparse: true,
        ..RestoreOptions::default()
    };
    let meter = Meter::default();
    let restored = repository.restore(&id, &target, &how, &meter).unwrap();
    assert_eq!(restored.unset, Some(vec![]));
    assert_eq!((restored.files, meter.done()), (5, meter.total()));
    let of = |name: &str| fs::symlink_metadata(target.join(name)).unwrap();
    assert_eq!(of("one").ino(), of("two").ino());
    assert_eq!((of("holed").len(), of("holed").blocks()), (64 * 1024 * 1024, 0));
    assert_eq!(
        (of("tool").mode() & 0o7777, of("locked").mode() & 0o7777),
        (0o4711, 0o400)
    );
    if attributes {
        let value = xattr::get(target.join("one"), "user.colour").unwrap();
        assert_eq!(value.as_deref(), Some(b"green".as_slice()));
    }
    // Over itself: links and files that nobody may write are no obstacle.
    let again = repository
        .restore(&id, &target, &RestoreOptions::default(), &Meter::default())
        .unwrap();
    assert_eq!((again.unset, again.files), (Some(vec![]), 5));
    assert_eq!(of("one").ino(), of("two").ino());
}
