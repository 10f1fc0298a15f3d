//! What operator and mover say to each other.
//!
//! **Promises.** One work document goes in ([`work::WorkDocument`]), one termination message comes out
//! ([`outcome::Outcome`]); both are versioned, and a reader refuses what it does not know instead of guessing.
//! A batch's result is one letter per member ([`letters`]); a string that is missing or of the wrong length
//! confirms nothing. Long results travel in numbered chunks ([`chunks`]) that arrive complete or not at all.
//!
//! **Assumes.** The work document rides in an annotation of the pod template and is read through the downward
//! API, so it is created together with the Job and cannot be swapped (`docs/design.md` section 7).
//! No Secret is ever part of it: credentials are mounted as files.

pub mod chunks;
pub mod letters;
pub mod outcome;
pub mod restore;
pub mod work;

/// Version of the work document and of the outcome that this build writes and reads.
pub const VERSION: u32 = 1;

/// Annotation on the pod template that carries the work document (`docs/design.md` section 7).
pub const WORK_ANNOTATION: &str = "kopiur.home-operations.com/work";

/// Environment of a mover, for tests: seconds to wait before connecting.
pub const TEST_CONNECT_DELAY: &str = "HOLDFAST_TEST_CONNECT_DELAY_SECONDS";

/// Where the mover finds its work document inside the container (downward API volume).
pub const WORK_PATH: &str = "/etc/holdfast/work/work.json";

/// Directory with the repository's password, one file per key of the Secret.
pub const SECRET_DIR: &str = "/etc/holdfast/secret";

/// Directory with what an object store is asked with, one file per key of the Secret, and the authorities to trust.
pub const BACKEND_DIR: &str = "/etc/holdfast/backend";

/// File in [`BACKEND_DIR`] with the authorities to trust.
pub const BACKEND_CA: &str = "ca.crt";

/// Where a filesystem repository is mounted in a mover.
pub const REPOSITORY_DIR: &str = "/repository";

/// Where source volumes are mounted read-only in a backup mover; one directory per PVC name.
pub const SOURCE_DIR: &str = "/data";

/// Where the target volume is mounted in a restore mover. Its parent is a writable directory of the pod's own: the kopia
/// program removes a placeholder beside what it has restored, and fails where it may not write there.
pub const RESTORE_DIR: &str = "/restore/target";

/// Projected ServiceAccount token for posting long results.
pub const TOKEN_PATH: &str = "/var/run/secrets/holdfast/token";

/// Audience of that token (checked by TokenReview).
pub const TOKEN_AUDIENCE: &str = "holdfast-results";

/// Termination message limit in bytes that a mover keeps to; the kubelet cuts at 4,096.
pub const MESSAGE_LIMIT: usize = 3_500;

/// Largest work document in bytes; a batch is cut so that it stays below (`docs/design.md` 3.6).
pub const WORK_LIMIT: usize = 128 * 1024;
