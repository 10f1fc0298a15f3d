//! The workers: each takes a key from its queue, makes one pass over the object, and says when to look again.
//!
//! **Promises.** Only the leader works; a standby leaves keys in the queue, so what became dirty meanwhile is
//! looked at after the takeover. An error is logged once per pass, counted by class, and retried with backoff; so
//! is a panic, which would otherwise leave its key in nobody's hands for ever. Told to end, a worker finishes the
//! pass it is in and takes no other.

use super::wave;
use crate::context::{Context, Error};
use crate::runtime::leader::{Leadership, Standing};
use crate::runtime::metrics::{ErrorClass, Kind, Metrics};
use crate::runtime::queue::{Next, Queue};
use futures::FutureExt;
use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How soon an object is looked at again that was left alone beside another manager.
const BESIDE_AGAIN: Duration = Duration::from_secs(15);

/// Starts all workers; they have ended when the set is empty.
#[must_use = "the Lease is released only after the workers have ended"]
pub fn start(ctx: &Arc<Context>, end: &CancellationToken) -> JoinSet<()> {
    let mut workers = Workers {
        ctx,
        end,
        set: JoinSet::new(),
    };
    workers.spawn(Kind::Repository, &ctx.queues.repositories, |c, k| async move {
        super::repository::pass(&c, &k).await
    });
    workers.spawn(Kind::SnapshotPolicy, &ctx.queues.policies, |c, k| async move {
        super::policy::pass(&c, &k).await
    });
    workers.spawn(Kind::SnapshotSchedule, &ctx.queues.schedules, |c, k| async move {
        super::schedule::pass(&c, &k).await
    });
    workers.spawn(Kind::Snapshot, &ctx.queues.snapshots, |c, k| async move {
        super::snapshot::pass(&c, &k).await
    });
    workers.spawn(Kind::Restore, &ctx.queues.restores, |c, k| async move {
        super::restore::pass(&c, &k).await
    });
    workers.spawn(Kind::Maintenance, &ctx.queues.maintenances, |c, k| async move {
        super::maintenance::pass(&c, &k).await
    });
    workers.spawn(Kind::Lane, &ctx.queues.lanes, |c, k| async move {
        super::wave::pass(&c, &k).await
    });
    workers
        .set
        .spawn(look_again_as_leader(Arc::clone(ctx), end.clone()));
    workers.set.spawn(tidy(Arc::clone(ctx), end.clone()));
    workers.set
}

/// What a crash left is removed by the leader, some time after its term began and then every hour.
async fn tidy(ctx: Arc<Context>, end: CancellationToken) {
    let mut pause = wave::tidy::FIRST;
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = wave::tidy::EVERY;
        if !ctx.leadership.is_leader() {
            continue;
        }
        match wave::tidy::tidy(&ctx, ctx.clock.now()).await {
            Ok(()) | Err(Error::Conflict | Error::NotLeader) => {}
            Err(error @ (Error::Api(_) | Error::Build(_))) => {
                tracing::warn!(%error, "what was left behind could not be removed; tried again in an hour");
            }
        }
    }
}

/// Every new term begins with a look at everything: what was settled for a former leader, or in a former term, may
/// not be settled now, and gauges are the leader's.
async fn look_again_as_leader(ctx: Arc<Context>, end: CancellationToken) {
    let mut standing = ctx.leadership.changed();
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            changed = standing.changed() => if changed.is_err() { return },
        }
        if *standing.borrow_and_update() != Standing::Standby {
            ctx.queues.add(ctx.world.everything());
        }
    }
}

struct Workers<'a> {
    ctx: &'a Arc<Context>,
    end: &'a CancellationToken,
    set: JoinSet<()>,
}

impl Workers<'_> {
    fn spawn<K, F, Fut>(&mut self, kind: Kind, queue: &Arc<Queue<K>>, pass: F)
    where
        K: Clone + Eq + Hash + Ord + Display + Send + Sync + 'static,
        F: Fn(Arc<Context>, K) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Next, Error>> + Send + 'static,
    {
        for _ in 0..self.ctx.settings.reconcile_concurrency.max(1) {
            let (ctx, queue, pass) = (Arc::clone(self.ctx), Arc::clone(queue), pass.clone());
            let end = self.end.clone();
            self.set.spawn(async move {
                let pass = |key| {
                    // Nothing is decided beside another manager; a lane says so itself. All are looked at again when
                    // it is gone.
                    let beside = kind != Kind::Lane && ctx.foreign.alive().is_some();
                    let pass = (!beside).then(|| pass(Arc::clone(&ctx), key));
                    async move {
                        match pass {
                            Some(pass) => pass.await,
                            None => Ok(Next::After(BESIDE_AGAIN)),
                        }
                    }
                };
                work(&ctx.leadership, &ctx.metrics, kind, &queue, pass, &end).await;
            });
        }
    }
}

/// Takes keys and makes passes until told to end.
pub(crate) async fn work<K, F, Fut>(
    leadership: &Leadership,
    metrics: &Metrics,
    kind: Kind,
    queue: &Queue<K>,
    pass: F,
    end: &CancellationToken,
) where
    K: Clone + Eq + Hash + Ord + Display,
    F: Fn(K) -> Fut,
    Fut: Future<Output = Result<Next, Error>>,
{
    loop {
        let key = tokio::select! {
            biased;
            () = end.cancelled() => return,
            key = async {
                wait_for(leadership).await;
                queue.take().await
            } => key,
        };
        if !leadership.is_leader() {
            queue.done(key.clone(), Next::Settled);
            queue.add(key);
            continue;
        }
        let begin = Instant::now();
        let (next, failure) = judge(kind, &key, caught(pass(key.clone())).await);
        metrics.reconciled(kind, begin.elapsed(), failure);
        queue.done(key, next);
    }
}

/// A pass that panicked; its text went to the log when it happened.
#[derive(Debug, PartialEq, Eq)]
struct Panicked;

async fn caught<T>(pass: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(pass).catch_unwind().await.map_err(|_| Panicked)
}

fn judge<K: Display>(
    kind: Kind,
    key: &K,
    ended: Result<Result<Next, Error>, Panicked>,
) -> (Next, Option<ErrorClass>) {
    match ended {
        Ok(Ok(next)) => (next, None),
        // Not failures: somebody wrote in between, or another process leads now.
        Ok(Err(Error::Conflict | Error::NotLeader)) => (Next::After(Duration::from_millis(200)), None),
        Ok(Err(error @ (Error::Api(_) | Error::Build(_)))) => {
            tracing::warn!(kind = kind.as_str(), %key, %error, "a pass failed and will be repeated");
            (Next::Failed, Some(error.class()))
        }
        Err(Panicked) => {
            tracing::error!(kind = kind.as_str(), %key, "a pass panicked and will be repeated; please report it");
            (Next::Failed, Some(ErrorClass::Terminal))
        }
    }
}

async fn wait_for(leadership: &Leadership) {
    let mut changed = leadership.changed();
    while !leadership.is_leader() {
        // A validity that ends is noticed by is_leader(), a gain by the channel.
        let _ = tokio::time::timeout(Duration::from_secs(1), changed.changed()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pass_that_panics_is_repeated_and_its_key_not_lost() {
        let queue = Queue::new();
        queue.add("lane");
        let key = queue.take().await;
        let ended = caught(async { panic!("a bug") }).await;
        let (next, failure) = judge(Kind::Lane, &key, ended);
        assert_eq!((next, failure), (Next::Failed, Some(ErrorClass::Terminal)));
        queue.done(key, next);
        assert_eq!(queue.len(), 1, "looked at again");
    }
}
