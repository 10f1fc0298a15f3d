//! What every engine must do, written against the trait alone. An engine's test file calls each function here.
//!
//! Not tested: a directory that may only be read (these tests may run as root, whom file modes do not bind).
//! Its place is taken by directories that are missing or are files, which bind everybody.

use holdfast_engine::{
    BackupRequest, Depth, Effort, Engine, ErrorClass, Existing, Listing, Maintainer, Meter, Password,
    Repository, RestoreOptions, SnapshotInfo, SourceIdentity,
};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A repository's place and a source beside it.
pub struct Bench {
    dir: TempDir,
}

pub const PASSWORD: &str = "correct horse battery staple";

pub fn password() -> Password {
    Password::new(PASSWORD)
}

impl Bench {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("source/sub")).unwrap();
        fs::write(dir.path().join("source/a"), "a".repeat(1000)).unwrap();
        fs::write(dir.path().join("source/sub/b"), "b".repeat(500)).unwrap();
        Self { dir }
    }

    pub fn repository(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    pub fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub fn request(&self, uid: &str) -> BackupRequest {
        BackupRequest {
            read_from: self.source(),
            source: SourceIdentity {
                username: "policy".to_owned(),
                hostname: "namespace".to_owned(),
                path: "/pvc/data".to_owned(),
            },
            cluster: "cluster-uid".to_owned(),
            snapshot_uid: uid.to_owned(),
            tags: BTreeMap::from([("team".to_owned(), "blue, red".to_owned())]),
        }
    }
}

/// Backs the bench's source up once for each uid.
pub fn back_up(bench: &Bench, repository: &mut dyn Repository, uids: &[&str]) -> Vec<SnapshotInfo> {
    let requests: Vec<_> = uids.iter().map(|u| bench.request(u)).collect();
    let mut taken = Vec::new();
    repository
        .back_up(&requests, &mut |number, info| {
            assert_eq!(number, taken.len(), "reported in order");
            taken.push(info.clone());
        })
        .unwrap();
    assert_eq!(taken.len(), uids.len());
    taken
}

pub fn ids(listing: &Listing) -> Vec<&str> {
    listing.snapshots.iter().map(|s| s.id.as_str()).collect()
}

fn class<T>(result: Result<T, holdfast_engine::EngineError>) -> ErrorClass {
    match result {
        Ok(_) => panic!("succeeded"),
        Err(error) => {
            let text = format!("{error} {error:?}");
            assert!(!text.contains(PASSWORD), "{text}");
            assert!(!text.contains("another password"), "{text}");
            error.class()
        }
    }
}

pub fn create_then_connect_have_one_stable_id(engine: &dyn Engine) {
    let bench = Bench::new();
    let created = engine.create(&bench.repository(), &password()).unwrap();
    assert_eq!(created.list().unwrap(), Listing::default());
    for _ in 0..2 {
        let again = engine.connect(&bench.repository(), &password()).unwrap();
        assert_eq!(again.unique_id(), created.unique_id());
        assert!(!again.unique_id().is_empty());
    }
    let other = Bench::new();
    let other = engine.create(&other.repository(), &password()).unwrap();
    assert_ne!(other.unique_id(), created.unique_id());
}

pub fn a_wrong_password_is_named_as_such(engine: &dyn Engine) {
    let bench = Bench::new();
    engine.create(&bench.repository(), &password()).unwrap();
    let wrong = Password::new("another password");
    assert_eq!(
        class(engine.connect(&bench.repository(), &wrong)),
        ErrorClass::InvalidPassword
    );
    assert!(!format!("{wrong:?}").contains("another"));
}

pub fn an_absent_repository_is_not_initialized(engine: &dyn Engine) {
    let bench = Bench::new();
    assert_eq!(
        class(engine.connect(&bench.repository(), &password())),
        ErrorClass::NotInitialized
    );
    assert!(!bench.repository().exists(), "connecting creates nothing");
    fs::create_dir(bench.repository()).unwrap();
    assert_eq!(
        class(engine.connect(&bench.repository(), &password())),
        ErrorClass::NotInitialized
    );
    assert_eq!(fs::read_dir(bench.repository()).unwrap().count(), 0);
}

pub fn a_place_that_cannot_be_read_is_not_absent(engine: &dyn Engine) {
    let bench = Bench::new();
    let below_a_file = bench.source().join("a");
    for place in [below_a_file.clone(), below_a_file.join("sub")] {
        assert_eq!(
            class(engine.connect(&place, &password())),
            ErrorClass::Unreachable
        );
        assert_eq!(class(engine.create(&place, &password())), ErrorClass::Unreachable);
    }
}

pub fn creating_never_builds_over_anything(engine: &dyn Engine) {
    let bench = Bench::new();
    fs::create_dir_all(bench.repository().join("lost+found")).unwrap();
    let unique_id = engine
        .create(&bench.repository(), &password())
        .unwrap()
        .unique_id()
        .to_owned();
    assert_eq!(
        class(engine.create(&bench.repository(), &password())),
        ErrorClass::Failed
    );
    let still = engine.connect(&bench.repository(), &password()).unwrap();
    assert_eq!(still.unique_id(), unique_id);
    assert_eq!(
        class(engine.create(&bench.source(), &password())),
        ErrorClass::Failed
    );
    assert_eq!(fs::read_dir(bench.source()).unwrap().count(), 2, "untouched");
}

pub fn a_backup_is_listed_as_it_was_reported(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let before = Timestamp::now();
    let taken = back_up(&bench, repository.as_mut(), &["one", "two"]);
    let after = Timestamp::now();
    let listing = repository.list().unwrap();
    assert_eq!(listing.snapshots.len(), 2);
    assert!(listing.unreadable.is_empty());
    for (info, uid) in taken.iter().zip(["one", "two"]) {
        // What a run added is known when it ends; not every engine records it.
        let mut as_reported = listing.find(&info.id).unwrap().clone();
        if let Some(sizes) = &mut as_reported.sizes {
            sizes.bytes_new = sizes.bytes_new.or(info.sizes.unwrap().bytes_new);
        }
        assert_eq!(as_reported, *info);
        let request = bench.request(uid);
        assert_eq!(info.source, request.source);
        assert_eq!(info.cluster, Some(request.cluster));
        assert_eq!(info.snapshot_uid, Some(request.snapshot_uid));
        assert_eq!(info.tags, request.tags);
        assert!(before <= info.start && info.start <= info.end.unwrap() && info.end.unwrap() <= after);
        assert_eq!(info.sizes.unwrap().size_bytes, 1500);
    }
    let (first, second) = (taken[0].sizes.unwrap(), taken[1].sizes.unwrap());
    assert_eq!(
        (first.files_new, first.files_modified, first.files_unchanged),
        (2, 0, 0)
    );
    assert_eq!(
        (second.files_new, second.files_modified, second.files_unchanged),
        (0, 0, 2)
    );
    assert!(first.bytes_new.unwrap() > 0);
    assert_eq!(
        second.bytes_new,
        Some(0),
        "nothing changed, nothing is stored again"
    );
}

pub fn a_change_is_stored_once(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let before = back_up(&bench, repository.as_mut(), &["one"]);
    fs::write(bench.source().join("c"), "c".repeat(2000)).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["two", "three"]);
    assert_eq!(taken[0].root, taken[1].root, "the same files");
    assert_ne!(taken[0].root, before[0].root, "other files");
    assert_eq!(taken[0].sizes.unwrap().files_new, 1);
    assert!(taken[0].sizes.unwrap().bytes_new.unwrap() > 0);
    assert_eq!(
        taken[1].sizes.unwrap().bytes_new,
        Some(0),
        "the index of the batch sees its own additions"
    );
}

pub fn an_unreadable_source_writes_no_snapshot(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let mut bad = bench.request("two");
    bad.read_from = bench.source().join("absent");
    let requests = [bench.request("one"), bad, bench.request("three")];
    let mut taken = Vec::new();
    let result = repository.back_up(&requests, &mut |n, _| taken.push(n));
    assert_eq!(class(result), ErrorClass::SourceUnreadable);
    assert_eq!(taken, [0]);
    assert_eq!(repository.list().unwrap().snapshots.len(), 1);
}

/// The unreadable part is a path that the kernel refuses for its length, which binds root too. It is built by
/// renaming from the inside out, so that no call needs the long path.
pub fn a_source_that_is_only_partly_readable_writes_no_snapshot(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let mut deepest = bench.source();
    for _ in 0..20 {
        deepest.push("d");
    }
    fs::create_dir_all(&deepest).unwrap();
    fs::write(deepest.join("file"), "unreachable").unwrap();
    for _ in 0..20 {
        fs::rename(&deepest, deepest.with_file_name("d".repeat(250))).unwrap();
        deepest.pop();
    }
    let result = repository.back_up(&[bench.request("one")], &mut |_, _| panic!("taken"));
    assert_eq!(class(result), ErrorClass::SourceUnreadable);
    assert!(repository.list().unwrap().snapshots.is_empty());
    fs::remove_dir_all(bench.source().join("d".repeat(250))).unwrap();
    back_up(&bench, repository.as_mut(), &["one"]);
}

pub fn reserved_tags_and_crooked_paths_are_refused(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let mut reserved = bench.request("one");
    reserved
        .tags
        .insert("holdfast-cluster".to_owned(), "forged".to_owned());
    let mut refused = vec![reserved];
    for path in ["pvc/data", "/pvc/../data", "/pvc/./data", "/pvc/data/", ""] {
        let mut crooked = bench.request("one");
        crooked.source.path = path.to_owned();
        refused.push(crooked);
    }
    for request in refused {
        let result = repository.back_up(&[request], &mut |_, _| panic!("taken"));
        assert_eq!(class(result), ErrorClass::Failed);
    }
    assert!(repository.list().unwrap().snapshots.is_empty());
}

pub fn deleting_takes_present_absent_and_repeated_ids(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one", "two", "three"]);
    let absent = "0".repeat(taken[0].id.len());
    let asked = [&taken[0].id, &absent, &taken[1].id, &taken[0].id].map(Clone::clone);
    repository.delete(&asked).unwrap();
    assert_eq!(ids(&repository.list().unwrap()), [taken[2].id.as_str()]);
    repository.delete(&asked).unwrap();
    repository.delete(&[]).unwrap();
    assert_eq!(ids(&repository.list().unwrap()), [taken[2].id.as_str()]);
}

pub fn our_pin_is_read_back_and_taken_back_and_binds_no_deletion(engine: &dyn Engine) {
    assert!(engine.ids_may_change());
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one", "two"]);
    // It is what it was, under another id.
    let now = |repository: &dyn Repository| {
        let listing = repository.list().unwrap();
        assert_eq!(listing.snapshots.len(), 2);
        let found = listing.snapshots.into_iter();
        let mut of = found.filter(|s| s.snapshot_uid.as_deref() == Some("one"));
        let found = of.next().unwrap();
        assert_eq!((&found.source, found.start), (&taken[0].source, taken[0].start));
        assert_eq!(
            (&found.cluster, &found.tags, found.end),
            (&taken[0].cluster, &taken[0].tags, taken[0].end)
        );
        assert!(found.root.is_some());
        assert_eq!(found.root, taken[0].root);
        found
    };
    assert!(!now(repository.as_ref()).pinned);
    repository.pin(&taken[0].id, false).unwrap();
    assert_eq!(
        now(repository.as_ref()).id,
        taken[0].id,
        "nothing was there to take back"
    );
    repository.pin(&taken[0].id, true).unwrap();
    let pinned = now(repository.as_ref());
    assert!(pinned.pinned && pinned.pin_is_ours);
    assert_ne!(pinned.id, taken[0].id);
    assert_eq!(
        class(repository.pin(&taken[0].id, true)),
        ErrorClass::Failed,
        "it has another id now"
    );
    repository.pin(&pinned.id, true).unwrap();
    assert_eq!(now(repository.as_ref()), pinned, "it is so already");
    repository.check(Depth::Structure).unwrap();
    repository.pin(&pinned.id, false).unwrap();
    let unpinned = now(repository.as_ref());
    assert!(!unpinned.pinned && !unpinned.pin_is_ours);
    repository.pin(&unpinned.id, true).unwrap();
    repository.delete(&[now(repository.as_ref()).id]).unwrap();
    assert_eq!(ids(&repository.list().unwrap()), [taken[1].id.as_str()]);
}

pub fn a_part_of_an_id_deletes_nothing(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one"]);
    for part in ["", "latest", &taken[0].id[..8]] {
        let result = repository.delete(&[part.to_owned()]);
        let left = repository.list().unwrap();
        assert_eq!(left.snapshots.len(), 1, "{part:?}: {result:?}");
    }
}

pub fn a_listing_is_fresh(engine: &dyn Engine) {
    let bench = Bench::new();
    let ours = engine.create(&bench.repository(), &password()).unwrap();
    assert!(ours.list().unwrap().snapshots.is_empty());
    let mut theirs = engine.connect(&bench.repository(), &password()).unwrap();
    let taken = back_up(&bench, theirs.as_mut(), &["one", "two"]);
    assert_eq!(ours.list().unwrap().snapshots.len(), 2);
    theirs.delete(&[taken[0].id.clone()]).unwrap();
    assert_eq!(ids(&ours.list().unwrap()), [taken[1].id.as_str()]);
}

pub fn a_directory_that_went_away_is_never_empty(engine: &dyn Engine, parts: &[&str]) {
    for part in parts {
        let bench = Bench::new();
        let mut repository = engine.create(&bench.repository(), &password()).unwrap();
        let taken = back_up(&bench, repository.as_mut(), &["one"]);
        let place = match *part {
            "" => bench.repository(),
            part => bench.repository().join(part),
        };
        let aside = bench.repository().with_extension("aside");
        fs::rename(&place, &aside).unwrap();
        assert_eq!(
            class(repository.list()),
            ErrorClass::Unreachable,
            "{part:?} missing"
        );
        fs::write(&place, "a file instead").unwrap();
        assert_eq!(
            class(repository.list()),
            ErrorClass::Unreachable,
            "{part:?} is a file"
        );
        let _ = repository.delete(&[taken[0].id.clone()]);
        fs::remove_file(&place).unwrap();
        fs::rename(&aside, &place).unwrap();
        assert_eq!(ids(&repository.list().unwrap()), [taken[0].id.as_str()]);
    }
}

pub fn another_repository_in_its_place_is_noticed(engine: &dyn Engine) {
    let bench = Bench::new();
    let repository = engine.create(&bench.repository(), &password()).unwrap();
    fs::rename(bench.repository(), bench.repository().with_extension("aside")).unwrap();
    engine.create(&bench.repository(), &password()).unwrap();
    assert_eq!(class(repository.list()), ErrorClass::Replaced);
}

/// Every path below, with what it is: a directory, a link's target, or a file's mode and content.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_dir() {
                todo.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(
                path.strip_prefix(root).unwrap().to_owned(),
                (metadata.mode(), content),
            );
        }
    }
    found
}

pub fn a_restore_is_the_source_as_it_was(engine: &dyn Engine) {
    let bench = Bench::new();
    let source = bench.source();
    fs::write(source.join("empty"), "").unwrap();
    fs::create_dir(source.join("hollow")).unwrap();
    fs::write(source.join("script"), "#!/bin/sh").unwrap();
    fs::set_permissions(source.join("script"), fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("sub/b", source.join("link")).unwrap();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one"]);
    let was = tree(&source);
    assert_eq!(was.len(), 7);
    fs::write(source.join("a"), "changed since").unwrap();
    back_up(&bench, repository.as_mut(), &["two"]);
    let target = bench.repository().with_extension("restored");
    repository
        .restore(
            &taken[0].id,
            &target,
            &RestoreOptions::default(),
            &Meter::default(),
        )
        .unwrap();
    assert_eq!(tree(&target), was);
    // Again, over what was changed; what the snapshot does not have stays.
    fs::write(target.join("a"), "damaged").unwrap();
    fs::write(target.join("more"), "mine").unwrap();
    repository
        .restore(
            &taken[0].id,
            &target,
            &RestoreOptions::default(),
            &Meter::default(),
        )
        .unwrap();
    assert_eq!(fs::read(target.join("more")).unwrap(), b"mine");
    fs::remove_file(target.join("more")).unwrap();
    assert_eq!(tree(&target), was);
    for absent in [
        "0".repeat(taken[0].id.len()),
        taken[0].id[..8].to_owned(),
        "latest".to_owned(),
    ] {
        assert_eq!(
            class(repository.restore(
                &absent,
                &target.join("absent"),
                &RestoreOptions::default(),
                &Meter::default()
            )),
            ErrorClass::Failed
        );
        assert!(!target.join("absent").exists());
    }
}

/// `damage` overwrites data that snapshots need, and leaves the records of snapshots alone.
pub fn a_check_finds_damaged_data(engine: &dyn Engine, damage: impl Fn(&Path)) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    repository.check(Depth::Data).unwrap();
    back_up(&bench, repository.as_mut(), &["one", "two"]);
    repository.check(Depth::Structure).unwrap();
    repository.check(Depth::Data).unwrap();
    damage(&bench.repository());
    let fresh = engine.connect(&bench.repository(), &password()).unwrap();
    assert_eq!(class(fresh.check(Depth::Data)), ErrorClass::Failed);
}

pub fn reclaiming_keeps_what_is_needed_and_tells_what_is_not(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let kept = back_up(&bench, repository.as_mut(), &["one"]);
    let was = tree(&bench.source());
    let nothing = repository.reclaim(Effort::Full, None).unwrap();
    assert_eq!(nothing.marked_bytes, 0);
    // Without a pattern, so that it is stored as long as it is.
    let noise: Vec<u8> = (0..100_000_u32)
        .scan(1_u32, |state, _| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((*state >> 24) as u8)
        })
        .collect();
    fs::write(bench.source().join("noise"), noise).unwrap();
    let doomed = back_up(&bench, repository.as_mut(), &["two"]);
    let stored = repository.stored_bytes().unwrap();
    assert!(stored > 90_000, "{stored}");
    repository.delete(&[doomed[0].id.clone()]).unwrap();
    let marked = repository.reclaim(Effort::Full, None).unwrap();
    assert!((90_000..200_000).contains(&marked.marked_bytes), "{marked:?}");
    assert_eq!(marked.freed_bytes, 0, "not before the safety period is over");
    repository.check(Depth::Data).unwrap();
    let target = bench.repository().with_extension("restored");
    repository
        .restore(
            &kept[0].id,
            &target,
            &RestoreOptions::default(),
            &Meter::default(),
        )
        .unwrap();
    assert_eq!(tree(&target), was);
}

/// Options of a restore do what they say.
pub fn a_restore_does_with_existing_files_what_it_is_told(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one"]);
    let was = tree(&bench.source());
    let target = bench.repository().with_extension("restored");
    let restore = |how: &RestoreOptions| {
        repository
            .restore(&taken[0].id, &target, how, &Meter::default())
            .unwrap()
    };
    let keep = RestoreOptions {
        existing: Existing::Keep,
        ..RestoreOptions::default()
    };
    let exact = RestoreOptions {
        delete_others: true,
        ..RestoreOptions::default()
    };
    fs::create_dir_all(&target).unwrap();
    fs::write(target.join("a"), "mine").unwrap();
    fs::write(target.join("more"), "mine too").unwrap();
    // An engine that cannot leave a file alone stops instead.
    let kept = repository.restore(&taken[0].id, &target, &keep, &Meter::default());
    assert!(kept.is_ok() || class(kept) == ErrorClass::Failed);
    assert_eq!(fs::read(target.join("a")).unwrap(), b"mine");
    let refuse = RestoreOptions {
        existing: Existing::Refuse,
        ..RestoreOptions::default()
    };
    let refused = repository.restore(&taken[0].id, &target, &refuse, &Meter::default());
    assert_eq!(class(refused), ErrorClass::Failed);
    assert_eq!(fs::read(target.join("a")).unwrap(), b"mine");
    let restored = restore(&exact);
    assert_eq!(tree(&target), was);
    let files = was.values().filter(|(mode, _)| mode & 0o170_000 == 0o100_000);
    assert_eq!(restored.files, files.count() as u64);
    let bytes = was.values().filter(|(mode, _)| mode & 0o170_000 == 0o100_000);
    assert_eq!(
        restored.bytes,
        bytes.map(|(_, content)| content.len() as u64).sum::<u64>()
    );

    // A link in the way of a file is replaced, never written through.
    let outside = target.with_extension("outside");
    fs::write(&outside, "not in the target").unwrap();
    fs::remove_file(target.join("a")).unwrap();
    std::os::unix::fs::symlink(&outside, target.join("a")).unwrap();
    restore(&RestoreOptions::default());
    assert_eq!(fs::read(&outside).unwrap(), b"not in the target");
    assert_eq!(tree(&target), was);
}

/// Where a format records who maintains a repository, nobody else reclaims; elsewhere there is nobody to ask.
pub fn only_who_is_recorded_reclaims(engine: &dyn Engine) {
    let bench = Bench::new();
    let mut repository = engine.create(&bench.repository(), &password()).unwrap();
    let recorded = repository.maintainer().unwrap();
    repository.set_maintainer("cluster-a/vault").unwrap();
    let mut again = engine.connect(&bench.repository(), &password()).unwrap();
    let name = "cluster-a/vault".to_owned();
    match recorded {
        None => assert_eq!(again.maintainer().unwrap(), None),
        Some(maintainer) => {
            assert!(maintainer.by_creation, "{maintainer:?}");
            let by_creation = false;
            assert_eq!(
                again.maintainer().unwrap(),
                Some(Maintainer { name, by_creation })
            );
            for other in [None, Some("cluster-b/vault")] {
                let refused = again.reclaim(Effort::Quick, other).unwrap_err();
                assert_eq!(refused.class(), ErrorClass::Failed);
                assert!(refused.to_string().contains("cluster-a/vault"), "{refused}");
            }
            again.set_maintainer("me").unwrap_err();
        }
    }
    for effort in [Effort::Quick, Effort::Full] {
        again.reclaim(effort, Some("cluster-a/vault")).unwrap();
    }
}
