//! How engines fail.
//!
//! **Promises.** Every error has a class to decide by and a sentence to read: what failed, why, what to do next.

use std::fmt;
use std::path::Path;

/// What kind of failure it is; decisions rest on this, never on the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The password does not open the repository.
    InvalidPassword,
    /// The place was read and holds no repository.
    NotInitialized,
    /// Another repository than the one that was opened is there now.
    Replaced,
    /// The repository cannot be read or written.
    Unreachable,
    /// The source of a backup cannot be read whole.
    SourceUnreadable,
    /// Anything else.
    Failed,
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EngineError {
    class: ErrorClass,
    message: String,
}

impl EngineError {
    /// Builds the sentence from its three parts.
    #[must_use]
    pub fn new(class: ErrorClass, what: impl fmt::Display, why: impl fmt::Display, next: &str) -> Self {
        let why = why.to_string();
        let why = why.trim().trim_end_matches('.');
        Self {
            class,
            message: format!("{what}: {why}. {next}"),
        }
    }

    /// The repository's directory cannot be read.
    pub(crate) fn unreadable(root: &Path, cause: &std::io::Error) -> Self {
        Self::new(
            ErrorClass::Unreachable,
            format!("the repository's directory {} cannot be read", root.display()),
            cause,
            "Check that the volume is mounted and readable for the mover's user",
        )
    }

    /// A snapshot cannot be restored.
    pub(crate) fn not_restored(why: impl fmt::Display) -> Self {
        Self::new(
            ErrorClass::Failed,
            "the snapshot cannot be restored",
            why,
            "Check the snapshot's id and the target",
        )
    }

    /// The class.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        self.class
    }
}
