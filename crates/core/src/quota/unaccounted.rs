//! Bytes that no record explains, of all stores together (`docs/design.md` 4.5).
//!
//! **Promises.** What a store does not tell of a namespace is not known, and never zero: a store names the namespaces
//! with the most such bytes, and only the sum of the others.

use std::collections::{BTreeMap, BTreeSet};

/// What one store says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// Bytes by namespace; the empty one stands for keys that fit no layout.
    pub by_namespace: BTreeMap<String, i64>,
    /// Every namespace that has such bytes is named.
    pub names_all: bool,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unaccounted {
    sums: BTreeMap<String, i64>,
    /// If a store does not name all: those that every such store names.
    named: Option<BTreeSet<String>>,
}

impl Unaccounted {
    /// Of these stores.
    pub fn of<'a>(stores: impl IntoIterator<Item = &'a Told>) -> Self {
        let mut all = Self::default();
        for told in stores {
            // Keys that fit no layout are of no namespace.
            let parts = told
                .by_namespace
                .iter()
                .filter(|(namespace, _)| !namespace.is_empty());
            for (namespace, bytes) in parts {
                let sum = all.sums.entry(namespace.clone()).or_default();
                *sum = sum.saturating_add((*bytes).max(0));
            }
            if !told.names_all {
                let is_named = |namespace: &String| told.by_namespace.contains_key(namespace);
                all.named = Some(match all.named.take() {
                    None => told.by_namespace.keys().cloned().collect(),
                    Some(named) => named.into_iter().filter(is_named).collect(),
                });
            }
        }
        all
    }

    /// Bytes in this namespace's part of the stores; `None`: not told.
    #[must_use]
    pub fn of_namespace(&self, namespace: &str) -> Option<i64> {
        if self
            .named
            .as_ref()
            .is_some_and(|named| !named.contains(namespace))
        {
            return None;
        }
        Some(self.sums.get(namespace).copied().unwrap_or_default())
    }

    /// Namespaces that are named.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.sums.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(parts: &[(&str, i64)], names_all: bool) -> Told {
        Told {
            by_namespace: parts
                .iter()
                .map(|(name, bytes)| ((*name).to_owned(), *bytes))
                .collect(),
            names_all,
        }
    }

    #[test]
    fn what_a_store_does_not_tell_is_not_known_and_what_all_tell_is_added_up() {
        let whole = told(&[("a", 1), ("", 9)], true);
        let part = told(&[("a", 10), ("b", 20)], false);
        let other = told(&[("b", 200), ("c", 300)], false);
        let of = |stores: &[&Told], namespace: &str| {
            Unaccounted::of(stores.iter().copied()).of_namespace(namespace)
        };
        assert_eq!(of(&[], "a"), Some(0), "no store: nothing");
        assert_eq!(of(&[&whole], "a"), Some(1));
        assert_eq!(of(&[&whole], "b"), Some(0), "it would be named");
        assert_eq!(of(&[&whole, &part], "a"), Some(11));
        assert_eq!(of(&[&whole, &part], "c"), None);
        assert_eq!(of(&[&part, &other], "b"), Some(220));
        assert_eq!(of(&[&part, &other], "a"), None, "the other may have more of it");
    }
}
