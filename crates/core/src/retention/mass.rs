//! Whether retention may prune as many as it would (`docs/design.md` 3.7).
//!
//! **Promises.** As many as the repository's threshold at once are pruned only in the ordinary course of things, or
//! after a person said so for exactly this generation of the policy. The first pass over a policy, and one whose
//! last completed pass is not known, count as after an edit. A threshold of 0 holds nothing.
//!
//! **Assumes.** The threshold is the strictest of all repositories concerned.

/// One pass of retention over one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass<'a> {
    /// Snapshots it would prune.
    pub prunes: usize,
    /// Those of them that were adopted.
    pub adopted: usize,
    /// The strictest threshold; 0: off.
    pub threshold: u32,
    /// `metadata.generation` of the policy.
    pub generation: Option<i64>,
    /// The generation of the last pass that was completed.
    pub completed: Option<i64>,
    /// The annotation `…/allow-mass-prune`.
    pub acknowledged: Option<&'a str>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mass {
    /// Prune.
    Goes,
    /// Prune nothing until a person says so: as many because the policy was edited.
    HeldForEdit,
    /// Prune nothing until a person says so: as many that were adopted.
    HeldForAdopted,
}

/// Judges one pass.
#[must_use]
pub fn judge(pass: &Pass<'_>) -> Mass {
    let many = |count: usize| {
        pass.threshold != 0 && u32::try_from(count).map_or(true, |count| count >= pass.threshold)
    };
    let said = pass.generation.map(|generation| generation.to_string());
    let edited = pass.generation.is_none() || pass.completed != pass.generation;
    if said.is_some() && pass.acknowledged == said.as_deref() {
        Mass::Goes
    } else if many(pass.prunes) && edited {
        Mass::HeldForEdit
    } else if many(pass.adopted) {
        Mass::HeldForAdopted
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
            adopted: 0,
            threshold: 10,
            generation: Some(4),
            completed: Some(4),
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
            assert_eq!(judge(&edited(10)), Mass::HeldForEdit);
            assert_eq!(judge(&edited(usize::MAX)), Mass::HeldForEdit);
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
        assert_eq!(judge(&unknown), Mass::HeldForEdit);
    }

    #[test]
    fn as_many_adopted_ones_wait_without_an_edit() {
        let adopted = |adopted| Pass {
            adopted,
            ..routine(50)
        };
        assert_eq!(judge(&adopted(9)), Mass::Goes);
        assert_eq!(judge(&adopted(10)), Mass::HeldForAdopted);
        let said = Pass {
            acknowledged: Some("4"),
            ..adopted(50)
        };
        assert_eq!(judge(&said), Mass::Goes);
    }
}
