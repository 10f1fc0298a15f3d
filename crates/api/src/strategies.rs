//! `strategy.backups.cozystack.io/v1alpha1`: the platform's strategies. Cluster-scoped, read only.
//!
//! **Promises.** A decision reads the metadata and nothing else: the annotation
//! [`crate::names::CAPABILITIES`] declares what the driver can do (`docs/design.md` 4.2). Specs are kept as they are
//! and never looked into.

use crate::backups::FreeForm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a strategy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StrategyStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

macro_rules! strategy {
    ($(#[$doc:meta])* $spec:ident, $kind:literal, $plural:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, CustomResource, Serialize, Deserialize, JsonSchema)]
        #[kube(
            group = "strategy.backups.cozystack.io",
            version = "v1alpha1",
            kind = $kind,
            plural = $plural,
            status = "StrategyStatus",
            derive = "PartialEq"
        )]
        pub struct $spec {
            /// The driver's own, with templates in it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub template: Option<FreeForm>,
        }
    };
}

strategy! {
    /// ClickHouse, through a pod.
    AltinitySpec, "Altinity", "altinities"
}
strategy! {
    /// Postgres, through CloudNativePG.
    CnpgSpec, "CNPG", "cnpgs"
}
strategy! {
    /// etcd; the one driver that reports sizes.
    EtcdSpec, "Etcd", "etcds"
}
strategy! {
    /// FoundationDB.
    FoundationDbSpec, "FoundationDB", "foundationdbs"
}
strategy! {
    /// A pod of the user's own.
    JobSpec, "Job", "jobs"
}
strategy! {
    /// MariaDB, through its operator.
    MariaDbSpec, "MariaDB", "mariadbs"
}
strategy! {
    /// MongoDB, through Percona's operator.
    MongoDbSpec, "MongoDB", "mongodbs"
}
strategy! {
    /// Volumes, through Velero.
    VeleroSpec, "Velero", "veleroes"
}

/// Kinds and plurals of all strategies, in the order of the docs.
pub const KINDS: [(&str, &str); 8] = [
    ("Altinity", "altinities"),
    ("CNPG", "cnpgs"),
    ("Etcd", "etcds"),
    ("FoundationDB", "foundationdbs"),
    ("Job", "jobs"),
    ("MariaDB", "mariadbs"),
    ("MongoDB", "mongodbs"),
    ("Velero", "veleroes"),
];
