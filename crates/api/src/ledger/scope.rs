//! What a listing of a BackupStore covers: one reading of its spec for the operator and the CLI.

use super::store::BackupStore;
use holdfast_core::quota::enumerate::{Layout, LayoutError, Scope};

/// The place of what a store holds, as records name it.
#[must_use]
pub fn place(bucket: &str) -> String {
    format!("s3://{bucket}")
}

/// What a listing of the store covers.
///
/// # Errors
/// [`LayoutError`]: the layout cannot be read.
pub fn scope(store: &BackupStore) -> Result<Scope, LayoutError> {
    let layout = &store.spec.layout;
    Ok(Scope {
        store: store.metadata.name.clone().unwrap_or_default(),
        place: place(&store.spec.bucket),
        prefix: store.spec.prefix.clone(),
        layout: Layout::parse(&layout.path, layout.namespace.as_deref())?,
        strategy_kinds: layout.strategy_kinds.iter().cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_store_covers_its_bucket_below_its_prefix() {
        let mut store: BackupStore = serde_json::from_value(json!({
            "apiVersion": "ledger.backups.cozystack.io/v1alpha1", "kind": "BackupStore",
            "metadata": { "name": "shared" },
            "spec": {
                "bucket": "shared-archive", "prefix": "tenants/", "endpoint": "https://s3.example.org",
                "credentials": { "name": "keys" },
                "layout": { "path": "{namespace}/{artifact...}", "strategyKinds": ["Etcd"] },
            },
        }))
        .expect("a BackupStore");
        let covered = scope(&store).expect("it can be read");
        assert_eq!(covered.place, "s3://shared-archive");
        assert_eq!(covered.prefix, "tenants/");
        assert_eq!(covered.layout.namespace_of("tenant-a/x.db"), Some("tenant-a"));
        assert!(covered.strategy_kinds.contains("Etcd"));
        store.spec.layout.path = "{namespace}".to_owned();
        assert_eq!(scope(&store), Err(LayoutError::NoEnd));
    }
}
