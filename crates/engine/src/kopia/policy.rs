//! Kopia's own retention, switched off for the sources we write.
//!
//! **Promises.** Left alone, the program expires snapshots by itself with every new one: a fresh repository keeps
//! the ten latest. Before a snapshot is taken, the policy in force for its source is read; where it would expire
//! anything, leave out a snapshot without changes, or record a source that was only partly read, it is changed for
//! this one source, and read again. Nothing else in an existing repository is touched.
//!
//! **Assumes.** The most specific policy wins, and none is more specific than that of one source.

use super::classify::{self, Doing};
use super::command::{Call, Session, View};
use super::output;
use crate::{EngineError, ErrorClass};
use serde::Deserialize;
use std::ffi::OsString;

/// "Latest" that no source reaches.
const ALL: u64 = 2_147_483_647;

/// What `policy set` is asked for.
const SAFE: [&str; 9] = [
    "--keep-latest=2147483647",
    "--keep-hourly=0",
    "--keep-daily=0",
    "--keep-weekly=0",
    "--keep-monthly=0",
    "--keep-annual=0",
    "--ignore-identical-snapshots=false",
    "--ignore-file-errors=false",
    "--ignore-dir-errors=false",
];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Effective {
    retention: Retention,
    error_handling: ErrorHandling,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Retention {
    keep_latest: Option<u64>,
    ignore_identical_snapshots: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ErrorHandling {
    ignore_file_errors: bool,
    ignore_directory_errors: bool,
}

impl Effective {
    fn safe(&self) -> bool {
        self.retention.keep_latest.is_some_and(|latest| latest >= ALL)
            && !self.retention.ignore_identical_snapshots
            && !self.error_handling.ignore_file_errors
            && !self.error_handling.ignore_directory_errors
    }
}

fn effective(session: &Session, what: &str, source: &str) -> Result<Effective, EngineError> {
    let call = Call::new(what, View::Reading, ["policy", "show", "--json", source]);
    let ended = session.run(&call)?;
    if !ended.success {
        return Err(classify::failed(what, Doing::Working, &ended));
    }
    output::parse(what, &ended.stdout)
}

/// Makes sure that the program expires nothing of this source (`user@host:path`).
///
/// # Errors
/// [`ErrorClass::Failed`] when the policy in force is another one all the same: no snapshot may be taken then.
/// Otherwise as a call to the program fails.
pub(super) fn keep_all(session: &Session, source: &str) -> Result<(), EngineError> {
    const WHAT: &str = "Kopia's own retention cannot be switched off";
    if effective(session, WHAT, source)?.safe() {
        return Ok(());
    }
    let arguments = ["policy", "set", source]
        .into_iter()
        .chain(SAFE)
        .map(OsString::from);
    let ended = session.run(&Call::new(WHAT, View::Writing, arguments))?;
    if !ended.success {
        return Err(classify::failed(WHAT, Doing::Working, &ended));
    }
    if effective(session, WHAT, source)?.safe() {
        return Ok(());
    }
    Err(EngineError::new(
        ErrorClass::Failed,
        WHAT,
        format!("the policy in force for {source} still expires snapshots or leaves some out"),
        "Look at it with `kopia policy show`; no snapshot is taken, since it could delete older ones",
    ))
}

/// Whether this answer of `policy show --json` expires nothing.
#[cfg(test)]
pub(super) fn keeps_all(shown: &[u8]) -> bool {
    serde_json::from_slice::<Effective>(shown).is_ok_and(|policy| policy.safe())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn safe(text: &str) -> bool {
        serde_json::from_str::<Effective>(text).unwrap().safe()
    }

    #[test]
    fn only_a_policy_that_keeps_all_is_safe() {
        assert!(safe(r#"{"retention":{"keepLatest":2147483647}}"#));
        assert!(!safe("{}"), "silence is not a promise");
        assert!(!safe(r#"{"retention":{"keepLatest":10,"keepAnnual":1000}}"#));
        assert!(!safe(
            r#"{"retention":{"keepLatest":2147483647,"ignoreIdenticalSnapshots":true}}"#
        ));
        assert!(!safe(
            r#"{"retention":{"keepLatest":2147483647},"errorHandling":{"ignoreFileErrors":true}}"#
        ));
        assert!(!safe(
            r#"{"retention":{"keepLatest":2147483647},"errorHandling":{"ignoreDirectoryErrors":true}}"#
        ));
    }
}
