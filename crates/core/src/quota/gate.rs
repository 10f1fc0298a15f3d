//! Who is let in: the decision about one BackupJob (`docs/design.md` 4.4).
//!
//! **Promises.** In count, never more than the limit leaves, runs under way included. In size, no new run once what is
//! used and what is under way reach the limit. What is not known refuses under a limit, and never without one.
//! Messages read like the API server's own, name the first quota in order of names, and are the same for the same
//! facts.
//!
//! **Assumes.** The caller asks under one lock, reserves before the next question, and has looked whether the name
//! exists when the answer would be a refusal. The size of the new run is not known: the limit stops the next run, not
//! this one.

use super::amount::{self, bytes, things};
use super::figures::Figures;
use super::ledger::{Estimate, Ledger};
use super::record::Application;
use super::reservations::Reservations;
use super::{Dimensions, words};
use std::collections::{BTreeMap, BTreeSet};

/// The request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Namespace of the BackupJob.
    pub namespace: String,
    /// UID of the object (the request's own is another for every call).
    pub uid: String,
    /// What is to be backed up.
    pub application: Application,
    /// A BackupJob of this name exists, read live.
    pub name_exists: NameExists,
    /// What is done.
    pub operation: Operation,
    /// Nothing may be left behind.
    pub dry_run: bool,
}

/// Whether a BackupJob of this name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameExists {
    /// No, or nobody looked yet.
    NotKnown,
    /// Yes: the API server would answer 409 after us.
    Yes,
}

/// What is done to the BackupJob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is created.
    Create,
    /// Its `applicationRef` changes: it is decided as if it were new, and not counted twice.
    ChangeApplication,
}

/// What is read of a ResourceQuota.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quota {
    /// Name.
    pub name: String,
    /// It has scopes, within which our dimensions mean nothing.
    pub scoped: bool,
    /// `spec.hard`, as written.
    pub hard: BTreeMap<String, String>,
    /// `status.used`, as written. The gate does not decide by it.
    pub used: BTreeMap<String, String>,
    /// The breakdown annotation as it is.
    pub breakdown: Option<String>,
}

impl Quota {
    /// Our limits in it, in the order of their names; none of a scoped quota.
    fn limits(&self, dimensions: Dimensions<'_>) -> Vec<(Dimension, &str)> {
        let mut limits: Vec<(Dimension, &str)> = Vec::new();
        if !self.scoped {
            for (dimension, key) in [
                (Dimension::Count, dimensions.count),
                (Dimension::Size, dimensions.size),
            ] {
                if let Some(limit) = self.hard.get(key) {
                    limits.push((dimension, limit));
                }
            }
        }
        limits
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Count,
    Size,
}

impl Dimension {
    fn key<'a>(self, dimensions: Dimensions<'a>) -> &'a str {
        match self {
            Self::Count => dimensions.count,
            Self::Size => dimensions.size,
        }
    }
}

/// How far the figures can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knowledge {
    /// One complete list has been added up, and the watches are alive.
    Current(Figures),
    /// The first list is not complete.
    NotYetCounted,
    /// The watches have been silent or failing.
    Stale,
    /// The last leader may have admitted jobs that are not to be seen yet.
    TakingOver,
}

/// A run under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    /// UID of its BackupJob.
    pub uid: String,
    /// What it backs up.
    pub application: Application,
    /// How large it may become.
    pub estimate: Estimate,
}

/// Runs under way in a namespace: those with a record, and those that were just admitted. A run whose result is
/// recorded is none.
#[must_use]
pub fn in_flight(ledger: &Ledger, reservations: &Reservations, namespace: &str) -> Vec<InFlight> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut all = Vec::new();
    let recorded = ledger.in_flight(namespace).filter(|run| {
        run.job
            .as_ref()
            .is_none_or(|job| !ledger.has_result_of(namespace, &job.name, job.created_at))
    });
    let recorded = recorded.map(|run| (run.name.as_str(), &run.application));
    let reserved = reservations
        .of_namespace(namespace)
        .map(|reservation| (reservation.uid.as_str(), &reservation.application));
    for (uid, application) in recorded.chain(reserved) {
        if seen.insert(uid) {
            all.push(InFlight {
                uid: uid.to_owned(),
                application: application.clone(),
                estimate: ledger.estimate(namespace, application),
            });
        }
    }
    all
}

words! {
    /// Why a BackupJob is admitted.
    AdmitReason {
        /// No quota of the namespace limits backups.
        NoLimit => "NoLimit",
        /// There is room.
        WithinLimit => "WithinLimit",
    }
}
words! {
    /// Why a BackupJob is refused.
    RefuseReason {
        /// A limit is reached.
        ExceededQuota => "ExceededQuota",
        /// A run of the same application is under way, and no size is known to foresee it by.
        SizeUnknown => "SizeUnknown",
        /// The first complete list has not been added up.
        NotYetCounted => "NotYetCounted",
        /// The watches are behind.
        LedgerStale => "LedgerStale",
        /// The last leader may have admitted jobs that are not to be seen yet.
        TakingOver => "TakingOver",
        /// A limit cannot be read.
        LimitUnreadable => "LimitUnreadable",
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Let it in; what is created is reserved, see [`Decision::reserves`].
    Admit(AdmitReason),
    /// Answer 409: a BackupJob of this name is there, which clients and Plans treat as done.
    AlreadyExists,
    /// Answer 403.
    Refuse {
        /// Why.
        reason: RefuseReason,
        /// The sentence.
        message: String,
        /// The quota that it names.
        quota: String,
    },
}

impl Decision {
    /// Whether the job is to be reserved.
    #[must_use]
    pub fn reserves(&self, request: &Request) -> bool {
        match self {
            // Without a limit too: one may be set before the job is seen.
            Self::Admit(AdmitReason::WithinLimit | AdmitReason::NoLimit) => {
                !request.dry_run && request.operation == Operation::Create
            }
            Self::AlreadyExists | Self::Refuse { .. } => false,
        }
    }

    /// The decision's one word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Admit(reason) => reason.as_str(),
            Self::AlreadyExists => "AlreadyExists",
            Self::Refuse { reason, .. } => reason.as_str(),
        }
    }
}

/// Decides about one request.
#[must_use]
pub fn decide(
    dimensions: Dimensions<'_>,
    request: &Request,
    quotas: &[Quota],
    knowledge: &Knowledge,
    in_flight: &[InFlight],
) -> Decision {
    let decision = by_limits(dimensions, request, quotas, knowledge, in_flight);
    match (decision, request.name_exists, request.operation) {
        (Decision::Refuse { .. } | Decision::Admit(_), NameExists::Yes, Operation::Create) => {
            Decision::AlreadyExists
        }
        (
            decision,
            NameExists::Yes | NameExists::NotKnown,
            Operation::Create | Operation::ChangeApplication,
        ) => decision,
    }
}

fn by_limits(
    dimensions: Dimensions<'_>,
    request: &Request,
    quotas: &[Quota],
    knowledge: &Knowledge,
    in_flight: &[InFlight],
) -> Decision {
    let mut limited: Vec<&Quota> = quotas
        .iter()
        .filter(|quota| !quota.limits(dimensions).is_empty())
        .collect();
    limited.sort_by(|one, other| one.name.cmp(&other.name));
    let Some(first) = limited.first() else {
        return Decision::Admit(AdmitReason::NoLimit);
    };
    let (reason, why) = match knowledge {
        Knowledge::Current(figures) => {
            let others: Vec<&InFlight> = in_flight.iter().filter(|run| run.uid != request.uid).collect();
            return within(dimensions, request, &limited, figures, &others);
        }
        Knowledge::NotYetCounted => (
            RefuseReason::NotYetCounted,
            "what is stored has not been counted yet; try again in a minute",
        ),
        Knowledge::Stale => (
            RefuseReason::LedgerStale,
            "the count is behind because the API server could not be watched; try again in a minute",
        ),
        Knowledge::TakingOver => (
            RefuseReason::TakingOver,
            "another replica has just taken over and waits for what the last one admitted; try again in a minute",
        ),
    };
    Decision::Refuse {
        reason,
        message: unknown(dimensions, first, why),
        quota: first.name.clone(),
    }
}

/// As the API server says it when it does not know.
fn unknown(dimensions: Dimensions<'_>, quota: &Quota, why: &str) -> String {
    let keys: Vec<&str> = quota
        .limits(dimensions)
        .iter()
        .map(|(dimension, _)| dimension.key(dimensions))
        .collect();
    format!(
        "status unknown for quota: {}, resources: {}: {why}",
        quota.name,
        keys.join(",")
    )
}

fn within(
    dimensions: Dimensions<'_>,
    request: &Request,
    limited: &[&Quota],
    figures: &Figures,
    others: &[&InFlight],
) -> Decision {
    let running = i64::try_from(others.len()).unwrap_or(i64::MAX);
    let expected = others
        .iter()
        .fold(0_i64, |sum, run| sum.saturating_add(run.estimate.bytes()));
    let (count, size) = (figures.used_count(), figures.used_size());
    for quota in limited {
        let mut exceeded = Vec::new();
        for (dimension, text) in quota.limits(dimensions) {
            let Ok(limit) = amount::limit(text) else {
                let why = format!("{text:?} is no limit that can be kept; set a whole number");
                return Decision::Refuse {
                    reason: RefuseReason::LimitUnreadable,
                    message: unknown(dimensions, quota, &why),
                    quota: quota.name.clone(),
                };
            };
            let full = match dimension {
                Dimension::Count => count.saturating_add(running).saturating_add(1) > limit,
                Dimension::Size => size.saturating_add(expected) >= limit,
            };
            if full {
                exceeded.push((dimension, text));
            }
        }
        if !exceeded.is_empty() {
            return Decision::Refuse {
                reason: RefuseReason::ExceededQuota,
                message: exceeded_message(dimensions, quota, &exceeded, (count, running), (size, expected)),
                quota: quota.name.clone(),
            };
        }
    }
    let sized = limited.iter().find(|quota| {
        quota
            .limits(dimensions)
            .iter()
            .any(|(dimension, _)| *dimension == Dimension::Size)
    });
    let blind = others
        .iter()
        .any(|run| run.application == request.application && run.estimate == Estimate::None);
    if let (Some(quota), true) = (sized, blind) {
        let Application { kind, name, .. } = &request.application;
        return Decision::Refuse {
            reason: RefuseReason::SizeUnknown,
            message: format!(
                "size unknown under quota: {}, resources: {}: a backup of {kind} {name} is under way and no size of an \
                 earlier one is known, so one at a time is admitted; try again when it has ended",
                quota.name, dimensions.size
            ),
            quota: quota.name.clone(),
        };
    }
    Decision::Admit(AdmitReason::WithinLimit)
}

/// `exceeded quota: NAME, requested: …, used: …, limited: …`, keys in order; what is under way stands in brackets
/// beside what is used.
fn exceeded_message(
    dimensions: Dimensions<'_>,
    quota: &Quota,
    exceeded: &[(Dimension, &str)],
    (count, running): (i64, i64),
    (size, expected): (i64, i64),
) -> String {
    let list = |value: &dyn Fn(Dimension, &str) -> String| {
        exceeded
            .iter()
            .map(|(dimension, limit)| format!("{}={}", dimension.key(dimensions), value(*dimension, limit)))
            .collect::<Vec<_>>()
            .join(",")
    };
    let requested = list(&|dimension, _| match dimension {
        Dimension::Count => "1".to_owned(),
        Dimension::Size => "unknown".to_owned(),
    });
    let used = list(&|dimension, _| match dimension {
        Dimension::Count if running > 0 => format!("{} (+{running} running)", things(count)),
        Dimension::Count => things(count),
        Dimension::Size if expected > 0 => format!(
            "{} (+{} estimated for {running} running)",
            bytes(size),
            bytes(expected)
        ),
        Dimension::Size => bytes(size),
    });
    let limits = list(&|_, limit| limit.to_owned());
    format!(
        "exceeded quota: {}, requested: {requested}, used: {used}, limited: {limits}",
        quota.name
    )
}
