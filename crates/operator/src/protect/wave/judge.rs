//! What a batch Job's end means for its members: pure.
//!
//! **Promises.** Only a whole answer of the right repository confirms anything. What kept the whole Job from
//! working is the repository's failure and counts against no member.

use super::justified;
use super::member::NO_ANSWER;
use crate::jobs::outcome::Read;
use holdfast_protocol::letters::Letter;
use holdfast_protocol::outcome::{FailureClass, OperationResult};

/// What a Job's end means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The mover answered for the members.
    Members {
        /// One result for each member, in the Job's order.
        results: Vec<MemberResult>,
        /// Kept ids that it did not find, cut.
        missing: Vec<String>,
    },
    /// It could not start or connect, or left no answer.
    Repository {
        /// The word for condition and event.
        reason: String,
        /// For people.
        message: String,
    },
}

/// The result of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberResult {
    /// Its letter.
    pub letter: Letter,
    /// Why it is not confirmed, for people; empty when it is.
    pub why: String,
}

/// Judges the end of a Job with this many members over the repository of this unique id.
#[must_use]
pub fn judge(members: usize, unique_id: &str, read: &Read) -> Verdict {
    let outcome = match read {
        Read::Outcome { outcome, .. } => outcome,
        Read::Unreadable(why) | Read::Silent(why) => {
            return Verdict::Repository {
                reason: NO_ANSWER.to_owned(),
                message: format!("The delete Job left no result: {why}. Nothing is confirmed."),
            };
        }
    };
    let failure = outcome.error.as_ref();
    let said = failure.map(|f| f.message.clone());
    let Some(letters) = outcome.letters(members) else {
        return Verdict::Repository {
            reason: failure.map_or_else(|| "NoResult".to_owned(), |f| format!("{:?}", f.class)),
            message: said.unwrap_or_else(|| {
                "The delete Job's answer is not one letter for each member, so it confirms nothing; are operator and mover of one release?".to_owned()
            }),
        };
    };
    // Letters speak for the repository that answered: it has to be the one the members are in.
    if outcome.unique_id.as_deref() != Some(unique_id) {
        return Verdict::Repository {
            reason: "RepositoryReplaced".to_owned(),
            message: said.unwrap_or_else(|| {
                format!(
                    "The delete Job worked on the repository {}, not on {unique_id}; nothing is confirmed.",
                    outcome.unique_id.as_deref().unwrap_or("that it did not name")
                )
            }),
        };
    }
    if let Some(failure) = failure
        && is_of_repository(failure.class)
        && letters
            .iter()
            .all(|l| !l.confirms() && is_for_want_of_repository(*l))
    {
        return Verdict::Repository {
            reason: format!("{:?}", failure.class),
            message: failure.message.clone(),
        };
    }
    let results = letters
        .into_iter()
        .map(|letter| MemberResult {
            letter,
            why: why(letter, said.as_deref()),
        })
        .collect();
    let missing = match &outcome.result {
        OperationResult::Batch { missing, letters: _ } => missing.clone(),
        OperationResult::None
        | OperationResult::Bootstrapped { .. }
        | OperationResult::BackedUp { .. }
        | OperationResult::Listed { .. }
        | OperationResult::Restore(_)
        | OperationResult::Maintained { .. }
        | OperationResult::Pinned { .. }
        | OperationResult::NotOwner { .. } => Vec::new(),
    };
    Verdict::Members { results, missing }
}

fn is_of_repository(class: FailureClass) -> bool {
    match class {
        FailureClass::InvalidPassword
        | FailureClass::RepositoryNotInitialized
        | FailureClass::RepositoryReplaced
        | FailureClass::BackendUnreachable => true,
        FailureClass::SourceUnreadable
        | FailureClass::InvalidWork
        | FailureClass::OperationFailed
        | FailureClass::Unknown => false,
    }
}

fn is_for_want_of_repository(letter: Letter) -> bool {
    match letter {
        Letter::Failed | Letter::RepositoryReplaced => true,
        Letter::Deleted
        | Letter::Absent
        | Letter::NeverSeen
        | Letter::StillThere
        | Letter::Mismatch
        | Letter::OtherCluster
        | Letter::Unjustified
        | Letter::Pinned => false,
    }
}

fn why(letter: Letter, said: Option<&str>) -> String {
    match letter {
        Letter::Deleted | Letter::Absent => String::new(),
        Letter::NeverSeen => "The snapshot is not in this repository, and nothing recorded that it ever was: it may be in another one, so it does not count as deleted.".to_owned(),
        Letter::Failed => said
            .unwrap_or("The snapshot could not be deleted; the delete Job gave no reason.")
            .to_owned(),
        Letter::StillThere => "The deletion seemed to work, but the snapshot is still listed afterwards.".to_owned(),
        Letter::Mismatch => "The listed snapshot has another source or start time than this object records, so it was not touched. If this object is wrong, put the annotation skip-snapshot-cleanup on it.".to_owned(),
        Letter::RepositoryReplaced => "The repository is another one than the one that was recorded; nothing was touched.".to_owned(),
        Letter::Unjustified => "It was pruned in favour of snapshots that are not all in the repository, so it was not touched; tried again with what is kept now.".to_owned(),
        Letter::Pinned => justified::PINNED.to_owned(),
        Letter::OtherCluster => "The snapshot carries the tag of another cluster, so it was not touched. To let this object go, put the annotation skip-snapshot-cleanup on it.".to_owned(),
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
