//! Where movers post what is too long for a termination message.
//!
//! **Promises.** A listing is handed out complete or not at all ([`Results::finish`]). Only a mover of the namespace
//! a scan was announced for can add to it, and only while we lead. Memory is bounded, whatever is posted: a body
//! is read only after its sender is known, scans that were not announced take nothing, announced ones expire.
//! Every refusal says what to do.
//!
//! **Assumes.** The controller that creates the Job announces the scan first ([`Results::expect`]) under an id that
//! is new for each Job. If nobody answers, the mover's work goes on; the termination message stays the truth.

use super::leader::Leadership;
use super::progress::Board;
use super::review::{Reviews, Verdict};
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use holdfast_api::names::MOVER_SERVICE_ACCOUNT;
use holdfast_protocol::chunks::{Assembly, CHUNK_LIMIT, ListedSnapshot, ScanVoid};
use holdfast_protocol::restore::Progress;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Most scans announced at once.
pub const MOST_SCANS: usize = 64;
/// Most bytes all scans may hold together.
pub const TOTAL_LIMIT: usize = 256 * 1024 * 1024;
/// Most chunks of one scan.
pub const MOST_CHUNKS: u32 = 4_096;
/// How long a scan is remembered after it was announced.
pub const SCAN_LIFE: Duration = Duration::from_secs(30 * 60);
/// Largest body; a row that is larger than a chunk has one of its own.
const BODY_LIMIT: usize = CHUNK_LIMIT + 16 * 1024;
/// Bodies read at the same time.
const MOST_BODIES: usize = 32;
/// Longest time a body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// Too many scans are under way; announce this one when another has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MOST_SCANS} listings are under way already; this one waits until another has ended")]
pub struct TooManyScans;

/// The results of movers; cheap to clone.
#[derive(Clone)]
pub struct Results(Arc<Inner>);

struct Inner {
    progress: Board,
    reviews: Reviews,
    leadership: Leadership,
    scans: Mutex<Scans>,
    bodies: Semaphore,
}

#[derive(Default)]
struct Scans {
    known: HashMap<String, Scan>,
    bytes: usize,
}

struct Scan {
    namespace: String,
    announced: Instant,
    assembly: Assembly,
    sizes: BTreeMap<u32, usize>,
}

impl Scan {
    fn bytes(&self) -> usize {
        self.sizes.values().sum()
    }
}

impl Scans {
    fn remove(&mut self, scan: &str) -> Option<Scan> {
        let gone = self.known.remove(scan)?;
        self.bytes -= gone.bytes();
        Some(gone)
    }

    fn expire(&mut self, now: Instant) {
        self.known
            .retain(|_, scan| now.saturating_duration_since(scan.announced) < SCAN_LIFE);
        self.bytes = self.known.values().map(Scan::bytes).sum();
    }
}

impl Results {
    /// No scans yet.
    #[must_use]
    pub fn new(reviews: Reviews, leadership: Leadership) -> Self {
        Self(Arc::new(Inner {
            progress: Board::default(),
            reviews,
            leadership,
            scans: Mutex::default(),
            bodies: Semaphore::new(MOST_BODIES),
        }))
    }

    /// Announces a scan whose mover runs in `namespace`. Announcing it again keeps what has arrived.
    ///
    /// # Errors
    /// [`TooManyScans`]: try again later.
    pub fn expect(&self, scan: &str, namespace: &str) -> Result<(), TooManyScans> {
        self.expect_at(scan, namespace, Instant::now())
    }

    fn expect_at(&self, scan: &str, namespace: &str, now: Instant) -> Result<(), TooManyScans> {
        let mut scans = self.scans();
        scans.expire(now);
        if let Some(known) = scans
            .known
            .get_mut(scan)
            .filter(|known| known.namespace == namespace)
        {
            known.announced = now;
            return Ok(());
        }
        scans.remove(scan);
        if scans.known.len() >= MOST_SCANS {
            return Err(TooManyScans);
        }
        let fresh = Scan {
            namespace: namespace.to_owned(),
            announced: now,
            assembly: Assembly::default(),
            sizes: BTreeMap::new(),
        };
        scans.known.insert(scan.to_owned(), fresh);
        Ok(())
    }

    /// The listing that the mover's termination message announces, if it is whole. The scan is over either way.
    /// Reading a large listing takes a moment of computing.
    ///
    /// # Errors
    /// [`ScanVoid`]: nothing of it may be used; ask again with a new scan. A scan that was never announced here
    /// (the leader changed in between) is missing its chunks.
    pub fn finish(
        &self,
        scan: &str,
        chunks: u32,
        snapshots: u64,
        digest: &str,
    ) -> Result<Vec<ListedSnapshot>, ScanVoid> {
        let taken = self.scans().remove(scan);
        match taken {
            Some(scan) => scan.assembly.finish(chunks, snapshots, digest),
            None => Err(ScanVoid::Missing(0, chunks)),
        }
    }

    /// The scan's Job is gone without a result.
    pub fn forget(&self, scan: &str) {
        self.scans().remove(scan);
    }

    /// The routes of this part of the HTTPS server.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/v1/results/{scan}/chunks/{number}", post(take))
            .route("/v1/results/{scan}/progress", post(take_progress))
            .with_state(self.clone())
    }

    /// What restores tell of how far they are.
    #[must_use]
    pub fn progress(&self) -> &Board {
        &self.0.progress
    }

    fn scans(&self) -> std::sync::MutexGuard<'_, Scans> {
        self.0.scans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who sent this, if it is a mover: its namespace.
    async fn sender(&self, headers: &HeaderMap) -> Result<String, Refusal> {
        let token = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .map(str::trim)
            .filter(|token| !token.is_empty())
            .ok_or_else(Refusal::no_token)?;
        match self.0.reviews.user(token).await {
            Ok(Verdict::User(user)) => mover_namespace(&user)
                .map(str::to_owned)
                .ok_or_else(Refusal::no_mover),
            Ok(Verdict::Refused) => Err(Refusal::bad_token()),
            Err(error) => Err(Refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{error}; send the chunk again"),
            )),
        }
    }

    fn check(&self, scan: &str, namespace: &str, now: Instant) -> Result<(), Refusal> {
        let mut scans = self.scans();
        scans.expire(now);
        match scans.known.get(scan) {
            None => Err(Refusal::unknown_scan()),
            Some(known) if known.namespace != namespace => Err(Refusal::no_mover()),
            Some(_) => Ok(()),
        }
    }

    fn push(&self, scan: &str, namespace: &str, number: u32, body: Vec<u8>) -> Result<(), Refusal> {
        let mut scans = self.scans();
        let total = scans.bytes;
        let known = scans
            .known
            .get_mut(scan)
            .filter(|known| known.namespace == namespace)
            .ok_or_else(Refusal::unknown_scan)?;
        let size = body.len();
        if !known.sizes.contains_key(&number) && total + size > TOTAL_LIMIT {
            return Err(Refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "the operator holds too many listings at the moment; send the chunk again in a minute".into(),
            ));
        }
        let before = known.bytes();
        let pushed = known.assembly.push(number, body);
        match &pushed {
            Ok(()) => _ = known.sizes.insert(number, size),
            Err(_) => known.sizes.clear(),
        }
        let after = known.bytes();
        scans.bytes = total - before + after;
        pushed.map_err(Refusal::from)
    }
}

/// Namespace of a mover's ServiceAccount; `None` for everybody else.
fn mover_namespace(user: &str) -> Option<&str> {
    let (namespace, account) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (account == MOVER_SERVICE_ACCOUNT && !namespace.is_empty()).then_some(namespace)
}

async fn take(
    State(results): State<Results>,
    Path((scan, number)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Refusal> {
    results.0.leadership.guard().map_err(|_| Refusal::not_leader())?;
    let namespace = results.sender(&headers).await?;
    results.check(&scan, &namespace, Instant::now())?;
    let number = number
        .parse::<u32>()
        .ok()
        .filter(|number| *number < MOST_CHUNKS)
        .ok_or_else(|| {
            Refusal(
                StatusCode::BAD_REQUEST,
                format!(
                    "the chunk's number must be below {MOST_CHUNKS}; fill chunks up to {CHUNK_LIMIT} bytes"
                ),
            )
        })?;
    let slot = results.0.bodies.acquire().await;
    let bytes = match tokio::time::timeout(BODY_PATIENCE, to_bytes(body, BODY_LIMIT)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            return Err(Refusal(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!(
                    "the body is larger than {BODY_LIMIT} bytes or broke off; send at most {CHUNK_LIMIT} bytes"
                ),
            ));
        }
        Err(_) => {
            return Err(Refusal(
                StatusCode::REQUEST_TIMEOUT,
                "the body took too long; send the chunk again".into(),
            ));
        }
    };
    drop(slot);
    results.0.leadership.guard().map_err(|_| Refusal::not_leader())?;
    results.push(&scan, &namespace, number, bytes.to_vec())?;
    Ok(StatusCode::NO_CONTENT)
}

/// How far a restore is. Only who was announced is heard, and only the newest word is kept.
async fn take_progress(
    State(results): State<Results>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Json(progress): Json<Progress>,
) -> Result<StatusCode, Refusal> {
    results.0.leadership.guard().map_err(|_| Refusal::not_leader())?;
    let namespace = results.sender(&headers).await?;
    if results.0.progress.hear(&run, &namespace, progress) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Refusal::unknown_scan())
    }
}

/// A refusal with a sentence.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl Refusal {
    fn no_token() -> Self {
        Self(
            StatusCode::UNAUTHORIZED,
            "no token: send `Authorization: Bearer` with the mover's projected token".into(),
        )
    }

    fn bad_token() -> Self {
        let audience = holdfast_protocol::TOKEN_AUDIENCE;
        Self(
            StatusCode::UNAUTHORIZED,
            format!("the token is not valid for the audience {audience}; read the projected token again"),
        )
    }

    fn no_mover() -> Self {
        Self(
            StatusCode::FORBIDDEN,
            format!(
                "only the ServiceAccount {MOVER_SERVICE_ACCOUNT} of the namespace this scan was announced for may post its results"
            ),
        )
    }

    fn unknown_scan() -> Self {
        Self(
            StatusCode::NOT_FOUND,
            "this scan is not expected (never announced, over, or announced to an earlier leader): stop posting; it will be asked for again".into(),
        )
    }

    fn not_leader() -> Self {
        Self(
            StatusCode::SERVICE_UNAVAILABLE,
            "this replica does not lead: open a new connection to the Service and send the chunk again"
                .into(),
        )
    }
}

impl From<ScanVoid> for Refusal {
    fn from(void: ScanVoid) -> Self {
        let status = match &void {
            ScanVoid::Conflict(_) => StatusCode::CONFLICT,
            ScanVoid::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ScanVoid::Missing(..) | ScanVoid::Digest | ScanVoid::Malformed(..) | ScanVoid::Count(..) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
        };
        Self(status, void.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
