//! Running the program.
//!
//! **Promises.** One place starts it. The password and a bucket's keys are in the environment of the child alone, never
//! in an argument (the keys also in the connection's own file, in a directory that only this user may enter); nothing else of our environment reaches it but what finds hosts, certificates and temporary files. Every
//! connection has files of its own, which go when it goes. What the program says is bounded; it does not look for
//! updates, keeps no credentials, sends no notifications and shows no progress. A call that outlives its patience
//! is ended, and so is one whose caller is gone.
//!
//! **Assumes.** In a Job the mover is process 1, so that its end is the end of a program still running.

use crate::{Bucket, EngineError, ErrorClass, Location, Password};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Names the program to use; without it `kopia` is looked for in `PATH`.
pub const PROGRAM_VARIABLE: &str = "KOPIA_BIN";

/// How long connecting, listing, deleting and changing a policy may take each. A first connection to a large
/// repository reads all its indexes, which was seen to take minutes.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// Most that is kept of what the program says on standard error: the end of it, where failures are told.
const SAID_LIMIT: usize = 64 * 1024;

/// Most that is kept where every line counts.
pub(super) const WHOLE_LIMIT: usize = 8 * 1024 * 1024;

/// What of our environment the program gets.
const INHERITED: [&str; 9] = [
    "PATH",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "no_proxy",
];

/// Finds the program.
///
/// # Errors
/// [`ErrorClass::Failed`] when there is none.
pub(super) fn find() -> Result<PathBuf, EngineError> {
    let missing = |why: String| {
        EngineError::new(
            ErrorClass::Failed,
            "the Kopia engine cannot run",
            why,
            "Use the mover image of this release, or let KOPIA_BIN name the program",
        )
    };
    if let Some(named) = env::var_os(PROGRAM_VARIABLE).filter(|name| !name.is_empty()) {
        let named = PathBuf::from(named);
        return if named.is_file() {
            Ok(named)
        } else {
            Err(missing(format!(
                "{PROGRAM_VARIABLE} names no file: {}",
                named.display()
            )))
        };
    }
    env::var_os("PATH")
        .and_then(|path| {
            env::split_paths(&path)
                .map(|dir| dir.join("kopia"))
                .find(|p| p.is_file())
        })
        .ok_or_else(|| {
            missing(format!(
                "no program `kopia` is in PATH, and {PROGRAM_VARIABLE} is not set"
            ))
        })
}

/// Which connection a call uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// Read-only: on an ordinary connection even a listing rewrites manifests.
    Reading,
    /// For what changes the repository.
    Writing,
}

impl View {
    fn config(self) -> &'static str {
        match self {
            View::Reading => "reading.config",
            View::Writing => "writing.config",
        }
    }
}

/// The program and its files for one repository.
pub(super) struct Session {
    program: PathBuf,
    home: TempDir,
    /// Name and value of what only the child may see.
    secrets: Vec<(&'static str, Password)>,
}

const KEY_ID: &str = "AWS_ACCESS_KEY_ID";

/// The file with the authorities to trust, in the session's directory.
const AUTHORITIES: &str = "authorities.pem";

/// A call that ran to its end.
#[derive(Debug)]
pub(super) struct Ended {
    /// Exit code 0. Every failure is 1, whatever it is.
    pub(super) success: bool,
    /// Standard output.
    pub(super) stdout: Vec<u8>,
    /// The end of standard error, without any secret should one ever stand there.
    pub(super) stderr: String,
    /// Whether the beginning of standard error was dropped.
    pub(super) cut: bool,
}

/// One call.
pub(super) struct Call<'a> {
    /// For the sentence, such as "the snapshots cannot be listed".
    pub(super) what: &'a str,
    /// Which connection.
    pub(super) view: View,
    /// Arguments, without those that every call has.
    pub(super) arguments: Vec<OsString>,
    /// When it is ended; `None` for what may take as long as the Job may.
    pub(super) patience: Option<Duration>,
    /// Most that is kept of standard error.
    pub(super) said_limit: usize,
}

impl<'a> Call<'a> {
    pub(super) fn new<T: Into<OsString>>(
        what: &'a str,
        view: View,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            what,
            view,
            arguments: arguments.into_iter().map(Into::into).collect(),
            patience: Some(PATIENCE),
            said_limit: SAID_LIMIT,
        }
    }

    /// Without an end of its own.
    pub(super) fn however_long(mut self) -> Self {
        self.patience = None;
        self
    }
}

/// Ends the child when it is dropped before it was waited for.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

impl Session {
    /// Makes the directories.
    ///
    /// # Errors
    /// [`ErrorClass::Failed`] when they cannot be made.
    pub(super) fn new(program: PathBuf, password: &Password, at: &Location) -> Result<Self, EngineError> {
        let failed = |cause: io::Error| {
            let next = "The mover needs a writable temporary directory";
            EngineError::new(ErrorClass::Failed, "the Kopia engine cannot run", cause, next)
        };
        let home = tempfile::Builder::new().prefix("holdfast-kopia-").tempdir();
        let home = home.map_err(failed)?;
        let mut secrets = vec![("KOPIA_PASSWORD", password.clone())];
        if let Location::Bucket(bucket) = at {
            secrets.push((KEY_ID, Password::new(bucket.keys.id.as_str())));
            secrets.push(("AWS_SECRET_ACCESS_KEY", bucket.keys.secret.clone()));
            if let Some(session) = &bucket.keys.session {
                secrets.push(("AWS_SESSION_TOKEN", session.clone()));
            }
            if let Some(pem) = &bucket.authorities {
                fs::write(home.path().join(AUTHORITIES), pem).map_err(failed)?;
            }
        }
        Ok(Self {
            program,
            home,
            secrets,
        })
    }

    /// What `repository connect s3` and `create s3` are told of a bucket; its keys are not among it.
    pub(super) fn bucket(&self, bucket: &Bucket) -> Vec<OsString> {
        let mut arguments = vec![format!("--bucket={}", bucket.name).into()];
        if !bucket.prefix.is_empty() {
            arguments.push(format!("--prefix={}", bucket.prefix).into());
        }
        if let Some(endpoint) = &bucket.endpoint {
            arguments.push(format!("--endpoint={endpoint}").into());
        }
        if let Some(region) = &bucket.region {
            arguments.push(format!("--region={region}").into());
        }
        if bucket.plain {
            arguments.push("--disable-tls".into());
        }
        if bucket.unverified {
            arguments.push("--disable-tls-verification".into());
        }
        if bucket.authorities.is_some() {
            let mut file = OsString::from("--root-ca-pem-path=");
            file.push(self.home.path().join(AUTHORITIES));
            arguments.push(file);
        }
        arguments
    }

    /// Whether this view was connected.
    pub(super) fn connected(&self, view: View) -> bool {
        self.home.path().join(view.config()).exists()
    }

    fn command(&self, view: View) -> Command {
        let home = self.home.path();
        let mut command = Command::new(&self.program);
        command.env_clear();
        for name in INHERITED {
            if let Some(value) = env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("HOME", home)
            .envs(self.secrets.iter().map(|(name, value)| (name, value.expose())))
            .env("KOPIA_CONFIG_PATH", home.join(view.config()))
            .env("KOPIA_CACHE_DIRECTORY", home.join("cache"))
            .env("KOPIA_LOG_DIR", home.join("logs"))
            .env("KOPIA_CHECK_FOR_UPDATES", "false")
            .env("KOPIA_PERSIST_CREDENTIALS_ON_CONNECT", "false")
            .env("KOPIA_USE_KEYRING", "false")
            .env("KOPIA_SEND_ERROR_NOTIFICATIONS", "never")
            .args(["--no-progress", "--no-auto-maintenance", "--disable-file-logging"])
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs one call to its end, whatever that is.
    ///
    /// # Errors
    /// [`ErrorClass::Failed`] when the program cannot be started or read, [`ErrorClass::Unreachable`] when it took
    /// longer than its patience: what it was doing then is not known.
    pub(super) fn run(&self, call: &Call<'_>) -> Result<Ended, EngineError> {
        let broken = |cause: io::Error| {
            let next = "Use the mover image of this release, or let KOPIA_BIN name the program";
            let why = format!("{} cannot be run ({cause})", self.program.display());
            EngineError::new(ErrorClass::Failed, call.what, why, next)
        };
        let begun = Instant::now();
        let child = self
            .command(call.view)
            .args(&call.arguments)
            .spawn()
            .map_err(broken)?;
        let mut child = Running(child);
        let out = child.0.stdout.take();
        let said = child.0.stderr.take();
        let (done, ended) = channel::<()>();
        let also_done = done.clone();
        let (out, said, timely) = thread::scope(|scope| {
            let out = scope.spawn(move || {
                let read = read_whole(out);
                let _ = done.send(());
                read
            });
            let said = scope.spawn(move || {
                let read = read_tail(said, call.said_limit);
                let _ = also_done.send(());
                read
            });
            let timely = (0..2).all(|_| match call.patience {
                None => ended.recv().is_ok(),
                Some(patience) => match ended.recv_timeout(patience.saturating_sub(begun.elapsed())) {
                    Ok(()) => true,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
                },
            });
            if !timely {
                // Its pipes close with it, so that the readers end too.
                let _ = child.0.kill();
            }
            (out.join(), said.join(), timely)
        });
        let status = child.0.wait().map_err(broken)?;
        let panicked = |_| io::Error::other("a reader of its output panicked");
        let stdout = out.map_err(panicked).and_then(|read| read).map_err(broken)?;
        let (said, cut) = said.map_err(panicked).and_then(|read| read).map_err(broken)?;
        if !timely {
            let seconds = begun.elapsed().as_secs();
            return Err(EngineError::new(
                ErrorClass::Unreachable,
                call.what,
                format!("the program was ended after {seconds} s without an answer"),
                "Check the storage and the network to it; nothing was concluded",
            ));
        }
        Ok(Ended {
            success: status.success(),
            stdout,
            stderr: self.without_secrets(&String::from_utf8_lossy(&said)),
            cut,
        })
    }

    /// A short password would also take words apart that say what went wrong; it is not printed anyway.
    fn without_secrets(&self, text: &str) -> String {
        // The id of a key is no secret, and may be any word.
        let secrets = self.secrets.iter().filter(|(name, _)| *name != KEY_ID);
        secrets
            .map(|(_, value)| value.expose())
            .filter(|value| value.len() >= 4)
            .fold(text.to_owned(), |text, value| text.replace(value, "(secret)"))
    }

    /// The directory with everything the program writes on this side.
    #[cfg(test)]
    pub(super) fn home(&self) -> &std::path::Path {
        self.home.path()
    }
}

fn read_whole(from: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut all)?;
    }
    Ok(all)
}

/// Reads to the end and keeps the last `limit` bytes, give or take a buffer.
fn read_tail(from: Option<impl Read>, limit: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut kept = Vec::new();
    let mut cut = false;
    let Some(mut from) = from else {
        return Ok((kept, cut));
    };
    let mut buffer = [0; 8192];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            Err(cause) => return Err(cause),
        };
        kept.extend_from_slice(&buffer[..length]);
        if kept.len() > 2 * limit {
            kept.drain(..kept.len() - limit);
            cut = true;
        }
    }
    if kept.len() > limit {
        kept.drain(..kept.len() - limit);
        cut = true;
    }
    Ok((kept, cut))
}

#[cfg(test)]
mod tests;
