//! Delete Jobs of the Kopia operator that ours took the place of (`docs/design.md` 3.6; upgrades).
//!
//! **Promises.** While one that concerns a pending Snapshot of the lane has not ended, the lane creates no Job of its
//! own. One that may delete something else from its repository is waited for as a writer is, ten minutes from its
//! creation: where one of the other operator's can be told to be of another repository is not always known, and a doubt must not
//! stop a lane for ever. Its backup Jobs are not waited for: nothing tells them from its other Jobs, and what a batch
//! deletes beside one is read back and looked for again. What it did is not taken from its end but from our own mover's listing, which
//! finds the snapshot absent, or there. They are looked for until none that has not ended was left: the other operator is
//! noticed when it runs again, and is then looked at anew ([`crate::runtime::foreign`]).
//!
//! **Assumes.** Their form, as far as anything rests on it: the label `managed-by: kopiur`; a batch is labelled with
//! what it does and names its members' UIDs in an annotation; an older one deletes one Snapshot and is called
//! `<snapshot>-delete` in its namespace, or `<namespace>-<snapshot>-delete`, cut to 63 characters, elsewhere.

use super::lease;
use super::observe::Observed;
use crate::context::{Context, Error};
use crate::world::World;
use crate::world::keys::{LaneKey, ObjectKey, RepositoryKey};
use crate::world::views::JobView;
use holdfast_api::names;
use holdfast_core::deletion::silence::PATIENCE;
use jiff::Timestamp;
use kube::api::{Api, ListParams};

/// Longest name of a Job.
const LONGEST: usize = 63;
/// So much of a repository's name is in the label of a batch.
const LONGEST_LABEL_NAME: usize = 40;

/// A Job of the other operator that has not ended.
#[derive(Debug)]
pub struct Running {
    /// The Job.
    pub job: JobView,
    /// It is waited for until then, whatever it does; none: until it has ended.
    pub until: Option<Timestamp>,
}

/// A Job of the other operator that still deletes, or may still delete, from the repository of this lane.
///
/// # Errors
/// [`Error`].
pub async fn running(
    ctx: &Context,
    lane: &LaneKey,
    observed: &Observed,
    now: Timestamp,
) -> Result<Option<Running>, Error> {
    let Some(look) = ctx.foreign.look_for_jobs(lease::term(ctx)?) else {
        return Ok(None);
    };
    let api: Api<JobView> = Api::all(ctx.client.clone());
    let theirs = format!("{}={}", names::MANAGED_BY_LABEL, names::FOREIGN_MANAGED_BY);
    let mut jobs = api.list(&ListParams::default().labels(&theirs)).await?.items;
    jobs.retain(|job| !job.is_terminal());
    if jobs.is_empty() {
        ctx.foreign.has_no_jobs(look);
        return Ok(None);
    }
    let pending: Vec<Pending<'_>> = observed
        .views
        .values()
        .map(|view| Pending {
            uid: view.uid(),
            namespace: view.metadata.namespace.as_deref().unwrap_or_default(),
            name: view.metadata.name.as_deref().unwrap_or_default(),
        })
        .collect();
    let concerned = |job: &JobView| pending.iter().any(|one| concerns(job, one));
    if let Some(at) = jobs.iter().position(concerned) {
        let job = jobs.swap_remove(at);
        return Ok(Some(Running { job, until: None }));
    }
    let repositories: Vec<&RepositoryKey> = observed.repositories.keys().collect();
    let waits = jobs.into_iter().filter_map(|job| {
        let created = job.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
        let until = created.checked_add(PATIENCE).unwrap_or(Timestamp::MAX);
        let until = Some(until).filter(|until| *until > now)?;
        may_be_of(&ctx.world, lane, &repositories, &job).then_some(Running {
            job,
            until: Some(until),
        })
    });
    Ok(waits.max_by_key(|running| running.until))
}

/// Whether a Job may delete from a lane's repository: unless its form says that it works on another one.
fn may_be_of(world: &World, lane: &LaneKey, repositories: &[&RepositoryKey], job: &JobView) -> bool {
    let place = job.key().namespace;
    if job.label(names::OP_LABEL) == Some(names::OP_DELETE_BATCH) {
        let Some(label) = job.label(names::DELETE_REPO_LABEL) else {
            return true;
        };
        // At most so much of its name, a dash, and a hash of which nothing is known but its length.
        let name = label.rsplit_once('-').map_or(label, |(name, _)| name);
        return repositories.iter().any(|repository| {
            let there = repository.namespace().is_none_or(|namespace| namespace == place);
            let cut = name.len() >= LONGEST_LABEL_NAME && repository.name().starts_with(name);
            there && (repository.name() == name || cut)
        });
    }
    let name = job.key().name;
    let Some(snapshot) = name.strip_suffix("-delete") else {
        return false;
    };
    world
        .snapshot(&ObjectKey::new(place, snapshot))
        .is_none_or(|view| world.could_be_of(&view, lane))
}

/// What a Job's form tells of a Snapshot.
struct Pending<'a> {
    uid: &'a str,
    namespace: &'a str,
    name: &'a str,
}

fn concerns(job: &JobView, one: &Pending<'_>) -> bool {
    if job.label(names::OP_LABEL) == Some(names::OP_DELETE_BATCH) {
        let members = job.annotation(names::DELETE_MEMBERS).unwrap_or_default();
        return members.split(',').any(|uid| uid == one.uid);
    }
    let key = job.key();
    let here = key.namespace == one.namespace && is_called(&key.name, &format!("{}-delete", one.name));
    here || is_called(&key.name, &format!("{}-{}-delete", one.namespace, one.name))
}

/// Whether a Job has this name, or begins like it where it had to be cut: how it was cut is not known.
fn is_called(name: &str, wanted: &str) -> bool {
    if wanted.len() <= LONGEST {
        return name == wanted;
    }
    // Room for a hash of sixteen digits and its dash.
    name.len() <= LONGEST
        && wanted
            .get(..LONGEST - 17)
            .is_some_and(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(edit: impl FnOnce(&mut Value)) -> JobView {
        let mut object = json!({
            "metadata": { "name": "nightly-1-delete", "namespace": "app", "uid": "j", "labels": {}, "annotations": {} },
        });
        edit(&mut object);
        serde_json::from_value(object).unwrap()
    }

    const ONE: Pending<'_> = Pending {
        uid: "uid-1",
        namespace: "app",
        name: "nightly-1",
    };

    #[test]
    fn a_job_of_one_snapshot_is_known_by_its_name() {
        assert!(concerns(&job(|_| {}), &ONE));
        assert!(!concerns(
            &job(|j| j["metadata"]["namespace"] = json!("other")),
            &ONE
        ));
        assert!(!concerns(
            &job(|j| j["metadata"]["name"] = json!("nightly-10-delete")),
            &ONE
        ));
        let elsewhere = job(|j| {
            j["metadata"]["name"] = json!("app-nightly-1-delete");
            j["metadata"]["namespace"] = json!("backup");
        });
        assert!(concerns(&elsewhere, &ONE));
    }

    #[test]
    fn a_name_that_was_cut_is_taken_for_the_same_rather_than_not() {
        let name = "n".repeat(70);
        let long = Pending { name: &name, ..ONE };
        let cut = job(|j| j["metadata"]["name"] = json!(format!("{}-0123456789abcdef", "n".repeat(46))));
        assert!(concerns(&cut, &long));
    }

    #[test]
    fn a_batch_is_known_by_its_members() {
        let batch = |members: &str| {
            job(|j| {
                j["metadata"]["name"] = json!("snapdel-nas-1");
                j["metadata"]["labels"]["kopiur.home-operations.com/op"] = json!("snapshot-delete-batch");
                j["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"] = json!(members);
            })
        };
        assert!(concerns(&batch("uid-0,uid-1"), &ONE));
        assert!(!concerns(&batch("uid-0,uid-10"), &ONE));
        assert!(!concerns(&batch(""), &ONE));
    }
}
