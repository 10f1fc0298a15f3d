//! One bucket: how it is reached, listed page by page, and asked whether it keeps old versions.
//!
//! **Promises.** Credentials are in no message, no log and no `Debug`. A page is whole or an error.
//!
//! **Assumes.** S3 servers of one's own: the bucket stands in the path unless told otherwise.

use super::reason::{StoreReason, Trouble};
use holdfast_api::ledger::BackupStoreSpec;
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer, AwsCredential};
use object_store::client::{HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::{Certificate, ClientOptions, RetryConfig};
use std::time::Duration;

/// One request, its body included.
const TIMEOUT: Duration = Duration::from_secs(60);
const REGION: &str = "us-east-1";

/// What to sign in with.
pub struct Keys {
    /// Access key id.
    pub id: String,
    /// Secret access key.
    pub secret: String,
}

/// Some objects of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Whole keys and sizes in bytes.
    pub objects: Vec<(String, i64)>,
    /// What the next page is asked for with; `None`: this was the last.
    pub next: Option<String>,
}

/// A bucket that can be listed.
pub trait Pages: Send + Sync {
    /// One page of the keys that begin with `prefix`.
    ///
    /// # Errors
    /// A sentence: what the server said.
    fn page(&self, prefix: &str, token: Option<String>) -> impl Future<Output = Result<Page, String>> + Send;
}

/// A bucket of an S3 server.
pub struct Bucket {
    store: AmazonS3,
    options: ClientOptions,
    credential: AwsCredential,
    region: String,
    /// URL of the bucket itself.
    url: String,
}

impl Bucket {
    /// A client for it. Nothing is sent yet.
    ///
    /// # Errors
    /// [`Trouble`] with [`StoreReason::BadSpec`]: the address or the certificates cannot be used.
    pub fn open(spec: &BackupStoreSpec, keys: Keys, certificates: Option<&[u8]>) -> Result<Self, Trouble> {
        let bad = |what: String| Trouble::new(StoreReason::BadSpec, what);
        let endpoint = spec.endpoint.trim_end_matches('/');
        let (scheme, host) = endpoint
            .split_once("://")
            .filter(|(scheme, host)| ["http", "https"].contains(scheme) && !host.is_empty())
            .ok_or_else(|| {
                bad("spec.endpoint is no address: write for example https://s3.example.org".to_owned())
            })?;
        let bucket = &spec.bucket;
        let url = if spec.force_path_style {
            format!("{endpoint}/{bucket}")
        } else {
            format!("{scheme}://{bucket}.{host}")
        };
        let mut options = ClientOptions::new()
            .with_allow_http(scheme == "http")
            .with_timeout(TIMEOUT)
            .with_connect_timeout(Duration::from_secs(10));
        if let Some(pem) = certificates {
            let all = Certificate::from_pem_bundle(pem).map_err(|error| {
                bad(format!(
                    "the certificates of spec.caBundle cannot be read: {error}"
                ))
            })?;
            if all.is_empty() {
                return Err(bad("spec.caBundle holds no certificate".to_owned()));
            }
            for certificate in all {
                options = options.with_root_certificate(certificate);
            }
        }
        let region = spec.region.clone().unwrap_or_else(|| REGION.to_owned());
        let store = AmazonS3Builder::new()
            .with_endpoint(if spec.force_path_style { endpoint } else { &url })
            .with_virtual_hosted_style_request(!spec.force_path_style)
            .with_bucket_name(bucket)
            .with_region(&region)
            .with_access_key_id(&keys.id)
            .with_secret_access_key(&keys.secret)
            .with_client_options(options.clone())
            .with_retry(RetryConfig {
                max_retries: 3,
                retry_timeout: Duration::from_secs(60),
                ..RetryConfig::default()
            })
            .build()
            .map_err(|error| bad(format!("the store cannot be used as it is described: {error}")))?;
        Ok(Self {
            store,
            options,
            credential: AwsCredential {
                key_id: keys.id,
                secret_key: keys.secret,
                token: None,
            },
            region,
            url,
        })
    }

    /// Whether the bucket keeps old versions, or has kept some (`Suspended`). `None`: the server does not say, or
    /// credentials that may only list are not told.
    pub async fn is_versioned(&self) -> Option<bool> {
        let client = ReqwestConnector::default().connect(&self.options).ok()?;
        let mut request: HttpRequest = object_store_request(&format!("{}?versioning=", self.url))?;
        AwsAuthorizer::new(&self.credential, "s3", &self.region)
            .try_authorize(&mut request, None)
            .ok()?;
        let response = client.execute(request).await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let body = response.into_body().bytes().await.ok()?;
        versioning(&String::from_utf8_lossy(&body))
    }
}

fn object_store_request(url: &str) -> Option<HttpRequest> {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.uri_mut() = url.parse().ok()?;
    Some(request)
}

/// What a `VersioningConfiguration` says; one without a status is of a bucket that never had versions.
fn versioning(text: &str) -> Option<bool> {
    if !text.contains("VersioningConfiguration") {
        return None;
    }
    let status = text
        .split_once("<Status>")
        .and_then(|(_, rest)| rest.split_once("</Status>"))
        .map(|(status, _)| status.trim());
    match status {
        None => Some(false),
        Some("Enabled" | "Suspended") => Some(true),
        Some(_) => None,
    }
}

impl Pages for Bucket {
    async fn page(&self, prefix: &str, token: Option<String>) -> Result<Page, String> {
        let options = PaginatedListOptions {
            page_token: token,
            ..PaginatedListOptions::default()
        };
        let prefix = (!prefix.is_empty()).then_some(prefix);
        let answer = self
            .store
            .list_paginated(prefix, options)
            .await
            .map_err(|error| error.to_string())?;
        let objects = answer.result.objects.into_iter().map(|object| {
            let bytes = i64::try_from(object.size).unwrap_or(i64::MAX);
            (object.location.to_string(), bytes)
        });
        Ok(Page {
            objects: objects.collect(),
            next: answer.page_token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart_from_not_knowing() {
        let answer = |status: &str| {
            format!(
                "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{status}</VersioningConfiguration>"
            )
        };
        assert_eq!(versioning(&answer("<Status>Enabled</Status>")), Some(true));
        assert_eq!(versioning(&answer("<Status>Suspended</Status>")), Some(true));
        assert_eq!(versioning(&answer("")), Some(false));
        assert_eq!(versioning(&answer("<Status>New</Status>")), None);
        assert_eq!(versioning("<Error><Code>NotImplemented</Code></Error>"), None);
    }
}
