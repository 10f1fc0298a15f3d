//! Snapshots that are made again under the name of one that retention pruned.
//!
//! A tool that keeps a cluster as a repository of manifests says re-creates what was deleted. If that ran, it would be
//! the newest of its source and push out another one, which the tool re-creates too, for ever.
//!
//! **Promises.** What was pruned is remembered before it is deleted, for [`MEMORY`], at most [`MOST`] names.
//!
//! **Assumes.** Names of Snapshots that a schedule made are not passed in: nobody else keeps those.

use jiff::{SignedDuration, Timestamp};

/// How long a name is remembered: a tool re-creates within minutes, a person who uses a name again has waited longer.
pub const MEMORY: SignedDuration = SignedDuration::from_hours(24);

/// Most names that are remembered.
pub const MOST: usize = 200;

/// A name that retention pruned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// It.
    pub name: String,
    /// When.
    pub at: Timestamp,
}

/// When retention pruned one of this name, if an object created at this time makes it again.
#[must_use]
pub fn made_again(remembered: &[Pruned], name: &str, created_at: Timestamp) -> Option<Timestamp> {
    let of_name = remembered.iter().filter(|one| one.name == name);
    let at = of_name.map(|one| one.at).max()?;
    // A creation time has whole seconds and another machine's clock: a little before is after.
    let age = created_at.duration_since(at);
    (age < MEMORY && age > -SignedDuration::from_mins(10)).then_some(at)
}

/// What is remembered once these are about to be pruned: those still fresh and these, the newest last.
#[must_use]
pub fn remember(known: &[Pruned], about_to: &[String], now: Timestamp) -> Vec<Pruned> {
    let is_new = |name: &String| !known.iter().any(|one| one.name == *name && is_fresh(one, now));
    let mut all: Vec<Pruned> = known.iter().filter(|one| is_fresh(one, now)).cloned().collect();
    let skip = about_to.len().saturating_sub(MOST);
    let new = about_to.iter().skip(skip).filter(|name| is_new(name));
    all.extend(new.map(|name| Pruned {
        name: name.clone(),
        at: now,
    }));
    // What is about to go stays, the oldest others make room.
    let mut surplus = all.len().saturating_sub(MOST);
    all.retain(|one| {
        let goes = surplus > 0 && !about_to.contains(&one.name);
        surplus -= usize::from(goes);
        !goes
    });
    all
}

fn is_fresh(one: &Pruned, now: Timestamp) -> bool {
    now.duration_since(one.at) < MEMORY
}
