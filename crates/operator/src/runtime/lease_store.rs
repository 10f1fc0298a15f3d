//! Where the leader Lease is kept.
//!
//! **Promises.** A write carries the resourceVersion that was judged, or creates; anything else that happened in
//! between is a [`StoreError::Conflict`], never an overwrite.

use super::lease::Record;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use std::time::Duration;

/// Why a Lease was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote first: read again.
    #[error("the Lease was changed by somebody else")]
    Conflict,
    /// The API server refused or did not answer.
    #[error("{0}")]
    Other(String),
}

/// Where the Lease is kept.
pub trait LeaseStore: Send + Sync {
    /// Reads it; `None` if it does not exist.
    fn get(&self) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;
    /// Creates it when the record has no version, else replaces exactly that version.
    fn put(&self, record: &Record) -> impl Future<Output = Result<Record, StoreError>> + Send;
}

/// The Lease on the API server.
#[derive(Debug, Clone)]
pub struct KubeLease {
    api: Api<Lease>,
    name: String,
}

impl KubeLease {
    /// The Lease `name` in `namespace`.
    #[must_use]
    pub fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
        }
    }

    fn object(&self, record: &Record) -> Lease {
        let labels = [(
            holdfast_api::names::MANAGED_BY_LABEL.to_owned(),
            holdfast_api::names::MANAGED_BY.to_owned(),
        )];
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels.into()),
                resource_version: record.version.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: record.holder.clone(),
                acquire_time: record.acquired.map(MicroTime),
                renew_time: record.renewed.map(MicroTime),
                lease_transitions: Some(record.transitions),
                lease_duration_seconds: record
                    .duration
                    .map(|d| i32::try_from(d.as_secs()).unwrap_or(i32::MAX).max(1)),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// Reads a Lease object.
fn record(lease: Lease) -> Record {
    let spec = lease.spec.unwrap_or_default();
    Record {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
        duration: spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(Duration::from_secs),
        version: lease.metadata.resource_version,
    }
}

/// `replacing`: then an absent Lease was removed under our hands, which is a conflict like any other.
fn failure(error: kube::Error, replacing: bool) -> StoreError {
    let conflict = |code: u16| code == 409 || (code == 404 && replacing);
    if matches!(&error, kube::Error::Api(status) if conflict(status.code)) {
        StoreError::Conflict
    } else {
        StoreError::Other(error.to_string())
    }
}

impl LeaseStore for KubeLease {
    async fn get(&self) -> Result<Option<Record>, StoreError> {
        Ok(self
            .api
            .get_opt(&self.name)
            .await
            .map_err(|e| failure(e, false))?
            .map(record))
    }

    async fn put(&self, wanted: &Record) -> Result<Record, StoreError> {
        let object = self.object(wanted);
        let parameters = PostParams::default();
        let stored = match wanted.version {
            Some(_) => self.api.replace(&self.name, &parameters, &object).await,
            None => self.api.create(&parameters, &object).await,
        };
        stored
            .map(record)
            .map_err(|e| failure(e, wanted.version.is_some()))
    }
}
