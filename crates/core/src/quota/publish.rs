//! What is written to ResourceQuotas, and what is worth a warning in them (`docs/design.md` 4.3).
//!
//! **Promises.** `status.used` only, only our keys that are in `spec.hard`, only when a value changes: an amount that
//! is written another way is the same. A scoped quota gets nothing.
//!
//! **Assumes.** Each write carries every key of the answer at once (a key that is left out of an apply is deleted).

use super::amount::{LARGEST, bytes, clamp, same, things};
use super::figures::Figures;
use super::gate::Quota;
use super::{Dimensions, words};
use serde_json::json;
use std::collections::BTreeMap;

/// What is published of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Published {
    /// Its own records.
    pub own: Figures,
    /// Records of namespaces that are gone, for which it is charged.
    pub stranded: Figures,
    /// Bytes in its part of the stores that no record explains. Told, not charged; `None`: not known.
    pub unaccounted: Option<i64>,
}

impl Published {
    /// What counts against the limits.
    #[must_use]
    pub fn charged(&self) -> Figures {
        self.own.plus(self.stranded)
    }

    /// What the figures are made of, as JSON. It holds nothing that changes by itself.
    #[must_use]
    pub fn breakdown(&self) -> String {
        let all = self.charged();
        json!({
            "attributed": all.attributed(),
            "retained": all.retained(),
            "pendingPurge": all.pending_purge(),
            "unreported": all.unreported(),
            "unaccounted": self.unaccounted.map(|bytes| bytes.max(0)),
            "inFlight": all.in_flight(),
            "stranded": self.stranded.used_size(),
            "writtenOff": all.written_off(),
            "shared": all.shared(),
            "clamped": all.used_size() > LARGEST,
        })
        .to_string()
    }
}

words! {
    /// Why a quota is written.
    WriteReason {
        /// It has no value of ours, or not of every key.
        Missing => "Missing",
        /// A value is another now.
        Changed => "Changed",
        /// Somebody else changed what we had published.
        Drifted => "Drifted",
        /// Only what the figures are made of is another now.
        Breakdown => "Breakdown",
    }
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The quota.
    pub quota: String,
    /// Why.
    pub reason: WriteReason,
    /// `status.used`: the full set of our keys in `spec.hard`.
    pub used: BTreeMap<String, String>,
    /// The breakdown annotation.
    pub breakdown: String,
}

/// The writes that a namespace's quotas need. `before` is what this process published last, if it did: a value that
/// is neither that nor what is due was changed by somebody else.
#[must_use]
pub fn writes(
    dimensions: Dimensions<'_>,
    quotas: &[Quota],
    published: &Published,
    before: Option<&Published>,
) -> Vec<Write> {
    let due = values(dimensions, published);
    let before = before.map(|before| values(dimensions, before));
    let breakdown = published.breakdown();
    let mut all = Vec::new();
    for quota in quotas.iter().filter(|quota| !quota.scoped) {
        let used: BTreeMap<String, String> = due
            .iter()
            .filter(|(key, _)| quota.hard.contains_key(*key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let reason = used
            .iter()
            .filter_map(|(key, value)| {
                let there = match quota.used.get(key) {
                    None => return Some(WriteReason::Missing),
                    Some(there) => there,
                };
                if same(there, value) {
                    return None;
                }
                let ours = before
                    .as_ref()
                    .and_then(|before| before.get(key))
                    .is_none_or(|before| same(before, there));
                Some(if ours {
                    WriteReason::Changed
                } else {
                    WriteReason::Drifted
                })
            })
            .max_by_key(|reason| rank(*reason));
        let reason = match reason {
            Some(reason) => reason,
            None if used.is_empty() || quota.breakdown.as_ref() == Some(&breakdown) => continue,
            None => WriteReason::Breakdown,
        };
        all.push(Write {
            quota: quota.name.clone(),
            reason,
            used,
            breakdown: breakdown.clone(),
        });
    }
    all
}

/// The reason that is told when keys have several.
fn rank(reason: WriteReason) -> u8 {
    match reason {
        WriteReason::Breakdown => 0,
        WriteReason::Changed => 1,
        WriteReason::Missing => 2,
        WriteReason::Drifted => 3,
    }
}

fn values(dimensions: Dimensions<'_>, published: &Published) -> BTreeMap<String, String> {
    let all = published.charged();
    BTreeMap::from([
        (dimensions.size.to_owned(), bytes(all.published_size())),
        (dimensions.count.to_owned(), things(clamp(all.used_count()))),
    ])
}

/// A key of a quota that does not do what it looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The quota.
    pub quota: String,
    /// The key.
    pub key: String,
    /// Why it is worth a warning.
    pub reason: WarningReason,
    /// The sentence.
    pub message: String,
}

words! {
    /// Why a key is worth a warning.
    WarningReason {
        /// Written with `requests.`, it is the Pods' own dimension.
        RequestsPrefix => "RequestsPrefix",
        /// Written with `limits.`, it does nothing.
        LimitsPrefix => "LimitsPrefix",
        /// It counts Backups, and refuses the record of a run that has ended.
        NativeBackupCount => "NativeBackupCount",
        /// It has our prefix, and nobody knows it.
        UnknownKey => "UnknownKey",
        /// It is in a quota with scopes.
        ScopedQuota => "ScopedQuota",
    }
}

/// What is worth a warning in a quota.
#[must_use]
pub fn warnings(dimensions: Dimensions<'_>, quota: &Quota) -> Vec<Warning> {
    let ours = [dimensions.count, dimensions.size];
    let group = dimensions
        .size
        .split_once('/')
        .map_or(dimensions.size, |(group, _)| group);
    let native = format!("count/backups.{group}");
    let mut all = Vec::new();
    for key in quota.hard.keys() {
        let is_ours = |key: &str| ours.contains(&key);
        let (reason, message) = if let Some(key) = key.strip_prefix("requests.").filter(|key| is_ours(key)) {
            (
                WarningReason::RequestsPrefix,
                format!(
                    "with `requests.` it is a dimension of Pods: it limits no backups and can refuse Pods; write {key}"
                ),
            )
        } else if let Some(key) = key.strip_prefix("limits.").filter(|key| is_ours(key)) {
            (
                WarningReason::LimitsPrefix,
                format!("with `limits.` it limits nothing; write {key}"),
            )
        } else if *key == native {
            (
                WarningReason::NativeBackupCount,
                format!(
                    "it refuses the Backup of a run that has ended, whose bytes nothing refers to then; write {} instead",
                    dimensions.count
                ),
            )
        } else if is_ours(key) && quota.scoped {
            (
                WarningReason::ScopedQuota,
                "in a quota with scopes it is neither kept nor published; put it in a quota without scopes"
                    .to_owned(),
            )
        } else if key.split_once('/').is_some_and(|(prefix, _)| prefix == group) && !is_ours(key) {
            (
                WarningReason::UnknownKey,
                format!("nobody knows it; the dimensions are {} and {}", ours[0], ours[1]),
            )
        } else {
            continue;
        };
        all.push(Warning {
            quota: quota.name.clone(),
            key: key.clone(),
            reason,
            message: format!("quota {}: {key}: {message}", quota.name),
        });
    }
    all
}
