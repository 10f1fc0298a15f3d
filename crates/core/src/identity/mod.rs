//! Whose a policy's snapshots are, as the repository records it: user name and host name.
//!
//! **Promises.** The policy's own words go before the repository's expressions, and these before the defaults: the
//! policy's name, and its namespace. What cannot be a name is refused in a sentence that begins with the field. In a
//! repository that namespaces share the host name says whose a snapshot is, and nothing a policy says makes it another
//! namespace's. A name that snapshots bear already does not change because a text was edited: a person says so.
//!
//! **Assumes.** Namespaces contain no dot (Kubernetes sees to that), so `<namespace>.<cluster>` is of one namespace only.

pub mod expression;

use std::collections::BTreeMap;

/// Most bytes of a name.
const LONGEST: usize = 253;

/// User name and host name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Named {
    /// User name.
    pub username: String,
    /// Host name.
    pub hostname: String,
}

/// What a policy says itself (`spec.identity`).
#[derive(Debug, Clone, Copy, Default)]
pub struct Own<'a> {
    /// User name.
    pub username: Option<&'a str>,
    /// Host name.
    pub hostname: Option<&'a str>,
}

/// What its repository says for all (`spec.identityDefaults`).
#[derive(Debug, Clone, Copy, Default)]
pub struct Defaults<'a> {
    /// Expression that says the user name.
    pub username: Option<&'a str>,
    /// Expression that says the host name.
    pub hostname: Option<&'a str>,
}

/// The policy that is asked about.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub policy: &'a str,
    /// Its labels.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// Its annotations.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    /// `spec.identityDefaults.cluster` of the repository.
    pub cluster: Option<&'a str>,
    /// The repository is shared by namespaces.
    pub shared: bool,
}

/// The identity that the specs ask for.
///
/// # Errors
/// A sentence that begins with the field.
pub fn asked(own: Own<'_>, defaults: Defaults<'_>, about: &About<'_>) -> Result<Named, String> {
    let by_default = match about.cluster {
        Some(cluster) => format!("{}.{cluster}", about.namespace),
        None => about.namespace.to_owned(),
    };
    let username = one(
        ("spec.identity.username", own.username),
        ("spec.identityDefaults.usernameExpr", defaults.username),
        about.policy,
        about,
    )?;
    let hostname = one(
        ("spec.identity.hostname", own.hostname),
        ("spec.identityDefaults.hostnameExpr", defaults.hostname),
        &by_default,
        about,
    )?;
    if about.shared && namespace_of(&hostname, about.cluster) != about.namespace {
        let field = match own.hostname {
            Some(_) => "spec.identity.hostname",
            None => "spec.identityDefaults.hostnameExpr",
        };
        let or = about.cluster.map_or_else(String::new, |cluster| {
            format!(" or {}.{cluster}", about.namespace)
        });
        return Err(format!(
            "{field} says {hostname} for namespace {}: in a ClusterRepository, and in a Repository over the same bucket, the host name says whose a snapshot is, so it is {}{or} there (the second form needs spec.identityDefaults.cluster)",
            about.namespace, about.namespace
        ));
    }
    Ok(Named { username, hostname })
}

fn one(
    (own_field, own): (&str, Option<&str>),
    (default_field, default): (&str, Option<&str>),
    otherwise: &str,
    about: &About<'_>,
) -> Result<String, String> {
    if let Some(own) = own {
        return check_name(own)
            .map(|()| own.to_owned())
            .map_err(|why| format!("{own_field} {why}"));
    }
    let Some(default) = default else {
        return Ok(otherwise.to_owned());
    };
    let said = expression::say(default, about).map_err(|why| format!("{default_field} {why}"))?;
    match check_name(&said) {
        Ok(()) => Ok(said),
        Err(why) => Err(format!(
            "{default_field}, evaluated for SnapshotPolicy {}/{}, {why}",
            about.namespace, about.policy
        )),
    }
}

/// Whether this can be a user name or a host name of both engines.
///
/// # Errors
/// What is wrong with it, as the end of a sentence that begins with the field.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty: a snapshot needs a name to be found by".to_owned());
    }
    if name.len() > LONGEST {
        return Err(format!("has {} bytes, a name has at most {LONGEST}", name.len()));
    }
    // A control character is not shown: a person could not tell what is recorded.
    if name.chars().any(char::is_control) {
        return Err("holds a control character: remove it".to_owned());
    }
    if name.contains(['@', ':', '/']) || name.starts_with('-') || name.trim() != name {
        return Err(
            "contains '@', ':' or '/', begins with '-', or has a space at an end, which a repository would read as something else: use another name"
                .to_owned(),
        );
    }
    Ok(())
}

/// Whether this can be `spec.identityDefaults.cluster`: a label of a host name.
#[must_use]
pub fn is_cluster(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.len() <= 32
        && name.chars().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The namespace that a host name names in a ClusterRepository with this `spec.identityDefaults.cluster`.
#[must_use]
pub fn namespace_of<'a>(hostname: &'a str, cluster: Option<&str>) -> &'a str {
    cluster
        .and_then(|cluster| hostname.strip_suffix(cluster)?.strip_suffix('.'))
        .unwrap_or(hostname)
}

/// The namespace of a host name that the operator itself recorded: what is before the first dot, for a namespace has none.
/// It does not depend on what `spec.identityDefaults.cluster` is by now. Of what somebody typed, or another cluster or
/// another tool recorded, [`namespace_of`] is asked.
#[must_use]
pub fn recorded_namespace(hostname: &str) -> &str {
    hostname
        .split_once('.')
        .map_or(hostname, |(namespace, _)| namespace)
}

/// Which identity counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InForce {
    /// What the specs ask for.
    Asked(Named),
    /// What snapshots bear already; a person has not said yet that it may change.
    Kept {
        /// In force.
        named: Named,
        /// What the specs ask for, or why they say no name.
        asked: Result<Named, String>,
    },
}

impl InForce {
    /// The identity that counts.
    #[must_use]
    pub fn named(&self) -> &Named {
        match self {
            Self::Asked(named) | Self::Kept { named, asked: _ } => named,
        }
    }
}

/// Decides: `borne` is what the policy's snapshots bear, if it has any; `allowed`, that a person said that it may change.
/// Specs that say no name change nothing for snapshots that bear one.
///
/// # Errors
/// Why the specs say no name, where none is borne.
pub fn in_force(
    asked: Result<Named, String>,
    borne: Option<Named>,
    allowed: bool,
) -> Result<InForce, String> {
    match (asked, borne) {
        (Ok(asked), Some(named)) if named != asked && !allowed => Ok(InForce::Kept {
            named,
            asked: Ok(asked),
        }),
        (Ok(asked), Some(_) | None) => Ok(InForce::Asked(asked)),
        (Err(why), Some(named)) => Ok(InForce::Kept {
            named,
            asked: Err(why),
        }),
        (Err(why), None) => Err(why),
    }
}
