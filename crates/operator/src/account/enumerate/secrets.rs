//! Reading what a store is signed in with.
//!
//! **Promises.** No message holds a value, only the names of what is missing.

use super::bucket::Keys;
use super::reason::{StoreReason, Trouble};
use crate::account::Account;
use holdfast_api::ledger::BackupStoreSpec;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

/// The keys, and the certificates if the spec names any.
///
/// # Errors
/// [`Trouble`] with [`StoreReason::SecretUnusable`].
pub async fn read(account: &Account, spec: &BackupStoreSpec) -> Result<(Keys, Option<Vec<u8>>), Trouble> {
    let named = &spec.credentials;
    let secret = Named {
        namespace: named.namespace.as_deref().unwrap_or(&account.settings.namespace),
        name: &named.name,
    };
    let object = secret.get(account).await?;
    let keys = Keys {
        id: secret.text(&object, &named.access_key_id_key)?,
        secret: secret.text(&object, &named.secret_access_key_key)?,
    };
    let Some(bundle) = &spec.ca_bundle else {
        return Ok((keys, None));
    };
    let secret = Named {
        namespace: bundle.namespace.as_deref().unwrap_or(&account.settings.namespace),
        name: &bundle.name,
    };
    let object = secret.get(account).await?;
    Ok((keys, Some(secret.bytes(&object, &bundle.key)?)))
}

struct Named<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl Named<'_> {
    fn trouble(&self, what: &str) -> Trouble {
        let Self { namespace, name } = self;
        Trouble::new(
            StoreReason::SecretUnusable,
            format!("Secret {namespace}/{name} {what}"),
        )
    }

    async fn get(&self, account: &Account) -> Result<Secret, Trouble> {
        let api: Api<Secret> = Api::namespaced(account.client.clone(), self.namespace);
        match api.get_opt(self.name).await {
            Ok(Some(secret)) => Ok(secret),
            Ok(None) => Err(self.trouble("is not there: make it, or correct its name in the spec")),
            Err(error) => Err(self.trouble(&format!("cannot be read: {error}"))),
        }
    }

    fn bytes(&self, secret: &Secret, key: &str) -> Result<Vec<u8>, Trouble> {
        secret
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .map(|value| value.0.clone())
            .filter(|value| !value.is_empty())
            .ok_or_else(|| {
                self.trouble(&format!(
                    "has no value under {key}: write it, or name another key in the spec"
                ))
            })
    }

    fn text(&self, secret: &Secret, key: &str) -> Result<String, Trouble> {
        let bytes = self.bytes(secret, key)?;
        String::from_utf8(bytes)
            .map(|text| text.trim().to_owned())
            .map_err(|_| self.trouble(&format!("has something under {key} that is no text")))
    }
}
