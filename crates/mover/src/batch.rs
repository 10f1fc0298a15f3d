//! Carrying out a delete batch: list, delete, look again, read back (`docs/design.md` 3.6).
//!
//! **Promises.** One call when all goes well. After an error the repository is looked at again and the group is
//! split until each id was part of a call that succeeded, was seen gone, or was tried alone. Letters come from
//! a listing made after the last deletion; without one there are no letters, and nothing is confirmed.
//!
//! **Assumes.** The unique id was checked by the caller; `list` checks that it still holds.

use crate::plan::{self, Ids, Plan};
use crate::run::{Failed, failure, failure_of, say};
use holdfast_engine::{EngineError, ErrorClass, Repository};
use holdfast_protocol::letters;
use holdfast_protocol::outcome::{FailureClass, MISSING_LIMIT, OperationResult};
use holdfast_protocol::work::BatchMember;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How often a batch is looked at again to narrow an error down. After that the rest is tried one by one, so a
/// repository in which every deletion fails costs few listings.
const LOOKS: usize = 16;

/// Deletes the members' snapshots and says what became of each.
pub(crate) fn run(
    repository: &dyn Repository,
    cluster: &str,
    members: &[BatchMember],
    kept: &[Vec<String>],
    ids: Ids,
) -> Result<OperationResult, Failed> {
    let listing = repository.list()?;
    let plan = plan::plan(members, kept, &listing, cluster, ids);
    say(&format!(
        "{} members, {} snapshots to delete",
        members.len(),
        plan.ids.len()
    ));
    for (number, id) in &plan.healed {
        let recorded = &members[*number].snapshot_id;
        say(&format!(
            "snapshot {recorded} is called {id} as well, or instead: its id was rewritten"
        ));
    }
    if !plan.missing.is_empty() {
        say(&missing(&plan));
    }
    let failed = erase(repository, &plan)?;
    let readback = repository.list()?;
    let unsuccessful = failed.keys().cloned().collect();
    let letters = plan::letters(members, &plan, &unsuccessful, &readback);
    let confirmed = letters.iter().filter(|l| l.confirms()).count();
    say(&format!(
        "read back: {confirmed} of {} members confirmed",
        members.len()
    ));
    let result = OperationResult::Batch {
        missing: plan.missing.iter().take(MISSING_LIMIT).cloned().collect(),
        letters: letters::write(&letters),
    };
    let unsuccessful = || {
        members
            .iter()
            .zip(&letters)
            .enumerate()
            .filter(|(_, (_, l))| **l == letters::Letter::Failed)
    };
    let Some((number, (first, _))) = unsuccessful().next() else {
        if letters.contains(&letters::Letter::Unjustified) {
            return Err(Failed {
                failure: failure(FailureClass::OperationFailed, missing(&plan)),
                result: Box::new(result),
            });
        }
        return Ok(result);
    };
    // The class is that of the first: a volume mounted read-only is the repository's trouble, not the members'.
    let healed = plan.healed.get(&number).and_then(|id| failed.get(id));
    let why = failed.get(&first.snapshot_id).or(healed).map_or_else(
        || {
            let why = "its record, or that of a snapshot that was kept instead of it, cannot be read";
            failure(FailureClass::OperationFailed, why)
        },
        failure_of,
    );
    Err(Failed {
        failure: failure(
            why.class,
            format!(
                "{} of {} members could not be deleted; the first, snapshot {}: {}",
                unsuccessful().count(),
                members.len(),
                first.snapshot_id,
                why.message
            ),
        ),
        result: Box::new(result),
    })
}

/// Why prunes were not carried out.
fn missing(plan: &Plan) -> String {
    let unjustified = plan
        .fates
        .iter()
        .filter(|fate| **fate == plan::Fate::Keep(letters::Letter::Unjustified))
        .count();
    let named = plan.missing.iter().take(MISSING_LIMIT);
    format!(
        "{unjustified} snapshots were not pruned: {} that retention kept instead are not in the repository: {}",
        plan.missing.len(),
        named.map(String::as_str).collect::<Vec<_>>().join(", ")
    )
}

/// Deletes, narrowing errors down to single ids; answers with those that failed alone.
fn erase(repository: &dyn Repository, plan: &Plan) -> Result<BTreeMap<String, EngineError>, Failed> {
    let mut failed = BTreeMap::new();
    let mut looks = 0;
    let mut queue: VecDeque<Vec<String>> = VecDeque::new();
    if !plan.ids.is_empty() {
        queue.push_back(plan.ids.clone());
    }
    while let Some(mut group) = queue.pop_front() {
        let Err(error) = attempt(repository, &group) else {
            continue;
        };
        if let [id] = &group[..] {
            say(&format!("snapshot {id} could not be deleted: {error}"));
            failed.insert(id.clone(), error);
            continue;
        }
        say(&format!(
            "a call for {} snapshots failed; narrowing down: {error}",
            group.len()
        ));
        if looks == LOOKS {
            queue.extend(group.into_iter().map(|id| vec![id]));
            continue;
        }
        looks += 1;
        let listing = repository.list().map_err(|e| Failed::from(failure_of(&e)))?;
        group.retain(|id| listing.contains(id));
        let second = group.split_off(group.len() / 2);
        queue.extend([group, second].into_iter().filter(|half| !half.is_empty()));
    }
    Ok(failed)
}

fn attempt(repository: &dyn Repository, ids: &[String]) -> Result<(), EngineError> {
    catch_unwind(AssertUnwindSafe(|| repository.delete(ids))).unwrap_or_else(|_| {
        Err(EngineError::new(
            ErrorClass::Failed,
            "the deletion did not end",
            "the engine panicked",
            "The container's log has the place; report it",
        ))
    })
}

#[cfg(test)]
mod tests;
