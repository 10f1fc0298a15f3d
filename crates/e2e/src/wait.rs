//! Waiting for the cluster.
//!
//! **Promises.** A wait ends: with what it waited for, or with a sentence that says what was seen last. A read
//! that fails is seen, not fatal: the API server may be busy.

use anyhow::{Result, bail};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

/// What one look showed.
#[derive(Debug)]
pub enum Look<T> {
    /// It is there.
    Done(T),
    /// Not yet; what was seen instead.
    Not(String),
}

/// Looks four times a second until it is there, for at most `limit`. `what` completes "waited for …".
///
/// # Errors
/// When the limit is reached: what was waited for, and what was seen last.
pub async fn until<T, F>(what: &str, limit: Duration, look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Look<T>>>,
{
    until_every(Duration::from_millis(250), what, limit, look).await
}

/// The same at a pace of its own, for looks that cost something.
///
/// # Errors
/// As [`until`].
pub async fn until_every<T, F>(
    pace: Duration,
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<Look<T>>>,
{
    let started = Instant::now();
    loop {
        let seen = match look().await {
            Ok(Look::Done(value)) => return Ok(value),
            Ok(Look::Not(seen)) => seen,
            Err(error) => format!("{error:#}"),
        };
        if started.elapsed() > limit {
            bail!("waited {} s for {what}; seen last: {seen}", limit.as_secs());
        }
        tokio::time::sleep(pace).await;
    }
}

/// Waits until the API server lists no object whose name `is` says yes to.
///
/// # Errors
/// When it cannot be listed, or some are left after `limit`; the error names them.
pub async fn none_left<K>(api: &Api<K>, what: &str, limit: Duration, is: impl Fn(&str) -> bool) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    until(what, limit, || async {
        let all = api.list(&ListParams::default()).await?.items;
        let left: Vec<String> = all
            .iter()
            .map(ResourceExt::name_any)
            .filter(|name| is(name))
            .collect();
        Ok(if left.is_empty() {
            Look::Done(())
        } else {
            Look::Not(left.join(", "))
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_that_ends_says_what_it_saw() {
        let look = || async { Ok(Look::<()>::Not("two of three".into())) };
        let error = until("three", Duration::from_millis(10), look)
            .await
            .expect_err("never three");
        assert_eq!(error.to_string(), "waited 0 s for three; seen last: two of three");
    }
}
