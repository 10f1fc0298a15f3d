//! What a Plan is told of a run that was refused.
//!
//! **Promises.** One event per tick, however often the Plan's controller tries. When room appears while the tick is
//! still due, the Plan is touched once, so that its controller tries at once: left alone, its backoff was measured to
//! delay the run by ten minutes or to drop it. A dry run tells nobody.
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
use kube::runtime::events::EventType;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long a Plan's controller goes on trying a tick.
const DUE: SignedDuration = SignedDuration::from_secs(300);
/// How long a tick is remembered, so that its event is not told again.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(20);
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
    /// Until when its controller tries; none if the name tells no tick.
    until: Option<Timestamp>,
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
    let mut ticks: BTreeMap<(String, String), Tick> = BTreeMap::new();
    let mut look = tokio::time::interval(PAUSE);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = end.cancelled() => return,
            refused = refusals.recv() => match refused {
                Some(refused) => hear(&mut ticks, refused, &client, &events).await,
                None => return,
            },
            _ = look.tick() => {
                let now = Timestamp::now();
                ticks.retain(|_, tick| now.duration_since(tick.told_at) < REMEMBERED);
                if touch && gate.is_open() {
                    for tick in ticks.values_mut().filter(|tick| wants_touch(tick, now)) {
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
    !tick.touched && tick.until.is_some_and(|until| now < until)
}

async fn hear(
    ticks: &mut BTreeMap<(String, String), Tick>,
    refused: Refused,
    client: &Client,
    events: &Events,
) {
    let key = (refused.request.namespace.clone(), refused.job.clone());
    if let Some(tick) = ticks.get_mut(&key) {
        // Refused again after it was touched: somebody else took the room. It may be touched again.
        tick.touched = false;
        tick.refused = refused;
        return;
    }
    let until = tick_of(&refused.plan, &refused.job).and_then(|tick| tick.checked_add(DUE).ok());
    tell(client, events, &refused).await;
    let tick = Tick {
        refused,
        until,
        told_at: Timestamp::now(),
        touched: false,
    };
    ticks.insert(key, tick);
}

/// The tick that a scheduled job's name stands for.
fn tick_of(plan: &str, job: &str) -> Option<Timestamp> {
    let minutes: i64 = job.strip_prefix(plan)?.strip_prefix('-')?.parse().ok()?;
    Timestamp::from_second(minutes.checked_mul(60)?).ok()
}

async fn tell(client: &Client, events: &Events, refused: &Refused) {
    let namespace = &refused.request.namespace;
    let plans: Api<Plan> = Api::namespaced(client.clone(), namespace);
    let plan = match plans.get_opt(&refused.plan).await {
        Ok(Some(plan)) => plan,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%error, namespace, plan = refused.plan, "a refused run could not be told to its Plan");
            return;
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
    let note = format!(
        "the scheduled backup {} was refused: {}. It is tried again at the next tick, and before if room appears in \
         the next minutes",
        refused.job, refused.message
    );
    match events
        .publish(
            &about,
            EventType::Warning,
            refused.reason,
            &note,
            "CreateBackupJob",
        )
        .await
    {
        Published::Yes | Published::NamespaceTerminating | Published::No => {}
    }
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
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_scheduled_job_tells_its_tick() {
        let tick = tick_of("shop-daily", "shop-daily-29790000").expect("a tick");
        assert_eq!(tick.as_second(), 29_790_000 * 60);
        for other in [
            "shop-daily",
            "shop-daily-x",
            "other-29790000",
            "shop-daily-99999999999999999",
        ] {
            assert_eq!(tick_of("shop-daily", other), None, "{other}");
        }
    }
}
