//! Long results in numbered chunks: complete or not at all (`docs/design.md` section 7).
//!
//! **Promises.** [`Assembly`] yields a listing only when every chunk from 0 to the announced total arrived and
//! the digest over all bodies in order agrees with the one in the termination message. A chunk that arrives
//! twice with the same bytes is harmless; with other bytes it voids the scan.
//!
//! **Assumes.** Bodies are JSON arrays of [`ListedSnapshot`]; one body is at most [`CHUNK_LIMIT`] bytes.

use crate::work::Source;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Largest body of one chunk in bytes.
pub const CHUNK_LIMIT: usize = 512 * 1024;

/// Most bytes one scan may hold in the operator's memory.
pub const SCAN_LIMIT: usize = 64 * 1024 * 1024;

/// One snapshot of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedSnapshot {
    /// Whole id in the repository.
    pub snapshot_id: String,
    /// What it is of.
    pub source: Source,
    /// When it was begun.
    pub start_time: Timestamp,
    /// Logical size in bytes, when the repository records it.
    pub size_bytes: Option<u64>,
    /// Tag `holdfast-cluster`.
    pub cluster: Option<String>,
    /// Tag `holdfast-snapshot`: UID of the object it was taken for.
    pub snapshot_uid: Option<String>,
    /// The repository itself says that it is to be kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// We said so there, whoever else did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pin_is_ours: bool,
}

/// Path of one chunk on the operator's HTTPS port.
#[must_use]
pub fn path(scan: &str, number: u32) -> String {
    format!("/v1/results/{scan}/chunks/{number}")
}

/// Splits a listing into bodies of at most `limit` bytes (a single larger row gets a body of its own).
///
/// # Errors
/// Only if a row cannot be written as JSON.
pub fn split(rows: &[ListedSnapshot], limit: usize) -> Result<Vec<Vec<u8>>, serde_json::Error> {
    let mut bodies = Vec::new();
    let mut body: Vec<u8> = vec![b'['];
    for row in rows {
        let text = serde_json::to_vec(row)?;
        if body.len() > 1 && body.len() + text.len() + 2 > limit {
            body.push(b']');
            bodies.push(std::mem::replace(&mut body, vec![b'[']));
        }
        if body.len() > 1 {
            body.push(b',');
        }
        body.extend_from_slice(&text);
    }
    body.push(b']');
    bodies.push(body);
    Ok(bodies)
}

/// SHA-256 of all bodies in order, lower-case hex.
#[must_use]
pub fn digest<'a>(bodies: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for body in bodies {
        hasher.update(body);
    }
    hasher.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Why a scan is void.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanVoid {
    /// A chunk is missing.
    #[error("chunk {0} of {1} never arrived; the listing is void and will be asked for again")]
    Missing(u32, u32),
    /// The digest disagrees.
    #[error("the listing's digest differs from the one the mover announced; the listing is void")]
    Digest,
    /// A chunk came twice with different bytes.
    #[error("chunk {0} arrived twice with different content; the listing is void")]
    Conflict(u32),
    /// More bytes than one scan may hold.
    #[error("the listing is larger than {SCAN_LIMIT} bytes; it is void")]
    TooLarge,
    /// A body is not a list of snapshots.
    #[error("chunk {0} cannot be read: {1}; the listing is void")]
    Malformed(u32, String),
    /// The number of rows disagrees.
    #[error("the listing has {0} snapshots, the mover announced {1}; it is void")]
    Count(u64, u64),
}

/// Chunks of one scan as they arrive, in any order.
#[derive(Debug, Default)]
pub struct Assembly {
    bodies: BTreeMap<u32, Vec<u8>>,
    bytes: usize,
    void: Option<ScanVoid>,
}

impl Assembly {
    /// Takes one chunk.
    ///
    /// # Errors
    /// [`ScanVoid`] when it contradicts an earlier one or the scan grows too large; the scan stays void.
    pub fn push(&mut self, number: u32, body: Vec<u8>) -> Result<(), ScanVoid> {
        if let Some(void) = &self.void {
            return Err(void.clone());
        }
        let outcome = match self.bodies.get(&number) {
            Some(known) if *known == body => Ok(()),
            Some(_) => Err(ScanVoid::Conflict(number)),
            None if self.bytes + body.len() > SCAN_LIMIT => Err(ScanVoid::TooLarge),
            None => {
                self.bytes += body.len();
                self.bodies.insert(number, body);
                Ok(())
            }
        };
        if let Err(void) = &outcome {
            self.void = Some(void.clone());
            self.bodies.clear();
        }
        outcome
    }

    /// The listing, if it is whole.
    ///
    /// # Errors
    /// [`ScanVoid`] with what is wrong.
    pub fn finish(
        &self,
        chunks: u32,
        snapshots: u64,
        announced: &str,
    ) -> Result<Vec<ListedSnapshot>, ScanVoid> {
        if let Some(void) = &self.void {
            return Err(void.clone());
        }
        if let Some(missing) = (0..chunks).find(|n| !self.bodies.contains_key(n)) {
            return Err(ScanVoid::Missing(missing, chunks));
        }
        let ours = self.bodies.range(..chunks);
        if digest(ours.clone().map(|(_, b)| b.as_slice())) != announced {
            return Err(ScanVoid::Digest);
        }
        let mut rows = Vec::new();
        for (number, body) in ours {
            let part: Vec<ListedSnapshot> =
                serde_json::from_slice(body).map_err(|e| ScanVoid::Malformed(*number, e.to_string()))?;
            rows.extend(part);
        }
        if rows.len() as u64 != snapshots {
            return Err(ScanVoid::Count(rows.len() as u64, snapshots));
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(n: usize) -> Vec<ListedSnapshot> {
        (0..n)
            .map(|i| ListedSnapshot {
                snapshot_id: format!("{i:064x}"),
                source: Source {
                    username: "p".into(),
                    hostname: "ns".into(),
                    path: "/pvc/data".into(),
                },
                start_time: Timestamp::UNIX_EPOCH,
                size_bytes: Some(i as u64),
                cluster: None,
                snapshot_uid: None,
                pinned: false,
                pin_is_ours: false,
            })
            .collect()
    }

    #[test]
    fn ten_thousand_arrive_in_any_order() {
        let all = rows(10_000);
        let bodies = split(&all, CHUNK_LIMIT).expect("json");
        assert!(bodies.len() > 3 && bodies.iter().all(|b| b.len() <= CHUNK_LIMIT));
        let sum = digest(bodies.iter().map(Vec::as_slice));
        let mut assembly = Assembly::default();
        for (n, body) in bodies.iter().enumerate().rev() {
            assembly.push(n as u32, body.clone()).expect("taken");
            assembly.push(n as u32, body.clone()).expect("twice is harmless");
        }
        assert_eq!(assembly.finish(bodies.len() as u32, 10_000, &sum), Ok(all));
    }

    #[test]
    fn a_missing_chunk_makes_the_scan_void() {
        let bodies = split(&rows(10_000), CHUNK_LIMIT).expect("json");
        let sum = digest(bodies.iter().map(Vec::as_slice));
        for gap in 0..bodies.len() {
            let mut assembly = Assembly::default();
            for (n, body) in bodies.iter().enumerate().filter(|(n, _)| *n != gap) {
                assembly.push(n as u32, body.clone()).expect("taken");
            }
            let total = bodies.len() as u32;
            assert_eq!(
                assembly.finish(total, 10_000, &sum),
                Err(ScanVoid::Missing(gap as u32, total))
            );
        }
    }

    #[test]
    fn contradicting_chunks_void_the_scan_for_good() {
        let mut assembly = Assembly::default();
        assembly.push(0, b"[]".to_vec()).expect("taken");
        assert_eq!(assembly.push(0, b"[ ]".to_vec()), Err(ScanVoid::Conflict(0)));
        assert_eq!(assembly.push(1, b"[]".to_vec()), Err(ScanVoid::Conflict(0)));
        assert_eq!(assembly.finish(0, 0, ""), Err(ScanVoid::Conflict(0)));
    }

    #[test]
    fn an_empty_listing_is_one_empty_chunk() {
        let bodies = split(&[], CHUNK_LIMIT).expect("json");
        assert_eq!(bodies, vec![b"[]".to_vec()]);
    }
}
