//! Restoring, checking and reclaiming.
//!
//! **Promises.** Only a snapshot that a listing has just shown is restored: the program would take any other id for
//! that of an object. Reclaiming is the program's own maintenance with its safety margins, never less, and only where the
//! repository records the maintainer for whom it is done.
//!
//! **Assumes.** The program takes the name of a connection for that of a maintainer. Ours are all called alike, so a name
//! that was chosen is checked here, and the program is told that it was.

use super::classify::{self, Doing};
use super::command::{Call, Ended, View};
use super::{Connection, output};
use crate::{
    Depth, Effort, EngineError, ErrorClass, Existing, Maintainer, Meter, Reclaimed, Repository,
    RestoreOptions, Restored,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// `maintenance info --json`.
#[derive(Debug, Deserialize)]
struct Info {
    #[serde(default)]
    owner: String,
    schedule: Schedule,
}

/// What the program calls our connections, and records as the maintainer when one of them creates a repository.
const OUR_NAME: &str = "holdfast@holdfast";

#[derive(Debug, Deserialize)]
struct Schedule {
    /// Nothing in a repository where none was made yet.
    #[serde(default)]
    runs: Option<BTreeMap<String, Vec<Run>>>,
}

#[derive(Debug, Deserialize)]
struct Run {
    #[serde(default)]
    success: bool,
    #[serde(default)]
    extra: Vec<Extra>,
}

#[derive(Debug, Deserialize)]
struct Extra {
    kind: String,
    data: serde_json::Value,
}

/// What the latest collection found that no snapshot needs, in bytes: what is too recent to be deleted, and what it
/// has just deleted from the indexes while its packs are still there.
fn marked(info: &Info) -> Option<u64> {
    let latest = info
        .schedule
        .runs
        .as_ref()?
        .get("snapshot-gc")?
        .first()
        .filter(|run| run.success)?;
    let stats = latest
        .extra
        .iter()
        .find(|extra| extra.kind == "snapshotGCStats")?;
    let figure = |name: &str| stats.data.get(name).and_then(serde_json::Value::as_u64);
    Some(figure("unreferencedRecentContentSize")? + figure("deletedContentSize")?)
}

/// The line `Total: 273638` of `blob stats --raw`.
fn total(stdout: &str) -> Option<u64> {
    let line = stdout.lines().find_map(|line| line.strip_prefix("Total: "))?;
    line.trim().parse().ok()
}

/// Flags of `snapshot restore`.
fn flags(how: &RestoreOptions) -> Vec<&'static str> {
    let mut flags = vec![if how.all_or_fail {
        "--no-ignore-permission-errors"
    } else {
        "--ignore-permission-errors"
    }];
    match how.existing {
        Existing::Replace => flags.extend([
            "--overwrite-files",
            "--overwrite-directories",
            "--overwrite-symlinks",
        ]),
        // The program takes only what is the same for existing: what differs ends the restore, rather than being replaced.
        Existing::Keep => flags.extend([
            "--skip-existing",
            "--no-overwrite-files",
            "--no-overwrite-symlinks",
        ]),
        Existing::Refuse => flags.extend(["--no-overwrite-files", "--no-overwrite-symlinks"]),
    }
    let when = [
        (how.delete_others, "--delete-extra"),
        (!how.owners, "--skip-owners"),
        (how.sparse, "--write-sparse-files"),
        // Otherwise the program writes through a link that stands in the way of a file.
        (!how.sparse, "--write-files-atomically"),
    ];
    flags.extend(when.into_iter().filter(|(is, _)| *is).map(|(_, flag)| flag));
    flags
}

/// A link below `root` that leads to a directory, or to what is not there: a directory may be by the time it is
/// written through. An absent `root` has none.
fn link_to_a_directory(root: &Path) -> Result<Option<PathBuf>, (PathBuf, io::Error)> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |cause| (path, cause)
    };
    let entries = match fs::read_dir(root) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(at(root))?,
    };
    for entry in entries {
        let entry = entry.map_err(at(root))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(at(&path))?;
        if kind.is_dir()
            && let Some(found) = link_to_a_directory(&path)?
        {
            return Ok(Some(found));
        }
        if kind.is_symlink() && fs::metadata(&path).map_or(true, |led_to| led_to.is_dir()) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Of the line `Restored 2 files, 2 directories and 0 symbolic links (200 KB).`
fn restored_files(stderr: &str) -> Option<u64> {
    let line = stderr.lines().find_map(|line| line.strip_prefix("Restored "))?;
    line.split(' ').next()?.parse().ok()
}

fn not_as_expected(what: &str, command: &str) -> EngineError {
    let why = format!("the program's answer to `{command}` has not the figures it should have");
    let next = "Use the kopia version of this release's mover image";
    EngineError::new(ErrorClass::Failed, what, why, next)
}

impl Connection {
    fn succeed(&self, call: &Call<'_>) -> Result<Ended, EngineError> {
        self.succeed_in(Doing::Working, call)
    }

    fn succeed_in(&self, doing: Doing, call: &Call<'_>) -> Result<Ended, EngineError> {
        let ended = self.session.run(call)?;
        if ended.success {
            Ok(ended)
        } else {
            Err(classify::failed(call.what, doing, &ended))
        }
    }

    pub(super) fn restore_to(
        &self,
        id: &str,
        to: &Path,
        how: &RestoreOptions,
        meter: &Meter,
    ) -> Result<Restored, EngineError> {
        const WHAT: &str = "the snapshot cannot be restored";
        let listing = self.list()?;
        let known = output::is_manifest_id(id).then(|| listing.find(id)).flatten();
        let Some(known) = known else {
            return Err(EngineError::not_restored(format!(
                "there is no readable snapshot `{id}`"
            )));
        };
        let bytes = known.sizes.map_or(0, |sizes| sizes.size_bytes);
        meter.set_total(bytes);
        let to = std::path::absolute(to).map_err(|cause| EngineError::not_restored(cause.to_string()))?;
        let links = if how.sparse {
            Ok(None)
        } else {
            link_to_a_directory(&to)
        };
        let link = links.map_err(|(path, cause)| {
            EngineError::new(
                ErrorClass::Failed,
                WHAT,
                format!("{} cannot be searched for links: {cause}", path.display()),
                "Let the mover's user read the target, or restore into an empty volume",
            )
        })?;
        if let Some(link) = link {
            return Err(EngineError::new(
                ErrorClass::Failed,
                WHAT,
                format!(
                    "{} is a link to a directory or to nothing, and the program would write through it",
                    link.display()
                ),
                "Remove the link, or restore into an empty volume",
            ));
        }
        let mut arguments: Vec<OsString> = vec!["snapshot".into(), "restore".into(), id.into(), to.into()];
        arguments.extend(flags(how).into_iter().map(OsString::from));
        let ended = self.succeed_in(
            Doing::Restoring,
            &Call::new(WHAT, View::Reading, arguments).however_long(),
        )?;
        meter.add(bytes);
        Ok(Restored {
            files: restored_files(&ended.stderr).unwrap_or_default(),
            bytes,
            // The program does not say which owners it was not allowed to set.
            unset: None,
        })
    }

    pub(super) fn check_all(&self, depth: Depth) -> Result<(), EngineError> {
        const WHAT: &str = "the repository is not as it should be";
        let files = match depth {
            Depth::Structure => "--verify-files-percent=0",
            Depth::Data => "--verify-files-percent=100",
        };
        // A listing in which a record cannot be read is no sound repository either.
        if let Some(id) = self.list()?.unreadable.first() {
            let why = format!("the record of snapshot {id} cannot be read");
            let next = "Restore the damaged files from a copy of the repository";
            return Err(EngineError::new(ErrorClass::Failed, WHAT, why, next));
        }
        let arguments = ["snapshot", "verify", files];
        self.succeed(&Call::new(WHAT, View::Reading, arguments).however_long())?;
        Ok(())
    }

    pub(super) fn blob_bytes(&self) -> Result<u64, EngineError> {
        const WHAT: &str = "the repository's size cannot be read";
        let call = Call::new(WHAT, View::Reading, ["blob", "stats", "--raw"]);
        let ended = self.succeed(&call)?;
        total(&String::from_utf8_lossy(&ended.stdout)).ok_or_else(|| not_as_expected(WHAT, "blob stats"))
    }

    fn info(&self, what: &str) -> Result<Info, EngineError> {
        let told = self.succeed(&Call::new(what, View::Reading, ["maintenance", "info", "--json"]))?;
        output::parse(what, &told.stdout)
    }

    pub(super) fn recorded_maintainer(&self) -> Result<Maintainer, EngineError> {
        let info = self.info("who maintains the repository cannot be read")?;
        Ok(Maintainer {
            by_creation: info.owner == OUR_NAME,
            name: info.owner,
        })
    }

    pub(super) fn record_maintainer(&self, name: &str) -> Result<(), EngineError> {
        const WHAT: &str = "who maintains the repository cannot be recorded";
        // The program takes `me` for the name of the connection.
        if name.is_empty() || name == "me" {
            let why = format!("`{name}` is not the name of a maintainer");
            let next = "Choose another spec.ownership.owner";
            return Err(EngineError::new(ErrorClass::Failed, WHAT, why, next));
        }
        self.writable(WHAT)?;
        self.prove_identity(WHAT)?;
        let owner = format!("--owner={name}");
        self.succeed(&Call::new(WHAT, View::Writing, ["maintenance", "set", &owner]))?;
        let found = self.info(WHAT)?.owner;
        if found == name {
            return Ok(());
        }
        let why = format!("the repository says {found} afterwards");
        let next = "Try again; if another program sets it too, let only one maintain the repository";
        Err(EngineError::new(ErrorClass::Failed, WHAT, why, next))
    }

    pub(super) fn reclaim_now(
        &self,
        effort: Effort,
        maintainer: Option<&str>,
    ) -> Result<Reclaimed, EngineError> {
        const WHAT: &str = "space cannot be reclaimed";
        self.writable(WHAT)?;
        self.prove_identity(WHAT)?;
        let (wanted, found) = (maintainer.unwrap_or(OUR_NAME), self.info(WHAT)?.owner);
        if found != wanted {
            let why = format!("the repository is maintained by {found}, not by {wanted}");
            let next = "Let one program maintain it: stop the other one, then take the repository over";
            return Err(EngineError::new(ErrorClass::Failed, WHAT, why, next));
        }
        let before = self.blob_bytes()?;
        let mut run = vec![
            "maintenance",
            "run",
            match effort {
                Effort::Quick => "--no-full",
                Effort::Full => "--full",
            },
        ];
        if wanted != OUR_NAME {
            run.push("--force");
        }
        self.succeed(&Call::new(WHAT, View::Writing, run).however_long())?;
        let marked_bytes = match effort {
            Effort::Quick => 0,
            Effort::Full => {
                marked(&self.info(WHAT)?).ok_or_else(|| not_as_expected(WHAT, "maintenance info"))?
            }
        };
        Ok(Reclaimed {
            marked_bytes,
            // What maintenance itself writes counts against it.
            freed_bytes: before.saturating_sub(self.blob_bytes()?),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn recorded(case: &str) -> String {
        let text = include_str!("../../tests/fixtures/kopia-transcripts.json");
        let runs: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
        let run = runs.iter().find(|r| r["case"] == case).unwrap();
        run["stdout"].as_str().unwrap().to_owned()
    }

    #[test]
    fn the_recorded_figures_are_read() {
        assert_eq!(total(&recorded("blob stats")), Some(273_638));
        let info: Info = serde_json::from_str(&recorded("maintenance info")).unwrap();
        assert_eq!(marked(&info), Some(0));
        let later = recorded("maintenance info").replace(
            "\"unreferencedRecentContentSize\":0",
            "\"unreferencedRecentContentSize\":704",
        );
        assert_eq!(marked(&serde_json::from_str(&later).unwrap()), Some(704));
    }

    #[test]
    fn the_recorded_restore_is_counted_and_its_flags_are_as_asked() {
        let text = include_str!("../../tests/fixtures/kopia-transcripts.json");
        let runs: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
        let run = runs.iter().find(|r| r["case"] == "restore").unwrap();
        assert_eq!(restored_files(run["stderr"].as_str().unwrap()), Some(2));
        assert_eq!(restored_files("Restoring to local filesystem"), None);
        let how = RestoreOptions {
            existing: Existing::Keep,
            delete_others: false,
            owners: false,
            sparse: true,
            all_or_fail: false,
        };
        assert_eq!(
            flags(&how),
            [
                "--ignore-permission-errors",
                "--skip-existing",
                "--no-overwrite-files",
                "--no-overwrite-symlinks",
                "--skip-owners",
                "--write-sparse-files"
            ]
        );
        let strict = RestoreOptions {
            all_or_fail: true,
            ..how
        };
        assert_eq!(flags(&strict)[0], "--no-ignore-permission-errors");
        assert!(!flags(&RestoreOptions::default()).contains(&"--delete-extra"));
        assert!(flags(&RestoreOptions::default()).contains(&"--write-files-atomically"));
    }

    #[test]
    fn a_link_to_a_directory_is_found_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("deep/er")).unwrap();
        let find = |path: &Path| link_to_a_directory(path).unwrap();
        std::os::unix::fs::symlink("er", dir.path().join("deep/link")).unwrap();
        assert!(find(dir.path()).unwrap().ends_with("deep/link"));
        fs::remove_dir(dir.path().join("deep/er")).unwrap();
        assert!(find(dir.path()).is_some(), "to nothing yet");
        fs::write(dir.path().join("deep/er"), "").unwrap();
        assert_eq!(find(dir.path()), None, "a file's name is replaced");
        assert_eq!(find(&dir.path().join("absent")), None);
        assert!(
            link_to_a_directory(&dir.path().join("deep/er")).is_err(),
            "not a directory"
        );
    }

    #[test]
    fn missing_figures_are_no_zero() {
        assert_eq!(total("Count: 36\n"), None);
        assert_eq!(total("Total: 273.6 KB\n"), None);
        for text in [
            r#"{"schedule":{}}"#,
            r#"{"schedule":{"runs":null}}"#,
            r#"{"schedule":{"runs":{"snapshot-gc":[{"success":false}]}}}"#,
            r#"{"schedule":{"runs":{"snapshot-gc":[{"success":true,"extra":[{"kind":"snapshotGCStats","data":{}}]}]}}}"#,
        ] {
            assert_eq!(marked(&serde_json::from_str(text).unwrap()), None, "{text}");
        }
    }
}
