//! The ConfigMaps in which [`super::let_go`] remembers: which entry goes where, and the writing.
//!
//! **Promises.** What a map says already is not written again. A map that is full is followed by another one; nothing that is
//! remembered makes place for anything.

use super::kept::Entry;
use crate::context::{Context, Error};
use crate::jobs::short_hash;
use holdfast_api::names;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of keys and values in one map; the API server takes a MiB, names and labels included, and each entry may come to
/// say since when its snapshot is missing.
const MOST_BYTES: usize = 800 << 10;
/// Maps that may follow one another.
const MOST_MAPS: usize = 64;
/// How often it is tried when somebody else makes or removes a map.
const ATTEMPTS: usize = 3;

/// The maps of the operator's namespace.
pub fn api(ctx: &Context) -> Api<ConfigMap> {
    Api::namespaced(ctx.client.clone(), &ctx.settings.namespace)
}

/// Writes entries into the maps that begin with `first`.
///
/// Answers the names of those that say them now.
///
/// # Errors
/// [`Error`]: some of them may be written.
pub async fn put(
    ctx: &Context,
    first: &str,
    unique_id: &str,
    entries: &BTreeMap<String, Entry>,
) -> Result<BTreeSet<String>, Error> {
    for _ in 0..ATTEMPTS {
        match once(ctx, first, unique_id, entries.clone()).await {
            Err(Error::Conflict) => {}
            other => return other,
        }
    }
    Err(Error::Conflict)
}

async fn once(
    ctx: &Context,
    first: &str,
    unique_id: &str,
    mut left: BTreeMap<String, Entry>,
) -> Result<BTreeSet<String>, Error> {
    let mut names = BTreeSet::new();
    for n in 0..MOST_MAPS {
        let name = if n == 0 {
            first.to_owned()
        } else {
            format!("{first}-{n}")
        };
        let map = api(ctx).get_opt(&name).await?;
        let before = left.len();
        let (goes, rest) = fits(map.as_ref(), left)?;
        if !goes.is_empty() {
            write(ctx, &name, unique_id, map.is_some(), goes).await?;
        }
        if rest.len() < before {
            names.insert(name);
        }
        if rest.is_empty() {
            return Ok(names);
        }
        left = rest;
    }
    let full = kube::core::Status::failure("every map is full", "TooLarge").with_code(413);
    Err(kube::Error::Api(full.boxed()).into())
}

type Split = (BTreeMap<String, String>, BTreeMap<String, Entry>);

/// What is written into this map, and what goes on to the next: pure.
fn fits(map: Option<&ConfigMap>, entries: BTreeMap<String, Entry>) -> Result<Split, Error> {
    let held = map.and_then(|map| map.data.as_ref());
    let there = |key: &str| held.and_then(|held| held.get(key));
    let mut size: usize = held.into_iter().flatten().map(|(k, v)| k.len() + v.len()).sum();
    let (mut goes, mut rest) = (BTreeMap::new(), BTreeMap::new());
    for (key, entry) in entries {
        let before = there(&key);
        let known = before.map(|text| Entry::read(text));
        // What was said of another object of the same snapshot counts on.
        let merged = match &known {
            Some(known) if known.of == entry.of => entry.clone(),
            Some(known) => known.clone().with(entry.clone()),
            None => entry.clone(),
        };
        if known.is_some_and(|known| known.says_the_same(&merged)) {
            continue;
        }
        let text = serde_json::to_string(&merged).map_err(crate::jobs::build::BuildError::from)?;
        let less = before.map_or(0, |text| key.len() + text.len());
        let more = key.len() + text.len();
        if size - less + more <= MOST_BYTES {
            size = size - less + more;
            goes.insert(key, text);
        } else {
            rest.insert(key, entry);
        }
    }
    Ok((goes, rest))
}

async fn write(
    ctx: &Context,
    name: &str,
    unique_id: &str,
    exists: bool,
    data: BTreeMap<String, String>,
) -> Result<(), Error> {
    ctx.leadership.guard()?;
    let labels = json!({
        names::MANAGED_BY_LABEL: names::MANAGED_BY,
        names::KEPT_MEMORY_LABEL: short_hash(unique_id),
    });
    if exists {
        // The labels again: what is not found by them is not read.
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels }, "data": data }));
        return match api(ctx).patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            // Removed since it was looked at.
            Err(kube::Error::Api(status)) if status.code == 404 => Err(Error::Conflict),
            Err(error) => Err(error.into()),
        };
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": ctx.settings.namespace,
            "labels": labels,
        },
        "data": data,
    });
    let map: ConfigMap = serde_json::from_value(object).map_err(crate::jobs::build::BuildError::from)?;
    api(ctx).create(&PostParams::default(), &map).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_api::shared::DeletionPolicy;

    fn entry(of: &str, at: i64) -> Entry {
        Entry {
            policy: DeletionPolicy::Retain,
            pinned: false,
            under: Some("p".repeat(36)),
            of: of.to_owned(),
            at: jiff::Timestamp::from_second(at).ok(),
            taken: Some("t".repeat(16)),
            missing_since: None,
        }
    }

    fn entries(range: std::ops::Range<usize>) -> BTreeMap<String, Entry> {
        range.map(|n| (format!("{n:064x}"), entry("o", 1))).collect()
    }

    fn map(data: BTreeMap<String, String>) -> ConfigMap {
        ConfigMap {
            data: Some(data),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn a_full_map_is_followed_by_another_and_loses_nothing() {
        let all = entries(0..10_000);
        let mut left = all.clone();
        let mut seen = BTreeMap::new();
        for _ in 0..4 {
            let (goes, rest) = fits(None, left).unwrap();
            let bytes: usize = goes.iter().map(|(k, v)| k.len() + v.len()).sum();
            assert!(bytes <= MOST_BYTES, "{bytes}");
            // A second look finds it full, and takes nothing away.
            let full = map(goes.clone());
            let (more, later) = fits(Some(&full), entries(20_000..20_100)).unwrap();
            assert!(rest.is_empty() || (more.is_empty() && later.len() == 100));
            seen.extend(goes);
            left = rest;
        }
        assert!(left.is_empty());
        assert_eq!(seen.len(), all.len());
    }

    #[test]
    fn what_a_map_says_is_not_written_again_and_what_changed_is_written_in_its_place() {
        let (goes, _) = fits(None, entries(0..10_000)).unwrap();
        let full = map(goes);
        let same = BTreeMap::from([(format!("{:064x}", 1), entry("o", 99))]);
        let (again, rest) = fits(Some(&full), same).unwrap();
        assert!(again.is_empty() && rest.is_empty(), "only the time is another");
        let longer = BTreeMap::from([(format!("{:064x}", 1), entry(&"another".repeat(99), 99))]);
        let (again, rest) = fits(Some(&full), longer).unwrap();
        assert_eq!(
            (again.len(), rest.len()),
            (0, 1),
            "the next map takes it: both are read"
        );
        let shorter = BTreeMap::from([(format!("{:064x}", 1), entry("", 99))]);
        let (again, rest) = fits(Some(&full), shorter).unwrap();
        assert_eq!((again.len(), rest.len()), (1, 0));
    }

    #[test]
    fn what_another_object_of_the_same_snapshot_said_counts_on() {
        let key = "x".to_owned();
        let loose = Entry {
            policy: DeletionPolicy::Delete,
            pinned: false,
            ..entry("second", 2)
        };
        let strict = Entry {
            pinned: true,
            ..entry("first", 1)
        };
        let there = map([(key.clone(), serde_json::to_string(&strict).unwrap())].into());
        let (goes, _) = fits(Some(&there), [(key.clone(), loose.clone())].into()).unwrap();
        let both = Entry::read(&goes[&key]);
        assert_eq!(
            (both.policy, both.pinned, both.of.as_str()),
            (DeletionPolicy::Retain, true, "second")
        );
        // Its own word may become less strict.
        let there = map([(key.clone(), serde_json::to_string(&entry("second", 1)).unwrap())].into());
        let (goes, _) = fits(Some(&there), [(key.clone(), loose)].into()).unwrap();
        assert_eq!(Entry::read(&goes[&key]).policy, DeletionPolicy::Delete);
    }
}
