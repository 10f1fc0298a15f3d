//! A decision in the words of conditions and docs.
//!
//! **Promises.** Every verdict and every wait has an outcome; a new one does not compile until it has. What is known
//! only in part is unknown.

use holdfast_core::deletion::messages::describe;
use holdfast_core::deletion::{
    Decision, DeleteReason, MemberFacts, RepositoryKey, RepositoryPlan, Verdict, Wait,
};
use holdfast_operator::protect::wave::foresee::WORDS;
use serde::Serialize;

use crate::waves::without_commands;

/// What becomes of the data of a Snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Gone from the repository.
    Deleted,
    /// Held by the breaker until a person decides.
    Held,
    /// The object goes, the data stays (or there is none).
    Kept,
    /// Nothing happens until something else does.
    Waits,
    /// Not to be told with what can be read.
    Unknown,
}

impl Outcome {
    /// Every outcome, in the order of tables.
    pub const ALL: [Self; 5] = [Self::Deleted, Self::Held, Self::Kept, Self::Waits, Self::Unknown];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Held => "held",
            Self::Kept => "kept",
            Self::Waits => "waits",
            Self::Unknown => "unknown",
        }
    }
}

/// A decision in the words of conditions and docs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Judged {
    /// What becomes of the data.
    pub outcome: Outcome,
    /// Number of the rule that decides; 0 before rule 1.
    pub rule: u8,
    /// Its name.
    pub rule_name: &'static str,
    /// The reason's word.
    pub reason: &'static str,
    /// What the operator would write.
    pub message: String,
}

impl Judged {
    /// `partly`: others may count against the threshold that cannot be read.
    pub fn of(
        decision: &Decision,
        member: &MemberFacts,
        plan: Option<&RepositoryPlan>,
        partly: bool,
    ) -> Self {
        let outcome = outcome(decision, partly);
        let by_count = decision.verdict == Verdict::Delete(DeleteReason::BelowThreshold);
        let message = match (outcome, plan) {
            (Outcome::Unknown, Some(plan)) if by_count => perhaps(plan),
            // The turn comes by itself; what is waited for then is not worth a word.
            (Outcome::Deleted, _) => {
                let now = Decision {
                    not_yet: None,
                    ..decision.clone()
                };
                describe(WORDS, member, &now, plan)
            }
            (Outcome::Held | Outcome::Kept | Outcome::Waits | Outcome::Unknown, _) => {
                without_commands(&describe(WORDS, member, decision, plan)).to_owned()
            }
        };
        Self {
            outcome,
            rule: decision.rule.number(),
            rule_name: decision.rule.name(),
            reason: reason(decision, outcome),
            message,
        }
    }
}

/// The word for a decision. `partly`: others may count against the threshold that cannot be read.
pub fn outcome(decision: &Decision, partly: bool) -> Outcome {
    let wait = match decision.verdict {
        Verdict::InFlight => return Outcome::Deleted,
        Verdict::Held(_) => return Outcome::Held,
        Verdict::Release(_) | Verdict::Orphan(_) | Verdict::Retain(_) => return Outcome::Kept,
        Verdict::Delete(DeleteReason::BelowThreshold) if partly => return Outcome::Unknown,
        Verdict::Delete(_) => match decision.not_yet {
            Some(wait) => wait,
            None => return Outcome::Deleted,
        },
        Verdict::Wait(wait) => wait,
    };
    match wait {
        // Its turn comes by itself.
        Wait::QuietWindow(_)
        | Wait::BatchLive
        | Wait::JobNotStarted
        | Wait::Withdrawing
        | Wait::JobCapReached
        | Wait::WritersRunning(_)
        | Wait::WritersFirst(_)
        | Wait::MaintenanceRunning
        | Wait::NextBatch
        | Wait::RidesAlone
        | Wait::BackingOff(_)
        | Wait::RepositoryBackingOff(_) => Outcome::Deleted,
        Wait::CacheCold
        | Wait::OwnMoverUnknown
        | Wait::PlaceUnknown
        | Wait::OwnerUnknown
        | Wait::SharingUnknown
        | Wait::RepositoryUnreadable
        | Wait::NamespaceUnreadable => Outcome::Unknown,
        Wait::ForeignManager
        | Wait::OwnMoverRunning
        | Wait::OwnResultUnread
        | Wait::PolicyUnreadable
        | Wait::CascadeUnreadable
        | Wait::SharedWithPending
        | Wait::RepositoryMismatch
        | Wait::SourceNotRecorded
        | Wait::RepositoryNotConnected
        | Wait::RepositorySuspended
        | Wait::DeletionsPaused
        | Wait::MemberTooLarge => Outcome::Waits,
    }
}

/// The word for why: of the verdict where its turn comes by itself.
pub fn reason(decision: &Decision, outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Deleted => decision.verdict.reason(),
        Outcome::Held | Outcome::Kept | Outcome::Waits | Outcome::Unknown => decision.reason(),
    }
}

fn perhaps(plan: &RepositoryPlan) -> String {
    format!(
        "{} pending deletions can be seen and the threshold is {}: it is deleted if fewer than {} others are pending in namespaces that you may not read, else held.",
        plan.count,
        plan.threshold.unwrap_or_default(),
        (plan.threshold.unwrap_or_default() as usize).saturating_sub(plan.count)
    )
}

/// The sentence that says how a hold ends.
pub fn to_release(key: &RepositoryKey) -> String {
    let scope = key
        .namespace()
        .map(|namespace| format!(" -n {namespace}"))
        .unwrap_or_default();
    let object = format!("{}/{}", key.kind().to_lowercase(), key.name());
    format!(
        "Somebody with the verb acknowledge on {key} would have to run `kubectl holdfast release {object}{scope}`; `kubectl holdfast reject {object}{scope}` keeps the data and lets the objects go."
    )
}
