//! The lock of a lane: a Lease in the operator's namespace that names the batch Job (`docs/design.md` 3.6), and keeps
//! the lane's own memory of a hold (3.4).
//!
//! **Promises.** It is written with the resourceVersion that was read, or created; whoever comes second meets a
//! conflict. A process that did not write it last rewrites it before it does anything else to the lane, so that
//! what a former leader had begun ends in a conflict.
//!
//! **Assumes.** A Job that the Lease names and that does not exist was never created, or is reaped: then the lane
//! is free. The caller looks for the Job live.

use crate::context::{Context, Error};
use crate::jobs::{name_repository, parse_repository};
use crate::runtime::leader::{NotLeader, Standing};
use crate::world::keys::ObjectKey;
use holdfast_api::names;
use holdfast_core::deletion::LaneLatch;
use holdfast_core::deletion::names::lane_lease_name;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the engine in the Lease's name.
const ENGINE: &str = "Restic";

/// A lane's lock, held by this process in this term, or not existing yet.
#[derive(Debug, Clone)]
pub struct Lock {
    unique_id: String,
    lease: Option<Lease>,
}

impl Lock {
    /// The Job it names.
    #[must_use]
    pub fn job(&self) -> Option<ObjectKey> {
        named_job(self.lease.as_ref()?)
    }

    /// Since when a batch waits for writers.
    #[must_use]
    pub fn waiting_since(&self) -> Option<Timestamp> {
        self.time(names::LANE_WAITING_SINCE)
    }

    /// When the last batch ended; recorded only where writers go first after one.
    #[must_use]
    pub fn batch_ended(&self) -> Option<Timestamp> {
        self.time(names::LANE_BATCH_ENDED)
    }

    fn time(&self, annotation: &str) -> Option<Timestamp> {
        let annotations = self.lease.as_ref()?.metadata.annotations.as_ref()?;
        annotations.get(annotation)?.parse().ok()
    }
}

/// What a lock says after a write.
#[derive(Debug, Clone, Copy)]
pub enum Says<'a> {
    /// As before: it changes hands.
    Same,
    /// This Job is about to be created; nothing waits any more.
    Job(&'a ObjectKey),
    /// No Job. With a time: a batch ended then, and writers go first.
    Free(Option<Timestamp>),
    /// A batch waits for writers since then; none: it does not any more.
    Waits(Option<Timestamp>),
}

impl Lock {
    /// What the lane remembers of a hold. One that cannot be read holds everything that is pending: a person decides.
    #[must_use]
    pub fn latch(&self) -> Option<LaneLatch> {
        let annotations = self.lease.as_ref()?.metadata.annotations.as_ref()?;
        let text = annotations.get(names::LANE_LATCH)?;
        let kept: KeptLatch = serde_json::from_str(text).unwrap_or_else(|error| {
            tracing::warn!(lane = %self.unique_id, %error, "what the lane remembers of a hold cannot be read; everything pending counts as held");
            KeptLatch {
                held_through: Some(Timestamp::MAX),
                thresholds: BTreeMap::new(),
            }
        });
        let thresholds = kept.thresholds.into_iter();
        Some(LaneLatch {
            held_through: kept.held_through,
            thresholds: thresholds
                .filter_map(|(name, threshold)| Some((parse_repository(&name)?, threshold)))
                .collect(),
        })
    }
}

/// A [`LaneLatch`] as the Lease keeps it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptLatch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held_through: Option<Timestamp>,
    #[serde(default)]
    thresholds: BTreeMap<String, u32>,
}

/// Writes what the lane remembers of a hold, or that it remembers nothing.
///
/// # Errors
/// [`Error`]; a conflict when somebody else wrote the lock since it was read.
pub async fn remember(
    ctx: &Context,
    lock: &Lock,
    latch: Option<&LaneLatch>,
    now: Timestamp,
) -> Result<Lock, Error> {
    let mut changed = lock.clone();
    let kept = latch.map(|latch| KeptLatch {
        held_through: latch.held_through,
        thresholds: latch
            .thresholds
            .iter()
            .map(|(key, threshold)| (name_repository(key), *threshold))
            .collect(),
    });
    let text = kept
        .map(|kept| serde_json::to_string(&kept).map_err(crate::jobs::build::BuildError::from))
        .transpose()?;
    let mut wanted = wanted(ctx, lock, Says::Same, me(ctx)?, now);
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    match text {
        Some(text) => annotations.insert(names::LANE_LATCH.to_owned(), text),
        None => annotations.remove(names::LANE_LATCH),
    };
    changed.lease = Some(store(ctx, lock, &wanted).await?);
    Ok(changed)
}

async fn store(ctx: &Context, lock: &Lock, wanted: &Lease) -> Result<Lease, Error> {
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    ctx.leadership.guard()?;
    Ok(if lock.lease.is_some() {
        let name = lane_lease_name(ENGINE, &lock.unique_id);
        api(ctx).replace(&name, &params, wanted).await?
    } else {
        api(ctx).create(&params, wanted).await?
    })
}

fn named_job(lease: &Lease) -> Option<ObjectKey> {
    let named = lease.metadata.annotations.as_ref()?.get(names::LANE_JOB)?;
    let (namespace, name) = named.split_once('/')?;
    Some(ObjectKey::new(namespace, name))
}

/// Who writes: this process in this term of its leadership.
fn me(ctx: &Context) -> Result<String, Error> {
    Ok(format!("{}#{}", ctx.identity, term(ctx)?))
}

/// The number of this term of our leadership.
///
/// # Errors
/// When we do not lead.
pub fn term(ctx: &Context) -> Result<u64, Error> {
    match *ctx.leadership.changed().borrow() {
        Standing::Leader { term } => Ok(term),
        Standing::Standby => Err(NotLeader.into()),
    }
}

fn api(ctx: &Context) -> Api<Lease> {
    Api::namespaced(ctx.client.clone(), &ctx.settings.namespace)
}

/// Reads a lane's lock, and takes it over if somebody else wrote it last.
///
/// # Errors
/// [`Error`]; a conflict when somebody wrote it meanwhile.
pub async fn hold(ctx: &Context, unique_id: &str, now: Timestamp) -> Result<Lock, Error> {
    let me = me(ctx)?;
    let name = lane_lease_name(ENGINE, unique_id);
    let lock = Lock {
        unique_id: unique_id.to_owned(),
        lease: api(ctx).get_opt(&name).await?,
    };
    let holder = lock
        .lease
        .as_ref()
        .map(|l| l.spec.as_ref().and_then(|s| s.holder_identity.clone()));
    match holder {
        None => Ok(lock),
        Some(holder) if holder.as_deref() == Some(&me) => Ok(lock),
        Some(_) => write(ctx, &lock, Says::Same, now).await,
    }
}

/// The Job that a lane's lock names, for one who only asks.
///
/// # Errors
/// [`Error`].
pub async fn named(ctx: &Context, unique_id: &str) -> Result<Option<ObjectKey>, Error> {
    let found = api(ctx).get_opt(&lane_lease_name(ENGINE, unique_id)).await?;
    Ok(found.as_ref().and_then(named_job))
}

/// Since when a batch of the lane waits for those who write, for one who only asks.
///
/// # Errors
/// [`Error`].
pub async fn waits(ctx: &Context, unique_id: &str) -> Result<Option<Timestamp>, Error> {
    Ok(read(ctx, unique_id).await?.waiting_since())
}

/// When something of a lane was last let go that could not be remembered.
///
/// # Errors
/// [`Error`].
pub async fn incomplete(ctx: &Context, unique_id: &str) -> Result<Option<Timestamp>, Error> {
    Ok(read(ctx, unique_id).await?.time(names::LANE_KEPT_INCOMPLETE))
}

/// Writes since when something is not remembered, or that nothing of that is left; the lock as it is then. `lock` is the one
/// that this pass holds, if it holds one.
///
/// # Errors
/// [`Error`]; a conflict when somebody else wrote the lock since it was read.
pub async fn say_incomplete(
    ctx: &Context,
    lock: Option<&Lock>,
    unique_id: &str,
    at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Lock, Error> {
    let lock = match lock {
        Some(lock) => lock.clone(),
        None => read(ctx, unique_id).await?,
    };
    let mut wanted = wanted(ctx, &lock, Says::Same, me(ctx)?, now);
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    match at {
        Some(at) => annotations.insert(names::LANE_KEPT_INCOMPLETE.to_owned(), at.to_string()),
        None => annotations.remove(names::LANE_KEPT_INCOMPLETE),
    };
    let stored = store(ctx, &lock, &wanted).await?;
    Ok(Lock {
        unique_id: lock.unique_id,
        lease: Some(stored),
    })
}

async fn read(ctx: &Context, unique_id: &str) -> Result<Lock, Error> {
    Ok(Lock {
        unique_id: unique_id.to_owned(),
        lease: api(ctx).get_opt(&lane_lease_name(ENGINE, unique_id)).await?,
    })
}

/// Writes what the lock says.
///
/// # Errors
/// [`Error`]; a conflict when somebody else wrote it since it was read.
pub async fn write(ctx: &Context, lock: &Lock, says: Says<'_>, now: Timestamp) -> Result<Lock, Error> {
    let wanted = wanted(ctx, lock, says, me(ctx)?, now);
    let stored = store(ctx, lock, &wanted).await?;
    Ok(Lock {
        unique_id: lock.unique_id.clone(),
        lease: Some(stored),
    })
}

fn wanted(ctx: &Context, lock: &Lock, says: Says<'_>, me: String, now: Timestamp) -> Lease {
    let before = lock.lease.clone().unwrap_or_default();
    let spec = before.spec.unwrap_or_default();
    let changes_hands = spec.holder_identity.as_deref() != Some(&me);
    let mut annotations = before.metadata.annotations.unwrap_or_default();
    annotations.insert(names::DELETE_UNIQUE_ID.to_owned(), lock.unique_id.clone());
    let mut set = |name: &str, value: Option<String>| match value {
        Some(value) => _ = annotations.insert(name.to_owned(), value),
        None => _ = annotations.remove(name),
    };
    match says {
        Says::Same => {}
        Says::Job(job) => {
            set(names::LANE_JOB, Some(job.to_string()));
            set(names::LANE_WAITING_SINCE, None);
        }
        Says::Free(ended) => {
            set(names::LANE_JOB, None);
            if let Some(ended) = ended {
                set(names::LANE_BATCH_ENDED, Some(ended.to_string()));
            }
        }
        Says::Waits(since) => set(names::LANE_WAITING_SINCE, since.map(|t| t.to_string())),
    }
    let mut labels = before.metadata.labels.unwrap_or_default();
    labels.insert(names::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned());
    let transitions = spec.lease_transitions.unwrap_or_default();
    Lease {
        metadata: ObjectMeta {
            name: Some(lane_lease_name(ENGINE, &lock.unique_id)),
            namespace: Some(ctx.settings.namespace.clone()),
            resource_version: before.metadata.resource_version,
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(me),
            acquire_time: if changes_hands {
                Some(MicroTime(now))
            } else {
                spec.acquire_time
            },
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(transitions.saturating_add(i32::from(changes_hands))),
            ..LeaseSpec::default()
        }),
    }
}
