//! Beginning a run, and saying what is waited for.

use super::observe::{Observed, run_status, scheduled_with};
use super::{live, record, report};
use crate::context::{Context, Error};
use crate::jobs::build::{Mover, Storage};
use crate::jobs::create::{Created, create};
use crate::jobs::job_name;
use crate::protect::{repository, wave};
use crate::runtime::queue::Next;
use crate::world::views::{JobState, RepositoryView};
use holdfast_api::maintenance::{ManualRun, TakeoverPolicy};
use holdfast_api::{conditions, names};
use holdfast_core::deletion::names::repository_label;
use holdfast_core::maintenance::{Choice, Effort, Plan, Reason, decide};
use holdfast_protocol::work::{self, Claim, Operation, WorkDocument};
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::events::EventType;
use std::collections::BTreeMap;
use std::time::Duration;

/// How soon what ends without an event of ours is looked at again.
const AGAIN: Duration = Duration::from_secs(10);
/// How soon a run under way is looked at again when no event comes.
const RUNNING_AGAIN: Duration = Duration::from_secs(30);
/// Seconds that a run may take when nothing else is said. A delete batch waits for it that long at most.
const QUICK_SECONDS: i64 = 3_600;
const FULL_SECONDS: i64 = 6 * 3_600;
/// Retries of the mover when nothing else is said.
const RETRIES: i32 = 2;

/// Decides and carries out.
pub async fn carry_out(ctx: &Context, observed: &Observed, now: Timestamp) -> Result<Next, Error> {
    if let Some(job) = &observed.job {
        return match job.state {
            JobState::Waiting | JobState::Active => {
                let sentence = report::running(job);
                report::write(ctx, observed, Reason::MaintenanceRunning, &sentence, now, |_| {}).await?;
                Ok(Next::After(RUNNING_AGAIN))
            }
            JobState::Succeeded | JobState::Failed => {
                record::record(ctx, observed, job, now).await?;
                Ok(Next::Settled)
            }
        };
    }
    if !observed.refusals.is_empty() {
        let sentence = observed.refusals.join("; ");
        report::write(ctx, observed, Reason::InvalidSpec, &sentence, now, |_| {}).await?;
        return Ok(Next::Settled);
    }
    if let Some((value, why)) = &observed.bad_request {
        return refuse_request(ctx, observed, value, why, now).await;
    }
    let decided = match &observed.facts {
        Ok(facts) => decide(facts, now).map_err(|error| error.to_string()),
        Err(why) => Err(why.clone()),
    };
    let plan = match decided {
        Ok(plan) => plan,
        Err(why) => {
            report::write(ctx, observed, Reason::InvalidSchedule, &why, now, |_| {}).await?;
            return Ok(Next::Settled);
        }
    };
    // The pins are recorded before anything depends on them; that write brings the object back.
    let wait = plan.wait.unwrap_or_else(|| standing(observed));
    let pinned = report::write(ctx, observed, wait, &sentence(observed, wait), now, |status| {
        for (effort, at) in [(Effort::Quick, plan.quick), (Effort::Full, plan.full)] {
            let run = record::of(status, effort);
            run.next_scheduled_at = Some(at);
            run.scheduled_with = Some(scheduled_with(&observed.view, effort));
        }
    })
    .await?;
    match (plan.run, &observed.repository) {
        (Some(_), Some(_)) if pinned => Ok(Next::After(Duration::from_millis(200))),
        (Some(choice), Some(view)) => begin(ctx, observed, view, choice, now).await,
        (Some(_), None) | (None, _) => Ok(again(&plan, now)),
    }
}

/// A request that cannot be read is told once and counts as answered.
async fn refuse_request(
    ctx: &Context,
    observed: &Observed,
    value: &str,
    why: &str,
    now: Timestamp,
) -> Result<Next, Error> {
    let note = format!("The annotation run-requested: {value:?} is not carried out: {why}.");
    let run = ManualRun {
        requested_at: value.to_owned(),
        mode: String::new(),
        succeeded: false,
        message: note.clone(),
    };
    let reason = standing(observed);
    let written = report::write(
        ctx,
        observed,
        reason,
        &sentence(observed, reason),
        now,
        |status| status.manual_run = Some(run),
    )
    .await?;
    if written {
        ctx.event_maintenance(
            &observed.view,
            EventType::Warning,
            "InvalidRunRequest",
            &note,
            "CorrectAnnotation",
        )
        .await;
    }
    Ok(Next::After(AGAIN))
}

fn again(plan: &Plan, now: Timestamp) -> Next {
    let wake = plan
        .wake_at
        .map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default())
        .map(|wait| wait.max(Duration::from_millis(100)));
    match (plan.wait, wake) {
        (Some(_), Some(wake)) => Next::After(wake.min(AGAIN)),
        (Some(_), None) => Next::After(AGAIN),
        (None, Some(wake)) => Next::After(wake),
        (None, None) => Next::Settled,
    }
}

/// What it is when nothing is due.
fn standing(observed: &Observed) -> Reason {
    let status = observed.view.status.clone().unwrap_or_default();
    let owned = conditions::get(&status.conditions, conditions::LEASE_OWNED);
    if owned.is_none_or(|c| c.status != "False") {
        return Reason::Scheduled;
    }
    match takeover(observed) {
        TakeoverPolicy::PromptCondition => Reason::TakeoverNeeded,
        TakeoverPolicy::Never | TakeoverPolicy::Force | TakeoverPolicy::Unknown => Reason::LeftToOwner,
    }
}

/// `spec.ownership.takeoverPolicy`.
pub fn takeover(observed: &Observed) -> TakeoverPolicy {
    let ownership = observed.view.spec.ownership.as_ref();
    ownership.map(|o| o.takeover_policy).unwrap_or_default()
}

fn sentence(observed: &Observed, reason: Reason) -> String {
    if let Some(sentence) = &observed.sentence {
        return sentence.clone();
    }
    if reason == Reason::MaintenanceFailed {
        let failed = [Effort::Full, Effort::Quick]
            .into_iter()
            .map(|effort| run_status(&observed.view, effort))
            .find(|run| run.last_error.is_some());
        if let Some(run) = failed {
            let next = run.next_attempt_at.map(|at| at.to_string()).unwrap_or_default();
            return format!(
                "The last run failed: {} It is tried again at {next}.",
                run.last_error.unwrap_or_default()
            );
        }
    }
    if matches!(reason, Reason::LeftToOwner | Reason::TakeoverNeeded) {
        let status = observed.view.status.clone().unwrap_or_default();
        if let Some(owner) = status.ownership {
            return report::left_to(observed, &owner.owner);
        }
    }
    reason.meaning().to_owned()
}

/// The name that is to stand in the repository.
fn owner_name(ctx: &Context, observed: &Observed) -> String {
    let ownership = observed.view.spec.ownership.as_ref();
    ownership
        .and_then(|o| o.owner.clone())
        .unwrap_or_else(|| format!("holdfast@{}", ctx.cluster))
}

async fn begin(
    ctx: &Context,
    observed: &Observed,
    view: &RepositoryView,
    choice: Choice,
    now: Timestamp,
) -> Result<Next, Error> {
    let id = view.unique_id().unwrap_or_default();
    // Held until CREATE: a batch that asks meanwhile finds this Job, or this run finds that batch.
    let gate = ctx.gates.maintenance(id);
    let _gate = gate.lock().await;
    let obstacle = if wave::is_deleting(ctx, id).await? {
        Some((
            Reason::DeletionsRunning,
            Reason::DeletionsRunning.meaning().to_owned(),
        ))
    } else {
        live(ctx, id).await?.map(|other| {
            let sentence = format!("The {other} maintains the repository. The run begins when it has ended.");
            (Reason::OtherMaintenanceRunning, sentence)
        })
    };
    if let Some((reason, sentence)) = obstacle {
        report::write(ctx, observed, reason, &sentence, now, |_| {}).await?;
        return Ok(Next::After(AGAIN));
    }
    let mover = mover(ctx, observed, view, choice);
    let named = format!("{}/{}", mover.namespace, mover.name);
    let (reason, sentence) = match create(ctx, &mover).await {
        Ok(Created::Yes(_)) => {
            tracing::info!(maintenance = %observed.key, job = named, "a maintenance Job was created");
            let reason = Reason::MaintenanceRunning;
            report::write(ctx, observed, reason, &format!("Job {named} runs."), now, |_| {}).await?;
            return Ok(Next::After(RUNNING_AGAIN));
        }
        Ok(Created::Exists) => (
            Reason::JobNameTaken,
            format!("Job {named} exists and is not of this Maintenance; the run begins when it is gone."),
        ),
        Ok(Created::NoPlace) => (Reason::NoPlaceToRun, Reason::NoPlaceToRun.meaning().to_owned()),
        Err(error) if error.is_refusal() => (
            Reason::JobRefused,
            format!("The API server does not take Job {named}: {error}"),
        ),
        Err(error) => return Err(error),
    };
    report::write(ctx, observed, reason, &sentence, now, |_| {}).await?;
    Ok(Next::After(AGAIN))
}

fn mover(ctx: &Context, observed: &Observed, view: &RepositoryView, choice: Choice) -> Mover {
    let Observed { key, view: own, .. } = observed;
    let (letter, effort, seconds) = match choice.effort {
        Effort::Quick => ('q', work::Effort::Quick, QUICK_SECONDS),
        Effort::Full => ('f', work::Effort::Full, FULL_SECONDS),
    };
    let slot = TimeZone::UTC
        .to_datetime(choice.slot)
        .strftime("%Y%m%d%H%M%S")
        .to_string();
    let mut annotations = BTreeMap::from([
        (
            names::MAINTAINS.to_owned(),
            view.unique_id().unwrap_or_default().to_owned(),
        ),
        (names::MAINTENANCE_SLOT.to_owned(), choice.slot.to_string()),
        (
            names::MAINTENANCE_MODE.to_owned(),
            choice.effort.as_str().to_owned(),
        ),
    ]);
    let asked = own.metadata.annotations.as_ref();
    if let Some(value) = asked
        .and_then(|a| a.get(names::RUN_REQUESTED))
        .filter(|_| choice.asked)
    {
        annotations.insert(names::MAINTENANCE_REQUEST.to_owned(), value.clone());
    }
    let failure = own.spec.failure_policy.clone().unwrap_or_default();
    let password = &view.spec.encryption.password_secret_ref;
    Mover {
        name: job_name(&format!("{}-{letter}-{slot}", key.name)),
        namespace: key.namespace.clone(),
        op: names::OP_MAINTENANCE,
        owner_uid: own.metadata.uid.clone().unwrap_or_default(),
        works_for: key.name.clone(),
        owner: Some(OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: "Maintenance".to_owned(),
            name: key.name.clone(),
            uid: own.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(false),
        }),
        document: WorkDocument {
            version: holdfast_protocol::VERSION,
            cluster: ctx.cluster.clone(),
            repository: repository::access(view),
            operation: Operation::Maintain {
                effort,
                claim: Claim {
                    owner: owner_name(ctx, observed),
                    take_over: takeover(observed) == TakeoverPolicy::Force,
                },
            },
            results: None,
        },
        image: ctx.settings.mover_image.clone(),
        pull_policy: ctx.settings.mover_pull_policy.clone(),
        settings: view.mover_defaults(),
        storage: Storage::of(view),
        secret: password.name.clone(),
        secret_key: password.key.clone(),
        sources: Vec::new(),
        backoff_limit: failure.backoff_limit.unwrap_or(RETRIES),
        active_deadline_seconds: failure.active_deadline_seconds.unwrap_or(seconds),
        labels: BTreeMap::from([(
            names::MAINTENANCE_REPO_LABEL.to_owned(),
            repository_label(&view.key),
        )]),
        annotations,
    }
}
