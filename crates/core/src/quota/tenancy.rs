//! Who is charged for the records of a namespace that is gone (`docs/design.md` 4.1).
//!
//! **Promises.** Nothing is forgotten: what no living namespace can be charged with is told as stranded.
//!
//! **Assumes.** The tenant tree is in the names: a child's namespace is its parent's, a dash and the tenant's name,
//! and the children of `tenant-root` leave its name out. Namespaces of other names have no known parent.

use super::figures::Figures;
use super::ledger::Ledger;
use std::collections::{BTreeMap, BTreeSet};

const PREFIX: &str = "tenant-";
const ROOT: &str = "tenant-root";

/// The nearest ancestor of a tenant's namespace that is alive.
#[must_use]
pub fn nearest_living_ancestor<'a>(namespace: &'a str, live: &BTreeSet<String>) -> Option<&'a str> {
    let mut rest = namespace.strip_prefix(PREFIX)?;
    if rest.is_empty() || namespace == ROOT {
        return None;
    }
    while let Some((parent, _)) = rest.rsplit_once('-') {
        let name = &namespace[..PREFIX.len() + parent.len()];
        if live.contains(name) {
            return Some(name);
        }
        rest = parent;
    }
    live.contains(ROOT).then_some(ROOT)
}

/// Records of namespaces that are gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stranded {
    /// What living namespaces are charged with for them.
    pub by_heir: BTreeMap<String, Figures>,
    /// What nobody is charged with.
    pub without_heir: BTreeMap<String, Figures>,
}

/// Who is charged for what of namespaces that are not among the living.
#[must_use]
pub fn stranded(ledger: &Ledger, live: &BTreeSet<String>) -> Stranded {
    let mut all = Stranded::default();
    for namespace in ledger.namespaces().filter(|namespace| !live.contains(*namespace)) {
        let figures = ledger.figures(namespace);
        match nearest_living_ancestor(namespace, live) {
            Some(heir) => {
                let sum = all.by_heir.entry(heir.to_owned()).or_default();
                *sum = sum.plus(figures);
            }
            None => {
                all.without_heir.insert(namespace.to_owned(), figures);
            }
        }
    }
    all
}
