//! What happens when the tests are told to end before they have.
//!
//! Promise: on SIGINT and SIGTERM the cluster of the tests is taken down before the program ends.

use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};

use super::Down;
use crate::progress::say;

/// Waits for the signals in a thread of its own; without one the program runs as before.
pub fn watch(workspace: PathBuf) {
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let told = runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            std::io::Result::Ok(())
        });
        if told.is_ok() {
            say("told to end: taking the cluster of the tests down");
            drop(Down(&workspace));
            std::process::exit(130);
        }
    });
}
