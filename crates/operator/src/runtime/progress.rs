//! How far running restores are, as their movers tell it.
//!
//! **Promises.** Only a run that was announced is heard, from its own namespace; the newest word counts. What is kept is
//! bounded by the number of announced runs, and each is forgotten when its result is recorded.

use holdfast_protocol::restore::Progress;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Run {
    namespace: String,
    told: Option<Progress>,
}

/// See the module.
#[derive(Default)]
pub struct Board(Mutex<HashMap<String, Run>>);

impl Board {
    /// Announces a run; announcing it again changes nothing.
    pub fn expect(&self, run: &str, namespace: &str) {
        let mut runs = self.runs();
        if !runs.contains_key(run) {
            let fresh = Run {
                namespace: namespace.to_owned(),
                told: None,
            };
            runs.insert(run.to_owned(), fresh);
        }
    }

    /// Takes a word of a mover of this namespace; false when nobody waits for it.
    pub fn hear(&self, run: &str, namespace: &str, progress: Progress) -> bool {
        match self.runs().get_mut(run) {
            Some(known) if known.namespace == namespace => {
                known.told = Some(progress);
                true
            }
            Some(_) | None => false,
        }
    }

    /// The newest word.
    #[must_use]
    pub fn of(&self, run: &str) -> Option<Progress> {
        self.runs().get(run).and_then(|run| run.told)
    }

    /// The run is over.
    pub fn forget(&self, run: &str) {
        self.runs().remove(run);
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<String, Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_announced_run_is_heard_from_its_own_namespace() {
        let board = Board::default();
        let word = Progress {
            bytes_done: 1,
            bytes_total: 2,
        };
        assert!(!board.hear("run", "a", word));
        board.expect("run", "a");
        assert!(!board.hear("run", "b", word));
        assert_eq!(board.of("run"), None);
        assert!(board.hear("run", "a", word));
        board.expect("run", "a");
        assert_eq!(board.of("run"), Some(word));
        board.forget("run");
        assert_eq!((board.of("run"), board.hear("run", "a", word)), (None, false));
    }
}
