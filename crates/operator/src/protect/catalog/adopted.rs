//! One adopted Snapshot: the object that a policy has instead of a row, and its status: pure.
//!
//! **Promises.** Its name depends on nothing but the policy, the repository object and the snapshot, so that making it
//! twice is harmless. It has our finalizer from the first moment, as everything that a policy has. What it records is
//! what the listing says and nothing more.

use super::adopt::Taken;
use super::row;
use crate::jobs::job_name;
use crate::world::keys::{self, ObjectKey};
use crate::world::views::{RepositoryView, SnapshotSpecView, SnapshotStatusView, SnapshotView};
use holdfast_api::shared::{Identity, Origin, PolicyRef};
use holdfast_api::snapshot::{
    PinStatus, RecordedSnapshot, Resolved, ResolvedSource, Snapshot, SnapshotPhase, SnapshotSpec, Timing,
};
use holdfast_api::{conditions, names};
use holdfast_protocol::chunks::ListedSnapshot;
use jiff::Timestamp;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Reason of its condition Ready.
pub const ADOPTED: &str = "SnapshotAdopted";

/// Its key: the policy, when it was taken, and a hash that makes it unique.
#[must_use]
pub fn key(repository: &RepositoryView, taken: &Taken<'_>) -> ObjectKey {
    let policy = ObjectKey::of(taken.policy.as_ref());
    let text = format!("{}/adopted/{}", repository.uid(), taken.listed.snapshot_id);
    let hash: String = Sha256::digest(text)
        .iter()
        .take(6)
        .map(|b| format!("{b:02x}"))
        .collect();
    let whose: String = policy.name.chars().take(32).collect();
    let whose = whose.trim_end_matches(['-', '.']);
    let when = taken.listed.start_time.strftime("%Y%m%d%H%M%S");
    ObjectKey::new(policy.namespace, format!("{whose}-{when}-{hash}"))
}

/// The object.
#[must_use]
pub fn object(repository: &RepositoryView, taken: &Taken<'_>) -> Snapshot {
    let key = key(repository, taken);
    let policy = taken.policy.metadata.name.clone().unwrap_or_default();
    let labels = [
        (names::ORIGIN_LABEL, Origin::Adopted.as_str().to_owned()),
        (names::CONFIG_LABEL, job_name(&policy)),
        (names::SNAPSHOT_ID_LABEL, row::label(&taken.listed.snapshot_id)),
        (names::REPOSITORY_UID_LABEL, repository.uid().to_owned()),
        (names::MANAGED_BY_LABEL, names::MANAGED_BY.to_owned()),
    ];
    Snapshot {
        metadata: ObjectMeta {
            name: Some(key.name),
            namespace: Some(key.namespace),
            labels: Some(labels.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            finalizers: Some(vec![names::FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: SnapshotSpec {
            policy_ref: Some(PolicyRef {
                name: policy,
                namespace: None,
            }),
            deletion_policy: Some(taken.gives),
            pin: taken.pinned,
            ..SnapshotSpec::default()
        },
        status: None,
    }
}

/// What stands for its UID before there is one.
#[must_use]
pub fn uid(id: &str) -> String {
    format!("adopted:{id}")
}

/// As decisions would see it.
#[must_use]
pub fn view(repository: &RepositoryView, taken: &Taken<'_>) -> SnapshotView {
    let object = object(repository, taken);
    SnapshotView {
        metadata: ObjectMeta {
            uid: Some(uid(&taken.listed.snapshot_id)),
            ..object.metadata
        },
        spec: SnapshotSpecView {
            policy_ref: object.spec.policy_ref,
            deletion_policy: object.spec.deletion_policy,
            on_schedule_delete: None,
            pin: object.spec.pin,
        },
        status: Some(recorded(repository, taken)),
    }
}

/// What is known of it. The end of its run is not in a listing, so that its begin stands for it.
fn recorded(repository: &RepositoryView, taken: &Taken<'_>) -> SnapshotStatusView {
    let ListedSnapshot {
        snapshot_id,
        source,
        start_time,
        ..
    } = taken.listed;
    let claim = taken.policy.spec.sources.first().and_then(|s| s.pvc.as_ref());
    SnapshotStatusView {
        phase: Some(SnapshotPhase::Succeeded),
        origin: Some(Origin::Adopted),
        snapshot: Some(RecordedSnapshot {
            kopia_snapshot_id: snapshot_id.clone(),
            identity: Some(Identity {
                username: source.username.clone(),
                hostname: source.hostname.clone(),
                source_path: source.path.clone(),
            }),
        }),
        timing: Some(Timing {
            start_time: Some(*start_time),
            end_time: Some(*start_time),
            ..Timing::default()
        }),
        resolved: Some(Resolved {
            repository: Some(keys::pin_to(&repository.key)),
            unique_id: repository.unique_id().map(str::to_owned),
            sources: claim
                .map(|claim| ResolvedSource {
                    pvc: claim.name.clone(),
                    source_path: source.path.clone(),
                })
                .into_iter()
                .collect(),
            // It is recorded already: `status.snapshot.identity` says so.
            identity: None,
        }),
        pinned: taken.listed.pinned.then_some(true),
        pin: taken.listed.pin_is_ours.then(|| PinStatus {
            ours: true,
            ..PinStatus::default()
        }),
        ..SnapshotStatusView::default()
    }
}

/// Its status as a merge patch.
#[must_use]
pub fn status(
    repository: &RepositoryView,
    taken: &Taken<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> Value {
    let view = recorded(repository, taken);
    let message = format!(
        "Found in the repository and taken over by SnapshotPolicy {}, which backs up exactly what it is of.",
        ObjectKey::of(taken.policy.as_ref())
    );
    let mut list = Vec::new();
    let all = conditions::Kstatus {
        ready: true,
        reconciling: false,
        stalled: false,
    };
    all.set(&mut list, ADOPTED, &message, generation, now);
    let mut patch = json!({
        "phase": view.phase, "origin": view.origin, "snapshot": view.snapshot, "timing": view.timing,
        "pinned": view.pinned, "pin": view.pin,
        "resolved": view.resolved, "conditions": list, "observedGeneration": generation,
    });
    if let Some(bytes) = taken.listed.size_bytes {
        patch["stats"] = json!({ "sizeBytes": i64::try_from(bytes).unwrap_or(i64::MAX) });
    }
    patch
}
