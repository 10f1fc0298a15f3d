//! What a failed call means, read from what the program said.
//!
//! **Promises.** Every failure of the program ends with the same exit code, so the text decides. The program's own sentences
//! on passwords, absent repositories and sources were recorded (`tests/fixtures/kopia-transcripts.json`); of storage that
//! cannot be read, most are the operating system's and the store's, in the words that these have for it. Unknown text is
//! [`ErrorClass::Failed`]: doubt, and never "absent". "Nothing is there" and "wrong password" are believed only
//! while connecting; from an open repository the same words mean that another one has taken its place.

use super::command::Ended;
use crate::{EngineError, ErrorClass};

/// Longest piece of the program's own words that is passed on, in characters.
const WORDS: usize = 600;

/// What was being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Connecting or creating.
    Connecting,
    /// Something with an open repository.
    Working,
    /// Reading a source into a snapshot.
    BackingUp,
    /// Writing a target. The connection only reads, so what cannot be written is not the repository.
    Restoring,
}

/// Sentences that say the storage could not be read or written.
const STORAGE: [&str; 18] = [
    "cannot access storage path",
    "can't connect to storage",
    "cannot open storage",
    "unable to read format blob",
    "BLOB not found",
    "error reading directory",
    "error listing blobs",
    "unable to write content",
    "permission denied",
    "input/output error",
    "not a directory",
    "connection refused",
    "no such host",
    "i/o timeout",
    "network is unreachable",
    "certificate signed by unknown authority",
    "Access Denied",
    "does not exist or access is denied",
];

/// Sentences that say what is written to cannot be.
const WRITING: [&str; 2] = ["read-only file system", "no space left on device"];

/// Sentences that say the source could not be read.
const SOURCE: [&str; 2] = ["unable to get local filesystem entry", "unsupported source"];

/// The class of a failed call.
pub(super) fn class(doing: Doing, said: &str) -> ErrorClass {
    let has = |sentence: &str| said.contains(sentence);
    let another = match doing {
        Doing::Connecting => None,
        Doing::Working | Doing::BackingUp | Doing::Restoring => Some(ErrorClass::Replaced),
    };
    if has("invalid repository password") {
        return another.unwrap_or(ErrorClass::InvalidPassword);
    }
    if has("repository not initialized in the provided storage") {
        // An open repository whose format is gone: the storage went away, or someone emptied it.
        return match doing {
            Doing::Connecting => ErrorClass::NotInitialized,
            Doing::Working | Doing::BackingUp | Doing::Restoring => ErrorClass::Unreachable,
        };
    }
    if doing == Doing::BackingUp && SOURCE.into_iter().any(has) {
        return ErrorClass::SourceUnreadable;
    }
    if WRITING.into_iter().any(has) {
        return match doing {
            Doing::Connecting | Doing::Working | Doing::BackingUp => ErrorClass::Unreachable,
            Doing::Restoring => ErrorClass::Failed,
        };
    }
    if STORAGE.into_iter().any(has) {
        return ErrorClass::Unreachable;
    }
    ErrorClass::Failed
}

/// The program's last words: the lines that are not about single files, at most [`WORDS`] characters.
pub(super) fn words(said: &str) -> String {
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !about_a_file(line) && !line.starts_with("Snapshotting "))
        .collect();
    // The last sentence may have several lines ("encountered 2 errors:").
    let begin = lines
        .iter()
        .rposition(|line| line.ends_with(':'))
        .unwrap_or(lines.len().saturating_sub(1));
    let text = lines[begin.min(lines.len())..].join(" ");
    if text.is_empty() {
        return "the program gave no reason".to_owned();
    }
    match text.char_indices().nth(WORDS) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Lines that quote names of the source's files, which anybody may have chosen.
pub(super) fn about_a_file(line: &str) -> bool {
    line.starts_with("Error when processing ") || line.starts_with("Ignored error when processing ")
}

/// The error of a call that failed.
pub(super) fn failed(what: &str, doing: Doing, ended: &Ended) -> EngineError {
    let said: String = ended
        .stderr
        .lines()
        .filter(|line| !about_a_file(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    let class = class(doing, &said);
    EngineError::new(class, what, words(&said), next(class))
}

fn next(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::InvalidPassword => "Check the Secret that the repository names and the key inside it",
        ErrorClass::NotInitialized => "Check the repository's path, or allow its creation",
        ErrorClass::Replaced => "Put the recorded repository back, or record the new one",
        ErrorClass::Unreachable => {
            "Check that the storage is mounted or reachable, writable for the mover's user and not full"
        }
        ErrorClass::SourceUnreadable => {
            "Check that the volume is mounted and readable for the mover's user; nothing was recorded"
        }
        ErrorClass::Failed => "The container's log has the call; nothing was concluded from it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_mean_less_once_a_repository_is_open() {
        let password =
            "error connecting to repository: unable to create format manager: invalid repository password";
        let nothing = "error connecting to repository: repository not initialized in the provided storage";
        for (said, connecting, working) in [
            (password, ErrorClass::InvalidPassword, ErrorClass::Replaced),
            (nothing, ErrorClass::NotInitialized, ErrorClass::Unreachable),
        ] {
            assert_eq!(class(Doing::Connecting, said), connecting);
            assert_eq!(class(Doing::Working, said), working);
            assert_eq!(class(Doing::BackingUp, said), working);
        }
    }

    #[test]
    fn unknown_text_is_doubt() {
        for said in [
            "",
            "something new",
            "no snapshots matched 0123",
            "object not found",
        ] {
            for doing in [
                Doing::Connecting,
                Doing::Working,
                Doing::BackingUp,
                Doing::Restoring,
            ] {
                assert_eq!(class(doing, said), ErrorClass::Failed, "{said}");
            }
        }
    }

    #[test]
    fn a_target_that_cannot_be_written_says_nothing_about_the_repository() {
        let full = "error restoring: restore error: error copying: copy file: error creating file: write /t/x: no \
                    space left on device";
        let read_only = "error restoring: restore error: finish directory: unlinkat //t.kopia-entry: read-only file \
                         system";
        for said in [full, read_only] {
            assert_eq!(class(Doing::Restoring, said), ErrorClass::Failed);
            assert_eq!(class(Doing::Working, said), ErrorClass::Unreachable);
            assert_eq!(class(Doing::BackingUp, said), ErrorClass::Unreachable);
        }
        let away = "error restoring: unable to get snapshot: error listing blobs: no such device";
        assert_eq!(class(Doing::Restoring, away), ErrorClass::Unreachable);
    }

    #[test]
    fn a_files_name_decides_nothing() {
        let stderr = "Snapshotting a@b:/c ...\nError when processing \"invalid repository password\": open: no\n\
                      running in write session: Found 1 fatal error(s) while snapshotting a@b:/c.\n";
        let ended = Ended {
            success: false,
            stdout: Vec::new(),
            stderr: stderr.to_owned(),
            cut: false,
        };
        let error = failed("the backup failed", Doing::BackingUp, &ended);
        assert_eq!(error.class(), ErrorClass::Failed);
        assert!(error.to_string().contains("Found 1 fatal error(s)"), "{error}");
        assert!(!error.to_string().contains("password"), "{error}");
    }

    #[test]
    fn the_last_sentence_is_passed_on_whole_and_bounded() {
        let said = "Snapshotting a@b:/c ...\nrunning in write session: encountered 2 errors:\nfailed to prepare \
                    source: one\nupload error: two\n";
        assert_eq!(
            words(said),
            "running in write session: encountered 2 errors: failed to prepare source: one upload error: two"
        );
        assert_eq!(words("first\nlast\n\n"), "last");
        assert_eq!(words(" \n"), "the program gave no reason");
        assert_eq!(words(&"x".repeat(5000)).chars().count(), WORDS + 1);
    }
}
