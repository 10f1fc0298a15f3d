//! Restoring.
//!
//! **Promises.** Nothing is written through a link that is in the target: where a link or a special file is in the way
//! of a file, it is removed first; so is a file with several names, or its other names would change too. A directory
//! in the way of a file is an error. After writing, every file is looked at again: one that is missing, or of another
//! kind or length, is an error; another owner, mode, time or attribute is told.
//!
//! **Assumes.** Nobody else writes to the target meanwhile. The library leaves out zeros only where a file is new.

use super::convert::{self, failed};
use super::sparing::{Room, Sparing};
use super::{Connection, panic_text};
use crate::restored::{Existing, Meter, RestoreOptions, Restored, Unset, What};
use crate::{EngineError, ErrorClass, Repository};
use rustic_core::repofile::{Node, NodeType, SnapshotFile, SnapshotId};
use rustic_core::{
    Credentials, LocalDestination, LsOptions, Progress, ProgressBars, ProgressType, RepositoryBackends,
    RepositoryOptions, RusticProgress, RusticResult,
};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const WHAT: &str = "the snapshot cannot be restored";

/// Tells the library's count of bytes.
#[derive(Debug)]
struct Bars(Meter, Arc<Room>);

#[derive(Debug)]
struct Bytes(Meter, Arc<Room>);

impl ProgressBars for Bars {
    fn progress(&self, progress_type: ProgressType, _prefix: &str) -> Progress {
        match progress_type {
            ProgressType::Bytes => Progress::new(Bytes(self.0.clone(), Arc::clone(&self.1))),
            ProgressType::Spinner | ProgressType::Counter => Progress::hidden(),
        }
    }
}

impl RusticProgress for Bytes {
    fn is_hidden(&self) -> bool {
        false
    }
    fn set_length(&self, len: u64) {
        self.0.set_total(len);
    }
    fn set_title(&self, _title: &str) {}
    fn inc(&self, inc: u64) {
        self.0.add(inc);
        self.1.written(inc);
    }
    fn finish(&self) {}
}

fn in_the_way(path: &Path, why: &str) -> EngineError {
    EngineError::new(
        ErrorClass::Failed,
        WHAT,
        format!("{} {why}", path.display()),
        "Remove it, or restore into an empty volume",
    )
}

fn not_writable(path: &Path, cause: &io::Error) -> EngineError {
    EngineError::new(
        ErrorClass::Failed,
        WHAT,
        format!("{}: {cause}", path.display()),
        "Check that the target is writable for the mover's user",
    )
}

fn there(path: &Path) -> Result<Option<Metadata>, EngineError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(not_writable(path, &cause)),
    }
}

type Entry = RusticResult<(PathBuf, Node)>;

impl Connection {
    /// Writes the content of a snapshot's source below `to`.
    pub(super) fn restore_to(
        &self,
        id: SnapshotId,
        to: &Path,
        how: &RestoreOptions,
        meter: &Meter,
    ) -> Result<Restored, EngineError> {
        let Some(target) = to.to_str() else {
            return Err(EngineError::not_restored(
                "the target's path is not valid UTF-8".to_owned(),
            ));
        };
        let name = super::hex(id);
        if self.list()?.find(&name).is_none() {
            return Err(EngineError::not_restored(format!(
                "there is no readable snapshot `{name}`"
            )));
        }
        let file: SnapshotFile = self.opened.get_file(&id).map_err(|e| failed(WHAT, &e))?;
        let source = convert::info(name, &file).source.path;
        let open = || {
            let mut options = RepositoryOptions::default();
            options.no_cache = true;
            let room = Arc::new(Room::default());
            let storage = Sparing {
                inner: self.storage.backend(&self.faults)?,
                room: Arc::clone(&room),
            };
            let backends = RepositoryBackends::new(Arc::new(storage), None);
            let bars = Bars(meter.clone(), room);
            rustic_core::Repository::new_with_progress(&options, &backends, bars)?
                .open(&Credentials::Masterkey(self.opened.key()))?
                .to_indexed()
        };
        let indexed = open().map_err(|e| failed(WHAT, &e))?;
        let node = indexed
            .node_from_snapshot_and_path(&file, &source)
            .map_err(|e| failed(WHAT, &e))?;
        let nodes = indexed
            .ls(&node, &LsOptions::default())
            .map_err(|e| failed(WHAT, &e))?;
        let single = !node.is_dir();
        if how.existing == Existing::Replace && !single {
            clear_the_way(nodes.clone(), to, how.delete_others)?;
        }
        if how.existing == Existing::Refuse && !single {
            nothing_is_there(nodes.clone(), to)?;
        }
        let keep = how.existing == Existing::Keep && !single;
        if keep {
            no_link_is_followed(nodes.clone(), to)?;
        }
        let wanted = nodes
            .clone()
            .filter(|entry| !keep || is_missing_or_directory(entry, to));
        let destination = LocalDestination::new(target, true, single).map_err(|e| failed(WHAT, &e))?;
        let mut options = rustic_core::RestoreOptions::default()
            .verify_existing(true)
            .numeric_id(how.owners)
            .no_ownership(!how.owners)
            .delete(how.delete_others);
        if how.sparse {
            // The library keeps the name of this type to itself, and lets it be read.
            options.sparse = serde_json::from_value(serde_json::json!("ByContent")).ok();
        }
        let write = || {
            let plan = indexed.prepare_restore(&options, wanted.clone(), &destination, false)?;
            indexed.restore(plan, &options, wanted.clone(), &destination)
        };
        // What goes wrong while contents are read or written is told by a panic of the library's.
        catch_unwind(AssertUnwindSafe(write))
            .map_err(|payload| {
                EngineError::new(
                    ErrorClass::Failed,
                    WHAT,
                    panic_text(payload.as_ref()),
                    "Check that the target is large enough and writable, and the repository readable",
                )
            })?
            .map_err(|e| failed(WHAT, &e))?;
        compare(nodes, to, how, single)
    }
}

/// Whether an entry is to be written where what is there stays.
fn is_missing_or_directory(entry: &Entry, to: &Path) -> bool {
    match entry {
        Ok((path, node)) => node.is_dir() || fs::symlink_metadata(to.join(path)).is_err(),
        Err(_) => true,
    }
}

/// What is there stays; a directory's content could end up elsewhere if a link stood in its place.
fn no_link_is_followed(nodes: impl Iterator<Item = Entry>, to: &Path) -> Result<(), EngineError> {
    for entry in nodes {
        let (path, node) = entry.map_err(|e| failed(WHAT, &e))?;
        let path = to.join(path);
        if node.is_dir() && there(&path)?.is_some_and(|found| !found.is_dir()) {
            return Err(in_the_way(
                &path,
                "is a directory in the snapshot and none in the target",
            ));
        }
    }
    Ok(())
}

/// Nothing that is there is overwritten.
fn nothing_is_there(nodes: impl Iterator<Item = Entry>, to: &Path) -> Result<(), EngineError> {
    for entry in nodes {
        let (path, node) = entry.map_err(|e| failed(WHAT, &e))?;
        let path = to.join(path);
        if there(&path)?.is_some_and(|found| !(node.is_dir() && found.is_dir())) {
            return Err(in_the_way(&path, "appeared in the target, which was empty"));
        }
    }
    Ok(())
}

/// Removes what a file could be written through, or could not be written over. All of it is looked at before the first
/// is removed.
fn clear_the_way(
    nodes: impl Iterator<Item = Entry> + Clone,
    to: &Path,
    delete_others: bool,
) -> Result<(), EngineError> {
    what_is_in_the_way(nodes.clone(), to, delete_others, |_| Ok(()))?;
    what_is_in_the_way(nodes, to, delete_others, |path| fs::remove_file(path))
}

fn what_is_in_the_way(
    nodes: impl Iterator<Item = Entry>,
    to: &Path,
    delete_others: bool,
    remove: impl Fn(&Path) -> io::Result<()>,
) -> Result<(), EngineError> {
    for entry in nodes {
        let (path, node) = entry.map_err(|e| failed(WHAT, &e))?;
        let path = to.join(path);
        let Some(found) = there(&path)? else {
            continue;
        };
        if node.is_dir() && found.is_dir() {
            // It was perhaps restored before, as unwritable as the snapshot has it.
            if found.mode() & 0o700 != 0o700 {
                let _ = fs::set_permissions(&path, fs::Permissions::from_mode(found.mode() | 0o700));
            }
            continue;
        }
        if found.is_dir() {
            if delete_others {
                continue;
            }
            return Err(in_the_way(
                &path,
                "is a directory in the target and none in the snapshot",
            ));
        }
        let same = node.is_file()
            && node.meta.links <= 1
            && found.is_file()
            && found.nlink() == 1
            && found.mode() & 0o200 != 0;
        if !same {
            remove(&path).map_err(|cause| not_writable(&path, &cause))?;
        }
    }
    Ok(())
}

/// Looks at every file again.
fn compare(
    nodes: impl Iterator<Item = Entry>,
    to: &Path,
    how: &RestoreOptions,
    single: bool,
) -> Result<Restored, EngineError> {
    let mut restored = Restored::default();
    let mut unset = Vec::new();
    for entry in nodes {
        let (name, node) = entry.map_err(|e| failed(WHAT, &e))?;
        let path = if single { to.to_owned() } else { to.join(&name) };
        let shown = name.display().to_string();
        let mut tell = |what: What| {
            unset.push(Unset {
                path: shown.clone(),
                what,
            });
        };
        let found = there(&path)?;
        let Some(found) = found else {
            if matches!(
                node.node_type,
                NodeType::File | NodeType::Dir | NodeType::Symlink { .. }
            ) {
                return Err(in_the_way(&path, "was restored and is not there"));
            }
            tell(What::Special);
            continue;
        };
        if node.is_file() {
            restored.files += 1;
            restored.bytes += node.meta.size;
        }
        if how.existing == Existing::Keep && !node.is_dir() {
            // Perhaps not written by us: then nothing of it is ours to compare.
            continue;
        }
        let as_it_was = match &node.node_type {
            NodeType::Dir => found.is_dir(),
            NodeType::File => found.is_file() && found.len() == node.meta.size,
            NodeType::Symlink { .. } => {
                fs::read_link(&path).is_ok_and(|link| link == node.node_type.to_link())
            }
            NodeType::Dev { .. } | NodeType::Chardev { .. } | NodeType::Fifo | NodeType::Socket => true,
        };
        if !as_it_was {
            return Err(in_the_way(
                &path,
                "is of another kind or length than the snapshot has it",
            ));
        }
        compare_attributes(&path, &node, &found, how, &mut tell);
    }
    restored.unset = Some(unset);
    Ok(restored)
}

fn compare_attributes(
    path: &Path,
    node: &Node,
    found: &Metadata,
    how: &RestoreOptions,
    tell: &mut dyn FnMut(What),
) {
    let meta = &node.meta;
    if let (true, Some(user), Some(group)) = (how.owners, meta.uid, meta.gid)
        && (user, group) != (found.uid(), found.gid())
    {
        tell(What::Owner(user, group));
    }
    let is_link = matches!(node.node_type, NodeType::Symlink { .. });
    if let Some(mode) = meta.mode.map(posix_mode)
        && !is_link
        && mode != found.mode() & 0o7777
    {
        tell(What::Mode(mode));
    }
    if let Some(time) = meta.mtime
        && time.as_second() != found.mtime()
    {
        tell(What::Time);
    }
    for attribute in &meta.extended_attributes {
        let value = attribute.value.clone().unwrap_or_default();
        let there = xattr::get(path, &attribute.name).ok().flatten();
        if there.as_ref() != Some(&value) {
            tell(What::Xattr(attribute.name.clone()));
        }
    }
}

/// Permission bits as POSIX has them: the format has those of Go.
fn posix_mode(go: u32) -> u32 {
    let bit = |from: u32, to: u32| if go & (1 << from) == 0 { 0 } else { to };
    (go & 0o777) | bit(23, 0o4000) | bit(22, 0o2000) | bit(20, 0o1000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustic_core::repofile::Metadata;

    fn entry(name: &str, node_type: NodeType) -> Entry {
        let node = Node::new_node(std::ffi::OsStr::new(name), node_type, Metadata::default());
        Ok((PathBuf::from(name), node))
    }

    #[test]
    fn nothing_is_removed_when_something_else_ends_the_restore() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join("a")).unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        let nodes = || ["a", "b"].map(|name| entry(name, NodeType::File));
        let all: Vec<_> = nodes().map(Result::unwrap).into();
        let again = all.into_iter().map(Ok);
        assert!(clear_the_way(again.clone(), dir.path(), false).is_err());
        assert!(dir.path().join("a").is_symlink(), "still there");
        clear_the_way(again, dir.path(), true).unwrap();
        assert!(!dir.path().join("a").is_symlink(), "out of the way");
    }

    #[test]
    fn what_appeared_in_an_empty_target_ends_the_restore() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        let nodes = || [entry("folder", NodeType::Dir), entry("file", NodeType::File)].into_iter();
        nothing_is_there(nodes(), dir.path()).unwrap();
        fs::write(dir.path().join("file"), "somebody's").unwrap();
        assert!(nothing_is_there(nodes(), dir.path()).is_err());
    }

    #[test]
    fn modes_are_read_as_posix_has_them() {
        assert_eq!(posix_mode(0o750), 0o750);
        assert_eq!(posix_mode(0o755 | 1 << 23 | 1 << 22 | 1 << 20 | 1 << 31), 0o7755);
    }
}
