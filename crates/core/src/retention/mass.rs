//! Whether retention may prune as many as it would (`docs/design.md` 3.7).
//!
//! **Promises.** As many as the repository's threshold at once are pruned only in the ordinary course of things, or
//! after a person said so for exactly this generation of the policy. The first pass over a policy, and one whose
//! last completed pass is not known, count as after an edit. What was said for a generation covers what its edit
//! brought, until a pass over it was completed: as many adopted ones that come later are asked about as they are then.
//! **What was taken over counts as an edit of its own**: no pass is completed since, and what was said before, or lies in a
//! file that is applied again, does not cover it; while part of it is missing, even one waits. A hold latches: fewer than the threshold do not end it, only a person,
//! another edit, or a retention that prunes none of them.
//! A threshold of 0 holds nothing.
//!
//! **Assumes.** The threshold is the strictest of all repositories concerned.

use crate::hash::fnv1a;
use jiff::Timestamp;

/// One pass of retention over one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass<'a> {
    /// Snapshots it would prune.
    pub prunes: usize,
    /// UIDs of those of them that were adopted.
    pub adopted: &'a [&'a str],
    /// The strictest threshold; 0: off.
    pub threshold: u32,
    /// `metadata.generation` of the policy.
    pub generation: Option<i64>,
    /// The generation of the last pass that was completed.
    pub completed: Option<i64>,
    /// When the policy last took something over: with no completed pass since, that is what has to be allowed.
    pub taken_over: Option<Timestamp>,
    /// Not all of what was last taken over is there: the rest may come a few at a time, and each push out a few.
    pub partial: bool,
    /// It is held by now, for this generation.
    pub held: bool,
    /// The annotation `…/allow-mass-prune`.
    pub acknowledged: Option<&'a str>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mass {
    /// Prune.
    Goes,
    /// Prune nothing until a person says so, with this value: as many because the policy was edited.
    HeldForEdit(String),
    /// Prune nothing until a person says so, with this value: as many that were adopted.
    HeldForAdopted(String),
}

/// What a person says for an edit, or for what was taken over since a pass was completed.
fn of_edit(pass: &Pass<'_>, generation: &str) -> String {
    match (pass.completed, pass.taken_over) {
        (None, Some(at)) => format!("{generation}-{:016x}", fnv1a(at.to_string().bytes())),
        (Some(_), _) | (None, None) => generation.to_owned(),
    }
}

/// What a person says for exactly these adopted ones.
fn of_adopted(generation: &str, uids: &[&str]) -> String {
    let mut sorted = uids.to_vec();
    sorted.sort_unstable();
    let bytes = sorted.iter().flat_map(|uid| uid.bytes().chain([0]));
    format!("{generation}-{:016x}", fnv1a(bytes))
}

/// Judges one pass.
#[must_use]
pub fn judge(pass: &Pass<'_>) -> Mass {
    let many = |count: usize| {
        let latched = pass.held && count > 0;
        pass.threshold != 0 && (latched || u32::try_from(count).map_or(true, |count| count >= pass.threshold))
    };
    let generation = pass
        .generation
        .map_or_else(String::new, |generation| generation.to_string());
    let edited = pass.generation.is_none() || pass.completed != pass.generation;
    let said = |value: &str| pass.generation.is_some() && pass.acknowledged == Some(value);
    let edit = of_edit(pass, &generation);
    if edited && said(&edit) {
        return Mass::Goes;
    }
    let adopted = of_adopted(&generation, pass.adopted);
    // What comes a few at a time would never be as many as the threshold.
    let trickles = pass.partial && pass.threshold != 0 && pass.prunes > 0;
    if edited && (many(pass.prunes) || trickles) {
        Mass::HeldForEdit(edit)
    } else if many(pass.adopted.len()) && !said(&adopted) {
        // After an edit the generation's own word is the wider one, and covers these as well.
        Mass::HeldForAdopted(if edited { edit } else { adopted })
    } else {
        Mass::Goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routine(prunes: usize) -> Pass<'static> {
        Pass {
            prunes,
            adopted: &[],
            threshold: 10,
            generation: Some(4),
            completed: Some(4),
            taken_over: None,
            partial: false,
            held: false,
            acknowledged: None,
        }
    }

    #[test]
    fn routine_pruning_is_never_held() {
        assert_eq!(judge(&routine(5000)), Mass::Goes);
    }

    #[test]
    fn as_many_as_the_threshold_after_an_edit_wait_for_a_person() {
        for completed in [None, Some(3), Some(5)] {
            let edited = |prunes| Pass {
                completed,
                ..routine(prunes)
            };
            assert_eq!(judge(&edited(9)), Mass::Goes);
            assert_eq!(judge(&edited(10)), Mass::HeldForEdit("4".to_owned()));
            assert_eq!(judge(&edited(usize::MAX)), Mass::HeldForEdit("4".to_owned()));
            let off = Pass {
                threshold: 0,
                ..edited(5000)
            };
            assert_eq!(judge(&off), Mass::Goes);
        }
    }

    #[test]
    fn only_this_generation_to_the_letter_lets_them_go() {
        for (acknowledged, goes) in [
            (Some("4"), true),
            (Some("3"), false),
            (Some("5"), false),
            (Some("04"), false),
            (Some(" 4"), false),
            (Some(""), false),
            (None, false),
        ] {
            let pass = Pass {
                completed: None,
                acknowledged,
                ..routine(50)
            };
            assert_eq!(judge(&pass) == Mass::Goes, goes, "{acknowledged:?}");
        }
        let unknown = Pass {
            generation: None,
            completed: None,
            acknowledged: Some(""),
            ..routine(50)
        };
        assert_eq!(judge(&unknown), Mass::HeldForEdit(String::new()));
    }

    const MANY: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

    #[test]
    fn as_many_adopted_ones_wait_without_an_edit_and_what_is_said_covers_exactly_them() {
        let adopted = |adopted| Pass {
            adopted,
            ..routine(50)
        };
        assert_eq!(judge(&adopted(&MANY[..9])), Mass::Goes);
        let Mass::HeldForAdopted(value) = judge(&adopted(&MANY[..10])) else {
            panic!("they are held")
        };
        assert!(value.starts_with("4-"), "{value}");
        let said = |uids, acknowledged| Pass {
            acknowledged: Some(acknowledged),
            ..adopted(uids)
        };
        assert_eq!(judge(&said(&MANY[..10], value.as_str())), Mass::Goes);
        let mut turned = MANY[..10].to_vec();
        turned.reverse();
        assert_eq!(judge(&said(&turned, value.as_str())), Mass::Goes, "in any order");
        for others in [&MANY[..11], &MANY[1..11], &MANY[2..]] {
            assert!(
                matches!(judge(&said(others, value.as_str())), Mass::HeldForAdopted(_)),
                "{others:?}"
            );
        }
    }

    #[test]
    fn what_was_taken_over_is_allowed_by_nothing_that_was_said_before() {
        let at = |second| Timestamp::from_second(second).ok();
        let taken = |acknowledged, second| Pass {
            completed: None,
            taken_over: at(second),
            acknowledged,
            ..routine(50)
        };
        // The generation's own word, as it may lie in a file that makes the policy again.
        let Mass::HeldForEdit(value) = judge(&taken(Some("4"), 7)) else {
            panic!("it is held")
        };
        assert!(value.starts_with("4-"), "{value}");
        assert_eq!(judge(&taken(Some(&value), 7)), Mass::Goes);
        assert!(matches!(judge(&taken(Some(&value), 8)), Mass::HeldForEdit(_)));
        let few = Pass {
            prunes: 9,
            ..taken(None, 7)
        };
        assert_eq!(judge(&few), Mass::Goes);
        // Completed since: an edit is an edit again.
        let edited = Pass {
            completed: Some(3),
            ..taken(Some("4"), 7)
        };
        assert_eq!(judge(&edited), Mass::Goes);
    }

    #[test]
    fn after_half_an_adoption_a_single_one_waits_for_a_person() {
        let partial = |prunes, completed| Pass {
            partial: true,
            completed,
            taken_over: Timestamp::from_second(7).ok(),
            ..routine(prunes)
        };
        let Mass::HeldForEdit(value) = judge(&partial(1, None)) else {
            panic!("it is held")
        };
        let said = Pass {
            acknowledged: Some(&value),
            ..partial(1, None)
        };
        assert_eq!(judge(&said), Mass::Goes);
        assert_eq!(judge(&partial(0, None)), Mass::Goes);
        assert_eq!(judge(&partial(9, Some(4))), Mass::Goes, "judged to its end since");
        let off = Pass {
            threshold: 0,
            ..partial(1, None)
        };
        assert_eq!(judge(&off), Mass::Goes);
    }

    #[test]
    fn a_hold_latches_until_a_person_an_edit_or_nothing_to_prune_ends_it() {
        let held = |prunes| Pass {
            completed: Some(3),
            held: true,
            ..routine(prunes)
        };
        assert_eq!(judge(&held(3)), Mass::HeldForEdit("4".to_owned()));
        assert_eq!(judge(&held(0)), Mass::Goes);
        let said = Pass {
            acknowledged: Some("4"),
            ..held(3)
        };
        assert_eq!(judge(&said), Mass::Goes);
        let off = Pass {
            threshold: 0,
            ..held(3)
        };
        assert_eq!(judge(&off), Mass::Goes);
        let adopted = Pass {
            adopted: &MANY[..2],
            held: true,
            ..routine(5)
        };
        assert!(matches!(judge(&adopted), Mass::HeldForAdopted(_)));
        let others = Pass {
            held: true,
            ..routine(5)
        };
        assert_eq!(judge(&others), Mass::Goes, "none of the adopted ones is left");
    }

    #[test]
    fn what_was_said_for_a_generation_covers_adopted_ones_only_until_it_was_completed() {
        let said = |completed| Pass {
            adopted: &MANY,
            completed,
            acknowledged: Some("4"),
            ..routine(50)
        };
        assert_eq!(judge(&said(Some(3))), Mass::Goes);
        assert!(matches!(judge(&said(Some(4))), Mass::HeldForAdopted(_)));
    }
}
