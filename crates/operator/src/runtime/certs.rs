//! Certificates in a Secret: the leader makes and renews them, every replica serves them without a restart.
//!
//! **Promises.** All replicas serve the same certificate, read from the Secret `holdfast-tls`; a change is served
//! within a minute, open connections stay. A Secret that cannot be read leaves the last good certificate in place,
//! and the leader writes it anew. Writes carry the resourceVersion that was judged.
//!
//! **Assumes.** The right to get, create and update this one Secret; there is no need to list or watch Secrets.

use super::leader::{Leadership, Standing};
use super::tls::{Material, TlsError, settle};
use axum_server::tls_rustls::RustlsConfig;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Name of the Secret.
pub const SECRET: &str = "holdfast-tls";
/// Name of the Service that the certificate is for.
pub const SERVICE: &str = "holdfast";
/// Key with the whole state; the others are for people and tools.
const STATE_KEY: &str = "state.json";
const BUNDLE_KEY: &str = "ca.crt";
const CERTIFICATE_KEY: &str = "tls.crt";
const PRIVATE_KEY: &str = "tls.key";

/// How often the Secret is read once something is served, and before.
const SETTLED: Duration = Duration::from_secs(60);
const WAITING: Duration = Duration::from_secs(1);
/// Longest time for one request.
const PATIENCE: Duration = Duration::from_secs(10);

/// DNS names of the server in the operator's namespace.
#[must_use]
pub fn names(namespace: &str) -> Vec<String> {
    vec![
        format!("{SERVICE}.{namespace}.svc"),
        format!("{SERVICE}.{namespace}.svc.cluster.local"),
        "localhost".to_owned(),
    ]
}

/// Address of the server as movers call it.
#[must_use]
pub fn url(namespace: &str, port: u16) -> String {
    format!("https://{SERVICE}.{namespace}.svc:{port}")
}

#[derive(Clone)]
struct Loaded {
    rustls: RustlsConfig,
    bundle: Arc<str>,
}

/// What is served now; cheap to clone.
#[derive(Clone)]
pub struct Certs(Arc<watch::Sender<Option<Loaded>>>);

impl Default for Certs {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Certs {
    /// Takes material into service; the configuration handed out by [`Certs::ready`] changes with it.
    ///
    /// # Errors
    /// [`TlsError`] when it cannot be served; what was served before stays.
    pub fn load(&self, material: &Material) -> Result<(), TlsError> {
        let config = material.server_config()?;
        self.0.send_modify(|loaded| {
            let rustls = match loaded.take() {
                Some(before) => {
                    before.rustls.reload_from_config(config);
                    before.rustls
                }
                None => RustlsConfig::from_config(config),
            };
            *loaded = Some(Loaded {
                rustls,
                bundle: material.bundle().into(),
            });
        });
        Ok(())
    }

    /// The authorities that clients have to trust, PEM; for work documents. `None` until the first certificate.
    #[must_use]
    pub fn bundle(&self) -> Option<Arc<str>> {
        self.0.borrow().as_ref().map(|loaded| loaded.bundle.clone())
    }

    /// Waits for the first certificate. The configuration reloads itself.
    pub async fn ready(&self) -> RustlsConfig {
        let mut changes = self.0.subscribe();
        loop {
            if let Some(loaded) = changes.borrow_and_update().as_ref() {
                return loaded.rustls.clone();
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Why the Secret was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote first: read again.
    #[error("the Secret was changed by somebody else")]
    Conflict,
    /// The API server refused or did not answer.
    #[error("{0}")]
    Other(String),
}

/// The Secret as read: its version, and its state if that can be understood.
#[derive(Debug, Clone)]
pub struct Stored {
    /// resourceVersion.
    pub version: String,
    /// The state.
    pub material: Option<Material>,
}

/// Where the certificates are kept.
pub trait CertStore: Send + Sync {
    /// Reads; `None` if there is no Secret.
    fn get(&self) -> impl Future<Output = Result<Option<Stored>, StoreError>> + Send;
    /// Creates without a version, else replaces exactly that version.
    fn put(
        &self,
        version: Option<&str>,
        material: &Material,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Keeps the certificates: reads them on every replica, makes them on the leader.
pub async fn run<S: CertStore>(
    store: S,
    names: Vec<String>,
    certs: Certs,
    leadership: Leadership,
    end: CancellationToken,
) {
    let mut standing = leadership.changed();
    let mut served: Option<Material> = None;
    loop {
        standing.mark_unchanged();
        let pause = match tokio::time::timeout(PATIENCE, tend(&store, &names, &leadership)).await {
            Ok(Ok(material)) => {
                if material.is_some() && material != served {
                    served = load(&certs, material);
                }
                if served.is_some() { SETTLED } else { WAITING }
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, secret = SECRET, "certificates: trying again");
                WAITING
            }
            Err(_) => {
                tracing::warn!(
                    secret = SECRET,
                    "certificates: the API server took too long; trying again"
                );
                WAITING
            }
        };
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = became_leader(&mut standing) => {}
        }
    }
}

fn load(certs: &Certs, material: Option<Material>) -> Option<Material> {
    let material = material?;
    match certs.load(&material) {
        Ok(()) => {
            tracing::info!(until = %material.leaf.not_after, "serving a new certificate");
            Some(material)
        }
        Err(error) => {
            tracing::error!(%error, "the new certificate is refused, the old one stays");
            None
        }
    }
}

async fn became_leader(standing: &mut watch::Receiver<Standing>) {
    while standing.changed().await.is_ok() {
        if *standing.borrow_and_update() != Standing::Standby {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// One pass: what is in the Secret, after the leader has made sure that it is good.
async fn tend<S: CertStore>(
    store: &S,
    names: &[String],
    leadership: &Leadership,
) -> Result<Option<Material>, anyhow::Error> {
    let stored = store.get().await?;
    let (version, material) = match stored {
        Some(stored) => (Some(stored.version), stored.material),
        None => (None, None),
    };
    let material = material.filter(|material| material.server_config().is_ok());
    if !leadership.is_leader() {
        return Ok(material);
    }
    let (changed, due) = settle(material.clone(), names, Timestamp::now())?;
    let Some(changed) = changed else {
        return Ok(material);
    };
    leadership.guard()?;
    store.put(version.as_deref(), &changed).await?;
    tracing::info!(%due, secret = SECRET, "wrote new certificates");
    Ok(Some(changed))
}

/// The Secret on the API server.
#[derive(Clone)]
pub struct KubeCerts {
    api: Api<Secret>,
}

impl KubeCerts {
    /// The Secret [`SECRET`] in the operator's namespace.
    #[must_use]
    pub fn new(client: kube::Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
        }
    }
}

impl CertStore for KubeCerts {
    async fn get(&self) -> Result<Option<Stored>, StoreError> {
        let secret = self.api.get_opt(SECRET).await.map_err(failure)?;
        Ok(secret.map(|secret| Stored {
            material: secret
                .data
                .as_ref()
                .and_then(|data| data.get(STATE_KEY))
                .and_then(|state| serde_json::from_slice(&state.0).ok()),
            version: secret.metadata.resource_version.unwrap_or_default(),
        }))
    }

    async fn put(&self, version: Option<&str>, material: &Material) -> Result<(), StoreError> {
        let state = serde_json::to_vec(material).map_err(|error| StoreError::Other(error.to_string()))?;
        let data: BTreeMap<String, ByteString> = [
            (STATE_KEY, state),
            (BUNDLE_KEY, material.bundle().into_bytes()),
            (CERTIFICATE_KEY, material.leaf.certificate.clone().into_bytes()),
            (PRIVATE_KEY, material.leaf.key.pem().as_bytes().to_vec()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), ByteString(value)))
        .collect();
        let labels = [(
            holdfast_api::names::MANAGED_BY_LABEL.to_owned(),
            holdfast_api::names::MANAGED_BY.to_owned(),
        )];
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(SECRET.to_owned()),
                labels: Some(labels.into()),
                resource_version: version.map(str::to_owned),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..Secret::default()
        };
        let parameters = PostParams::default();
        match version {
            Some(_) => self.api.replace(SECRET, &parameters, &secret).await,
            None => self.api.create(&parameters, &secret).await,
        }
        .map(|_| ())
        .map_err(failure)
    }
}

fn failure(error: kube::Error) -> StoreError {
    if matches!(&error, kube::Error::Api(status) if status.code == 409) {
        StoreError::Conflict
    } else {
        StoreError::Other(error.to_string())
    }
}

#[cfg(test)]
#[path = "certs_tests.rs"]
mod tests;
