//! What a Plan is told of a run that was refused.
//!
//! **Promises.** One event per tick, however often the Plan's controller tries and whoever leads: its name is made from
//! the tick. When room appears while the tick is still due, the Plan is touched once, so that its controller tries at
//! once: left alone, its backoff was measured to delay the run by ten minutes or to drop it. A dry run tells nobody. A
//! job that is not named for a tick of about now is no scheduled run, whatever Plan it names: nobody is told but who
//! made it, so a tenant fills neither a Plan's events nor our memory.
//!
//! **Assumes.** A scheduled BackupJob is named `<plan>-<unix minutes of its tick>`, and its controller tries for 300 s.

use super::Gate;
use crate::runtime::events::{Events, Published};
use holdfast_api::backups::Plan;
use holdfast_api::names;
use holdfast_core::quota::gate::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long a Plan's controller goes on trying a tick.
const DUE: SignedDuration = SignedDuration::from_secs(300);
/// How long a tick is remembered, so that its event is not told again.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(20);
/// How far its controller's clock may be ahead of ours.
const AHEAD: SignedDuration = SignedDuration::from_mins(2);
/// Ticks of one namespace that are remembered at once; Plans are created by tenants.
const OF_NAMESPACE: usize = 100;
/// How often it is looked whether room has appeared.
const PAUSE: Duration = Duration::from_secs(2);
/// Refusals that wait to be told; more are dropped, the log has them all.
const WAITING: usize = 1_024;

/// A scheduled run that was refused.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Name of its Plan.
    pub plan: String,
    /// Name of the BackupJob.
    pub job: String,
    /// The decision's one word.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
    /// What was asked.
    pub request: Request,
}

/// Where refusals are told; cheap to clone.
#[derive(Clone)]
pub struct Plans(mpsc::Sender<Refused>);

impl Plans {
    /// A sender, and what it fills.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Refused>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Tells of a refusal; never waits.
    pub fn tell(&self, refused: Refused) {
        let _ = self.0.try_send(refused);
    }
}

/// A tick that was refused.
struct Tick {
    refused: Refused,
    /// Until when its controller tries.
    until: Timestamp,
    told_at: Timestamp,
    touched: bool,
}

/// Tells Plans of refusals and of room, until `end`. `touch` off: they are never written.
pub async fn run(
    gate: Arc<Gate>,
    mut refusals: mpsc::Receiver<Refused>,
    client: Client,
    events: Events,
    touch: bool,
    end: CancellationToken,
) {
    let mut desk = Desk {
        ticks: BTreeMap::new(),
        client: client.clone(),
        events,
        touch,
    };
    let mut look = tokio::time::interval(PAUSE);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = end.cancelled() => return,
            refused = refusals.recv() => match refused {
                Some(refused) => desk.hear(refused, Timestamp::now()).await,
                None => return,
            },
            _ = look.tick() => {
                let now = Timestamp::now();
                desk.ticks.retain(|_, tick| now.duration_since(tick.told_at) < REMEMBERED);
                if touch && gate.is_open() {
                    for tick in desk.ticks.values_mut().filter(|tick| wants_touch(tick, now)) {
                        if gate.has_room(&tick.refused.request) {
                            tick.touched = touch_plan(&client, &tick.refused, now).await;
                        }
                    }
                }
            }
        }
    }
}

fn wants_touch(tick: &Tick, now: Timestamp) -> bool {
    !tick.touched && now < tick.until
}

/// The ticks that were refused, by namespace and job, and what it takes to tell of them.
struct Desk {
    ticks: BTreeMap<(String, String), Tick>,
    client: Client,
    events: Events,
    touch: bool,
}

impl Desk {
    async fn hear(&mut self, refused: Refused, now: Timestamp) {
        let key = (refused.request.namespace.clone(), refused.job.clone());
        if let Some(tick) = self.ticks.get_mut(&key) {
            // Refused again after it was touched: somebody else took the room. It may be touched again.
            tick.touched = false;
            tick.refused = refused;
            return;
        }
        let Some(at) = tick_of(&refused.plan, &refused.job).filter(|at| is_of_now(*at, now)) else {
            return;
        };
        let until = at.checked_add(DUE).unwrap_or(at);
        let of_namespace = self.ticks.keys().filter(|(namespace, _)| *namespace == key.0);
        if of_namespace.count() >= OF_NAMESPACE {
            tracing::debug!(
                namespace = key.0,
                job = key.1,
                "too many refused runs to tell them all"
            );
            return;
        }
        if !tell(&self.client, &self.events, &refused, self.touch && now < until).await {
            return;
        }
        let tick = Tick {
            refused,
            until,
            told_at: now,
            touched: false,
        };
        self.ticks.insert(key, tick);
    }
}

/// Whether a run of this tick can be refused now: its controller does not try for longer, and not before.
fn is_of_now(tick: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(tick);
    age < REMEMBERED && -age <= AHEAD
}

/// The tick that a scheduled job's name stands for.
fn tick_of(plan: &str, job: &str) -> Option<Timestamp> {
    let minutes = job.strip_prefix(plan)?.strip_prefix('-')?;
    if !minutes.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let minutes: i64 = minutes.parse().ok()?;
    Timestamp::from_second(minutes.checked_mul(60)?).ok()
}

/// The name of the one event about this run of this Plan.
fn event_name(plan: &str, uid: &str, job: &str) -> String {
    let mut digest = Sha256::new();
    for part in [uid, "/", job] {
        digest.update(part);
    }
    let tag: String = digest
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let plan: String = plan.chars().take(200).collect();
    format!("{}.{tag}", plan.trim_end_matches(['-', '.']))
}

/// Tells a Plan, if it exists; whether it does. `touched`: it is touched when room appears.
async fn tell(client: &Client, events: &Events, refused: &Refused, touched: bool) -> bool {
    let namespace = &refused.request.namespace;
    let plans: Api<Plan> = Api::namespaced(client.clone(), namespace);
    let plan = match plans.get_opt(&refused.plan).await {
        Ok(Some(plan)) => plan,
        Ok(None) => return false,
        Err(error) => {
            tracing::warn!(%error, namespace, plan = refused.plan, "a refused run could not be told to its Plan");
            return false;
        }
    };
    let about = ObjectReference {
        api_version: Some(format!("{}/v1alpha1", names::BACKUPS_GROUP)),
        kind: Some("Plan".to_owned()),
        name: Some(plan.name_any()),
        namespace: Some(namespace.clone()),
        uid: plan.uid(),
        resource_version: plan.resource_version(),
        field_path: None,
    };
    let name = event_name(&refused.plan, &plan.uid().unwrap_or_default(), &refused.job);
    let note = note(&refused.job, &refused.message, touched);
    match events
        .publish_once(&name, &about, refused.reason, &note, "CreateBackupJob")
        .await
    {
        Published::Yes | Published::NamespaceTerminating | Published::No => {}
    }
    true
}

/// What the Plan is told: no more than what is done.
fn note(job: &str, message: &str, touched: bool) -> String {
    let again = if touched {
        "It is tried again at the next tick, and before if room appears in the next minutes"
    } else {
        "It is tried again at the next tick"
    };
    format!("the scheduled backup {job} was refused: {message}. {again}")
}

/// Writes one annotation of ours, so that the Plan's controller looks again.
async fn touch_plan(client: &Client, refused: &Refused, now: Timestamp) -> bool {
    let plans: Api<Plan> = Api::namespaced(client.clone(), &refused.request.namespace);
    let patch = json!({ "metadata": { "annotations": { names::ROOM_APPEARED_AT: now.to_string() } } });
    let touched = plans
        .patch_metadata(&refused.plan, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    match touched {
        Ok(_) => {
            tracing::info!(
                namespace = refused.request.namespace,
                plan = refused.plan,
                job = refused.job,
                "room has appeared: the Plan was touched"
            );
            true
        }
        // Gone, or not ours to write: nothing to try again.
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => true,
        Err(error) => {
            tracing::warn!(%error, plan = refused.plan, "a Plan could not be touched; trying again");
            false
        }
    }
}

#[cfg(test)]
mod tests;
