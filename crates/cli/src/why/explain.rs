//! The facts about one Snapshot, the rule that decides about it, and what happens next.
//!
//! **Promises.** Facts and rule come from the code that the operator runs. What cannot be read is said.

use anyhow::{Context as _, Result};
use holdfast_api::{Snapshot, conditions};
use holdfast_core::deletion::{
    Cascade, HeldCondition, MemberFacts, NamespaceState, OwnMover, Owner, Place, Policy, RepositoryPlan,
    Resolution, Sharing, Stamp,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use crate::cluster::{Cluster, view_of};
use crate::connect::Connection;
use crate::failure;
use crate::forecast::{self, Judged, Outcome};
use crate::read;
use crate::style::Style;
use crate::target::Target;

/// What there is to say beside the status.
#[derive(Debug, Default, Serialize)]
pub struct Explained {
    /// Name and value, in the order of the rules that read them.
    facts: Vec<(&'static str, String)>,
    /// What is decided, or would be.
    decision: Option<Judged>,
    /// How a hold would end.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_release: Option<String>,
    notes: Vec<String>,
}

/// Explains `snapshot` with what the caller may read.
pub async fn read(
    connection: &Connection,
    snapshot: &Snapshot,
    home: &str,
    now: Timestamp,
) -> Result<Explained> {
    match read::cluster(connection, &connection.namespace, home).await {
        Ok(cluster) => explain(cluster, snapshot, now),
        Err(error) if failure::is_forbidden(&error) => Ok(Explained {
            notes: vec![format!("The facts cannot be told: {error}.")],
            ..Explained::default()
        }),
        Err(error) => Err(error),
    }
}

/// The facts and the decision; of a live one, as if it were deleted now.
pub fn explain(mut cluster: Cluster, snapshot: &Snapshot, now: Timestamp) -> Result<Explained> {
    let view = view_of(snapshot)?;
    if view.metadata.deletion_timestamp.is_none() {
        let key = view.key();
        let target = Target::Snapshot {
            namespace: key.namespace,
            name: key.name,
        };
        cluster = forecast::after(&mut cluster, &target, now)?.cluster;
    }
    let mut explained = Explained {
        notes: cluster.notes.clone(),
        ..Explained::default()
    };
    for foreseen in cluster.foresee(now)? {
        let partly = cluster.sees_part_of_any(&foreseen);
        let decision = foreseen.plan.decision(view.uid());
        let member = foreseen.lane.members.iter().find(|m| m.uid == view.uid());
        if let (Some(decision), Some(member)) = (decision, member) {
            let plan = foreseen.plan_of(decision);
            let judged = Judged::of(decision, member, plan, partly);
            explained.facts = facts(member, plan, partly, view.schedule_owner().map(|(_, name)| name));
            explained.to_release = decision
                .repository
                .as_ref()
                .filter(|_| judged.outcome == Outcome::Held)
                .map(forecast::to_release);
            explained.decision = Some(judged);
        }
    }
    if explained.decision.is_none() && !view.has_finalizer() {
        explained.notes.push(
            "Holdfast's finalizer is not on it: the object goes at once and its data, if it has any, stays."
                .to_owned(),
        );
    }
    Ok(explained)
}

fn facts(
    member: &MemberFacts,
    plan: Option<&RepositoryPlan>,
    partly: bool,
    schedule: Option<&str>,
) -> Vec<(&'static str, String)> {
    let mut list = Vec::new();
    let mut fact = |name: &'static str, value: String| list.push((name, value));
    if member.skip {
        fact("skip-snapshot-cleanup", "is set".into());
    }
    fact(
        "recorded",
        match &member.snapshot {
            Some(snapshot) => format!("snapshot {}", snapshot.id),
            None => format!("nothing; {}", mover(member.mover)),
        },
    );
    let namespace = match member.namespace_state {
        NamespaceState::Live => "is there",
        NamespaceState::Terminating => "is being deleted",
        NamespaceState::Unreadable => "cannot be read",
    };
    fact("namespace", format!("{} {namespace}", member.namespace));
    if member.stamp != Stamp::None {
        let at = member
            .pruned_at
            .map_or_else(|| "at no time".to_owned(), |at| format!("at {at}"));
        fact("pruned-by", format!("{:?}, {at}", member.stamp));
    }
    let cascade = match member.cascade {
        Cascade::Retain => "Retain",
        Cascade::Delete => "Delete",
        Cascade::Unknown => "a value of a newer release",
    };
    let schedule = format!("snapshotschedule {}", schedule.unwrap_or_default());
    let owner = match member.owner {
        Owner::None => "none".to_owned(),
        Owner::Alive => format!("{schedule} is there, onScheduleDelete {cascade}"),
        Owner::Gone => format!("{schedule} is gone, onScheduleDelete {cascade}"),
        Owner::Replaced => format!("{schedule} was created anew, onScheduleDelete {cascade}"),
        Owner::Terminating => format!("{schedule} is being deleted, onScheduleDelete {cascade}"),
        Owner::Unknown => format!("{schedule} cannot be read, onScheduleDelete {cascade}"),
    };
    fact("owner", owner);
    fact(
        "deletionPolicy",
        match member.policy {
            Policy::Delete => "Delete".into(),
            Policy::Retain => "Retain".into(),
            Policy::Orphan => "Orphan".into(),
            Policy::Unknown => "a value of a newer release".into(),
        },
    );
    fact(
        "same data",
        match &member.sharing {
            Sharing::Alone => "recorded by no other Snapshot that can be seen".into(),
            Sharing::WithLive(other) => format!("recorded by Snapshot {other} too"),
            Sharing::Unknown => "not known".into(),
        },
    );
    let place = match member.place {
        Place::Fine => "",
        Place::Terminating => ", the namespace of its delete Jobs is being deleted",
        Place::Unknown => ", the namespace of its delete Jobs cannot be read",
        Place::NotSet => ", its delete Jobs have no namespace",
    };
    fact(
        "repository",
        match &member.repository {
            Resolution::Resolved(key) => format!(
                "{key}{}{place}",
                if member.pin.is_some() {
                    ""
                } else {
                    ", by its policy"
                }
            ),
            Resolution::Gone => "is gone".into(),
            Resolution::Unreadable => "cannot be read".into(),
        },
    );
    if let Some(plan) = plan
        && let Some(threshold) = plan.threshold
    {
        let at_least = if partly { "at least " } else { "" };
        fact(
            "breaker",
            format!(
                "threshold {threshold}, {at_least}{} pending deletions count",
                plan.count
            ),
        );
    }
    match member.held {
        HeldCondition::NotHeld => {}
        HeldCondition::Held { since } => fact("held", format!("since {since}")),
        HeldCondition::Unreadable => fact("held", "its condition DeletionHeld cannot be read".into()),
    }
    list
}

fn mover(mover: OwnMover) -> &'static str {
    match mover {
        OwnMover::None => "no backup Job could still record something",
        OwnMover::Running => "its backup Job runs",
        OwnMover::Unread => "its backup Job has ended and is not yet read",
        OwnMover::Unknown => "whether its backup Job runs is not known",
    }
}

impl Explained {
    /// Whether the operator will no longer hold it, although its condition still says so.
    pub fn ends_hold(&self) -> bool {
        self.decision.as_ref().is_some_and(|judged| match judged.outcome {
            Outcome::Deleted | Outcome::Kept => true,
            Outcome::Held | Outcome::Waits | Outcome::Unknown => false,
        })
    }

    /// For people; `live`: it is not being deleted.
    pub fn text(&self, live: bool, style: Style) -> String {
        let mut text = String::new();
        if let Some(judged) = &self.decision {
            let when = if live {
                "If it were deleted now"
            } else {
                "By what can be read now"
            };
            let outcome = match judged.outcome {
                Outcome::Deleted => style.bad("its data is deleted"),
                Outcome::Held => style.waits("it is held"),
                Outcome::Kept => style.good("its data is kept and the object goes"),
                Outcome::Waits => style.waits("it waits"),
                Outcome::Unknown => style.waits("that is not known"),
            };
            text.push_str(&format!(
                "{}{when}: {outcome}, {}, by rule {} ({}).\n",
                if live { "\n" } else { "" },
                judged.reason,
                judged.rule,
                judged.rule_name
            ));
            // Of one that is held, the condition has been told.
            if live || judged.outcome != Outcome::Held {
                text.push_str(&format!("  {}\n", judged.message));
            }
            if let Some(release) = self.to_release.as_ref().filter(|_| live) {
                text.push_str(&format!("  {release}\n"));
            }
            text.push_str("The facts that decide:\n");
            for (name, value) in &self.facts {
                text.push_str(&format!("  {name:<22} {value}\n"));
            }
        }
        for note in &self.notes {
            text.push_str(&format!("{} {note}\n", style.waits("note:")));
        }
        if !live && !text.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// For programs.
pub fn json(snapshot: &Snapshot, explained: &Explained) -> Result<String> {
    let metadata = &snapshot.metadata;
    let status = snapshot.status.clone().unwrap_or_default();
    let told: Vec<_> = [
        conditions::DELETION_HELD,
        conditions::DELETION_BLOCKED,
        conditions::STATUS_LOST,
    ]
    .into_iter()
    .filter_map(|kind| conditions::get(&status.conditions, kind))
    .collect();
    let facts: serde_json::Map<String, serde_json::Value> = explained
        .facts
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect();
    let text = serde_json::to_string_pretty(&json!({
        "namespace": metadata.namespace,
        "name": metadata.name,
        "deletedAt": metadata.deletion_timestamp,
        "facts": facts,
        "decision": explained.decision,
        "toRelease": explained.to_release,
        "conditions": told,
        "deletion": status.deletion,
        "notes": explained.notes,
    }))
    .context("the answer cannot be written as JSON")?;
    Ok(format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::tests::{cluster, nightly, now, snapshot};
    use holdfast_operator::world::keys::ObjectKey;

    fn text(cluster: Cluster, name: &str) -> String {
        let found = cluster
            .snapshots
            .iter()
            .find(|s| s.metadata.name.as_deref() == Some(name))
            .unwrap()
            .clone();
        let live = found.metadata.deletion_timestamp.is_none();
        explain(cluster, &found, now()).unwrap().text(live, Style::PLAIN)
    }

    #[test]
    fn a_live_one_is_told_what_would_happen() {
        let text = text(nightly(3, "Delete"), "s00");
        for part in [
            "If it were deleted now: its data is deleted, BelowThreshold, by rule 9 (MassDeletionBreaker).",
            "owner                  snapshotschedule nightly is there, onScheduleDelete Delete\n",
            "breaker                threshold 10, 1 pending deletions count\n",
            "repository             repository a/main\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_pending_one_is_told_its_rule() {
        let mut all = nightly(10, "Retain");
        all.schedules.clear();
        for one in &mut all.snapshots {
            one.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
        }
        let text = text(all, "s00");
        assert!(
            text.contains(
                "its data is kept and the object goes, RetainOnScheduleDelete, by rule 6 (ScheduleGuard)."
            ),
            "{text}"
        );
        assert!(text.contains("snapshotschedule nightly is gone"), "{text}");
    }

    #[test]
    fn what_cannot_be_read_is_a_fact_too() {
        let mut all = nightly(1, "Retain");
        all.schedules.clear();
        all.unread.schedules.insert(ObjectKey::new("a", "nightly"));
        let text = text(all, "s00");
        assert!(
            text.contains("that is not known, OwnerUnknown, by rule 6"),
            "{text}"
        );
        assert!(text.contains("nightly cannot be read"), "{text}");
    }

    #[test]
    fn one_without_the_finalizer_is_told_so() {
        let mut all = cluster();
        all.snapshots = vec![snapshot("s", |s| s["metadata"]["finalizers"] = json!([]))];
        assert!(text(all, "s").contains("finalizer is not on it"));
    }

    #[test]
    fn the_json_of_why_has_the_facts_the_rule_and_what_is_said() {
        let mut all = nightly(10, "Retain");
        all.schedules.clear();
        for one in &mut all.snapshots {
            one.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
        }
        let found = all.snapshots[0].clone();
        let name = found.metadata.name.clone().unwrap();
        let explained = explain(all, &found, now()).unwrap();
        let told: serde_json::Value = serde_json::from_str(&json(&found, &explained).unwrap()).unwrap();
        assert_eq!(told["name"], json!(name));
        assert_eq!(told["deletedAt"], json!(now().to_string()));
        let facts = told["facts"].as_object().unwrap();
        assert!(
            facts.contains_key("owner") && facts.contains_key("repository"),
            "{told}"
        );
        assert!(
            told["decision"].to_string().contains("RetainOnScheduleDelete"),
            "{told}"
        );
        for list in ["conditions", "notes"] {
            assert!(told[list].is_array(), "{list}: {told}");
        }
    }
}
