//! What is to be done about a repository: pure, time and facts as arguments.

use super::observe::Facts;
use crate::jobs::create::{NOT_READ, SecretFact};
use crate::jobs::needs::{Needs, Unmet};
use crate::jobs::outcome::JobFact;
use crate::jobs::outcome::Read;
use crate::protect::catalog::due::{Request, Want, wanted};
use crate::world::views::{JobState, RepositoryView};
use holdfast_api::names;
use holdfast_api::repository::{Catalog, OnProbeFailure, RepositoryPhase};
use holdfast_core::backoff;
use holdfast_core::health::{self, Due, Probe};
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
    /// The first connection took longer than it may, and is given more time.
    BootstrapDeadlineExceeded,
    /// The same of a repository that was connected before.
    ProbeDeadlineExceeded,
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
            Self::BootstrapDeadlineExceeded => "BootstrapDeadlineExceeded",
            Self::ProbeDeadlineExceeded => "ProbeDeadlineExceeded",
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
            | Self::BootstrapDeadlineExceeded
            | Self::ProbeDeadlineExceeded
            | Self::BootstrapJobFailed => false,
        }
    }

    /// Whether it says that the repository could not be reached, rather than something positive about it.
    #[must_use]
    pub fn is_not_reached(self) -> bool {
        match self {
            Self::BackendUnreachable
            | Self::BootstrapDeadlineExceeded
            | Self::ProbeDeadlineExceeded
            | Self::BootstrapJobFailed => true,
            Self::Connected
            | Self::InvalidSpec
            | Self::Suspended
            | Self::MissingCredentialsSecret
            | Self::MissingCredentialsKey
            | Self::MissingRepositoryClaim
            | Self::MissingCaBundle
            | Self::Connecting
            | Self::NoPlaceToRun
            | Self::InvalidPassword
            | Self::RepositoryNotInitialized
            | Self::RepositoryReplaced => false,
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
            // Slow is not dead: it is given more time.
            Self::Connecting | Self::BootstrapDeadlineExceeded if !connected_before => {
                RepositoryPhase::Initializing
            }
            Self::BackendUnreachable
            | Self::BootstrapDeadlineExceeded
            | Self::ProbeDeadlineExceeded
            | Self::BootstrapJobFailed
            | Self::Connecting
                if connected_before =>
            {
                RepositoryPhase::Degraded
            }
            Self::Connecting
            | Self::BackendUnreachable
            | Self::BootstrapDeadlineExceeded
            | Self::ProbeDeadlineExceeded
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

/// What a connected repository says.
pub const CONNECTED: &str = "The repository is connected.";
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
    let probe = probe(view);
    let usable = view.unique_id().is_some() && recorded && health::is_usable(probe, connection.failures);
    if usable && connection.failures == 0 {
        let listed = decide_list(facts, now);
        // A listing under way, or about to be, asks the same.
        let (None, Step::Settle(reason, message, again)) = (&facts.list, &listed) else {
            return listed;
        };
        return match due(facts, probe, now) {
            Due::Now => Step::Connect { create: false },
            Due::Never => listed,
            Due::At(at) => {
                let wait = at.duration_since(now);
                let again = again.map_or(wait, |again| again.min(wait));
                Step::Settle(*reason, message.clone(), Some(again))
            }
        };
    }
    if recorded
        && let Some(next) = connection.next_attempt_at
        && backoff::REPOSITORY.waits(next, now)
    {
        // What failed stays said; a changed Secret or spec changes the inputs and is tried at once.
        let again = Some(next.duration_since(now).min(MISSING_RECHECK));
        return if usable {
            Step::Settle(Reason::Connected, CONNECTED.into(), again)
        } else {
            Step::Settle(failed_reason(view), last_message(view), again)
        };
    }
    // Never created again once a unique id was recorded.
    let create = view.unique_id().is_none() && view.spec.create.as_ref().is_some_and(|c| c.enabled);
    Step::Connect { create }
}

/// `spec.health.probe` with its defaults.
#[must_use]
pub fn probe(view: &RepositoryView) -> Probe {
    let default = Probe::default();
    let Some(said) = view.spec.health.as_ref().and_then(|h| h.probe.as_ref()) else {
        return default;
    };
    let interval = said.interval.as_deref().and_then(holdfast_api::shared::duration);
    Probe {
        enabled: said.enabled,
        interval: interval.unwrap_or(default.interval),
        threshold: said.failure_threshold.unwrap_or(default.threshold),
        degrades: match said.on_failure {
            OnProbeFailure::Degrade | OnProbeFailure::Unknown => true,
            OnProbeFailure::Alert => false,
        },
    }
}

fn due(facts: &Facts, probe: Probe, now: Timestamp) -> Due {
    let view = &facts.view;
    let known = view.status.health.clone().unwrap_or_default();
    let asked = view.annotation(names::REVERIFY_REQUESTED_AT);
    let asked = asked.is_some() && asked != known.reverify_honored.as_deref();
    health::due(probe, known.last_probe_at, asked, now)
}

/// Seconds that the next attempt may take.
#[must_use]
pub fn deadline(view: &RepositoryView) -> i64 {
    let known = view.status.connection.as_ref().and_then(|c| c.deadline_seconds);
    known.unwrap_or(health::FIRST_DEADLINE)
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
            let again = Some(SignedDuration::from_secs(5));
            let view = &facts.view;
            if view.unique_id().is_none() || recorded_inputs(view) != Some(facts.inputs.as_str()) {
                return Step::Settle(Reason::Connecting, message, again);
            }
            // A probe changes nothing before it has an answer.
            if health::is_usable(probe(view), failures) {
                Step::Settle(Reason::Connected, CONNECTED.into(), again)
            } else {
                Step::Settle(failed_reason(view), last_message(view), again)
            }
        }
        JobState::Succeeded | JobState::Failed => {
            let at = health::next_attempt(probe(&facts.view), failures.saturating_add(1), now);
            let recorded = facts.view.unique_id();
            match &job.read {
                Read::Unreadable(_) | Read::Silent(_) if job.job.ran_out_of_time() => slow(facts, at),
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

/// It took longer than it may: no sign that the backend is away. The next try may take longer.
fn slow(facts: &Facts, at: Timestamp) -> Step {
    let view = &facts.view;
    let (seconds, longer) = (deadline(view), health::longer(deadline(view)));
    let message = format!(
        "Connecting took longer than {seconds} s and was cut off: the repository is slow, or its backend does not answer. The next try may take {longer} s."
    );
    let reason = if view.unique_id().is_some() {
        Reason::ProbeDeadlineExceeded
    } else {
        Reason::BootstrapDeadlineExceeded
    };
    Step::Failed(reason, message, at)
}

fn recorded_inputs(view: &RepositoryView) -> Option<&str> {
    view.status.connection.as_ref()?.inputs.as_deref()
}

fn decide_list(facts: &Facts, now: Timestamp) -> Step {
    let view = &facts.view;
    let settled = |again| Step::Settle(Reason::Connected, CONNECTED.into(), again);
    if let Some(job) = &facts.list {
        return match job.state {
            JobState::Waiting | JobState::Active => settled(None),
            JobState::Succeeded | JobState::Failed => Step::Listed(Box::new(job.clone())),
        };
    }
    let catalog = view.status.catalog.clone().unwrap_or_default();
    let every = view.spec.catalog.as_ref().and_then(Catalog::interval);
    match wanted(&catalog, view.annotation(names::SCAN_REQUESTED_AT), every, now) {
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

fn failed_reason(view: &RepositoryView) -> Reason {
    let known = [
        Reason::InvalidPassword,
        Reason::RepositoryNotInitialized,
        Reason::RepositoryReplaced,
        Reason::BackendUnreachable,
        Reason::BootstrapDeadlineExceeded,
        Reason::ProbeDeadlineExceeded,
    ];
    let said = holdfast_api::conditions::get(&view.status.conditions, holdfast_api::conditions::BOOTSTRAPPED);
    let said = said.map(|c| c.reason.as_str()).unwrap_or_default();
    known
        .into_iter()
        .find(|r| r.as_str() == said)
        .unwrap_or(Reason::BootstrapJobFailed)
}

fn last_message(view: &RepositoryView) -> String {
    let said = holdfast_api::conditions::get(&view.status.conditions, holdfast_api::conditions::BOOTSTRAPPED);
    said.map(|c| c.message.clone()).unwrap_or_default()
}
