//! What a schedule inherits of the repositories of its policies: time zone and jitter (`spec.scheduleDefaults`).
//!
//! **Promises.** What the schedule says itself counts. Repositories that disagree give nothing, and the schedule says so.
//! While none of them can be read, what the pinned slot was computed with stays: a repository that is made anew must not
//! move the slots.
//!
//! **Assumes.** A policy that is suspended has its repository all the same.

use crate::context::Context;
use crate::world::keys;
use holdfast_api::repository::ScheduleDefaults;
use holdfast_api::schedule::{ScheduleTimes, Slot};
use holdfast_api::{SnapshotPolicy, SnapshotSchedule};
use std::sync::Arc;

/// The time zone and the jitter in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InForce {
    /// IANA time zone; none is UTC.
    pub timezone: Option<String>,
    /// Jitter; none is none.
    pub jitter: Option<String>,
    /// One of them comes from a repository.
    pub inherited: bool,
    /// The repositories disagree about these fields, which the schedule leaves to them.
    pub disagreed: Vec<&'static str>,
}

/// What is in force for a schedule with these policies.
pub fn in_force(ctx: &Context, schedule: &SnapshotSchedule, policies: &[Arc<SnapshotPolicy>]) -> InForce {
    let known = policies.iter().filter_map(|policy| {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let key = keys::resolve(policy.spec.repository.as_ref()?, namespace)?;
        let view = ctx.world.repository(&key)?;
        Some(view.spec.schedule_defaults.clone().unwrap_or_default())
    });
    let known: Vec<ScheduleDefaults> = known.collect();
    let pinned = schedule.status.as_ref().and_then(|s| s.next_schedule.as_ref());
    merged(&schedule.spec.schedule, &known, pinned)
}

fn merged(times: &ScheduleTimes, known: &[ScheduleDefaults], pinned: Option<&Slot>) -> InForce {
    let mut in_force = InForce::default();
    let mut field = |own: &Option<String>,
                     of: fn(&ScheduleDefaults) -> &Option<String>,
                     was: fn(&Slot) -> &Option<String>,
                     name: &'static str| {
        if own.is_some() {
            return own.clone();
        }
        let Some(first) = known.first() else {
            return pinned.and_then(|slot| was(slot).clone());
        };
        if known.iter().any(|other| of(other) != of(first)) {
            in_force.disagreed.push(name);
            return None;
        }
        in_force.inherited |= of(first).is_some();
        of(first).clone()
    };
    let timezone = field(&times.timezone, |d| &d.timezone, |s| &s.timezone, "timezone");
    let jitter = field(&times.jitter, |d| &d.jitter, |s| &s.jitter, "jitter");
    InForce {
        timezone,
        jitter,
        ..in_force
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(own: Value, known: &[Value], pinned: Option<Value>) -> (Option<String>, Option<String>, usize) {
        let mut times = json!({ "cron": "0 3 * * *" });
        for (key, value) in own.as_object().unwrap() {
            times[key] = value.clone();
        }
        let times = serde_json::from_value(times).unwrap();
        let known: Vec<ScheduleDefaults> = known
            .iter()
            .map(|d| serde_json::from_value(d.clone()).unwrap())
            .collect();
        let pinned: Option<Slot> = pinned.map(|slot| serde_json::from_value(slot).unwrap());
        let found = merged(&times, &known, pinned.as_ref());
        (found.timezone, found.jitter, found.disagreed.len())
    }

    #[test]
    fn what_the_schedule_says_counts_and_what_it_leaves_out_comes_from_the_repositories() {
        let berlin = json!({ "timezone": "Europe/Berlin", "jitter": "5m" });
        let text = |t: &str| Some(t.to_owned());
        assert_eq!(
            of(json!({}), std::slice::from_ref(&berlin), None),
            (text("Europe/Berlin"), text("5m"), 0)
        );
        assert_eq!(
            of(json!({ "timezone": "UTC" }), std::slice::from_ref(&berlin), None),
            (text("UTC"), text("5m"), 0)
        );
        assert_eq!(of(json!({}), &[json!({})], None), (None, None, 0));
        assert_eq!(
            of(json!({}), &[berlin.clone(), json!({ "jitter": "5m" })], None),
            (None, text("5m"), 1),
            "they disagree about the time zone: UTC"
        );
        assert_eq!(
            of(
                json!({ "timezone": "UTC" }),
                &[berlin, json!({ "jitter": "5m" })],
                None
            )
            .2,
            0,
            "about what the schedule says nobody is asked"
        );
    }

    #[test]
    fn while_no_repository_can_be_read_the_pinned_slot_stays() {
        let slot = json!({ "at": "2026-01-01T02:00:00Z", "timezone": "Europe/Berlin" });
        assert_eq!(
            of(json!({}), &[], Some(slot)),
            (Some("Europe/Berlin".to_owned()), None, 0)
        );
    }
}
