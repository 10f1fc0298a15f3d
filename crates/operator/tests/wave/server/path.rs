//! Paths of the API: which kind, which namespace, which object, which subresource.

/// A path taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    pub version: &'a str,
    pub namespace: Option<&'a str>,
    pub plural: &'a str,
    pub name: Option<&'a str>,
    pub sub: Option<&'a str>,
}

impl<'a> Place<'a> {
    pub fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let (group, version) = match parts.next()? {
            "api" => ("", parts.next()?),
            "apis" => (parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", _, "status" | "finalize"] => (None, rest.as_slice()),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        Some(Self {
            group,
            version,
            namespace,
            plural: rest.first()?,
            name: rest.get(1).copied(),
            sub: rest.get(2).copied(),
        })
    }

    /// Whether the object at a path is in the collection at this one.
    pub fn holds(&self, object: &Place<'_>) -> bool {
        self.group == object.group
            && self.plural == object.plural
            && object.name.is_some()
            && (self.namespace.is_none() || self.namespace == object.namespace)
    }

    /// As the API server names it in sentences.
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether status and the rest are written apart.
    pub fn has_status(&self) -> bool {
        !["configmaps", "secrets", "serviceaccounts", "leases", "events"].contains(&self.plural)
    }

    /// Whether spec changes are counted.
    pub fn has_generation(&self) -> bool {
        self.is_custom() || ["jobs", "customresourcedefinitions"].contains(&self.plural)
    }

    /// Whether a definition of ours describes it.
    pub fn is_custom(&self) -> bool {
        self.group.ends_with(".home-operations.com")
    }
}
