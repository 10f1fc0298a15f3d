//! When each watch last told something.
//!
//! **Promises.** What counts is what the API server sent: the end of a list, an accepted watch, and everything that
//! comes through one, bookmarks included, which nobody else gets to see. While a list is under way nothing counts until
//! it has ended: what happened before it began is only known then.

use super::world::Kind;
use axum::body::Bytes;
use axum::http::{Request, Response};
use holdfast_core::quota::watches::{LENGTH, SILENCE, is_silent};
use http_body_util::{BodyExt as _, Either};
use kube::Client;
use kube::client::Body;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, Default)]
struct Beat {
    told: Option<Instant>,
    /// When the list under way began.
    listing: Option<Instant>,
}

/// See the module.
pub struct Pulse {
    beats: Mutex<HashMap<Kind, Beat>>,
    began: Instant,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            beats: Mutex::default(),
            began: Instant::now(),
        }
    }
}

impl Pulse {
    fn lock(&self) -> MutexGuard<'_, HashMap<Kind, Beat>> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list of this kind begins.
    pub fn list_begins(&self, kind: &Kind) {
        self.lock().entry(kind.clone()).or_default().listing = Some(Instant::now());
    }

    /// It ended: what it told is as of its beginning.
    pub fn list_ends(&self, kind: &Kind) {
        let mut beats = self.lock();
        let beat = beats.entry(kind.clone()).or_default();
        if let Some(began) = beat.listing.take() {
            beat.told = Some(began);
        }
    }

    /// The API server sent something on this kind's watch.
    fn tells(&self, kind: &Kind) {
        if let Some(beat) = self.lock().get_mut(kind)
            && beat.listing.is_none()
        {
            beat.told = Some(Instant::now());
        }
    }

    fn told(&self, kind: &Kind) -> Option<Instant> {
        self.lock().get(kind).and_then(|beat| beat.told)
    }

    /// How long ago the watch of this kind last told something; `None`: never.
    #[must_use]
    pub fn silent_for(&self, kind: &Kind) -> Option<Duration> {
        self.told(kind).map(|told| told.elapsed())
    }

    /// Whether the watch of this kind has been silent for too long.
    #[must_use]
    pub fn is_silent(&self, kind: &Kind) -> bool {
        let told = self
            .told(kind)
            .map(|told| told.saturating_duration_since(self.began));
        is_silent(told, self.began.elapsed(), SILENCE)
    }

    /// A client whose watches are those of this kind, and are noted. An answer that does not begin, and a list that
    /// does not arrive, within one length is an error: a dead connection ends nothing by itself.
    #[must_use]
    pub fn listening(self: &Arc<Self>, client: &Client, kind: &Kind) -> Client {
        let (pulse, inner, kind) = (Arc::clone(self), client.clone(), kind.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (pulse, client, kind) = (Arc::clone(&pulse), inner.clone(), kind.clone());
            async move {
                if !request.uri().query().is_some_and(is_watch) {
                    let whole = async {
                        let (head, body) = client.send(request).await?.into_parts();
                        Ok(Response::from_parts(head, body.collect_bytes().await?))
                    };
                    let answer: Response<Bytes> = in_time(whole).await?;
                    return Ok(answer.map(|bytes| Either::Left(Body::from(bytes))));
                }
                let response = in_time(client.send(request)).await?;
                let counts = response.status().is_success();
                let tell = move || {
                    if counts {
                        pulse.tells(&kind);
                    }
                };
                tell();
                Ok::<_, kube::Error>(response.map(|body| {
                    Either::Right(body.map_frame(move |frame| {
                        tell();
                        frame
                    }))
                }))
            }
        });
        Client::new(service, client.default_namespace())
    }
}

async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let late = || format!("the API server did not answer within {} s", LENGTH.as_secs());
    tokio::time::timeout(LENGTH, answer)
        .await
        .unwrap_or_else(|_| Err(kube::Error::Service(late().into())))
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|part| part == "watch=true")
}
