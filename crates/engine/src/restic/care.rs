//! Checking and reclaiming.
//!
//! **Promises.** What is reclaimed goes in two phases: packs that nothing refers to are marked now and freed by a
//! later call, when the safety period is over, so that a backup running beside it keeps what it found. Both figures are the
//! lengths of the pack files.

use super::Connection;
use super::convert::failed;
use crate::{Depth, Effort, EngineError, ErrorClass, Reclaimed};
use jiff::Span;
use rustic_core::repofile::IndexFile;
use rustic_core::{CheckOptions, FileType, Id, LimitOption, PruneOptions, RusticResult};
use std::collections::BTreeMap;

/// How long marked packs are kept.
fn safety() -> Span {
    Span::new().hours(23)
}

impl Connection {
    /// Checks what all snapshots refer to.
    pub(super) fn check_all(&self, depth: Depth) -> Result<(), EngineError> {
        const WHAT: &str = "the repository is not as it should be";
        let options = CheckOptions::default().read_data(depth == Depth::Data);
        let found = self.opened.check(options).map_err(|e| failed(WHAT, &e))?;
        if found.is_ok().is_ok() {
            return Ok(());
        }
        let first = found
            .0
            .iter()
            .map(|(_, error)| error.to_string())
            .next()
            .unwrap_or_default();
        let why = format!("{} findings, the first is: {first}", found.0.len());
        let next = "Restore the damaged files from a copy of the repository";
        Err(EngineError::new(ErrorClass::Failed, WHAT, why, next))
    }

    /// Pack files and their lengths.
    fn packs(&self) -> RusticResult<BTreeMap<Id, u64>> {
        let backend = self.storage.backend(&self.faults)?;
        let packs = backend.list_with_size(FileType::Pack)?;
        Ok(packs
            .into_iter()
            .map(|(id, length)| (id, u64::from(length)))
            .collect())
    }

    /// Bytes of all packs.
    pub(super) fn pack_bytes(&self) -> RusticResult<u64> {
        Ok(self.packs()?.values().sum())
    }

    /// Packs that are marked and still there, with their lengths.
    fn marked(&self) -> RusticResult<BTreeMap<Id, u64>> {
        let packs = self.packs()?;
        let mut marked = BTreeMap::new();
        for file in self.opened.stream_files::<IndexFile>()? {
            let (_, index) = file?;
            for pack in index.packs_to_delete {
                if let Some(length) = packs.get(&pack.id) {
                    marked.insert(*pack.id, *length);
                }
            }
        }
        Ok(marked)
    }

    /// One pass of both phases.
    pub(super) fn reclaim_now(&self, effort: Effort) -> RusticResult<Reclaimed> {
        self.reclaim_after(effort, safety())
    }

    fn reclaim_after(&self, effort: Effort, safety: Span) -> RusticResult<Reclaimed> {
        let before = self.packs()?;
        let already = self.marked()?;
        let mut options = PruneOptions::default().keep_delete(safety);
        match effort {
            Effort::Quick => options = options.max_repack(LimitOption::Percentage(0)),
            // The library would rewrite a tenth of the repository at most; in a small one that is less than one pack.
            Effort::Full => options = options.max_repack(LimitOption::Unlimited),
        }
        let plan = self.opened.prune_plan(&options)?;
        self.opened.prune(&options, plan)?;
        let after = self.packs()?;
        let gone = before.iter().filter(|(id, _)| !after.contains_key(*id));
        let marked = self.marked()?;
        let fresh = marked.iter().filter(|(id, _)| !already.contains_key(*id));
        Ok(Reclaimed {
            marked_bytes: fresh.map(|(_, length)| length).sum(),
            freed_bytes: gone.map(|(_, length)| length).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Connection, Restic, connection_for_tests};
    use super::*;
    use crate::{BackupRequest, Engine, Password, Repository, SourceIdentity};
    use std::fs;
    use std::path::Path;

    fn length_of_files(root: &Path) -> u64 {
        let entries = fs::read_dir(root).unwrap().map(|e| e.unwrap());
        entries
            .map(|entry| match entry.file_type().unwrap().is_dir() {
                true => length_of_files(&entry.path()),
                false => entry.metadata().unwrap().len(),
            })
            .sum()
    }

    fn take(connection: &mut Connection, from: &Path, uid: &str) -> String {
        let request = BackupRequest {
            read_from: from.to_owned(),
            source: SourceIdentity {
                username: "policy".to_owned(),
                hostname: "ns".to_owned(),
                path: "/data".to_owned(),
            },
            cluster: "cluster".to_owned(),
            snapshot_uid: uid.to_owned(),
            tags: BTreeMap::new(),
        };
        let mut id = String::new();
        connection
            .back_up(&[request], &mut |_, info| id.clone_from(&info.id))
            .unwrap();
        id
    }

    #[test]
    fn what_is_marked_is_freed_to_the_byte_when_the_safety_period_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let (root, source) = (dir.path().join("repository"), dir.path().join("source"));
        fs::create_dir(&source).unwrap();
        fs::write(source.join("file"), "kept").unwrap();
        let password = Password::new("p");
        Restic.create(&root, &password).unwrap();
        let mut connection = connection_for_tests(&root, &password);
        take(&mut connection, &source, "one");
        fs::write(source.join("file"), "x".repeat(100_000)).unwrap();
        let doomed = take(&mut connection, &source, "two");
        connection.delete(&[doomed]).unwrap();
        let data = root.join("data");
        let before = length_of_files(&data);
        let marked = connection.reclaim_after(Effort::Full, safety()).unwrap();
        assert!(marked.marked_bytes > 0 && marked.freed_bytes == 0, "{marked:?}");
        assert_eq!(length_of_files(&data), before, "only marked");
        let again = connection.reclaim_after(Effort::Full, safety()).unwrap();
        assert_eq!(again, Reclaimed::default(), "marked once, freed later");
        let freed = connection.reclaim_after(Effort::Full, Span::new()).unwrap();
        assert_eq!((freed.freed_bytes, freed.marked_bytes), (marked.marked_bytes, 0));
        assert_eq!(length_of_files(&data), before - marked.marked_bytes);
        connection.check_all(Depth::Data).unwrap();
    }

    #[test]
    fn quick_frees_whole_packs_and_full_rewrites_the_others_too() {
        let dir = tempfile::tempdir().unwrap();
        let (root, source) = (dir.path().join("repository"), dir.path().join("source"));
        fs::create_dir(&source).unwrap();
        let password = Password::new("p");
        Restic.create(&root, &password).unwrap();
        let mut connection = connection_for_tests(&root, &password);
        // Of one snapshot, so in one pack: the file that stays and the one that goes.
        let noise = |seed: u32| -> Vec<u8> {
            (0..300_000_u32)
                .scan(seed, |state, _| {
                    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    Some((*state >> 24) as u8)
                })
                .collect()
        };
        fs::write(source.join("stays"), noise(1)).unwrap();
        fs::write(source.join("goes"), noise(2)).unwrap();
        let doomed = take(&mut connection, &source, "one");
        fs::remove_file(source.join("goes")).unwrap();
        take(&mut connection, &source, "two");
        connection.delete(&[doomed]).unwrap();
        let quick = connection.reclaim_after(Effort::Quick, safety()).unwrap();
        assert!(quick.marked_bytes < 10_000, "at most the trees: {quick:?}");
        let full = connection.reclaim_after(Effort::Full, safety()).unwrap();
        assert!(full.marked_bytes > 500_000, "the pack was written anew: {full:?}");
        let freed = connection.reclaim_after(Effort::Quick, Span::new()).unwrap();
        assert_eq!(freed.freed_bytes, quick.marked_bytes + full.marked_bytes);
        connection.check_all(Depth::Data).unwrap();
    }
}
