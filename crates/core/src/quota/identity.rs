//! Which thing in storage a Backup refers to (`docs/design.md` 4.1).
//!
//! **Promises.** Two Backups have one identity only if the same namespace, strategy kind, place and key say so.
//! Whatever names no key is a thing of its own. The same identity has the same record name in every process and
//! release.
//!
//! **Assumes.** Only operators write Backups; tenants have no right to.

use crate::deletion::names::label_part;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// A kind of strategy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StrategyKind {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// Where the bytes are, and what they are called there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Scheme and bucket or server, e.g. `s3://shared-archive`.
    pub place: String,
    /// Path in it, without a slash at its ends.
    pub key: String,
}

/// What tells one thing in storage from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thing {
    /// By its place and key.
    At(Location),
    /// By the UID of the one Backup (or run) that made it.
    OfBackup(String),
}

/// What tells one record from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The namespace that is charged.
    pub namespace: String,
    /// Who wrote the bytes.
    pub strategy: StrategyKind,
    /// Which bytes.
    pub thing: Thing,
}

impl Identity {
    /// Name of the record: `<kind>-<16 hex of SHA-256 of the identity>` (`docs/design.md` section 7).
    #[must_use]
    pub fn record_name(&self) -> String {
        let (tag, place, key) = match &self.thing {
            Thing::At(location) => ("at", location.place.as_str(), location.key.as_str()),
            Thing::OfBackup(uid) => ("backup", "", uid.as_str()),
        };
        let mut hasher = Sha256::new();
        for part in [
            self.namespace.as_str(),
            self.strategy.group.as_str(),
            self.strategy.kind.as_str(),
            tag,
            place,
            key,
        ] {
            // Each part is ended, so that no two different lists look alike.
            hasher.update(part.as_bytes());
            hasher.update([0]);
        }
        let hash: String = hasher
            .finalize()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{}-{hash}", label_part(&self.strategy.kind, 40))
    }

    /// Place and key, if it has them.
    #[must_use]
    pub fn location(&self) -> Option<&Location> {
        match &self.thing {
            Thing::At(location) => Some(location),
            Thing::OfBackup(_) => None,
        }
    }
}

/// Where a Backup says that its bytes are: from the artifact's URI, else from what its driver notes.
///
/// `None`: nobody says, and the Backup is a thing of its own (Altinity, Job, a MariaDB backup on a claim).
#[must_use]
pub fn locate(uri: Option<&str>, driver_metadata: &BTreeMap<String, String>) -> Option<Location> {
    if let Some(location) = uri.and_then(parse_uri) {
        return Some(location);
    }
    let note = |key: &str| {
        driver_metadata
            .get(key)
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    };
    // CNPG's and Velero's URIs are made up from these; the others note the address as it is.
    if let (Some(server), Some(backup)) = (note("cnpg.io/server-name"), note("cnpg.io/backup-name")) {
        return parse_uri(&format!("cnpg://{server}/{backup}"));
    }
    if let (Some(namespace), Some(backup)) =
        (note("velero.io/backup-namespace"), note("velero.io/backup-name"))
    {
        return parse_uri(&format!("velero://{namespace}/{backup}"));
    }
    [
        "k8s.mariadb.com/storage-uri",
        "psmdb.percona.com/destination",
        "apps.foundationdb.org/storage-uri",
    ]
    .into_iter()
    .find_map(|key| note(key).and_then(parse_uri))
}

/// `scheme://place/key`; anything else that is not empty is a key without a place.
fn parse_uri(uri: &str) -> Option<Location> {
    let uri = uri.trim();
    let (place, key) = match uri.split_once("://") {
        Some((scheme, rest)) => {
            let (server, key) = rest.split_once('/').unwrap_or((rest, ""));
            // Credentials in an address are no part of where it leads, and may change.
            let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
            (format!("{}://{server}", scheme.to_ascii_lowercase()), key)
        }
        None => (String::new(), uri),
    };
    let key = key.trim_matches('/');
    // A bucket without a key is no artifact: everything in it would be one.
    (!key.is_empty()).then(|| Location {
        place: if place.is_empty() {
            "unknown://".to_owned()
        } else {
            place
        },
        key: key.to_owned(),
    })
}

/// The identity of what a Backup refers to.
#[must_use]
pub fn of_backup(
    namespace: &str,
    strategy: &StrategyKind,
    uid: &str,
    uri: Option<&str>,
    driver_metadata: &BTreeMap<String, String>,
) -> Identity {
    Identity {
        namespace: namespace.to_owned(),
        strategy: strategy.clone(),
        thing: match locate(uri, driver_metadata) {
            Some(location) => Thing::At(location),
            None => Thing::OfBackup(uid.to_owned()),
        },
    }
}
