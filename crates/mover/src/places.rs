//! Where the mover finds its files.
//!
//! **Promises.** Defaults are the constants of `holdfast_protocol`; each can be set in the environment.

use std::path::PathBuf;
use std::time::Duration;

/// The files, and the patience with the operator's port.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The work document.
    pub(crate) work: PathBuf,
    /// Directory with the password file.
    pub(crate) secrets: PathBuf,
    /// Directory with the keys of an object store.
    pub(crate) backend: PathBuf,
    /// Token for posting listings.
    pub(crate) token: PathBuf,
    /// Where the outcome goes.
    pub(crate) termination: PathBuf,
    /// How long one chunk is offered.
    pub(crate) patience: Duration,
    /// How long to wait before connecting, for tests of what slow repositories do.
    pub(crate) connect_delay: Duration,
}

impl Places {
    pub(crate) fn from_environment() -> Self {
        let path =
            |name: &str, default: &str| std::env::var_os(name).map_or_else(|| default.into(), PathBuf::from);
        let seconds = |name: &str, default: u64| {
            let said = std::env::var(name).ok();
            Duration::from_secs(said.and_then(|s| s.parse().ok()).unwrap_or(default))
        };
        Self {
            work: path("HOLDFAST_WORK_PATH", holdfast_protocol::WORK_PATH),
            secrets: path("HOLDFAST_SECRET_DIR", holdfast_protocol::SECRET_DIR),
            backend: path("HOLDFAST_BACKEND_DIR", holdfast_protocol::BACKEND_DIR),
            token: path("HOLDFAST_TOKEN_PATH", holdfast_protocol::TOKEN_PATH),
            termination: path("HOLDFAST_TERMINATION_PATH", "/dev/termination-log"),
            patience: seconds("HOLDFAST_RESULTS_PATIENCE_SECONDS", 60),
            connect_delay: seconds(holdfast_protocol::TEST_CONNECT_DELAY, 0),
        }
    }
}
