//! Mover Jobs: how they are built, and how their results are read.
//!
//! **Promises.** Every mover runs without rights: no API token but one of our own audience, read-only root. It is not
//! root and has no capabilities, but for those that a policy or a Restore asks for and the namespace agreed to
//! ([`privileged`]). No Secret is in argv, environment or the work document. The work
//! document is created together with the Job (`docs/design.md` section 7).

pub mod build;
pub mod create;
pub mod needs;
pub mod outcome;
pub mod privileged;

use crate::world::keys::RepositoryKey;

/// Writes a repository key for the annotation `works-for`.
#[must_use]
pub fn name_repository(key: &RepositoryKey) -> String {
    format!(
        "{}/{}/{}",
        key.kind(),
        key.namespace().unwrap_or_default(),
        key.name()
    )
}

/// Reads what [`name_repository`] wrote.
#[must_use]
pub fn parse_repository(text: &str) -> Option<RepositoryKey> {
    let mut parts = text.splitn(3, '/');
    let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    match kind {
        "Repository" => Some(RepositoryKey::Repository {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        "ClusterRepository" => Some(RepositoryKey::ClusterRepository {
            name: name.to_owned(),
        }),
        _ => None,
    }
}

/// A Job's name for an object's name: unchanged up to 63 characters, else cut with a hash of the whole.
#[must_use]
pub fn job_name(name: &str) -> String {
    if name.len() <= 63 {
        return name.to_owned();
    }
    let hash = short_hash(name);
    format!("{}-{hash}", name[..54].trim_end_matches(['-', '.']))
}

/// Eight hex digits of SHA-256.
#[must_use]
pub fn short_hash(text: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(text.as_bytes())
        .iter()
        .take(4)
        .map(|b| format!("{b:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_names_survive_the_trip() {
        let keys = [
            RepositoryKey::Repository {
                namespace: "a".into(),
                name: "nas".into(),
            },
            RepositoryKey::ClusterRepository { name: "nas".into() },
        ];
        for key in keys {
            assert_eq!(parse_repository(&name_repository(&key)), Some(key));
        }
    }

    #[test]
    fn a_job_name_is_stable_and_at_most_63_long() {
        let long = "a".repeat(200);
        assert!(job_name(&long).len() <= 63);
        assert_ne!(job_name(&long), job_name(&"a".repeat(201)));
        assert_eq!(job_name("short"), "short");
    }
}
