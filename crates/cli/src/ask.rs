//! Asking a person.
//!
//! **Promises.** Without a terminal nobody is asked and the answer is no, unless `--yes` was given. The question goes
//! to standard error, so that standard output stays for programs.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context as _, Result};

use crate::failure::{Code, failure};

/// Asks until `yes` or anything else is typed.
pub fn confirm(question: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(failure(
            Code::NotConfirmed,
            "there is no terminal to ask, and nothing was changed: look at what is shown, then run it again with --yes"
                .to_owned(),
        ));
    }
    let mut stderr = std::io::stderr();
    write!(stderr, "{question} Type yes to go on: ").context("the question cannot be shown")?;
    stderr.flush().context("the question cannot be shown")?;
    let mut answer = String::new();
    stdin
        .lock()
        .read_line(&mut answer)
        .context("the answer cannot be read")?;
    if is_yes(&answer) {
        return Ok(());
    }
    Err(failure(
        Code::NotConfirmed,
        "not confirmed: nothing was changed".to_owned(),
    ))
}

fn is_yes(answer: &str) -> bool {
    answer.trim().eq_ignore_ascii_case("yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_word_is_a_yes() {
        assert!(is_yes("yes\n") && is_yes(" YES "));
        for no in ["", "\n", "y", "yes please", "no"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}
