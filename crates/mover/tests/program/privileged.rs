//! The built mover starts as root and becomes the user whose the repository's files are. Needs root.

use crate::support::Bench;
use holdfast_protocol::work::{EngineKind, Operation};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

const USER: u32 = 65_532;

fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        println!("skipped: not root");
    }
    root
}

/// What root alone may read is in the snapshot, and the repository stays its user's.
fn as_the_repositorys_user(engine: EngineKind) {
    let mut bench = Bench::empty();
    bench.engine = engine;
    chown(bench.path("repository"), Some(USER), Some(USER)).unwrap();
    bench.user = Some(USER);
    let run = bench.run(Operation::Bootstrap { create: true });
    assert_eq!(run.code, Some(0), "{}", run.message);
    bench.unique_id.clone_from(&run.outcome().unique_id);
    let locked = bench.path("source/sub");
    fs::set_permissions(locked.join("b"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
    let taken = bench.back_up(0..1).remove(0);
    assert_eq!((taken.size_bytes, taken.files_new), (1500, 2));
    let all = below(&bench.path("repository"));
    assert!(all.len() > 5, "{all:?}");
    for path in all {
        let owner = fs::metadata(&path).unwrap().uid();
        assert_eq!(owner, USER, "{}", path.display());
    }
}

#[test]
fn what_a_privileged_mover_writes_belongs_to_the_repositorys_user() {
    if is_root() {
        as_the_repositorys_user(EngineKind::Restic);
    }
}

#[test]
fn so_does_what_the_program_writes_that_it_starts() {
    if std::env::var_os("KOPIA_BIN").is_none_or(|name| name.is_empty()) {
        println!("skipped: no kopia");
        return;
    }
    if is_root() {
        as_the_repositorys_user(EngineKind::Kopia);
    }
}
