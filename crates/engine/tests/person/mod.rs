//! The real program in the hands of a person, beside the engine.

use holdfast_engine::kopia::PROGRAM_VARIABLE;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const PASSWORD: &str = "correct horse battery staple";

/// The program, or nothing and the line that makes the test count as skipped.
pub fn program() -> Option<PathBuf> {
    let named = std::env::var_os(PROGRAM_VARIABLE).filter(|name| !name.is_empty());
    if named.is_none() {
        println!("skipped: no kopia");
    }
    named.map(PathBuf::from)
}

/// A person with the program at the same repository.
pub struct Person<'a> {
    program: &'a Path,
    home: tempfile::TempDir,
}

impl<'a> Person<'a> {
    pub fn at(program: &'a Path, repository: &Path) -> Self {
        let home = tempfile::tempdir().unwrap();
        let person = Self { program, home };
        person.ok(&[
            "repository",
            "connect",
            "filesystem",
            "--path",
            repository.to_str().unwrap(),
        ]);
        person
    }

    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = Command::new(self.program)
            .env("KOPIA_PASSWORD", PASSWORD)
            .env("KOPIA_CONFIG_PATH", self.home.path().join("config"))
            .env("KOPIA_CACHE_DIRECTORY", self.home.path().join("cache"))
            .env("KOPIA_LOG_DIR", self.home.path().join("logs"))
            .env("KOPIA_CHECK_FOR_UPDATES", "false")
            .env("KOPIA_PERSIST_CREDENTIALS_ON_CONNECT", "false")
            .args(["--no-progress", "--no-auto-maintenance"])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }
}
