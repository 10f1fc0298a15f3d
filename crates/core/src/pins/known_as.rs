//! By which id a repository has a snapshot now.
//!
//! **Promises.** The recorded id counts while it is listed. Another one is believed only if it is the only one of the
//! listing with the same source and begin, no other object records it, and it carries no tag of another object or cluster;
//! a begin of whole seconds is too coarse to tell two runs apart, so then the tag has to be the object's own. A source
//! alone proves nothing. The mover's plan of a delete batch is stricter where the recorded id is not listed: it is not told
//! which objects are there, so that a tag of another one is never believed.

use jiff::Timestamp;

/// What an object records.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// The object's UID.
    pub uid: &'a str,
    /// Id of its snapshot.
    pub id: &'a str,
    /// When it was begun, as the repository told.
    pub start: Option<Timestamp>,
    /// Cluster of the object.
    pub cluster: &'a str,
}

/// One of a listing that is of the same source.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// Its id.
    pub id: &'a str,
    /// When it was begun.
    pub start: Timestamp,
    /// Its tag of a cluster.
    pub cluster: Option<&'a str>,
    /// Its tag of an object, and whether an object of that UID is there.
    pub of: Option<(&'a str, bool)>,
    /// An object records this id, whichever.
    pub recorded: bool,
}

/// The id, if it can be told; `same_source` are those of the listing with the same source.
#[must_use]
pub fn known_as<'a>(
    recorded: &Recorded<'_>,
    same_source: impl Iterator<Item = Found<'a>> + Clone,
) -> Option<&'a str> {
    if let Some(found) = same_source.clone().find(|found| found.id == recorded.id) {
        return Some(found.id);
    }
    let start = recorded.start?;
    let coarse = start.subsec_nanosecond() == 0;
    let is_it = |found: &Found<'_>| {
        let of_the_run = if coarse {
            let own = found.of.is_some_and(|(uid, _)| uid == recorded.uid);
            own && found.start.as_second() == start.as_second()
        } else {
            // What was tagged for an object that is gone may have been adopted by this one.
            found.start == start && found.of.is_none_or(|(uid, there)| uid == recorded.uid || !there)
        };
        of_the_run && found.cluster.is_none_or(|tagged| tagged == recorded.cluster)
    };
    let mut candidates = same_source.filter(is_it);
    let only = candidates.next()?;
    (candidates.next().is_none() && !only.recorded).then_some(only.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        Timestamp::new(50, 7).expect("a time")
    }

    const NEW: Found<'static> = Found {
        id: "new",
        start: Timestamp::UNIX_EPOCH,
        cluster: Some("here"),
        of: Some(("u", true)),
        recorded: false,
    };

    fn known(start: Option<Timestamp>, found: &[Found<'static>]) -> Option<&'static str> {
        let recorded = Recorded {
            uid: "u",
            id: "old",
            start,
            cluster: "here",
        };
        known_as(&recorded, found.iter().copied())
    }

    #[test]
    fn the_recorded_id_counts_while_it_is_listed() {
        let new = Found {
            start: start(),
            ..NEW
        };
        let old = Found { id: "old", ..new };
        assert_eq!(known(Some(start()), &[new, old]), Some("old"));
        assert_eq!(known(None, &[old]), Some("old"));
    }

    #[test]
    fn another_id_only_where_nothing_else_is_possible() {
        let new = Found {
            start: start(),
            ..NEW
        };
        assert_eq!(known(Some(start()), &[new]), Some("new"));
        let adopted = Found {
            of: Some(("gone", false)),
            ..new
        };
        assert_eq!(known(Some(start()), &[adopted]), Some("new"));
        let refused = [
            vec![],
            vec![new, Found { id: "newer", ..new }],
            vec![Found {
                recorded: true,
                ..new
            }],
            vec![Found {
                of: Some(("other", true)),
                ..new
            }],
            vec![Found {
                cluster: Some("there"),
                ..new
            }],
            vec![Found {
                start: Timestamp::UNIX_EPOCH,
                ..new
            }],
        ];
        for found in refused {
            assert_eq!(known(Some(start()), &found), None, "{found:?}");
        }
        assert_eq!(known(None, &[new]), None, "a source alone proves nothing");
    }

    #[test]
    fn whole_seconds_need_the_objects_own_tag() {
        let coarse = Timestamp::from_second(50).expect("a time");
        let new = Found {
            start: start(),
            ..NEW
        };
        assert_eq!(known(Some(coarse), &[new]), Some("new"));
        assert_eq!(known(Some(coarse), &[Found { of: None, ..new }]), None);
        let adopted = Found {
            of: Some(("gone", false)),
            ..new
        };
        assert_eq!(known(Some(coarse), &[adopted]), None);
    }
}
