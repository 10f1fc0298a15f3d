//! What the end of a run means: recorded once, then the Job goes.

use super::act::takeover;
use super::observe::Observed;
use super::report;
use crate::context::{Context, Error};
use crate::jobs::outcome::{JobFact, Read};
use crate::runtime::metrics::{MaintenanceMode, MaintenanceResult, RepositoryKind};
use crate::runtime::write;
use holdfast_api::maintenance::{MaintenanceStatus, ManualRun, OwnershipStatus, RunStatus, TakeoverPolicy};
use holdfast_api::{conditions, names};
use holdfast_core::backoff;
use holdfast_core::maintenance::{Effort, Reason};
use holdfast_protocol::outcome::{FailureClass, OperationResult};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, PropagationPolicy};
use kube::runtime::events::EventType;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was made.
    Made {
        /// Bytes of storage freed.
        freed: u64,
        /// Bytes that a later run frees.
        marked: u64,
        /// Bytes in storage now.
        stored: Option<u64>,
        /// Who the repository says maintains it.
        owner: Option<String>,
    },
    /// Another maintains the repository.
    NotOwner(String),
    /// It failed.
    Failed(Reason, String),
}

/// Reads the end of a Job.
#[must_use]
pub fn ended(job: &JobFact) -> Ended {
    let outcome = match &job.read {
        Read::Unreadable(why) | Read::Silent(why) if job.job.ran_out_of_time() => {
            let message = format!(
                "It took longer than failurePolicy.activeDeadlineSeconds allows ({why}); what it had freed is free."
            );
            return Ended::Failed(Reason::MaintenanceFailed, message);
        }
        Read::Unreadable(why) | Read::Silent(why) => {
            let message = format!("The mover left no result: {why}.");
            return Ended::Failed(Reason::MaintenanceFailed, message);
        }
        Read::Outcome { outcome, .. } => outcome,
    };
    if let Some(failure) = &outcome.error {
        let reason = match failure.class {
            FailureClass::RepositoryReplaced => Reason::RepositoryReplaced,
            FailureClass::InvalidPassword
            | FailureClass::RepositoryNotInitialized
            | FailureClass::BackendUnreachable
            | FailureClass::SourceUnreadable
            | FailureClass::InvalidWork
            | FailureClass::OperationFailed
            | FailureClass::Unknown => Reason::MaintenanceFailed,
        };
        return Ended::Failed(reason, failure.message.clone());
    }
    match &outcome.result {
        OperationResult::Maintained {
            freed_bytes,
            marked_bytes,
            stored_bytes,
            owner,
        } => Ended::Made {
            freed: *freed_bytes,
            marked: *marked_bytes,
            stored: *stored_bytes,
            owner: owner.clone(),
        },
        OperationResult::NotOwner { owner } => Ended::NotOwner(owner.clone()),
        OperationResult::None
        | OperationResult::Bootstrapped { .. }
        | OperationResult::BackedUp { .. }
        | OperationResult::Listed { .. }
        | OperationResult::Pinned { .. }
        | OperationResult::Restore(_)
        | OperationResult::Batch { .. } => Ended::Failed(
            Reason::MaintenanceFailed,
            "The mover answered something else than was asked; are operator and mover of one release?".into(),
        ),
    }
}

/// What a Job was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Was {
    /// How much it did.
    pub effort: Effort,
    /// The annotation's value, when a person asked for it.
    pub request: Option<String>,
}

impl Was {
    /// Reads a Job's annotations.
    #[must_use]
    pub fn of(job: &JobFact) -> Self {
        Self {
            effort: match job.job.annotation(names::MAINTENANCE_MODE) {
                Some("quick") => Effort::Quick,
                _ => Effort::Full,
            },
            request: job.job.annotation(names::MAINTENANCE_REQUEST).map(str::to_owned),
        }
    }
}

/// `status.<effort>`, made when it is not there.
pub fn of(status: &mut MaintenanceStatus, effort: Effort) -> &mut RunStatus {
    match effort {
        Effort::Quick => status.quick.get_or_insert_default(),
        Effort::Full => status.full.get_or_insert_default(),
    }
}

/// Writes the end of a run into the status: pure.
pub fn apply(status: &mut MaintenanceStatus, was: &Was, ended: &Ended, now: Timestamp) {
    let bytes = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
    if let Some(value) = &was.request {
        status.manual_run = Some(ManualRun {
            requested_at: value.clone(),
            mode: was.effort.as_str().to_owned(),
            succeeded: matches!(ended, Ended::Made { .. }),
            message: match ended {
                Ended::Made { freed, marked, .. } => format!("Freed {freed} bytes, marked {marked} bytes."),
                Ended::NotOwner(owner) => format!("{owner} maintains the repository; nothing was done."),
                Ended::Failed(_, why) => why.clone(),
            },
        });
    }
    match ended {
        Ended::Made {
            freed,
            marked,
            stored,
            owner,
        } => {
            let run = of(status, was.effort);
            run.last_run_at = Some(whole);
            run.last_content_reclaimed_bytes = Some(bytes(*freed));
            run.last_content_marked_bytes = Some(bytes(*marked));
            status.stored_bytes = stored.map(bytes).or(status.stored_bytes);
            let since = status.ownership.as_ref();
            let since = since
                .filter(|o| Some(&o.owner) == owner.as_ref())
                .and_then(|o| o.claimed_at);
            status.ownership = owner.clone().map(|owner| OwnershipStatus {
                owner,
                claimed_at: since.or(Some(whole)),
            });
            done(status, was.effort, now);
        }
        Ended::NotOwner(owner) => {
            status.ownership = Some(OwnershipStatus {
                owner: owner.clone(),
                claimed_at: None,
            });
            done(status, was.effort, now);
        }
        // What a person asked for is not tried again by itself.
        Ended::Failed(..) if was.request.is_some() => {}
        Ended::Failed(_, why) => {
            let run = of(status, was.effort);
            run.consecutive_failures = run.consecutive_failures.saturating_add(1);
            run.last_error = Some(why.clone());
            run.next_attempt_at = Some(backoff::MAINTENANCE.next(run.consecutive_failures, now));
        }
    }
}

/// Due slots are done with: those of the effort, and of what it includes.
fn done(status: &mut MaintenanceStatus, effort: Effort, now: Timestamp) {
    let included: &[Effort] = match effort {
        Effort::Quick => &[Effort::Quick],
        Effort::Full => &[Effort::Quick, Effort::Full],
    };
    for effort in included {
        let run = of(status, *effort);
        run.consecutive_failures = 0;
        run.last_error = None;
        run.next_attempt_at = None;
        if let Some(due) = run.next_scheduled_at.filter(|due| *due <= now) {
            run.last_handled_at = Some(due);
        }
    }
}

/// Records the end of a run and removes its Job.
pub async fn record(ctx: &Context, observed: &Observed, job: &JobFact, now: Timestamp) -> Result<(), Error> {
    let before = observed.view.status.clone().unwrap_or_default();
    if before.recorded_job.as_deref() != Some(job.job.uid()) {
        tell(ctx, observed, job, now).await?;
    }
    if job.job.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    ctx.leadership.guard()?;
    let key = job.job.key();
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let policy = PropagationPolicy::Background;
    Ok(write::delete(&api, &key.name, job.job.uid(), None, policy).await?)
}

async fn tell(ctx: &Context, observed: &Observed, job: &JobFact, now: Timestamp) -> Result<(), Error> {
    let before = observed.view.status.clone().unwrap_or_default();
    let (was, ended) = (Was::of(job), ended(job));
    let generation = observed.view.metadata.generation;
    let (reason, sentence, owned) = match &ended {
        Ended::Made {
            freed, marked, owner, ..
        } => {
            let sentence = format!(
                "The last {} run freed {freed} bytes, and found {marked} bytes that a later one frees.",
                was.effort.as_str()
            );
            (Reason::Scheduled, sentence, owner.as_ref().map(|_| true))
        }
        Ended::NotOwner(owner) => {
            let reason = match takeover(observed) {
                TakeoverPolicy::PromptCondition => Reason::TakeoverNeeded,
                TakeoverPolicy::Never | TakeoverPolicy::Force | TakeoverPolicy::Unknown => {
                    Reason::LeftToOwner
                }
            };
            (reason, report::left_to(observed, owner), Some(false))
        }
        Ended::Failed(reason, why) => (*reason, format!("The last run failed: {why}"), None),
    };
    let uid = job.job.uid().to_owned();
    report::write(ctx, observed, reason, &sentence, now, |status| {
        apply(status, &was, &ended, now);
        status.recorded_job = Some(uid);
        if let Some(ours) = owned {
            let (word, text) = if ours {
                (
                    "LeaseOwned",
                    "The repository says that this Maintenance maintains it.",
                )
            } else {
                (reason.as_str(), sentence.as_str())
            };
            let list = &mut status.conditions;
            conditions::set(list, conditions::LEASE_OWNED, ours, word, text, generation, now);
        }
    })
    .await?;
    count(ctx, observed, &was, &ended);
    let known = conditions::get(&before.conditions, conditions::LEASE_OWNED);
    let failed_before = run_failures(&before, was.effort) > 0;
    let told = match &ended {
        Ended::Failed(..) if !failed_before => Some("ReadCondition"),
        Ended::NotOwner(_)
            if reason == Reason::TakeoverNeeded
                && known.is_none_or(|c| c.reason != Reason::TakeoverNeeded.as_str()) =>
        {
            Some("TakeOver")
        }
        Ended::Made { .. } | Ended::NotOwner(_) | Ended::Failed(..) => None,
    };
    if let Some(action) = told {
        let kind = EventType::Warning;
        ctx.event_maintenance(&observed.view, kind, reason.as_str(), &sentence, action)
            .await;
    }
    Ok(())
}

fn run_failures(status: &MaintenanceStatus, effort: Effort) -> u32 {
    let run = match effort {
        Effort::Quick => status.quick.as_ref(),
        Effort::Full => status.full.as_ref(),
    };
    run.map_or(0, |run| run.consecutive_failures)
}

fn count(ctx: &Context, observed: &Observed, was: &Was, ended: &Ended) {
    let Some(repository) = &observed.repository else {
        return;
    };
    let mode = match was.effort {
        Effort::Quick => MaintenanceMode::Quick,
        Effort::Full => MaintenanceMode::Full,
    };
    let (result, freed) = match ended {
        Ended::Made { freed, .. } => (MaintenanceResult::Succeeded, Some(*freed)),
        Ended::NotOwner(_) => (MaintenanceResult::LeftToOwner, None),
        Ended::Failed(..) => (MaintenanceResult::Failed, None),
    };
    let kind = RepositoryKind::from(&repository.key);
    ctx.metrics
        .maintained(kind, repository.key.name(), mode, result, freed);
}
