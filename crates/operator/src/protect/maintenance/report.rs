//! What a Maintenance says about itself.

use super::observe::Observed;
use crate::context::{Context, Error};
use crate::jobs::outcome::{JobFact, Read};
use crate::runtime::{diff, write as api};
use holdfast_api::maintenance::{Maintenance, MaintenanceStatus, TakeoverPolicy};
use holdfast_api::{conditions, names};
use holdfast_core::maintenance::{Means, Reason};
use jiff::Timestamp;
use kube::api::Api;

/// Writes the status if it changes, against the judged resourceVersion. True when something was written.
pub async fn write(
    ctx: &Context,
    observed: &Observed,
    reason: Reason,
    sentence: &str,
    now: Timestamp,
    change: impl FnOnce(&mut MaintenanceStatus),
) -> Result<bool, Error> {
    let view = &observed.view;
    let before = view.status.clone().unwrap_or_default();
    let mut status = before.clone();
    change(&mut status);
    let generation = view.metadata.generation;
    status.observed_generation = generation;
    let all = conditions::Kstatus {
        ready: reason.means() == Means::Ready,
        reconciling: reason.means() == Means::Reconciling,
        stalled: reason.means() == Means::Stalled,
    };
    all.set(&mut status.conditions, reason.as_str(), sentence, generation, now);
    let Some(patch) = diff::merge_patch(&before, &status) else {
        return Ok(false);
    };
    ctx.leadership.guard()?;
    let key = &observed.key;
    let maintenances: Api<Maintenance> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    api::patch_status(&maintenances, &key.name, version, patch).await?;
    Ok(true)
}

/// A Job that has not ended.
pub fn running(job: &JobFact) -> String {
    let key = job.job.key();
    match &job.read {
        Read::Unreadable(why) | Read::Silent(why) => format!("Job {key} runs; {why}."),
        Read::Outcome { .. } => format!("Job {key} runs."),
    }
}

/// Another maintains the repository: what a person can do.
pub fn left_to(observed: &Observed, owner: &str) -> String {
    let ownership = observed.view.spec.ownership.as_ref();
    match ownership.map(|o| o.takeover_policy).unwrap_or_default() {
        TakeoverPolicy::PromptCondition => {
            let patch = r#"{"spec":{"ownership":{"takeoverPolicy":"Force"}}}"#;
            let of_group = format!("maintenances.{}", names::GROUP);
            format!(
                "The repository says that {owner} maintains it. If that one is gone for good: kubectl patch {of_group} -n {} {} --type merge -p '{patch}'. If not, delete this Maintenance.",
                observed.key.namespace, observed.key.name
            )
        }
        TakeoverPolicy::Never | TakeoverPolicy::Force | TakeoverPolicy::Unknown => {
            format!("The repository says that {owner} maintains it, and it is left to them.")
        }
    }
}
