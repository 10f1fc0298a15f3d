//! Looking up which snapshot a restore is of, and restoring it.
//!
//! **Promises.** The repository is only read. Only a snapshot of the source that was recorded is restored, whatever id
//! it has by now. Into a target that holds files nothing is written unless the work document says what becomes of
//! them; what an earlier try of the same restore left is no obstacle. Everything that could not be set is a line on
//! standard output, and counted in the answer. A record that cannot be read is never taken for an absent snapshot, and
//! a target that holds a repository is not written to. Progress is told on the way; if nobody answers, the work goes on.
//!
//! **Assumes.** Nobody else writes to the target meanwhile.

use crate::places::Places;
use crate::plan::Ids;
use crate::post::Poster;
use crate::run::{Failed, failure, say};
use holdfast_core::restore::{Candidate, Choice, Whose, choose, other_names};
use holdfast_engine::{
    Existing as There, Listing, Meter, Repository, RestoreOptions, Restored, SnapshotInfo, Unset, What,
};
use holdfast_protocol::outcome::{FailureClass, OperationResult};
use holdfast_protocol::restore::{
    EXAMPLE_LENGTH, EXAMPLES_LIMIT, Existing, Found, NAMES_LIMIT, NotSet, Progress, Refused, RestoreAnswer,
    RestoreItem, Wanted, example,
};
use holdfast_protocol::work::{ResultsEndpoint, Source};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How often progress is told.
const PACE: Duration = Duration::from_secs(5);
/// Most lines about what could not be set.
const LINES: usize = 10_000;
/// Paths that an ambiguous answer names.
const PATHS: usize = 10;
/// What a file system makes for itself, so that a volume with it is still an empty one.
const OWN_FOLDER: &str = "lost+found";
/// Begins the name of the file that says whose unfinished work is in the target.
const MARKER: &str = ".holdfast-restore-";
/// Begins the name of the file that every repository of Kopia has.
const KOPIA_FORMAT: &str = "kopia.repository";
/// What every repository in restic's format has.
const RESTIC_PARTS: [&str; 3] = ["config", "keys", "snapshots"];

/// Looks up which snapshot it is.
pub(crate) fn resolve(
    repository: &dyn Repository,
    cluster: &str,
    wanted: &Wanted,
) -> Result<OperationResult, Failed> {
    resolve_in(&repository.list()?, cluster, wanted)
}

fn resolve_in(listing: &Listing, cluster: &str, wanted: &Wanted) -> Result<OperationResult, Failed> {
    let answer =
        |found: Option<&SnapshotInfo>, of_identity: usize, paths: Vec<String>, others: Vec<String>| {
            let found = found.map(|info| Found {
                snapshot_id: info.id.clone(),
                source: source_of(info),
                start_time: info.start,
                size_bytes: info.sizes.map(|s| s.size_bytes),
                other_cluster: info.cluster.clone().filter(|c| c != cluster),
            });
            match &found {
                Some(found) => say(&format!("it is snapshot {}", found.snapshot_id)),
                None => say("there is no such snapshot"),
            }
            OperationResult::Restore(RestoreAnswer::Resolved {
                found,
                of_identity: of_identity as u64,
                paths,
                others,
            })
        };
    let of_identity = |info: &&SnapshotInfo| {
        info.source.username == wanted.username
            && info.source.hostname == wanted.hostname
            && wanted.path.as_ref().is_none_or(|path| *path == info.source.path)
    };
    if let Some(id) = &wanted.snapshot_id {
        let all: Vec<&SnapshotInfo> = listing.snapshots.iter().filter(of_identity).collect();
        let found = all.iter().find(|info| info.id == *id).copied();
        if found.is_none() {
            all_readable(listing)?;
        }
        return Ok(answer(found, all.len(), Vec::new(), Vec::new()));
    }
    // The one that is wanted may be among those.
    all_readable(listing)?;
    let candidates: Vec<Candidate> = listing.snapshots.iter().map(candidate).collect();
    let whose = wanted.others.as_ref().map(|others| Whose {
        namespace: others.namespace.clone(),
        cluster: others.cluster.clone(),
    });
    let wanted = holdfast_core::restore::Wanted {
        username: wanted.username.clone(),
        hostname: wanted.hostname.clone(),
        path: wanted.path.clone(),
        offset: wanted.offset,
        as_of: wanted.as_of,
        cluster: cluster.to_owned(),
    };
    Ok(match choose(&candidates, &wanted) {
        Choice::Found(found) => answer(listing.find(&found.id), 1, Vec::new(), Vec::new()),
        Choice::Nothing { of_identity } => {
            let names = whose.map(|whose| other_names(&candidates, &wanted, &whose));
            let cut = |name: String| name.chars().take(EXAMPLE_LENGTH).collect();
            let names = names.into_iter().flatten().take(NAMES_LIMIT).map(cut);
            answer(None, of_identity, Vec::new(), names.collect())
        }
        Choice::Ambiguous(paths) => {
            let count = paths.len();
            answer(None, count, paths.into_iter().take(PATHS).collect(), Vec::new())
        }
    })
}

/// What cannot be read now may be a snapshot that is asked for: it is no answer that there is none.
fn all_readable(listing: &Listing) -> Result<(), Failed> {
    match listing.unreadable.as_slice() {
        [] => Ok(()),
        [first, ..] => {
            let message = format!(
                "{} records of snapshots cannot be read, the first is {first}, so that it is not known which snapshot \
                 it is. Repair the repository's storage, or name a snapshot that can be read",
                listing.unreadable.len()
            );
            Err(failure(FailureClass::BackendUnreachable, message).into())
        }
    }
}

fn candidate(info: &SnapshotInfo) -> Candidate {
    Candidate {
        id: info.id.clone(),
        username: info.source.username.clone(),
        hostname: info.source.hostname.clone(),
        path: info.source.path.clone(),
        start: info.start,
        cluster: info.cluster.clone(),
    }
}

fn source_of(info: &SnapshotInfo) -> Source {
    Source {
        username: info.source.username.clone(),
        hostname: info.source.hostname.clone(),
        path: info.source.path.clone(),
    }
}

/// Restores.
pub(crate) fn run(
    repository: &dyn Repository,
    item: &RestoreItem,
    ids: Ids,
    endpoint: Option<&ResultsEndpoint>,
    places: &Places,
) -> Result<OperationResult, Failed> {
    let to = Path::new(&item.to);
    let id = pick(&repository.list()?, item, ids)?;
    let Prepared { marker, resumed } = prepare(to, item)?;
    let how = RestoreOptions {
        existing: match item.how.existing {
            Existing::Keep => There::Keep,
            Existing::Replace => There::Replace,
            // With an older marker there is nothing but what an earlier try of ours left.
            Existing::Refuse if resumed => There::Replace,
            Existing::Refuse => There::Refuse,
        },
        delete_others: item.how.delete_others,
        owners: item.how.owners,
        sparse: item.how.sparse && item.how.existing == Existing::Refuse,
        all_or_fail: item.how.all_or_fail,
    };
    say(&format!("restoring snapshot {id} into {}", to.display()));
    let poster = endpoint.map(|endpoint| Poster::new(endpoint, places));
    let meter = Meter::default();
    let restored = watched(&meter, poster, || repository.restore(&id, to, &how, &meter))?;
    if let Some(marker) = marker
        && let Err(cause) = fs::remove_file(&marker)
        && cause.kind() != io::ErrorKind::NotFound
    {
        say(&format!("{} stays behind: {cause}", marker.display()));
    }
    answer(id, restored, item.how.all_or_fail)
}

fn answer(snapshot_id: String, restored: Restored, all_or_fail: bool) -> Result<OperationResult, Failed> {
    let Restored { files, bytes, unset } = restored;
    let not_set = unset.as_deref().map(count);
    for one in unset.iter().flatten().take(LINES) {
        say(&format!("not set: {}: {}", one.path, one.what.words()));
    }
    let lacks = not_set.as_ref().filter(|n| all_or_fail && !n.is_nothing());
    let failure = lacks.map(|n| {
        let first = n.examples.first().cloned().unwrap_or_default();
        let message = format!(
            "the files are restored, and not everything could be set, the first is {first}. Run movers that may, or \
             set ignorePermissionErrors to true"
        );
        failure(FailureClass::OperationFailed, message)
    });
    say(&format!("{files} files with {bytes} bytes are restored"));
    let result = OperationResult::Restore(RestoreAnswer::Restored {
        snapshot_id,
        files,
        bytes,
        not_set,
    });
    match failure {
        None => Ok(result),
        Some(failure) => Err(Failed {
            failure,
            result: Box::new(result),
        }),
    }
}

fn count(all: &[Unset]) -> NotSet {
    let mut counted = NotSet::default();
    for one in all {
        match one.what {
            What::Owner(..) => counted.owners += 1,
            What::Mode(_) => counted.modes += 1,
            What::Time => counted.times += 1,
            What::Xattr(_) => counted.xattrs += 1,
            What::Special => counted.special_files += 1,
        }
    }
    let examples = all.iter().take(EXAMPLES_LIMIT);
    counted.examples = examples
        .map(|one| example(&one.path, &one.what.words()))
        .collect();
    counted
}

fn refused(why: Refused, message: String) -> Failed {
    Failed {
        failure: failure(FailureClass::OperationFailed, message),
        result: Box::new(OperationResult::Restore(RestoreAnswer::Refused { why })),
    }
}

/// The snapshot that was recorded, if it is surely there.
fn pick(listing: &Listing, item: &RestoreItem, ids: Ids) -> Result<String, Failed> {
    if let Some(id) = find(listing, item, ids) {
        return Ok(id);
    }
    if ids == Ids::MayChange || listing.unreadable.contains(&item.snapshot_id) {
        all_readable(listing)?;
    }
    let message = format!(
        "there is no snapshot {} of {} in the repository: it was deleted since. Restore another one",
        item.snapshot_id, item.source.path
    );
    Err(refused(Refused::SnapshotNotFound, message))
}

/// The snapshot by its id, or the only one of the same source and start where ids may change.
fn find(listing: &Listing, item: &RestoreItem, ids: Ids) -> Option<String> {
    let of_source = |info: &&SnapshotInfo| source_of(info) == item.source;
    if let Some(info) = listing.find(&item.snapshot_id).filter(of_source) {
        return Some(info.id.clone());
    }
    match (ids, item.start_time) {
        (Ids::MayChange, Some(start)) => {
            let mut same = listing.snapshots.iter().filter(of_source).filter(|info| {
                // Some record whole seconds only.
                let coarse = start.subsec_nanosecond() == 0;
                info.start == start || (coarse && info.start.as_second() == start.as_second())
            });
            let found = same.next()?;
            same.next().is_none().then(|| found.id.clone())
        }
        (Ids::MayChange, None) | (Ids::Fixed, _) => None,
    }
}

/// A target that may be written to.
#[derive(Debug)]
struct Prepared {
    /// The file that says that it is ours.
    marker: Option<PathBuf>,
    /// It was there before: an earlier try left off here.
    resumed: bool,
}

fn is_repository(names: &[OsString], to: &Path) -> bool {
    let kopia = names
        .iter()
        .any(|name| name.to_string_lossy().starts_with(KOPIA_FORMAT));
    let restic = RESTIC_PARTS.iter().all(|part| to.join(part).exists());
    kopia || restic
}

/// Proves that the target may be written to, and marks it as ours where it was empty.
fn prepare(to: &Path, item: &RestoreItem) -> Result<Prepared, Failed> {
    let unwritable = |cause: &io::Error| {
        let message = format!(
            "the target {} cannot be written: {cause}. Check that the volume is mounted and writable for the mover's \
             user",
            to.display()
        );
        Failed::from(failure(FailureClass::OperationFailed, message))
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(to).map_err(|cause| unwritable(&cause))? {
        names.push(entry.map_err(|cause| unwritable(&cause))?.file_name());
    }
    let empty = item.how.existing == Existing::Refuse && !item.how.delete_others;
    let marker = to.join(format!("{MARKER}{}", item.uid));
    if empty && names.iter().any(|name| marker.file_name() == Some(name)) {
        say("an earlier try of this restore left off here; going on");
        return Ok(Prepared {
            marker: Some(marker),
            resumed: true,
        });
    }
    if is_repository(&names, to) {
        let message = "the target holds a repository, which may be the only copy of backups. Nothing was written. \
                       Restore to another claim, or empty the volume if the repository is not needed";
        return Err(refused(Refused::TargetIsRepository, message.to_owned()));
    }
    if !empty {
        return Ok(Prepared {
            marker: None,
            resumed: false,
        });
    }
    if let Some(name) = names.iter().find(|name| *name != OWN_FOLDER) {
        let name = name.to_string_lossy();
        let message = format!(
            "the target holds files already, among them {name:?}, and nothing says what is to become of them. Nothing \
             was written. Set spec.options.overwriteFiles or skipExisting on a new Restore, or empty the volume"
        );
        return Err(refused(Refused::TargetNotEmpty, message));
    }
    fs::write(&marker, "A restore by Holdfast is not finished.\n").map_err(|cause| unwritable(&cause))?;
    Ok(Prepared {
        marker: Some(marker),
        resumed: false,
    })
}

/// Tells the progress now and then while `work` goes on.
fn watched<T>(meter: &Meter, poster: Option<Result<Poster, String>>, work: impl FnOnce() -> T) -> T {
    let (done, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut heard = true;
            loop {
                match ended.recv_timeout(PACE) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
                let progress = Progress {
                    bytes_done: meter.done(),
                    bytes_total: meter.total(),
                };
                say(&format!(
                    "{} of {} bytes are restored",
                    progress.bytes_done, progress.bytes_total
                ));
                let told = match &poster {
                    Some(Ok(poster)) => poster.tell(&progress),
                    Some(Err(why)) => Err(why.clone()),
                    None => Ok(()),
                };
                if let Err(why) = told
                    && std::mem::take(&mut heard)
                {
                    say(&format!("the progress reaches nobody ({why}); the work goes on"));
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use holdfast_engine::SourceIdentity;
    use holdfast_protocol::restore::How;
    use holdfast_protocol::restore::Others;
    use jiff::Timestamp;
    use std::collections::BTreeMap;

    fn info(id: &str, path: &str, start: i64) -> SnapshotInfo {
        SnapshotInfo {
            id: id.to_owned(),
            source: SourceIdentity {
                username: "p".to_owned(),
                hostname: "n".to_owned(),
                path: path.to_owned(),
            },
            start: Timestamp::from_second(start).unwrap(),
            end: None,
            cluster: None,
            snapshot_uid: None,
            pinned: false,
            pin_is_ours: false,
            root: Some("files".to_owned()),
            tags: BTreeMap::new(),
            sizes: None,
        }
    }

    fn item(id: &str, start: Option<i64>) -> RestoreItem {
        RestoreItem {
            uid: "uid".to_owned(),
            snapshot_id: id.to_owned(),
            source: Source {
                username: "p".to_owned(),
                hostname: "n".to_owned(),
                path: "/a".to_owned(),
            },
            start_time: start.map(|s| Timestamp::from_second(s).unwrap()),
            to: String::new(),
            how: How {
                existing: Existing::Refuse,
                delete_others: false,
                owners: true,
                sparse: true,
                all_or_fail: false,
            },
        }
    }

    #[test]
    fn only_the_recorded_source_is_restored_whatever_its_id_is_by_now() {
        let listing = Listing {
            snapshots: vec![
                info("a", "/a", 1),
                info("b", "/b", 1),
                info("c", "/a", 2),
                info("d", "/a", 2),
            ],
            unreadable: Vec::new(),
        };
        for (id, start, ids, found) in [
            ("a", Some(1), Ids::Fixed, Some("a")),
            ("b", Some(1), Ids::Fixed, None),
            ("gone", Some(1), Ids::Fixed, None),
            ("gone", Some(1), Ids::MayChange, Some("a")),
            ("gone", Some(2), Ids::MayChange, None),
            ("gone", None, Ids::MayChange, None),
        ] {
            assert_eq!(
                find(&listing, &item(id, start), ids).as_deref(),
                found,
                "{id} {start:?} {ids:?}"
            );
        }
    }

    #[test]
    fn other_names_of_the_path_are_told_when_they_are_asked_for() {
        let listing = Listing {
            snapshots: vec![info("a", "/a", 1), info("b", "/b", 2)],
            unreadable: Vec::new(),
        };
        let told = |username: &str, others: Option<Others>| {
            let wanted = Wanted {
                username: username.to_owned(),
                hostname: "n".to_owned(),
                path: Some("/a".to_owned()),
                snapshot_id: None,
                offset: 0,
                as_of: None,
                others,
            };
            match resolve_in(&listing, "c", &wanted) {
                Ok(OperationResult::Restore(RestoreAnswer::Resolved { others, .. })) => others,
                Ok(other) => panic!("{other:?}"),
                Err(failed) => panic!("{:?}", failed.failure),
            }
        };
        let of = |namespace: Option<&str>| {
            Some(Others {
                namespace: namespace.map(str::to_owned),
                cluster: None,
            })
        };
        assert_eq!(told("new", of(None)), ["p@n"]);
        assert_eq!(told("new", of(Some("n"))), ["p@n"]);
        assert_eq!(
            told("new", of(Some("m"))),
            ["p@n"],
            "under the host that is asked for"
        );
        assert!(told("new", None).is_empty(), "nobody asks");
        assert!(told("p", of(None)).is_empty(), "the name has snapshots");
    }

    #[test]
    fn a_record_that_cannot_be_read_is_no_absent_snapshot() {
        let mut listing = Listing {
            snapshots: vec![info("a", "/a", 1)],
            unreadable: vec!["bad".to_owned()],
        };
        let wanted = |id: Option<&str>| Wanted {
            username: "p".to_owned(),
            hostname: "n".to_owned(),
            path: Some("/a".to_owned()),
            snapshot_id: id.map(str::to_owned),
            offset: 0,
            as_of: None,
            others: None,
        };
        let found = |listing: &Listing, id: Option<&str>| match resolve_in(listing, "c", &wanted(id)) {
            Ok(OperationResult::Restore(RestoreAnswer::Resolved { found, .. })) => {
                Ok(found.map(|found| found.snapshot_id))
            }
            Ok(other) => panic!("{other:?}"),
            Err(failed) => Err(failed.failure.class),
        };
        let a = Some("a".to_owned());
        let away = FailureClass::BackendUnreachable;
        assert_eq!(found(&listing, Some("a")), Ok(a.clone()), "read by its id");
        assert_eq!(found(&listing, Some("bad")), Err(away));
        assert_eq!(found(&listing, None), Err(away), "a newer one may be there");
        let picked = |listing: &Listing, id: &str, ids: Ids| {
            pick(listing, &item(id, None), ids).map_err(|failed| (failed.failure.class, failed.result))
        };
        let why = Refused::SnapshotNotFound;
        let gone = (
            FailureClass::OperationFailed,
            Box::new(OperationResult::Restore(RestoreAnswer::Refused { why })),
        );
        assert_eq!(picked(&listing, "a", Ids::Fixed), Ok("a".to_owned()));
        let unknown = (away, Box::new(OperationResult::None));
        assert_eq!(picked(&listing, "bad", Ids::Fixed), Err(unknown.clone()));
        assert_eq!(picked(&listing, "gone", Ids::MayChange), Err(unknown));
        assert_eq!(picked(&listing, "gone", Ids::Fixed), Err(gone.clone()));
        listing.unreadable.clear();
        assert_eq!(picked(&listing, "gone", Ids::MayChange), Err(gone));
        assert_eq!(
            (found(&listing, None), found(&listing, Some("bad"))),
            (Ok(a), Ok(None))
        );
    }

    #[test]
    fn files_that_are_restored_are_not_tried_again_for_what_could_not_be_set() {
        let restored = Restored {
            unset: Some(vec![Unset {
                path: "a".to_owned(),
                what: What::Time,
            }]),
            ..Restored::default()
        };
        let Err(failed) = answer("s".to_owned(), restored, true) else {
            panic!("not all is set");
        };
        let mut outcome = holdfast_protocol::outcome::Outcome {
            version: holdfast_protocol::VERSION,
            unique_id: None,
            error: Some(failed.failure),
            result: *failed.result,
        };
        assert!(crate::run::confirmed(&outcome), "the letter says what is missing");
        outcome.result = OperationResult::Restore(RestoreAnswer::Refused {
            why: Refused::TargetNotEmpty,
        });
        assert!(!crate::run::confirmed(&outcome));
    }

    #[test]
    fn a_target_that_holds_a_repository_is_never_written_to() {
        let is_refused = |path: &Path, how: Existing, delete_others: bool| {
            let mut item = item("a", None);
            item.how.existing = how;
            item.how.delete_others = delete_others;
            let why = RestoreAnswer::Refused {
                why: Refused::TargetIsRepository,
            };
            prepare(path, &item).is_err_and(|failed| *failed.result == OperationResult::Restore(why))
        };
        let all = [
            (Existing::Refuse, false),
            (Existing::Keep, false),
            (Existing::Replace, false),
            (Existing::Replace, true),
        ];
        for format in ["kopia.repository.f", "kopia.repository"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(format), "").unwrap();
            for (how, delete_others) in all {
                assert!(is_refused(dir.path(), how, delete_others), "{format} {how:?}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config"), "").unwrap();
        fs::create_dir(dir.path().join("keys")).unwrap();
        assert!(
            !is_refused(dir.path(), Existing::Replace, true),
            "an application's own files"
        );
        fs::create_dir(dir.path().join("snapshots")).unwrap();
        for (how, delete_others) in all {
            assert!(is_refused(dir.path(), how, delete_others), "{how:?}");
        }
    }

    #[test]
    fn what_of_our_own_looks_like_a_repository_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let item = item("a", None);
        assert!(prepare(dir.path(), &item).is_ok());
        fs::write(dir.path().join("kopia.repository.f"), "restored by the first try").unwrap();
        assert!(prepare(dir.path(), &item).ok().unwrap().resumed);
    }

    #[test]
    fn a_target_with_files_is_refused_unless_it_is_our_own_unfinished_work() {
        let dir = tempfile::tempdir().unwrap();
        let item = item("a", None);
        fs::create_dir(dir.path().join(OWN_FOLDER)).unwrap();
        let fresh = prepare(dir.path(), &item).ok().unwrap();
        assert!(!fresh.resumed, "nothing of ours is there to be replaced");
        let marker = fresh.marker.unwrap();
        fs::write(dir.path().join("half"), "x").unwrap();
        assert!(prepare(dir.path(), &item).ok().unwrap().resumed, "tried again");
        fs::remove_file(&marker).unwrap();
        let Err(failed) = prepare(dir.path(), &item) else {
            panic!("refused");
        };
        assert!(
            failed.failure.message.contains("half"),
            "{}",
            failed.failure.message
        );
        let why = RestoreAnswer::Refused {
            why: Refused::TargetNotEmpty,
        };
        assert_eq!(*failed.result, OperationResult::Restore(why));
        assert!(!marker.exists(), "nothing is written into it");
        let mut other = item.clone();
        other.uid = "another".to_owned();
        fs::write(&marker, "").unwrap();
        assert!(
            prepare(dir.path(), &other).is_err(),
            "somebody else's unfinished work"
        );
    }
}
