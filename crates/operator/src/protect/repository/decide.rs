//! What is to be done about a repository: pure, time and facts as arguments.

use super::observe::Facts;
use crate::jobs::create::{NOT_READ, SecretFact};
use crate::jobs::needs::{Needs, Unmet};
use crate::jobs::outcome::JobFact;
use crate::jobs::outcome::Read;
use crate::protect::catalog::due::{Request, Want, wanted};
use crate::world::views::JobState;
use holdfast_api::names;
use holdfast_api::repository::RepositoryPhase;
use holdfast_core::backoff;
use holdfast_protocol::outcome::{FailureClass, OperationResult};
use jiff::{SignedDuration, Timestamp};

/// What a repository waits for, or what it is. The word is the reason of its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Usable.
    Connected,
    /// The spec is refused.
    InvalidSpec,
    /// `spec.suspend`.
    Suspended,
    /// The password Secret is not there.
    MissingCredentialsSecret,
    /// The password Secret lacks the key.
    MissingCredentialsKey,
    /// The claim of the backend is not there.
    MissingRepositoryClaim,
    /// The ConfigMap with the authorities to trust is not there, or lacks the key.
    MissingCaBundle,
    /// The bootstrap Job runs.
    Connecting,
    /// The namespace for the Job is terminating.
    NoPlaceToRun,
    /// The password does not open it.
    InvalidPassword,
    /// There is no repository, and creating one is not allowed (any more).
    RepositoryNotInitialized,
    /// It is another one than the one that was recorded.
    RepositoryReplaced,
    /// The backend cannot be read or written.
    BackendUnreachable,
    /// The bootstrap Job failed in another way.
    BootstrapJobFailed,
}

impl Reason {
    fn of(unmet: &Unmet) -> Self {
        match unmet {
            Unmet::Claim(_) => Self::MissingRepositoryClaim,
            Unmet::Secret(_) => Self::MissingCredentialsSecret,
            Unmet::Key(..) => Self::MissingCredentialsKey,
            Unmet::CaBundle(..) => Self::MissingCaBundle,
        }
    }

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "Connected",
            Self::InvalidSpec => "InvalidSpec",
            Self::Suspended => "Suspended",
            Self::MissingCredentialsSecret => "MissingCredentialsSecret",
            Self::MissingCredentialsKey => "MissingCredentialsKey",
            Self::MissingRepositoryClaim => "MissingRepositoryClaim",
            Self::MissingCaBundle => "MissingCaBundle",
            Self::Connecting => "Connecting",
            Self::NoPlaceToRun => "NoPlaceToRun",
            Self::InvalidPassword => "InvalidPassword",
            Self::RepositoryNotInitialized => "RepositoryNotInitialized",
            Self::RepositoryReplaced => "RepositoryReplaced",
            Self::BackendUnreachable => "BackendUnreachable",
            Self::BootstrapJobFailed => "BootstrapJobFailed",
        }
    }

    /// Whether a person has to act (kstatus `Stalled`); the others heal by themselves.
    #[must_use]
    pub fn is_stalled(self) -> bool {
        match self {
            Self::InvalidSpec
            | Self::InvalidPassword
            | Self::RepositoryNotInitialized
            | Self::RepositoryReplaced => true,
            Self::Connected
            | Self::Suspended
            | Self::MissingCredentialsSecret
            | Self::MissingCredentialsKey
            | Self::MissingRepositoryClaim
            | Self::MissingCaBundle
            | Self::Connecting
            | Self::NoPlaceToRun
            | Self::BackendUnreachable
            | Self::BootstrapJobFailed => false,
        }
    }

    /// Phase that goes with it; `connected_before` is whether a unique id was ever recorded.
    #[must_use]
    pub fn phase(self, connected_before: bool) -> RepositoryPhase {
        match self {
            Self::Connected => RepositoryPhase::Ready,
            Self::InvalidSpec
            | Self::InvalidPassword
            | Self::RepositoryNotInitialized
            | Self::RepositoryReplaced => RepositoryPhase::Failed,
            Self::Connecting if !connected_before => RepositoryPhase::Initializing,
            Self::BackendUnreachable | Self::BootstrapJobFailed | Self::Connecting if connected_before => {
                RepositoryPhase::Degraded
            }
            Self::Connecting
            | Self::BackendUnreachable
            | Self::BootstrapJobFailed
            | Self::Suspended
            | Self::MissingCredentialsSecret
            | Self::MissingCredentialsKey
            | Self::MissingRepositoryClaim
            | Self::MissingCaBundle
            | Self::NoPlaceToRun => RepositoryPhase::Pending,
        }
    }
}

/// The next step.
#[derive(Debug, Clone)]
pub enum Step {
    /// Say what it is and wait, at most this long.
    Settle(Reason, String, Option<SignedDuration>),
    /// Create the bootstrap Job.
    Connect {
        /// Whether the Job may create the repository.
        create: bool,
    },
    /// Remove a Job that no longer answers anything, then look again.
    Recycle(Box<JobFact>),
    /// The bootstrap Job connected: record this, then remove the Job.
    Record {
        /// Unique id as read.
        unique_id: String,
        /// Snapshots in it.
        snapshots: u64,
        /// Whether it was created.
        created: bool,
    },
    /// The bootstrap Job failed: record why and when to try again, then remove the Job.
    Failed(Reason, String, Timestamp),
    /// Create a listing Job for this.
    List(Request),
    /// The listing Job ended: assemble its listing.
    Listed(Box<JobFact>),
}

/// How often what is missing is looked for again.
const MISSING_RECHECK: SignedDuration = SignedDuration::from_secs(10);
/// Decides. First match wins.
#[must_use]
pub fn decide(facts: &Facts, now: Timestamp) -> Step {
    let view = &facts.view;
    if !view.refusals.is_empty() {
        return Step::Settle(Reason::InvalidSpec, view.refusals.join("; "), None);
    }
    if view.metadata.deletion_timestamp.is_some() {
        return Step::Settle(
            Reason::Suspended,
            "The object is being deleted; the data stays.".into(),
            None,
        );
    }
    if view.spec.suspend {
        let message =
            "spec.suspend is set: nothing connects and nothing is deleted. Set it to false to go on.";
        return Step::Settle(Reason::Suspended, message.into(), None);
    }
    let reference = &view.spec.encryption.password_secret_ref;
    if let Some(namespace) = &reference.namespace
        && *namespace != facts.place
    {
        let message = format!(
            "spec.encryption.passwordSecretRef.namespace is {namespace}, movers of a ClusterRepository run in {}: put the Secret there and name that namespace",
            facts.place
        );
        return Step::Settle(Reason::InvalidSpec, message, None);
    }
    if let Some(namespace) = view
        .s3()
        .and_then(|s3| s3.auth.secret_ref.as_ref()?.namespace.as_ref())
        && *namespace != facts.place
    {
        let message = format!(
            "spec.backend.s3.auth.secretRef.namespace is {namespace}, movers of a ClusterRepository run in {}: put the Secret there and name that namespace",
            facts.place
        );
        return Step::Settle(Reason::InvalidSpec, message, None);
    }
    if view.unique_id().is_none() && !facts.overlaps.is_empty() {
        let message = format!(
            "spec.backend.s3.prefix overlaps with that of {}: Kopia takes what lies below a prefix for its own and deletes it. Give each a prefix beside the other, not below it.",
            facts.overlaps.join(", ")
        );
        return Step::Settle(Reason::InvalidSpec, message, Some(MISSING_RECHECK));
    }
    match &facts.secret {
        SecretFact::Usable(_) => {}
        SecretFact::Missing => {
            let message = format!("Secret {}/{} {NOT_READ}. Create it.", facts.place, reference.name);
            return Step::Settle(Reason::MissingCredentialsSecret, message, Some(MISSING_RECHECK));
        }
        SecretFact::NoKey => {
            let message = format!(
                "Secret {}/{} has no key {}. Add it, or name the right one in spec.encryption.passwordSecretRef.key.",
                facts.place, reference.name, reference.key
            );
            return Step::Settle(Reason::MissingCredentialsKey, message, Some(MISSING_RECHECK));
        }
    }
    if let Needs::Unmet(unmet) = &facts.needs {
        return Step::Settle(Reason::of(unmet), unmet.message(), Some(MISSING_RECHECK));
    }
    let connection = view.status.connection.clone().unwrap_or_default();
    let recorded = connection.inputs.as_deref() == Some(facts.inputs.as_str());
    if let Some(job) = &facts.bootstrap {
        return decide_bootstrap(facts, job, connection.failures, now);
    }
    if view.unique_id().is_some() && recorded && connection.failures == 0 {
        return decide_list(facts, now);
    }
    if recorded
        && let Some(next) = connection.next_attempt_at
        && backoff::REPOSITORY.waits(next, now)
    {
        // What failed stays said; a changed Secret or spec changes the inputs and is tried at once.
        return Step::Settle(
            failed_reason(view),
            last_message(view),
            Some(next.duration_since(now).min(MISSING_RECHECK)),
        );
    }
    // Never created again once a unique id was recorded.
    let create = view.unique_id().is_none() && view.spec.create.as_ref().is_some_and(|c| c.enabled);
    Step::Connect { create }
}

fn decide_bootstrap(facts: &Facts, job: &JobFact, failures: u32, now: Timestamp) -> Step {
    let stale = job.job.annotation(names::CONNECTION_INPUTS) != Some(facts.inputs.as_str());
    match job.state {
        _ if stale || job.job.metadata.deletion_timestamp.is_some() => Step::Recycle(Box::new(job.clone())),
        JobState::Waiting | JobState::Active => {
            let message = match &job.read {
                Read::Unreadable(why) | Read::Silent(why) => {
                    format!("Job {} connects; {why}.", job.job.key())
                }
                Read::Outcome { .. } => format!("Job {} connects.", job.job.key()),
            };
            Step::Settle(Reason::Connecting, message, Some(SignedDuration::from_secs(5)))
        }
        JobState::Succeeded | JobState::Failed => {
            let at = backoff::REPOSITORY.next(failures.saturating_add(1), now);
            let recorded = facts.view.unique_id();
            match &job.read {
                Read::Unreadable(why) | Read::Silent(why) => Step::Failed(
                    Reason::BootstrapJobFailed,
                    format!("Job {} failed: {why}. It is tried again.", job.job.key()),
                    at,
                ),
                Read::Outcome { outcome, .. } => match (&outcome.error, &outcome.result, &outcome.unique_id) {
                    (None, OperationResult::Bootstrapped { created, snapshots }, Some(id)) => {
                        if recorded.is_some_and(|r| r != id) {
                            let message = format!(
                                "The repository there has unique id {id}, recorded is {}. Somebody replaced it: bring the old one back, or make a new Repository object for the new one.",
                                recorded.unwrap_or_default()
                            );
                            return Step::Failed(Reason::RepositoryReplaced, message, at);
                        }
                        Step::Record { unique_id: id.clone(), snapshots: *snapshots, created: *created }
                    }
                    (Some(failure), _, _) => Step::Failed(reason_of(failure.class), failure.message.clone(), at),
                    (None, _, _) => Step::Failed(
                        Reason::BootstrapJobFailed,
                        "The mover answered something else than was asked; are operator and mover of one release?".into(),
                        at,
                    ),
                },
            }
        }
    }
}

fn decide_list(facts: &Facts, now: Timestamp) -> Step {
    let view = &facts.view;
    let settled = |again| Step::Settle(Reason::Connected, "The repository is connected.".into(), again);
    if let Some(job) = &facts.list {
        return match job.state {
            JobState::Waiting | JobState::Active => settled(None),
            JobState::Succeeded | JobState::Failed => Step::Listed(Box::new(job.clone())),
        };
    }
    let catalog = view.status.catalog.clone().unwrap_or_default();
    match wanted(&catalog, view.annotation(names::SCAN_REQUESTED_AT), now) {
        Want::Nothing => settled(None),
        Want::At(at) => settled(Some(at.duration_since(now))),
        Want::Now(request) => Step::List(request),
    }
}

/// The condition's word for a mover's class of failure.
#[must_use]
pub fn reason_of(class: FailureClass) -> Reason {
    match class {
        FailureClass::InvalidPassword => Reason::InvalidPassword,
        FailureClass::RepositoryNotInitialized => Reason::RepositoryNotInitialized,
        FailureClass::RepositoryReplaced => Reason::RepositoryReplaced,
        FailureClass::BackendUnreachable => Reason::BackendUnreachable,
        FailureClass::SourceUnreadable
        | FailureClass::InvalidWork
        | FailureClass::OperationFailed
        | FailureClass::Unknown => Reason::BootstrapJobFailed,
    }
}

fn failed_reason(view: &crate::world::views::RepositoryView) -> Reason {
    let known = [
        Reason::InvalidPassword,
        Reason::RepositoryNotInitialized,
        Reason::RepositoryReplaced,
        Reason::BackendUnreachable,
    ];
    let said = holdfast_api::conditions::get(&view.status.conditions, holdfast_api::conditions::BOOTSTRAPPED);
    let said = said.map(|c| c.reason.as_str()).unwrap_or_default();
    known
        .into_iter()
        .find(|r| r.as_str() == said)
        .unwrap_or(Reason::BootstrapJobFailed)
}

fn last_message(view: &crate::world::views::RepositoryView) -> String {
    let said = holdfast_api::conditions::get(&view.status.conditions, holdfast_api::conditions::BOOTSTRAPPED);
    said.map(|c| c.message.clone()).unwrap_or_default()
}
