//! Showing that work goes on.
//!
//! Promise: whatever takes longer than two seconds shows what it does: a spinner on a terminal,
//! a plain line every ten seconds elsewhere. A finished step says how long it took. All of it goes
//! to standard error, and several steps may run at once.

use std::io::IsTerminal as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);
static TERMINAL: LazyLock<bool> = LazyLock::new(|| std::io::stderr().is_terminal());
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Prints one line, above any spinner that is being shown.
pub fn say(line: impl AsRef<str>) {
    if !*TERMINAL || BARS.println(line.as_ref()).is_err() {
        eprintln!("{}", line.as_ref());
    }
}

/// One piece of work that is going on.
///
/// Dropped without [`Step::done`], it disappears without a word: the error that ended it speaks.
pub struct Step {
    name: String,
    started: Instant,
    note: Arc<Mutex<String>>,
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    Plain {
        stop: Option<Sender<()>>,
        ticker: Option<JoinHandle<()>>,
    },
}

impl Step {
    /// Starts to show the work `name`.
    pub fn start(name: impl Into<String>) -> Self {
        let name = name.into();
        let started = Instant::now();
        let note = Arc::new(Mutex::new(String::new()));
        let shown = if *TERMINAL {
            let bar = BARS.add(ProgressBar::new_spinner());
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {prefix} {elapsed:.dim} {wide_msg:.dim}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(name.clone());
            bar.enable_steady_tick(Duration::from_millis(120));
            Shown::Bar(bar)
        } else {
            let (stop, stopped) = channel();
            let (what, latest) = (name.clone(), Arc::clone(&note));
            let ticker = std::thread::spawn(move || {
                while stopped.recv_timeout(PLAIN_EVERY) == Err(RecvTimeoutError::Timeout) {
                    let note = latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let seconds = started.elapsed().as_secs();
                    eprintln!("{what}: {seconds} s {note}");
                }
            });
            Shown::Plain {
                stop: Some(stop),
                ticker: Some(ticker),
            }
        };
        Self {
            name,
            started,
            note,
            shown,
        }
    }

    /// Shows `note` beside the work's name from now on.
    pub fn note(&self, note: impl Into<String>) {
        let note = note.into();
        match &self.shown {
            Shown::Bar(bar) => bar.set_message(note),
            Shown::Plain { .. } => {
                *self.note.lock().unwrap_or_else(PoisonError::into_inner) = note;
            }
        }
    }

    /// Ends the step and prints how long it took.
    pub fn done(self, outcome: impl AsRef<str>) {
        let line = format!(
            "{}: {} ({})",
            self.name,
            outcome.as_ref(),
            seconds(self.started.elapsed())
        );
        drop(self);
        say(line);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        match &mut self.shown {
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Plain { stop, ticker } => {
                drop(stop.take());
                if let Some(ticker) = ticker.take() {
                    let _ = ticker.join();
                }
            }
        }
    }
}

/// A duration as people read it: `0.4 s`, `12.0 s`, `6 min 14 s`.
pub fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(60) {
        return format!("{:.1} s", time.as_secs_f64());
    }
    format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(seconds(Duration::from_millis(440)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(374)), "6 min 14 s");
    }
}
