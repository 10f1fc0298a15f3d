//! Listing a repository for the operator (`docs/design.md` section 7).
//!
//! **Promises.** The listing that is announced is complete. A record that cannot be read makes it fail: left out,
//! its snapshot would look gone.

use crate::places::Places;
use crate::post::Poster;
use crate::run::{Failed, failure, say};
use holdfast_engine::{Repository, SnapshotInfo};
use holdfast_protocol::chunks::{self, ListedSnapshot};
use holdfast_protocol::outcome::{FailureClass, OperationResult};
use holdfast_protocol::work::{ResultsEndpoint, Source};

/// Lists everything and posts it.
pub(crate) fn run(
    repository: &dyn Repository,
    endpoint: Option<&ResultsEndpoint>,
    places: &Places,
) -> Result<OperationResult, Failed> {
    let operation_failed = |message: String| failure(FailureClass::OperationFailed, message);
    let endpoint = endpoint.ok_or_else(|| {
        let message = "the work document asks for a listing and names no place for it; set `results`";
        failure(FailureClass::InvalidWork, message)
    })?;
    let listing = repository.list()?;
    if let Some(id) = listing.unreadable.first() {
        let count = listing.unreadable.len();
        return Err(operation_failed(format!(
            "the records of {count} snapshots cannot be read, the first is {id}; a listing without them would \
             make them look gone. Restore these files from a copy, or remove them by hand"
        ))
        .into());
    }
    let rows: Vec<ListedSnapshot> = listing.snapshots.into_iter().map(row).collect();
    let bodies = chunks::split(&rows, chunks::CHUNK_LIMIT)
        .map_err(|e| operation_failed(format!("the listing cannot be written as JSON: {e}")))?;
    say(&format!(
        "{} snapshots in {} chunks for {}",
        rows.len(),
        bodies.len(),
        endpoint.address
    ));
    let poster = Poster::new(endpoint, places).map_err(operation_failed)?;
    let mut sent = 0;
    for body in &bodies {
        poster.post(sent, body).map_err(operation_failed)?;
        sent += 1;
    }
    Ok(OperationResult::Listed {
        snapshots: rows.len() as u64,
        chunks: sent,
        digest: chunks::digest(bodies.iter().map(Vec::as_slice)),
    })
}

fn row(snapshot: SnapshotInfo) -> ListedSnapshot {
    ListedSnapshot {
        snapshot_id: snapshot.id,
        source: Source {
            username: snapshot.source.username,
            hostname: snapshot.source.hostname,
            path: snapshot.source.path,
        },
        start_time: snapshot.start,
        size_bytes: snapshot.sizes.map(|s| s.size_bytes),
        cluster: snapshot.cluster,
        snapshot_uid: snapshot.snapshot_uid,
        pinned: snapshot.pinned,
        pin_is_ours: snapshot.pin_is_ours,
    }
}
