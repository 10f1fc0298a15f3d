//! The workers: each takes a key from its queue, makes one pass over the object, and says when to look again.
//!
//! **Promises.** Only the leader works; a standby leaves keys in the queue, so what became dirty meanwhile is
//! looked at after the takeover. An error is logged once per pass, counted by class, and retried with backoff.

use crate::context::{Context, Error};
use crate::runtime::metrics::Kind;
use crate::runtime::queue::{Next, Queue};
use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts all workers.
pub fn start(ctx: &Arc<Context>) {
    let n = ctx.settings.reconcile_concurrency.max(1);
    spawn(
        ctx,
        Kind::Repository,
        &ctx.queues.repositories,
        n,
        |c, k| async move { super::repository::pass(&c, &k).await },
    );
    spawn(
        ctx,
        Kind::SnapshotPolicy,
        &ctx.queues.policies,
        n,
        |c, k| async move { super::policy::pass(&c, &k).await },
    );
    spawn(
        ctx,
        Kind::SnapshotSchedule,
        &ctx.queues.schedules,
        n,
        |c, k| async move { super::schedule::pass(&c, &k).await },
    );
    spawn(ctx, Kind::Snapshot, &ctx.queues.snapshots, n, |c, k| async move {
        super::snapshot::pass(&c, &k).await
    });
    spawn(ctx, Kind::Lane, &ctx.queues.lanes, n, |c, k| async move {
        super::wave::pass(&c, &k).await
    });
}

fn spawn<K, F, Fut>(ctx: &Arc<Context>, kind: Kind, queue: &Arc<Queue<K>>, workers: usize, pass: F)
where
    K: Clone + Eq + Hash + Ord + Display + Send + Sync + 'static,
    F: Fn(Arc<Context>, K) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Next, Error>> + Send,
{
    for _ in 0..workers {
        let (ctx, queue, pass) = (Arc::clone(ctx), Arc::clone(queue), pass.clone());
        tokio::spawn(async move {
            loop {
                wait_for_leadership(&ctx).await;
                let key = queue.take().await;
                if !ctx.leadership.is_leader() {
                    queue.done(key.clone(), Next::Settled);
                    queue.add(key);
                    continue;
                }
                let begin = Instant::now();
                let (next, failure) = match pass(Arc::clone(&ctx), key.clone()).await {
                    Ok(next) => (next, None),
                    // Not failures: somebody wrote in between, or another process leads now.
                    Err(Error::Conflict | Error::NotLeader) => {
                        (Next::After(Duration::from_millis(200)), None)
                    }
                    Err(error @ (Error::Api(_) | Error::Build(_))) => {
                        tracing::warn!(kind = kind.as_str(), %key, %error, "a pass failed and will be repeated");
                        (Next::Failed, Some(error.class()))
                    }
                };
                ctx.metrics.reconciled(kind, begin.elapsed(), failure);
                queue.done(key, next);
            }
        });
    }
}

async fn wait_for_leadership(ctx: &Context) {
    let mut changed = ctx.leadership.changed();
    while !ctx.leadership.is_leader() {
        // A validity that ends is noticed by is_leader(), a gain by the channel.
        let _ = tokio::time::timeout(Duration::from_secs(1), changed.changed()).await;
    }
}
