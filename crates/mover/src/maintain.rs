//! Maintaining a repository: freeing what no snapshot needs.
//!
//! **Promises.** Nothing is done where the repository says that another maintains it, unless it is to be taken over. The
//! record is written before anything is freed.
//!
//! **Assumes.** No delete batch runs beside it: the operator sees to that.

use crate::run::{Failed, say};
use holdfast_core::maintenance::lease::{Found, Lease, Takeover, lease};
use holdfast_engine::{Effort, Maintainer, Repository};
use holdfast_protocol::outcome::OperationResult;
use holdfast_protocol::work::{self, Claim};

/// One run.
pub fn run(
    repository: &mut dyn Repository,
    effort: work::Effort,
    claim: &Claim,
) -> Result<OperationResult, Failed> {
    let recorded = repository.maintainer()?;
    let takeover = if claim.take_over {
        Takeover::Force
    } else {
        Takeover::Never
    };
    match lease(found(recorded.as_ref()), &claim.owner, takeover) {
        Lease::Ours => {}
        Lease::Claim => {
            say(&format!("recording {} as the maintainer", claim.owner));
            repository.set_maintainer(&claim.owner)?;
        }
        Lease::Yield => {
            let owner = recorded.map(|maintainer| maintainer.name).unwrap_or_default();
            say(&format!("{owner} maintains the repository; nothing is done"));
            return Ok(OperationResult::NotOwner { owner });
        }
    }
    let effort = match effort {
        work::Effort::Quick => Effort::Quick,
        work::Effort::Full => Effort::Full,
    };
    let reclaimed = repository.reclaim(effort, Some(&claim.owner))?;
    say(&format!(
        "freed {} bytes, marked {} bytes",
        reclaimed.freed_bytes, reclaimed.marked_bytes
    ));
    Ok(OperationResult::Maintained {
        freed_bytes: reclaimed.freed_bytes,
        marked_bytes: reclaimed.marked_bytes,
        // The run is done whether or not this can be read.
        stored_bytes: repository.stored_bytes().ok(),
        owner: recorded.map(|_| claim.owner.clone()),
    })
}

fn found(recorded: Option<&Maintainer>) -> Found<'_> {
    match recorded {
        None => Found::NotKept,
        Some(maintainer) if maintainer.name.is_empty() || maintainer.by_creation => Found::Nobody,
        Some(maintainer) => Found::Somebody(&maintainer.name),
    }
}
