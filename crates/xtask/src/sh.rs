//! Running other programs.
//!
//! Promise: a program that fails becomes an error that says what was being done, the command line,
//! how it ended and the last lines it wrote. Nothing is passed through a shell.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A command for `program` with `args`, ready for [`run`].
pub fn cmd<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("PATH", path());
    command
}

/// `PATH` with the folders of administration programs, which not every root shell has on it.
pub fn path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!("{own}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")
}

/// Runs `command` to its end and returns what it wrote to standard output.
///
/// `what` completes the sentence "could not …".
pub fn run(what: &str, command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not {what}: `{shown}` could not be started"))?;
    if !output.status.success() {
        let mut said = tail(&output.stderr, 12);
        if said.is_empty() {
            said = tail(&output.stdout, 12);
        }
        bail!(
            "could not {what}: `{shown}` ended with {}:\n{said}",
            output.status
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Like [`run`], and tells `heard` each line that the program writes to standard error.
pub fn run_heard(what: &str, command: &mut Command, mut heard: impl FnMut(&str)) -> Result<String> {
    let shown = show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not {what}: `{shown}` could not be started"))?;
    // Both pipes are read at once: a full one would stop the program.
    let output = child.stdout.take().map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    });
    let mut said = Vec::new();
    for line in child
        .stderr
        .take()
        .into_iter()
        .flat_map(|pipe| BufReader::new(pipe).lines())
    {
        let line = line.with_context(|| format!("the output of `{shown}` cannot be read"))?;
        heard(&line);
        said.push(line);
    }
    let status = child.wait()?;
    let output = output.and_then(|reader| reader.join().ok()).unwrap_or_default();
    if !status.success() {
        let last = said.len().saturating_sub(30);
        bail!(
            "could not {what}: `{shown}` ended with {status}:\n{}",
            said[last..].join("\n")
        );
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Runs `command` and says whether it succeeded; its output is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether `program` can be found on `PATH` (or is a path to an existing file).
pub fn available(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    std::env::split_paths(&path()).any(|dir| dir.join(program).is_file())
}

/// The last `lines` lines of the file at `path`, for messages about a program that ended.
pub fn tail_of_file(path: &Path, lines: usize) -> String {
    std::fs::read(path).map_or_else(
        |error| format!("(its log {} is not readable: {error})", path.display()),
        |bytes| tail(&bytes, lines),
    )
}

/// The last `lines` lines of `bytes`, without the space around them.
pub fn tail(bytes: &[u8], lines: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let all: Vec<&str> = text.trim().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The command line, shortened for messages.
fn show(command: &Command) -> String {
    let mut shown = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        shown.push(' ');
        shown.push_str(&arg.to_string_lossy());
    }
    if shown.chars().count() > 300 {
        shown = shown.chars().take(300).collect::<String>() + "…";
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_told_with_its_words() {
        let error = run("ask", &mut cmd("sh", ["-c", "echo no such thing >&2; exit 3"]))
            .expect_err("exit 3 is a failure")
            .to_string();
        assert!(error.contains("could not ask"), "{error}");
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("no such thing"), "{error}");
    }

    #[test]
    fn what_a_program_says_is_heard_line_by_line() {
        let mut lines = Vec::new();
        let mut command = cmd("sh", ["-c", "echo one >&2; echo out; echo two >&2"]);
        let output = run_heard("talk", &mut command, |line| lines.push(line.to_owned())).expect("exit 0");
        assert_eq!(output, "out\n");
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn tail_keeps_the_last_lines() {
        assert_eq!(tail(b"a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail(b"", 2), "");
    }
}
