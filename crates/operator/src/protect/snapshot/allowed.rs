//! Which namespaces may use a ClusterRepository.

use holdfast_api::repository::AllowedNamespaces;
use std::collections::BTreeMap;

/// Whether a namespace of this name and these labels may use it. Several keys or none allow nothing.
#[must_use]
pub fn allows(allowed: &AllowedNamespaces, name: &str, labels: &BTreeMap<String, String>) -> bool {
    match (&allowed.list, &allowed.selector, allowed.all) {
        (Some(list), None, None) => list.iter().any(|n| n == name),
        (None, Some(selector), None) => selector.selects(labels),
        (None, None, Some(all)) => all,
        (Some(_), Some(_), _) | (Some(_), None, Some(_)) | (None, Some(_), Some(_)) | (None, None, None) => {
            false
        }
    }
}
