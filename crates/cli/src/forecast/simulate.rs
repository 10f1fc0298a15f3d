//! A deletion acted out on plain data: what the API server and its garbage collector would do, and the operator with
//! the Snapshots of a policy.
//!
//! **Promises.** An object with finalizers stays and is being deleted, one without is gone. What is owned goes once
//! all its owners do; a namespace takes everything in it.
//!
//! **Assumes.** An owner of a kind that is not read here stays.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, bail};
use holdfast_api::names;
use holdfast_api::shared::{CascadePolicy, Origin};
use holdfast_operator::world::views::ScheduleView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::cluster::Cluster;
use crate::target::Target;

/// What a deletion did.
pub struct Simulated {
    /// The cluster afterwards.
    pub cluster: Cluster,
    /// UIDs of the Snapshots that are deleted by it; those that were being deleted before are not among them.
    pub asked: BTreeSet<String>,
}

/// Deletes `target`.
pub fn delete(cluster: &Cluster, target: &Target, now: Timestamp) -> Result<Simulated> {
    let mut after = cluster.clone();
    let mut doomed = doomed_by(&mut after, target, now)?;
    grow(&after, &mut doomed);
    let is_doomed = |metadata: &ObjectMeta| doomed.contains(uid(metadata));
    let asked = after
        .snapshots
        .iter()
        .filter(|s| is_doomed(&s.metadata) && s.metadata.deletion_timestamp.is_none())
        .map(|s| uid(&s.metadata).to_owned())
        .collect();
    // The API server cuts deletion times to whole seconds.
    let time = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let stays = |metadata: &mut ObjectMeta| {
        if !is_doomed(metadata) {
            return true;
        }
        metadata.deletion_timestamp.get_or_insert_with(|| time.clone());
        metadata.finalizers.as_ref().is_some_and(|list| !list.is_empty())
    };
    // The operator brings a schedule's last word to its Snapshots before it lets the schedule go.
    for schedule in after.schedules.iter().filter(|s| is_doomed(&s.metadata)) {
        let says = match ScheduleView::from(schedule).cascade() {
            CascadePolicy::Delete => CascadePolicy::Delete,
            CascadePolicy::Retain | CascadePolicy::Unknown => CascadePolicy::Retain,
        };
        for snapshot in &mut after.snapshots {
            let owners = snapshot.metadata.owner_references.as_deref().unwrap_or_default();
            if owners.iter().any(|owner| owner.uid == uid(&schedule.metadata)) {
                snapshot.spec.on_schedule_delete = Some(says);
            }
        }
    }
    after
        .repositories
        .retain_mut(|object| stays(&mut object.metadata));
    after.policies.retain_mut(|object| stays(&mut object.metadata));
    after.schedules.retain_mut(|object| stays(&mut object.metadata));
    after.snapshots.retain_mut(|object| stays(&mut object.metadata));
    Ok(Simulated {
        cluster: after,
        asked,
    })
}

fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

fn all(cluster: &Cluster) -> impl Iterator<Item = &ObjectMeta> {
    let repositories = cluster.repositories.iter().map(|object| &object.metadata);
    let policies = cluster.policies.iter().map(|object| &object.metadata);
    let schedules = cluster.schedules.iter().map(|object| &object.metadata);
    let snapshots = cluster.snapshots.iter().map(|object| &object.metadata);
    repositories.chain(policies).chain(schedules).chain(snapshots)
}

/// UIDs of what the deletion itself names.
fn doomed_by(cluster: &mut Cluster, target: &Target, now: Timestamp) -> Result<BTreeSet<String>> {
    fn find<'a>(
        mut list: impl Iterator<Item = &'a ObjectMeta>,
        target: &Target,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<BTreeSet<String>> {
        let found = list
            .find(|m| m.namespace.as_deref() == namespace && m.name.as_deref() == Some(name))
            .ok_or_else(|| {
                anyhow!("there is no {target} that you can see: look at its name, and choose its namespace with -n")
            })?;
        if found.deletion_timestamp.is_some() {
            bail!("{target} is already being deleted: `kubectl holdfast waves` and `why` tell how that goes");
        }
        Ok(BTreeSet::from([uid(found).to_owned()]))
    }
    match target {
        Target::Snapshot { namespace, name } => {
            let list = cluster.snapshots.iter().map(|object| &object.metadata);
            find(list, target, Some(namespace), name)
        }
        Target::Schedule { namespace, name } => {
            let list = cluster.schedules.iter().map(|object| &object.metadata);
            find(list, target, Some(namespace), name)
        }
        Target::Policy { namespace, name } => {
            let list = cluster.policies.iter().map(|object| &object.metadata);
            let mut doomed = find(list, target, Some(namespace), name)?;
            doomed.extend(children(cluster, namespace, name, now));
            Ok(doomed)
        }
        Target::Repository(key) => {
            let same = cluster.repositories.iter().filter(|object| object.key == *key);
            find(
                same.map(|object| &object.metadata),
                target,
                key.namespace(),
                key.name(),
            )
        }
        Target::Namespace(name) => {
            match cluster.namespaces.get(name) {
                Some(true) => bail!(
                    "{target} is already being deleted: `kubectl holdfast waves -n {name}` tells how that goes"
                ),
                Some(false) => {}
                None if all(cluster).any(|m| m.namespace.as_ref() == Some(name)) => {}
                None => bail!("there is no {target} that you can see"),
            }
            cluster.namespaces.insert(name.clone(), true);
            Ok(all(cluster)
                .filter(|m| m.namespace.as_ref() == Some(name))
                .map(|m| uid(m).to_owned())
                .collect())
        }
    }
}

/// UIDs of a policy's Snapshots, which the operator deletes with it, marked as it marks them.
fn children(cluster: &mut Cluster, namespace: &str, name: &str, now: Timestamp) -> Vec<String> {
    let is_it = |m: &ObjectMeta| m.namespace.as_deref() == Some(namespace) && m.name.as_deref() == Some(name);
    let policy = cluster.policies.iter().find(|p| is_it(&p.metadata));
    let deletes = policy
        .and_then(|p| p.spec.deletion.as_ref())
        .is_some_and(|d| d.on_policy_delete == CascadePolicy::Delete);
    let mut uids = Vec::new();
    for snapshot in &mut cluster.snapshots {
        let meta = &mut snapshot.metadata;
        let origin = meta.labels.as_ref().and_then(|l| l.get(names::ORIGIN_LABEL));
        let ours = match origin.map_or(Origin::Manual, |text| Origin::parse(text)) {
            Origin::Scheduled | Origin::Manual | Origin::Adopted => true,
            Origin::Discovered | Origin::Replicated | Origin::Unknown => false,
        };
        let named = snapshot.spec.policy_ref.as_ref().is_some_and(|p| p.name == name);
        if !ours
            || !named
            || meta.namespace.as_deref() != Some(namespace)
            || meta.deletion_timestamp.is_some()
        {
            continue;
        }
        uids.push(uid(meta).to_owned());
        let annotations = meta.annotations.get_or_insert_default();
        for mark in [names::PRUNED_BY, names::PRUNED_AT, names::PRUNED_KEPT] {
            annotations.remove(mark);
        }
        if !deletes {
            annotations.insert(names::PRUNED_BY.to_owned(), "policy-cascade".to_owned());
            annotations.insert(names::PRUNED_AT.to_owned(), now.to_string());
        }
    }
    uids
}

/// Adds what the garbage collector deletes because every owner goes.
fn grow(cluster: &Cluster, doomed: &mut BTreeSet<String>) {
    loop {
        let more: Vec<String> = all(cluster)
            .filter(|m| !doomed.contains(uid(m)))
            .filter(|m| {
                let owners = m.owner_references.as_deref().unwrap_or_default();
                !owners.is_empty() && owners.iter().all(|owner| doomed.contains(&owner.uid))
            })
            .map(|m| uid(m).to_owned())
            .collect();
        if more.is_empty() {
            return;
        }
        doomed.extend(more);
    }
}
