//! The beginning of a leader: what the last one admitted is looked for.
//!
//! **Promises.** Under a limit nothing is admitted before every BackupJob there is was read live and counted; and, if
//! the last leader did not hand over, not before a minute has passed, in which what it admitted can arrive.
//!
//! **Assumes.** The API server creates what was admitted within that minute, or not at all.

use super::{Gate, JobSeen};
use crate::runtime::leader::{Standing, Takeover, Term};
use holdfast_api::backups::BackupJob;
use holdfast_core::quota::Application;
use holdfast_core::quota::gate::Knowledge;
use holdfast_core::quota::reservations::Reservation;
use kube::api::ListParams;
use kube::{Api, Client};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long after a takeover without handover nothing is admitted under a limit.
pub const CAREFUL: Duration = Duration::from_secs(60);
/// Jobs read at once.
const PAGE: u32 = 500;
/// Pause after a list that failed.
const AGAIN: Duration = Duration::from_secs(2);

/// A BackupJob as read live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// UID.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// What it backs up.
    pub application: Application,
}

impl Gate {
    /// What may be believed of the figures, given how the leadership came to us.
    pub(super) fn trusted(&self, knowledge: Knowledge) -> Knowledge {
        let listed = self.taken_over.load(Ordering::Acquire);
        believed(self.leadership.term(), listed, Instant::now(), knowledge)
    }

    /// Takes over in `term`: every job that was read live and that nothing stands for yet is counted.
    pub fn taken_over(&self, term: u64, listed: impl IntoIterator<Item = Listed>) {
        let now = self.now();
        let mut desk = self.desk();
        for job in listed {
            let count = match self.books.job(&job.uid) {
                JobSeen::Recorded => false,
                // Over or not: its result may not have been recorded, or not even seen.
                JobSeen::Seen | JobSeen::Not => true,
            };
            if count {
                desk.reserve(Reservation {
                    uid: job.uid,
                    namespace: job.namespace,
                    application: job.application,
                    at: now,
                });
            }
        }
        self.count.reserved(desk.len());
        drop(desk);
        self.taken_over.store(term, Ordering::Release);
    }
}

/// What may be believed in `term`, when the jobs were read live in the term `listed`.
fn believed(term: Option<Term>, listed: u64, now: Instant, knowledge: Knowledge) -> Knowledge {
    let careful = match term {
        None => true,
        Some(term) if term.number != listed => true,
        Some(term) => match term.takeover {
            Takeover::Quiet => false,
            Takeover::Unannounced => now.saturating_duration_since(term.since) < CAREFUL,
        },
    };
    match knowledge {
        Knowledge::Current(_) | Knowledge::Stale if careful => Knowledge::TakingOver,
        Knowledge::Current(_) | Knowledge::Stale | Knowledge::NotYetCounted | Knowledge::TakingOver => {
            knowledge
        }
    }
}

/// Takes over at the beginning of each term, and keeps reservations tidy, until `end`.
pub async fn run(gate: Arc<Gate>, client: Client, end: CancellationToken) {
    let mut standing = gate.leadership.changed();
    let mut tidy = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            () = end.cancelled() => return,
            changed = standing.changed() => if changed.is_err() { return },
            _ = tidy.tick() => {
                gate.settle_recorded();
                gate.expire();
            }
        }
        let Standing::Leader { term } = *standing.borrow() else {
            continue;
        };
        if gate.taken_over.load(Ordering::Acquire) == term {
            continue;
        }
        match list(&client).await {
            Ok(listed) => {
                tracing::info!(term, jobs = listed.len(), "the gate has taken over");
                gate.taken_over(term, listed);
            }
            // Not installed: there is nothing to gate, and nobody will ask.
            Err(kube::Error::Api(status)) if status.code == 404 => gate.taken_over(term, []),
            Err(error) => {
                tracing::warn!(%error, "BackupJobs cannot be listed; under a limit none is admitted before they are");
                tokio::select! {
                    () = end.cancelled() => return,
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        }
    }
}

async fn list(client: &Client) -> kube::Result<Vec<Listed>> {
    let jobs: Api<BackupJob> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = jobs.list(&params).await?;
        all.extend(page.items.into_iter().filter_map(listed));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

fn listed(job: BackupJob) -> Option<Listed> {
    Some(Listed {
        uid: job.metadata.uid?,
        namespace: job.metadata.namespace?,
        application: Application::from(&job.spec.application_ref),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::quota::Figures;

    #[test]
    fn after_a_silent_leader_nothing_is_believed_for_a_minute_and_after_a_handover_at_once() {
        let since = Instant::now();
        let term = |takeover| Term {
            number: 3,
            since,
            takeover,
        };
        let current = Knowledge::Current(Figures::default());
        let at = |takeover, listed, seconds| {
            let now = since + Duration::from_secs(seconds);
            believed(Some(term(takeover)), listed, now, current.clone())
        };
        assert_eq!(at(Takeover::Quiet, 3, 0), current);
        assert_eq!(
            at(Takeover::Quiet, 2, 500),
            Knowledge::TakingOver,
            "the jobs were not read in this term"
        );
        assert_eq!(at(Takeover::Unannounced, 3, 59), Knowledge::TakingOver);
        assert_eq!(at(Takeover::Unannounced, 3, 60), current);
        assert_eq!(
            believed(None, 3, since, current),
            Knowledge::TakingOver,
            "we do not lead"
        );
    }
}
