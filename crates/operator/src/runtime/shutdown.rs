//! The end of the process, announced once.
//!
//! **Promises.** SIGTERM or SIGINT cancels one token; everything that runs for as long as the process watches it
//! and ends by itself. A second signal ends the process at once, so that a stuck shutdown can be cut short by hand.
//!
//! **Assumes.** The order of the end is main's: controllers first, then the lease is released
//! ([`crate::runtime::leader`]), so that nobody takes over while we still write.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code after a second signal (128 + SIGINT, what a shell expects).
const CUT_SHORT: i32 = 130;

/// Starts to listen and returns the token that the first signal cancels.
///
/// # Errors
/// When a signal handler cannot be installed.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let ours = token.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "shutting down");
        ours.cancel();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("second signal: ending at once");
        std::process::exit(CUT_SHORT);
    });
    Ok(token)
}
