//! One entry of what was let go while its data stayed, and all of them together: pure.
//!
//! **Promises.** What cannot be read keeps the most. Of two entries about one snapshot the stricter counts. A snapshot is known
//! by its id, and by what it is of and when it was begun. An entry goes only when a live object says what it said, or when two
//! whole listings at least a day apart lack its snapshot.

use crate::jobs::short_hash;
use crate::world::views::SnapshotView;
use holdfast_api::names;
use holdfast_api::shared::DeletionPolicy;
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};

/// How long listings have to lack a snapshot before what is remembered of it goes.
const MISSING_FOR: SignedDuration = SignedDuration::from_hours(24);
/// How much the clock by which an entry was written may be behind that of the API server, by which a listing began.
const CLOCKS: SignedDuration = SignedDuration::from_mins(10);

/// What is remembered of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// What its object said about the data; stricter where a person or a void prune said so.
    pub policy: DeletionPolicy,
    /// It was pinned.
    #[serde(default)]
    pub pinned: bool,
    /// UID of the SnapshotPolicy that was there then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// UID of its object: what is let go a second time is another entry.
    pub of: String,
    /// When it was written down: what was looked at before says nothing about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// What it is of and the second in which it was begun ([`moment`]): an engine may give a snapshot another id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<String>,
    /// The first whole listing that lacked it, when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_since: Option<Timestamp>,
}

impl Entry {
    /// One that cannot be read keeps the most.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or(Self {
            policy: DeletionPolicy::Retain,
            pinned: true,
            under: None,
            of: String::new(),
            at: None,
            taken: None,
            missing_since: None,
        })
    }

    /// Whether it says of the same object what another one says, whenever that was.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let Self {
            policy,
            pinned,
            under,
            of,
            at: _,
            taken: _,
            missing_since: _,
        } = self;
        (*policy, *pinned, under, of) == (other.policy, other.pinned, &other.under, &other.of)
    }

    /// Of two about one snapshot: the stricter in each, and the younger's policy object.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let (older, younger) = if self.at <= other.at {
            (self, other)
        } else {
            (other, self)
        };
        Self {
            policy: stricter(older.policy, younger.policy),
            pinned: older.pinned || younger.pinned,
            under: younger.under.or(older.under),
            of: younger.of,
            // Where one is of an unknown age both are.
            at: older.at.and(younger.at),
            taken: younger.taken.or(older.taken),
            missing_since: None,
        }
    }

    /// Whether it was written down before this moment.
    #[must_use]
    pub fn is_older(&self, than: Timestamp) -> bool {
        self.at.is_some_and(|at| at < than)
    }
}

/// The one that keeps more.
#[must_use]
pub fn stricter(one: DeletionPolicy, other: DeletionPolicy) -> DeletionPolicy {
    let rank = |policy: DeletionPolicy| match policy {
        DeletionPolicy::Delete => 0,
        DeletionPolicy::Orphan => 1,
        DeletionPolicy::Retain => 2,
        DeletionPolicy::Unknown => 3,
    };
    if rank(one) >= rank(other) { one } else { other }
}

/// Everything that is remembered of a physical repository.
#[derive(Debug, Default)]
pub struct LetGo {
    /// Of this repository; what is in the other maps may be of another one.
    pub(super) maps: Vec<ConfigMap>,
    /// Of what recorded no repository.
    pub(super) unknown: Vec<ConfigMap>,
    entries: HashMap<String, Entry>,
    /// The same, by what each is of and when it was begun.
    moments: HashMap<String, Entry>,
}

impl LetGo {
    /// Reads the maps of a physical repository.
    pub(in crate::protect) fn read(mut maps: Vec<ConfigMap>, unique_id: &str) -> Self {
        let of = |map: &ConfigMap| {
            map.metadata
                .labels
                .as_ref()?
                .get(names::KEPT_MEMORY_LABEL)
                .cloned()
        };
        let (own, unknown) = (short_hash(unique_id), short_hash(""));
        maps.retain(|map| of(map).is_some_and(|value| value == own || value == unknown));
        let data = maps.iter().filter_map(|map| map.data.as_ref()).flatten();
        let mut entries: HashMap<String, Entry> = HashMap::new();
        for (id, text) in data {
            let entry = Entry::read(text);
            let entry = match entries.remove(id) {
                None => entry,
                Some(other) => other.with(entry),
            };
            entries.insert(id.clone(), entry);
        }
        let (maps, unknown) = maps
            .into_iter()
            .partition(|map| of(map).is_some_and(|value| value == own));
        let mut moments: HashMap<String, Entry> = HashMap::new();
        for entry in entries.values() {
            if let Some(moment) = &entry.taken {
                let entry = match moments.remove(moment) {
                    None => entry.clone(),
                    Some(other) => other.with(entry.clone()),
                };
                moments.insert(moment.clone(), entry);
            }
        }
        Self {
            maps,
            unknown,
            entries,
            moments,
        }
    }

    /// The names of the maps of this repository.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .maps
            .iter()
            .filter_map(|map| map.metadata.name.clone())
            .collect();
        names.sort();
        names
    }

    /// What is remembered of a snapshot, under its id or under another one that it had.
    #[must_use]
    pub fn get(&self, listed: &ListedSnapshot) -> Option<Entry> {
        let own = self.entries.get(data_key(&listed.snapshot_id).as_str());
        let same = self.moments.get(&moment(&listed.source, listed.start_time));
        match (own, same) {
            (Some(own), Some(same)) => Some(own.clone().with(same.clone())),
            (one, other) => one.or(other).cloned(),
        }
    }
}

/// The id as a key of a ConfigMap's data.
#[must_use]
pub fn data_key(id: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !id.is_empty() && id.len() <= 253 && id.chars().all(fits) {
        return id.to_owned();
    }
    Sha256::digest(id).iter().map(|b| format!("{b:02x}")).collect()
}

/// What a snapshot is of and the second in which it was begun, in one word: objects of other operators know no fractions.
#[must_use]
pub fn moment(source: &Source, begun: Timestamp) -> String {
    let Source {
        username,
        hostname,
        path,
    } = source;
    let text = format!("{username}\0{hostname}\0{path}\0{}", begun.as_second());
    Sha256::digest(text)
        .iter()
        .take(8)
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// The [`moment`] of an object's snapshot.
#[must_use]
pub fn moment_of(view: &SnapshotView) -> Option<String> {
    let begun = view.status.as_ref()?.timing.as_ref()?.start_time?;
    Some(moment(&view.source()?, begun))
}

/// Snapshots, as entries name them.
#[derive(Debug, Default)]
pub struct Seen {
    ids: HashSet<String>,
    moments: HashSet<String>,
}

impl Seen {
    /// Those of a listing.
    #[must_use]
    pub fn listed(listing: &[ListedSnapshot]) -> Self {
        let moments = listing.iter().map(|one| moment(&one.source, one.start_time));
        Self {
            ids: listing.iter().map(|one| data_key(&one.snapshot_id)).collect(),
            moments: moments.collect(),
        }
    }

    /// Those that objects record.
    #[must_use]
    pub fn recorded<'a>(objects: impl Iterator<Item = &'a SnapshotView> + Clone) -> Self {
        Self {
            ids: objects
                .clone()
                .filter_map(|one| one.snapshot_id().map(data_key))
                .collect(),
            moments: objects.filter_map(moment_of).collect(),
        }
    }

    /// All that one listing may say about what is of an unknown repository: whatever lies elsewhere is not in it.
    #[must_use]
    pub fn elsewhere(maps: &[ConfigMap]) -> Self {
        let keys = maps.iter().filter_map(|map| map.data.as_ref()).flatten();
        Self {
            ids: keys.map(|(key, _)| key.clone()).collect(),
            moments: HashSet::new(),
        }
    }

    fn has_moment(&self, entry: &Entry) -> bool {
        entry
            .taken
            .as_ref()
            .is_some_and(|taken| self.moments.contains(taken))
    }
}

/// What becomes of an entry after a whole listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It stays as it is.
    Stays,
    /// It goes.
    Goes,
    /// It stays, and says this.
    Says(Box<Entry>),
}

/// Decides about one entry, written under this key, after the listing that began then. The first rule that matches decides.
/// Absence proves nothing by itself: a bucket that was rolled back, or a replica that lags, lacks it for a while.
#[must_use]
pub fn fate(key: &str, entry: &Entry, listed: &Seen, recorded: &Seen, began: Timestamp) -> Fate {
    let is_listed = listed.ids.contains(key);
    if began
        .checked_sub(CLOCKS)
        .is_ok_and(|began| !entry.is_older(began))
    {
        return Fate::Stays;
    }
    if recorded.ids.contains(key) || (!is_listed && recorded.has_moment(entry)) {
        return Fate::Goes;
    }
    let missing = |since: Option<Timestamp>| {
        Fate::Says(Box::new(Entry {
            missing_since: since,
            ..entry.clone()
        }))
    };
    match (is_listed || listed.has_moment(entry), entry.missing_since) {
        (true, None) => Fate::Stays,
        (true, Some(_)) => missing(None),
        (false, None) => missing(Some(began)),
        (false, Some(since)) if began.duration_since(since) >= MISSING_FOR => Fate::Goes,
        (false, Some(_)) => Fate::Stays,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn listed(id: &str, begun: i64) -> ListedSnapshot {
        ListedSnapshot {
            snapshot_id: id.to_owned(),
            source: Source {
                username: "u".into(),
                hostname: "h".into(),
                path: "/p".into(),
            },
            start_time: Timestamp::from_second(begun).unwrap(),
            size_bytes: None,
            cluster: None,
            snapshot_uid: None,
            pinned: false,
            pin_is_ours: false,
        }
    }

    #[test]
    fn an_entry_that_cannot_be_read_keeps_the_most() {
        let kept = Entry::read("{}");
        assert_eq!((kept.policy, kept.pinned), (DeletionPolicy::Retain, true));
        let entry = Entry {
            policy: DeletionPolicy::Orphan,
            pinned: false,
            under: Some("p".into()),
            of: "s".into(),
            at: Some(Timestamp::UNIX_EPOCH),
            taken: Some("t".into()),
            missing_since: Some(Timestamp::UNIX_EPOCH),
        };
        assert_eq!(Entry::read(&serde_json::to_string(&entry).unwrap()), entry);
    }

    #[test]
    fn of_two_about_one_snapshot_the_stricter_counts() {
        let entry = |policy, pinned, under: &str, at: i64| Entry {
            policy,
            pinned,
            under: Some(under.to_owned()),
            of: under.to_owned(),
            at: Timestamp::from_second(at).ok(),
            taken: None,
            missing_since: None,
        };
        let strict = entry(DeletionPolicy::Retain, true, "old", 1);
        let loose = entry(DeletionPolicy::Delete, false, "new", 2);
        for maps in [[&strict, &loose], [&loose, &strict]] {
            let maps = maps.map(|entry| ConfigMap {
                metadata: serde_json::from_value(
                    json!({ "labels": { names::KEPT_MEMORY_LABEL: short_hash("id") } }),
                )
                .unwrap(),
                data: Some([("x".to_owned(), serde_json::to_string(entry).unwrap())].into()),
                ..ConfigMap::default()
            });
            let read = LetGo::read(maps.to_vec(), "id");
            let both = read.get(&listed("x", 1)).unwrap();
            assert_eq!((both.policy, both.pinned), (DeletionPolicy::Retain, true));
            assert_eq!(both.under.as_deref(), Some("new"));
        }
        let all = [
            DeletionPolicy::Delete,
            DeletionPolicy::Orphan,
            DeletionPolicy::Retain,
            DeletionPolicy::Unknown,
        ];
        for (n, one) in all.iter().enumerate() {
            for (m, other) in all.iter().enumerate() {
                assert_eq!(stricter(*one, *other), all[n.max(m)]);
            }
        }
    }

    #[test]
    fn what_is_of_an_unknown_age_or_younger_is_not_forgotten() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut entry = Entry::read("{}");
        assert!(!entry.is_older(at(1)));
        entry.at = Some(at(5));
        assert!(entry.is_older(at(6)) && !entry.is_older(at(5)) && !entry.is_older(at(4)));
    }

    #[test]
    fn an_entry_goes_only_when_an_object_says_it_or_two_listings_a_day_apart_lack_its_snapshot() {
        let day = 86_400;
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let of = |listing: &[ListedSnapshot]| Seen::listed(listing);
        let entry = |missing: Option<i64>| Entry {
            taken: Some(moment(&listed("x", 1).source, at(1))),
            at: Some(at(10 - 600)),
            missing_since: missing.map(at),
            ..Entry::read("{}")
        };
        let says = |missing| Fate::Says(Box::new(entry(missing)));
        let none = Seen::default();
        let judge = |missing, listed: &Seen, recorded: &Seen, began: i64| {
            fate("x", &entry(missing), listed, recorded, at(began))
        };
        let (same, renamed) = (of(&[listed("x", 1)]), of(&[listed("y", 1)]));
        let both = of(&[listed("x", 1), listed("y", 1)]);
        assert_eq!(judge(None, &none, &none, 10), Fate::Stays, "from before");
        assert_eq!(judge(None, &same, &same, 20), Fate::Goes);
        assert_eq!(
            judge(None, &renamed, &renamed, 20),
            Fate::Goes,
            "under its new id"
        );
        assert_eq!(
            judge(None, &both, &renamed, 20),
            Fate::Stays,
            "another one of that second"
        );
        for seen in [&same, &renamed] {
            assert_eq!(judge(None, seen, &none, 20), Fate::Stays);
            assert_eq!(judge(Some(15), seen, &none, 20), says(None));
        }
        assert_eq!(judge(None, &none, &none, 20), says(Some(20)));
        assert_eq!(judge(Some(20), &none, &none, 20 + day - 1), Fate::Stays);
        assert_eq!(judge(Some(20), &none, &none, 20 + day), Fate::Goes);
    }

    #[test]
    fn a_snapshot_is_known_by_what_it_is_of_and_the_second_in_which_it_was_begun() {
        let one = listed("x", 7);
        let later = ListedSnapshot {
            start_time: Timestamp::from_millisecond(7_999).unwrap(),
            ..one.clone()
        };
        assert_eq!(
            moment(&one.source, one.start_time),
            moment(&later.source, later.start_time)
        );
        let next = Timestamp::from_second(8).unwrap();
        assert_ne!(moment(&one.source, one.start_time), moment(&one.source, next));
        let mut other = one.source.clone();
        other.path = "/q".into();
        assert_ne!(
            moment(&one.source, one.start_time),
            moment(&other, one.start_time)
        );
    }
}
