//! One row: a Snapshot object with origin `discovered`, and its status: pure.
//!
//! **Promises.** Its name depends on nothing but the repository object and the snapshot's id, so that making it
//! twice is harmless. It carries no finalizer of ours: deleting it is over at once and cannot touch data. It is
//! Retain by its spec, its label and its status; either of them is enough.

use crate::world::keys::{self, ObjectKey};
use crate::world::views::{RepositoryView, SnapshotStatusView};
use holdfast_api::shared::{DeletionPolicy, Identity, Origin};
use holdfast_api::snapshot::{RecordedSnapshot, Resolved, Snapshot, SnapshotPhase, SnapshotSpec, Timing};
use holdfast_api::{conditions, names};
use holdfast_protocol::chunks::ListedSnapshot;
use jiff::Timestamp;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Reason of the row's condition Ready.
pub const DISCOVERED: &str = "Discovered";
/// The same, of a snapshot that another cluster took.
pub const OF_ANOTHER_CLUSTER: &str = "DiscoveredOfAnotherCluster";

/// The longest value of a label, and the longest name here.
const LIMIT: usize = 63;

/// Name of the row of a snapshot: whose, the beginning of the id, and a hash of both that makes it unique.
#[must_use]
pub fn name(repository: &RepositoryView, id: &str) -> String {
    let digest = Sha256::digest(format!("{}/{id}", repository.uid()));
    let hash: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    let whose: String = repository.key.name().chars().take(40).collect();
    let begin: String = id
        .chars()
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        .take(8)
        .collect();
    let whose = whose.trim_end_matches(['-', '.']);
    format!("{whose}-{begin}-{hash}")
}

/// The id as the value of a label.
#[must_use]
pub fn label(id: &str) -> String {
    let kept: String = id
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        .take(LIMIT)
        .collect();
    kept.trim_matches(['-', '_', '.']).to_owned()
}

/// The object.
#[must_use]
pub fn object(repository: &RepositoryView, key: &ObjectKey, listed: &ListedSnapshot) -> Snapshot {
    let labels = [
        (names::ORIGIN_LABEL, Origin::Discovered.as_str().to_owned()),
        (names::SNAPSHOT_ID_LABEL, label(&listed.snapshot_id)),
        (names::REPOSITORY_UID_LABEL, repository.uid().to_owned()),
        (names::MANAGED_BY_LABEL, names::MANAGED_BY.to_owned()),
    ];
    Snapshot {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: Some(labels.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            ..ObjectMeta::default()
        },
        spec: SnapshotSpec {
            deletion_policy: Some(DeletionPolicy::Retain),
            ..SnapshotSpec::default()
        },
        status: None,
    }
}

/// Its status as a merge patch. `cluster` is this cluster's UID.
#[must_use]
pub fn status(
    repository: &RepositoryView,
    listed: &ListedSnapshot,
    cluster: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Value {
    let foreign = listed.cluster.as_deref().filter(|c| *c != cluster);
    let (reason, message) = match foreign {
        None => (
            DISCOVERED,
            "Found in the repository, and no other object records it. Deleting this object leaves the snapshot where it is.".to_owned(),
        ),
        Some(other) => (
            OF_ANOTHER_CLUSTER,
            format!("Found in the repository; the cluster {other} took it. Deleting this object leaves the snapshot where it is."),
        ),
    };
    let mut list = Vec::new();
    let all = conditions::Kstatus {
        ready: true,
        reconciling: false,
        stalled: false,
    };
    all.set(&mut list, reason, &message, generation, now);
    let view = SnapshotStatusView {
        phase: Some(SnapshotPhase::Discovered),
        origin: Some(Origin::Discovered),
        snapshot: Some(RecordedSnapshot {
            kopia_snapshot_id: listed.snapshot_id.clone(),
            identity: Some(Identity {
                username: listed.source.username.clone(),
                hostname: listed.source.hostname.clone(),
                source_path: listed.source.path.clone(),
            }),
        }),
        timing: Some(Timing {
            start_time: Some(listed.start_time),
            ..Timing::default()
        }),
        resolved: Some(Resolved {
            repository: Some(keys::pin_to(&repository.key)),
            unique_id: repository.unique_id().map(str::to_owned),
            sources: Vec::new(),
            identity: None,
        }),
        conditions: list,
        ..SnapshotStatusView::default()
    };
    let mut patch = json!({
        "phase": view.phase, "origin": view.origin, "snapshot": view.snapshot, "timing": view.timing,
        "resolved": view.resolved, "conditions": view.conditions, "observedGeneration": generation,
    });
    // Only what the repository says: the other figures of a run are not known.
    if let Some(bytes) = listed.size_bytes {
        patch["stats"] = json!({ "sizeBytes": i64::try_from(bytes).unwrap_or(i64::MAX) });
    }
    patch
}
