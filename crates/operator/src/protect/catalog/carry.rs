//! Carrying out a plan: rows are made, completed and removed a few at a time, and what policies take over.
//!
//! **Promises.** A row that cannot be written keeps no other from being written. Retention of a policy waits while something is
//! made for it, and goes on when all of that is seen, or when nothing was made.

use super::act::record;
use super::each::{Did, complete, create, remove, take_over};
use super::plan::Plan;
use super::under_way::{self, Began, Ends};
use crate::context::{Context, Error};
use crate::protect::policy;
use crate::world::keys::ObjectKey;
use crate::world::views::RepositoryView;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use holdfast_api::SnapshotPolicy;
use holdfast_api::repository::ScanProgress;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rows written at once.
const AT_ONCE: usize = 8;
/// How often progress is recorded, in rows.
const TOLD_EVERY: usize = 500;
/// After this many failures the rest is left to the next scan: it is not about single rows.
const MOST_FAILURES: usize = 50;

/// What became of the rows of a plan.
#[derive(Debug, Default)]
pub struct Done {
    /// Rows that were made.
    pub made: usize,
    /// The Snapshots that each policy was given.
    pub adopted: BTreeMap<ObjectKey, Vec<ObjectKey>>,
    /// Policies for which something may have been made: whatever is not refused may have been carried out.
    touched: BTreeSet<ObjectKey>,
    /// Policies of which something is left to the next scan.
    unsettled: BTreeSet<ObjectKey>,
    /// What is left to the next scan.
    pub later: usize,
    /// Rows that were to go and are still there.
    pub not_removed: usize,
    failures: usize,
    left: usize,
    first: Option<String>,
}

impl Done {
    /// Counts what failed; only who leads no more ends the scan.
    ///
    /// # Errors
    /// [`Error::NotLeader`].
    pub fn take(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        match outcome {
            Ok(()) => Ok(()),
            Err(Error::NotLeader) => Err(Error::NotLeader),
            Err(error) => {
                self.failures += 1;
                self.first.get_or_insert_with(|| error.to_string());
                Ok(())
            }
        }
    }

    /// What failed, in words.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(format!(
            "{} rows could not be written and {} were not tried; it is tried again. The first: {first}",
            self.failures, self.left
        ))
    }
}

/// Carries out a plan.
///
/// # Errors
/// [`Error`]: the scan is void then.
pub async fn carry_out(ctx: &Context, view: &RepositoryView, plan: &Plan<'_>) -> Result<Done, Error> {
    let mut done = Done {
        not_removed: plan.remove.len(),
        ..Done::default()
    };
    let taking = begin(ctx, plan, &mut done).await?;
    let mut work: Vec<Work<'_>> = Vec::new();
    for row in &plan.remove {
        work.push(Box::pin(async move { (None, remove(ctx, row).await) }));
    }
    for one in plan.adopt.iter().filter(|one| taking.contains_key(&one.policy())) {
        work.push(Box::pin(async move {
            (Some(one.policy()), take_over(ctx, view, one).await)
        }));
    }
    for (row, listed) in &plan.complete {
        work.push(Box::pin(
            async move { (None, complete(ctx, view, row, listed).await) },
        ));
    }
    for (key, listed) in &plan.create {
        work.push(Box::pin(
            async move { (None, create(ctx, view, key, listed).await) },
        ));
    }
    let of = work.len();
    let mut ended = 0;
    let mut running = stream::iter(work).buffer_unordered(AT_ONCE);
    while let Some((whose, one)) = running.next().await {
        ended += 1;
        let refused = one.as_ref().is_err_and(Error::is_refusal);
        done.touched.extend(whose.filter(|_| !refused));
        match one {
            Ok(Did::Made) => done.made += 1,
            Ok(Did::Removed) => done.not_removed -= 1,
            Ok(Did::Adopted { by, made, row_left }) => {
                if row_left {
                    done.unsettled.insert(by.clone());
                }
                done.adopted.entry(by).or_default().push(made);
            }
            Ok(Did::Later) => done.later += 1,
            Err(error) => done.take(Err(error))?,
        }
        if done.failures >= MOST_FAILURES {
            // What is under way may be carried out all the same.
            done.touched.extend(taking.keys().cloned());
            break;
        }
        if of > TOLD_EVERY && ended % TOLD_EVERY == 0 {
            let progress = ScanProgress {
                done: i64::try_from(ended).unwrap_or(i64::MAX),
                of: i64::try_from(of).unwrap_or(i64::MAX),
            };
            record(ctx, view, |status| {
                status.catalog.get_or_insert_default().progress = Some(progress.clone());
            })
            .await?;
        }
    }
    done.left = of - ended;
    drop(running);
    end(ctx, view, plan, &taking, &mut done).await?;
    Ok(done)
}

/// One write, and the policy for which it makes something.
type Work<'a> = BoxFuture<'a, (Option<ObjectKey>, Result<Did, Error>)>;

/// Has the retention of those wait that take something over; answers who may.
async fn begin(ctx: &Context, plan: &Plan<'_>, done: &mut Done) -> Result<BTreeMap<ObjectKey, Began>, Error> {
    let of: BTreeMap<ObjectKey, &Arc<SnapshotPolicy>> = plan
        .adopt
        .iter()
        .map(|one| (one.policy(), &one.taken.policy))
        .collect();
    let mut taking = BTreeMap::new();
    for (key, policy) in of {
        match under_way::begin(ctx, policy).await {
            // Edited or gone since it was judged.
            Ok(Began::Not) => done.later += 1,
            Ok(began @ (Began::Now | Began::Before)) => _ = taking.insert(key, began),
            Err(error) => done.take(Err(error))?,
        }
    }
    Ok(taking)
}

/// Has the retention of those go on, and of whom a process that went left waiting.
async fn end(
    ctx: &Context,
    view: &RepositoryView,
    plan: &Plan<'_>,
    taking: &BTreeMap<ObjectKey, Began>,
    done: &mut Done,
) -> Result<(), Error> {
    let left = ctx.world.policies_naming(&view.key).into_iter();
    let left = left.filter(|one| policy::is_adopting(one));
    let all = left
        .map(|one| ObjectKey::of(one.as_ref()))
        .chain(taking.keys().cloned());
    for key in all.collect::<BTreeSet<_>>() {
        let made = done.adopted.get(&key).map(Vec::as_slice).unwrap_or_default();
        let planned = plan.adopt.iter().filter(|one| one.policy() == key).count();
        let nothing = taking.get(&key) == Some(&Began::Now) && !done.touched.contains(&key);
        let ends = if nothing {
            Some(Ends::Nothing)
        } else if made.len() == planned && !done.unsettled.contains(&key) {
            Some(Ends::Whole)
        } else {
            // Some of it alone would be judged without the rest; but nothing that is refused has it wait for ever.
            under_way::is_too_long(ctx, &key).then_some(Ends::Partial)
        };
        match ends {
            Some(ends) if under_way::seen(ctx, made).await => {
                done.take(under_way::end(ctx, &key, ends).await)?;
            }
            Some(_) | None => done.later += 1,
        }
    }
    Ok(())
}
