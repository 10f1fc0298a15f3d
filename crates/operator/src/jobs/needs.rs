//! What a mover needs where it runs to reach the repository, beside the password.
//!
//! **Promises.** Whatever is missing has one reason and one sentence, whoever finds it. Nothing of a Secret is kept but
//! its resourceVersion.

use super::create::{NOT_READ, SecretFact, claim_exists, secret};
use crate::context::{Context, Error};
use crate::world::views::RepositoryView;
use holdfast_api::repository::{S3Backend, S3Tls};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;

/// The keys of the Secret that a bucket is asked with; a session token may stand beside them.
pub const BUCKET_KEYS: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];

/// What is known of what a backend needs in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// All of it is there, in these versions.
    Met(String),
    /// This is not.
    Unmet(Unmet),
}

/// Something that is not there; texts are namespace/name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmet {
    /// The claim of a filesystem repository.
    Claim(String),
    /// The Secret with the keys of a bucket.
    Secret(String),
    /// A key of it.
    Key(String, &'static str),
    /// The ConfigMap with the authorities to trust, or its key.
    CaBundle(String, String),
}

impl Unmet {
    /// The reason's word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Claim(_) => "MissingRepositoryClaim",
            Self::Secret(_) => "MissingCredentialsSecret",
            Self::Key(..) => "MissingCredentialsKey",
            Self::CaBundle(..) => "MissingCaBundle",
        }
    }

    /// What is missing and what to do.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Claim(claim) => format!("PersistentVolumeClaim {claim} does not exist. Create it."),
            Self::Secret(name) => format!("Secret {name} {NOT_READ}. Create it."),
            Self::Key(name, key) => format!("Secret {name} has no key {key}. Add it."),
            Self::CaBundle(name, key) => format!(
                "ConfigMap {name} with the key {key} does not exist. Create it, or name the right one in spec.backend.s3.tls.caBundleRef."
            ),
        }
    }
}

/// Looks at what the backend of a repository needs in this namespace; its Secret is looked for in `secrets`.
///
/// # Errors
/// [`Error`].
pub async fn backend(
    ctx: &Context,
    namespace: &str,
    secrets: &str,
    view: &RepositoryView,
) -> Result<Needs, Error> {
    if let Some(s3) = view.s3() {
        return bucket(ctx, namespace, secrets, s3).await;
    }
    // What an NFS server exports is mounted by the node: nothing of it is in the cluster to look at.
    let Some(claim) = view.claim() else {
        return Ok(Needs::Met(String::new()));
    };
    Ok(if claim_exists(ctx, namespace, claim).await? {
        Needs::Met(String::new())
    } else {
        Needs::Unmet(Unmet::Claim(format!("{namespace}/{claim}")))
    })
}

async fn bucket(ctx: &Context, namespace: &str, secrets: &str, s3: &S3Backend) -> Result<Needs, Error> {
    let name = s3.auth.secret_name();
    let shown = format!("{secrets}/{name}");
    let mut version = String::new();
    for key in BUCKET_KEYS {
        match secret(ctx, secrets, name, key).await? {
            SecretFact::Usable(found) => version = found,
            SecretFact::Missing => return Ok(Needs::Unmet(Unmet::Secret(shown))),
            SecretFact::NoKey => return Ok(Needs::Unmet(Unmet::Key(shown, key))),
        }
    }
    let bundle = s3
        .tls
        .as_ref()
        .and_then(|S3Tls { ca_bundle_ref, .. }| ca_bundle_ref.as_ref());
    let Some(bundle) = bundle else {
        return Ok(Needs::Met(version));
    };
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), namespace);
    let found = api.get_opt(&bundle.config_map_name).await?;
    let found = found.filter(|map| {
        map.data
            .as_ref()
            .is_some_and(|data| data.contains_key(&bundle.key))
    });
    Ok(match found {
        Some(map) => {
            let authorities = map.metadata.resource_version.unwrap_or_default();
            Needs::Met(format!("{version}|{authorities}"))
        }
        None => Needs::Unmet(Unmet::CaBundle(
            format!("{namespace}/{}", bundle.config_map_name),
            bundle.key.clone(),
        )),
    })
}
