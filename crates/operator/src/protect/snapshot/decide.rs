//! What is to be done about a Snapshot that is not being deleted: pure, time and facts as arguments.

use super::observe::{Blocked, Facts, Possible, Run};
use crate::jobs::create::NOT_READ;
use crate::jobs::outcome::JobFact;
use crate::jobs::privileged;
use crate::world::views::JobState;
use holdfast_api::conditions;
use holdfast_api::shared::Origin;
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_core::restore::Reason;
use jiff::{SignedDuration, Timestamp};

/// The next step.
#[derive(Debug, Clone)]
pub enum Step {
    /// Put the finalizer on, before anything else.
    AddFinalizer,
    /// Write the first status of a Snapshot made by a person.
    Begin(Origin),
    /// Say that it is not run, for good: retention pruned one of this name at this time.
    MadeAgain(Timestamp),
    /// Nothing to do; whether a `StatusLost` has to be taken back.
    Done {
        /// The condition is True and the status is there again.
        found_again: bool,
    },
    /// It has no status and is not a person's: say so, touch nothing.
    StatusLost,
    /// Another component will write its status at once: look again then.
    Wait(SignedDuration),
    /// Say why the run does not start.
    Blocked(Blocked),
    /// Record what the run is pinned to, then create its Job.
    Start(Box<Possible>),
    /// The Job runs; why its container has not started, if it has not.
    Running(Box<JobFact>),
    /// The Job ended: record its result.
    Record(Box<JobFact>),
}

/// A schedule writes the status right after it creates the object; until then its absence says nothing.
const GRACE: SignedDuration = SignedDuration::from_secs(15);

/// Decides. First match wins.
#[must_use]
pub fn decide(facts: &Facts, now: Timestamp) -> Step {
    let view = &facts.view;
    if !view.has_finalizer() && facts.origin != Origin::Discovered {
        return Step::AddFinalizer;
    }
    let lost = view
        .status
        .as_ref()
        .is_some_and(|s| conditions::is_true(&s.conditions, conditions::STATUS_LOST));
    match view.phase() {
        None => match facts.origin {
            Origin::Manual => facts
                .made_again
                .map_or(Step::Begin(Origin::Manual), Step::MadeAgain),
            // The catalog writes it right after it creates the object; if it could not, the next scan does.
            Origin::Discovered => Step::Done { found_again: false },
            Origin::Scheduled | Origin::Adopted | Origin::Replicated | Origin::Unknown => {
                let age = view
                    .metadata
                    .creation_timestamp
                    .as_ref()
                    .map(|t| now.duration_since(t.0));
                if facts.schedule_will_complete {
                    Step::Wait(SignedDuration::from_secs(2))
                } else if age.is_some_and(|a| a < GRACE) && !lost {
                    Step::Wait(GRACE)
                } else {
                    Step::StatusLost
                }
            }
        },
        Some(SnapshotPhase::Pending | SnapshotPhase::Running) => match (&facts.job, &facts.run) {
            (Some(job), _) => match job.state {
                JobState::Waiting | JobState::Active => Step::Running(Box::new(job.clone())),
                JobState::Succeeded | JobState::Failed => Step::Record(Box::new(job.clone())),
            },
            (None, Some(Run::Blocked(why))) => Step::Blocked(why.clone()),
            (None, Some(Run::Possible(run))) => Step::Start(run.clone()),
            (None, None) => Step::Wait(SignedDuration::from_secs(1)),
        },
        // A phase of a newer version: hold, do nothing.
        Some(
            SnapshotPhase::Succeeded
            | SnapshotPhase::Failed
            | SnapshotPhase::Deleting
            | SnapshotPhase::Discovered
            | SnapshotPhase::Unchanged
            | SnapshotPhase::Unknown,
        ) => Step::Done { found_again: lost },
    }
}

impl Blocked {
    /// The word for conditions.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidSpec(_) => "InvalidSpec",
            Self::NoPolicy => "NoPolicy",
            Self::PolicyNotFound(_) => "PolicyNotFound",
            Self::PolicyInvalid(..) => "PolicyInvalid",
            Self::PolicySuspended(_) => "PolicySuspended",
            Self::PolicyDeleting(_) => "PolicyDeleting",
            Self::RepositoryNotFound(_) => "RepositoryNotFound",
            Self::NamespaceNotAllowed(_) => "NamespaceNotAllowed",
            Self::PrivilegedMoverNotPermitted(_) => Reason::PrivilegedMoverNotPermitted.as_str(),
            Self::RepositoryNotReady(_) => "RepositoryNotReady",
            Self::MissingCredentialsSecret(_) => "MissingCredentialsSecret",
            Self::SourcePvcMissing(_) => "SourcePvcMissing",
            Self::MissingForBackend(unmet) => unmet.reason(),
        }
    }

    /// What happened, and what to do.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::InvalidSpec(text) => text.clone(),
            Self::NoPolicy => {
                "spec.policyRef is not set: name the SnapshotPolicy that says what to back up.".into()
            }
            Self::PolicyNotFound(key) => {
                format!("SnapshotPolicy {key} does not exist. Create it; the run starts then.")
            }
            Self::PolicyInvalid(key, text) => format!("SnapshotPolicy {key} is refused: {text}"),
            Self::PolicyDeleting(key) => {
                format!("SnapshotPolicy {key} is being deleted. Create it again; the run starts then.")
            }
            Self::PolicySuspended(key) => {
                format!("SnapshotPolicy {key} is suspended. The run starts when it is not.")
            }
            Self::RepositoryNotFound(named) => format!("The policy's {named} does not exist. Create it."),
            Self::NamespaceNotAllowed(key) => format!(
                "This namespace may not use {key}: a Repository serves its own namespace, a ClusterRepository those of spec.allowedNamespaces."
            ),
            Self::PrivilegedMoverNotPermitted(policy) => {
                privileged::not_agreed(&format!("SnapshotPolicy {policy}"), &policy.namespace)
            }
            Self::RepositoryNotReady(key) => {
                format!("{key} is not ready; its conditions say why. The run starts then.")
            }
            Self::MissingCredentialsSecret(text) => {
                format!("Secret {text} {NOT_READ}. Create it; the mover runs there.")
            }
            Self::SourcePvcMissing(text) => {
                format!("PersistentVolumeClaim {text} does not exist. Create it.")
            }
            Self::MissingForBackend(unmet) => unmet.message(),
        }
    }

    /// Whether no event would wake the run: then it is looked for again.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        match self {
            Self::MissingCredentialsSecret(_)
            | Self::SourcePvcMissing(_)
            | Self::MissingForBackend(_)
            | Self::PrivilegedMoverNotPermitted(_) => true,
            Self::InvalidSpec(_)
            | Self::NoPolicy
            | Self::PolicyNotFound(_)
            | Self::PolicyInvalid(..)
            | Self::PolicySuspended(_)
            | Self::PolicyDeleting(_)
            | Self::RepositoryNotFound(_)
            | Self::NamespaceNotAllowed(_)
            | Self::RepositoryNotReady(_) => false,
        }
    }
}
