//! How a command ends when it does not end well.
//!
//! **Promises.** Each kind of end has an exit code of its own, and `--help` lists them.

use std::fmt;

/// Shown at the end of `--help`.
pub const CODES: &str = "Exit codes:
  0  done; for a forecast: it could be made, whatever it says
  1  it could not be done; the message says why and what to do next
  2  the command line is wrong
  3  you lack a right; the message names the verb and the resource
  4  not confirmed: the answer was no, or there was no terminal to ask and no --yes
  5  done in part; the message lists what is left";

/// A kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The caller lacks a right.
    Forbidden,
    /// Nobody said yes.
    NotConfirmed,
    /// Some of it failed.
    Partly,
}

impl Code {
    /// The process's exit code.
    pub fn number(self) -> u8 {
        match self {
            Self::Forbidden => 3,
            Self::NotConfirmed => 4,
            Self::Partly => 5,
        }
    }
}

/// A message with a code.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// An error with a code of its own.
pub fn failure(code: Code, message: String) -> anyhow::Error {
    Failure { code, message }.into()
}

/// Whether an error only says that the caller lacks a right.
pub fn is_forbidden(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<Failure>()
        .is_some_and(|failure| failure.code == Code::Forbidden)
}

/// The exit code for an error.
pub fn code_of(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<Failure>()
        .map_or(1, |failure| failure.code.number())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn each_end_has_its_code() {
        assert_eq!(code_of(&anyhow::anyhow!("x")), 1);
        let refused: anyhow::Result<()> = Err(failure(Code::Forbidden, "no".into()));
        assert_eq!(code_of(&refused.context("while asking").unwrap_err()), 3);
        for code in [Code::Forbidden, Code::NotConfirmed, Code::Partly] {
            assert!(CODES.contains(&format!("\n  {}  ", code.number())));
        }
    }
}
