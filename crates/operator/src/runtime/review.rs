//! Whose token is this: TokenReview with our own audience.
//!
//! **Promises.** A token counts only if the API server vouches for it *for our audience*; an ordinary
//! ServiceAccount token is refused. An answer is remembered for at most a minute, under the token's hash, so that
//! a listing of many chunks costs one review; refusals are not remembered. Tokens are neither logged nor kept.
//!
//! **Assumes.** The right to create TokenReviews.

use futures::future::BoxFuture;
use holdfast_protocol::TOKEN_AUDIENCE;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{Api, ObjectMeta, PostParams};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long an answer is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Most answers remembered at once.
const MOST_REMEMBERED: usize = 1_024;
/// Most reviews asked for at once, so that bad tokens cannot flood the API server.
const MOST_AT_ONCE: usize = 8;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The API server's word on a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It belongs to this user and is for our audience.
    User(String),
    /// It is not valid for our audience.
    Refused,
}

/// The API server could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the token could not be checked: {0}")]
pub struct Unavailable(pub String);

/// Somebody who can tell whose a token is.
pub trait Reviewer: Send + Sync + 'static {
    /// Asks.
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Verdict, Unavailable>>;
}

/// A reviewer with a short memory.
pub struct Reviews {
    reviewer: Arc<dyn Reviewer>,
    known: Mutex<HashMap<[u8; 32], (String, Instant)>>,
    slots: Semaphore,
}

impl Reviews {
    /// Wraps a reviewer.
    #[must_use]
    pub fn new(reviewer: Arc<dyn Reviewer>) -> Self {
        Self {
            reviewer,
            known: Mutex::default(),
            slots: Semaphore::new(MOST_AT_ONCE),
        }
    }

    /// Whose token it is.
    ///
    /// # Errors
    /// [`Unavailable`] when nobody could be asked.
    pub async fn user(&self, token: &str) -> Result<Verdict, Unavailable> {
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(user) = self.remembered(&hash, Instant::now()) {
            return Ok(Verdict::User(user));
        }
        let asked = async {
            let slot = self.slots.acquire().await;
            let verdict = self.reviewer.review(token).await;
            drop(slot);
            verdict
        };
        let since = Instant::now();
        let verdict = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(verdict) => verdict?,
            Err(_) => return Err(Unavailable("the API server took too long".into())),
        };
        if let Verdict::User(user) = &verdict {
            self.remember(hash, user, since);
        }
        Ok(verdict)
    }

    fn remembered(&self, hash: &[u8; 32], now: Instant) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (user, since) = known.get(hash)?;
        (now.saturating_duration_since(*since) < REMEMBERED).then(|| user.clone())
    }

    fn remember(&self, hash: [u8; 32], user: &str, since: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_REMEMBERED {
            known.retain(|_, (_, then)| since.saturating_duration_since(*then) < REMEMBERED);
        }
        if known.len() < MOST_REMEMBERED {
            known.insert(hash, (user.to_owned(), since));
        }
    }
}

/// The API server.
#[derive(Clone)]
pub struct KubeReviewer {
    api: Api<TokenReview>,
}

impl KubeReviewer {
    /// Asks through `client`.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self {
            api: Api::all(client),
        }
    }
}

impl Reviewer for KubeReviewer {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Verdict, Unavailable>> {
        Box::pin(async move {
            let review = TokenReview {
                metadata: ObjectMeta::default(),
                spec: TokenReviewSpec {
                    token: Some(token.to_owned()),
                    audiences: Some(vec![TOKEN_AUDIENCE.to_owned()]),
                },
                status: None,
            };
            match self.api.create(&PostParams::default(), &review).await {
                Ok(answer) => Ok(verdict(answer.status.unwrap_or_default())),
                Err(error) => {
                    tracing::warn!(%error, "a token could not be reviewed");
                    Err(Unavailable("the API server did not answer the review".into()))
                }
            }
        })
    }
}

/// A server that knows nothing of audiences answers without any: that is not our audience.
fn verdict(status: TokenReviewStatus) -> Verdict {
    let ours = status
        .audiences
        .unwrap_or_default()
        .iter()
        .any(|audience| audience == TOKEN_AUDIENCE);
    match status.user.and_then(|user| user.username) {
        Some(user) if status.authenticated == Some(true) && ours && !user.is_empty() => Verdict::User(user),
        Some(_) | None => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::authentication::v1::UserInfo;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn status(authenticated: bool, audiences: &[&str]) -> TokenReviewStatus {
        TokenReviewStatus {
            authenticated: Some(authenticated),
            audiences: Some(audiences.iter().map(|&audience| audience.to_owned()).collect()),
            user: Some(UserInfo {
                username: Some("user".into()),
                ..UserInfo::default()
            }),
            error: None,
        }
    }

    #[test]
    fn only_an_authenticated_token_for_our_audience_counts() {
        assert_eq!(
            verdict(status(true, &[TOKEN_AUDIENCE])),
            Verdict::User("user".into())
        );
        assert_eq!(verdict(status(false, &[TOKEN_AUDIENCE])), Verdict::Refused);
        assert_eq!(
            verdict(status(true, &["https://kubernetes.default.svc"])),
            Verdict::Refused
        );
        assert_eq!(verdict(status(true, &[])), Verdict::Refused);
        assert_eq!(verdict(TokenReviewStatus::default()), Verdict::Refused);
    }

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Reviewer for Counting {
        fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Verdict, Unavailable>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                Ok(if token == "good" {
                    Verdict::User("user".into())
                } else {
                    Verdict::Refused
                })
            })
        }
    }

    #[tokio::test]
    async fn answers_are_remembered_for_a_minute_and_refusals_not() {
        let counting = Arc::new(Counting::default());
        let reviews = Reviews::new(counting.clone());
        for _ in 0..5 {
            assert_eq!(reviews.user("good").await, Ok(Verdict::User("user".into())));
        }
        assert_eq!(counting.0.load(Ordering::SeqCst), 1);
        for _ in 0..5 {
            assert_eq!(reviews.user("bad").await, Ok(Verdict::Refused));
        }
        assert_eq!(counting.0.load(Ordering::SeqCst), 6);
        let hash: [u8; 32] = Sha256::digest(b"good").into();
        assert_eq!(reviews.remembered(&hash, Instant::now() + REMEMBERED), None);
    }

    #[test]
    fn memory_is_bounded() {
        let reviews = Reviews::new(Arc::new(Counting::default()));
        let now = Instant::now();
        for n in 0..MOST_REMEMBERED * 2 {
            reviews.remember(Sha256::digest(n.to_string()).into(), "user", now);
        }
        assert_eq!(reviews.known.lock().expect("lock").len(), MOST_REMEMBERED);
        reviews.remember([0; 32], "user", now + REMEMBERED);
        assert_eq!(
            reviews.known.lock().expect("lock").len(),
            1,
            "old answers make room"
        );
    }
}
