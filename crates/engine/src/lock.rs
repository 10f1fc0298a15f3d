//! One creation at a time in a directory.

use crate::{EngineError, ErrorClass};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

/// Makes the directory and locks it until the answer is dropped. On a file system without locks there is none; the
/// file that is written last still decides.
///
/// # Errors
/// [`ErrorClass::Failed`] when another process holds the lock, [`ErrorClass::Unreachable`] when the directory
/// cannot be made.
pub(crate) fn creation(what: &str, at: &Path) -> Result<File, EngineError> {
    let unwritable = |cause: io::Error| {
        let next = "Check that the volume is mounted and writable for the mover's user";
        EngineError::new(ErrorClass::Unreachable, what, cause, next)
    };
    fs::create_dir_all(at).map_err(unwritable)?;
    let lock = File::open(at).map_err(unwritable)?;
    match lock.try_lock() {
        Ok(()) | Err(TryLockError::Error(_)) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(EngineError::new(
            ErrorClass::Failed,
            what,
            "another process is creating one in the same directory",
            "Wait for it and connect",
        )),
    }
}
