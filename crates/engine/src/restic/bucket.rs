//! A repository in an S3 bucket, read strictly.
//!
//! **Promises.** A listing is complete or an error: each page is, and so is each key. A snapshot is not written once a
//! fault of its source is known. The config is written only where none is, so that of two creations at once one fails
//! (on servers that know conditional writes). Keys and tokens are in no text.
//!
//! **Assumes.** restic's layout: `config`, `keys/`, `index/`, `snapshots/`, `data/xx/`. What a bucket lists is what it
//! holds: unlike a directory it cannot be unmounted, and a bucket that is not there fails the listing.

use super::faults::Faults;
use super::place::{self, Place};
use crate::{Bucket, EngineError, ErrorClass};
use bytes::Bytes;
use futures::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    Certificate, ClientOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, RetryConfig,
};
use rustic_core::{BytesList, ErrorKind, FileType, Id, ReadBackend, RusticError, RusticResult, WriteBackend};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// One request, its body included: a pack of some megabytes over a slow line.
const TIMEOUT: Duration = Duration::from_secs(300);

/// How long a creation may take between its key and its config.
const UNDER_WAY: SignedDuration = SignedDuration::from_hours(1);

/// What is asked for where no region is named; servers of one's own take any.
const REGION: &str = "us-east-1";

/// A bucket that can be asked.
pub(super) struct Client {
    store: AmazonS3,
    runtime: Runtime,
    folder: Path,
    bucket: Bucket,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.bucket)
    }
}

impl Client {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// [`ErrorClass::Failed`] when the description cannot be used.
    pub(super) fn new(what: &str, bucket: &Bucket) -> Result<Self, EngineError> {
        let unusable = |why: String| {
            let next = "Check spec.backend.s3 of the repository and what it names";
            EngineError::new(ErrorClass::Failed, what, why, next)
        };
        let mut options = ClientOptions::new()
            .with_allow_http(bucket.plain)
            .with_allow_invalid_certificates(bucket.unverified)
            .with_timeout(TIMEOUT)
            .with_connect_timeout(Duration::from_secs(15));
        if let Some(pem) = &bucket.authorities {
            let all = Certificate::from_pem_bundle(pem.as_bytes())
                .map_err(|cause| unusable(format!("the certificates cannot be read: {cause}")))?;
            if all.is_empty() {
                return Err(unusable(
                    "there is no certificate where authorities are named".to_owned(),
                ));
            }
            options = options.with_no_system_certificates(true);
            for certificate in all {
                options = options.with_root_certificate(certificate);
            }
        }
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&bucket.name)
            .with_region(bucket.region.as_deref().unwrap_or(REGION))
            .with_access_key_id(&bucket.keys.id)
            .with_secret_access_key(bucket.keys.secret.expose())
            .with_virtual_hosted_style_request(false)
            .with_client_options(options)
            .with_retry(RetryConfig {
                max_retries: 5,
                retry_timeout: Duration::from_secs(120),
                ..RetryConfig::default()
            });
        if let Some(endpoint) = &bucket.endpoint {
            let scheme = if bucket.plain { "http" } else { "https" };
            builder = builder.with_endpoint(format!("{scheme}://{endpoint}"));
        }
        if let Some(session) = &bucket.keys.session {
            builder = builder.with_token(session.expose());
        }
        let store = builder.build().map_err(|cause| unusable(cause.to_string()))?;
        let folder = Path::parse(bucket.prefix.trim_matches('/'))
            .map_err(|cause| unusable(format!("the prefix cannot be used: {cause}")))?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|cause| unusable(cause.to_string()))?;
        Ok(Self {
            store,
            runtime,
            folder,
            bucket: bucket.clone(),
        })
    }

    /// Which bucket.
    pub(super) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    fn below(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }

    fn key(&self, tpe: FileType, id: &Id) -> Path {
        let hex = id.to_hex();
        match tpe {
            FileType::Config => self.below("config"),
            FileType::Pack => self.below("data").join(&hex.as_str()[..2]).join(hex.as_str()),
            FileType::Index | FileType::Key | FileType::Snapshot => {
                self.below(tpe.dirname()).join(hex.as_str())
            }
        }
    }

    /// Every key of a folder with its length, at any depth.
    fn list(&self, folder: &Path) -> Result<Vec<(Path, u64)>, Error> {
        self.runtime.block_on(async {
            let found = self.store.list(Some(folder));
            found
                .map_ok(|meta| (meta.location, meta.size))
                .try_collect()
                .await
        })
    }

    /// What is there.
    ///
    /// # Errors
    /// [`ErrorClass::Unreachable`].
    pub(super) fn look(&self, what: &str) -> Result<Place, EngineError> {
        let judged = self.runtime.block_on(async {
            let found = self.store.list_with_delimiter(Some(&self.folder)).await?;
            let objects = found.objects.iter().map(|meta| &meta.location);
            let names = objects
                .chain(&found.common_prefixes)
                .filter_map(|path| path.filename().map(str::to_owned))
                .collect();
            // A folder is only there for what it holds.
            place::of_names(names, |_| Ok(true))
        });
        judged.map_err(|cause: Error| self.bucket.unreachable(what, cause))
    }

    /// Removes the keys of an interrupted creation: a later opening could pick one, which does not decrypt the new config.
    /// Young ones may be of a creation that is under way, whose repository could not be opened without them.
    ///
    /// # Errors
    /// [`ErrorClass::Failed`] where there are young ones or a repository after all, [`ErrorClass::Unreachable`].
    pub(super) fn forget_keys(&self, what: &str) -> Result<(), EngineError> {
        let unreachable = |cause| self.bucket.unreachable(what, cause);
        let keys: Vec<ObjectMeta> = self
            .runtime
            .block_on(self.store.list(Some(&self.below("keys"))).try_collect())
            .map_err(unreachable)?;
        if keys.is_empty() {
            return Ok(());
        }
        let old = Timestamp::now() - UNDER_WAY;
        if let Some(young) = keys
            .iter()
            .find(|key| key.last_modified.timestamp() >= old.as_second())
        {
            let why = format!(
                "{} was written less than an hour ago: another creation may be under way",
                young.location
            );
            let next =
                "Wait for it; if there is none, try again an hour after it, or remove the folder `keys`";
            return Err(EngineError::new(ErrorClass::Failed, what, why, next));
        }
        // It may have come to its end since it was looked at.
        place::free(self.look(what)?, &self.bucket)?;
        for key in keys.into_iter().map(|key| key.location) {
            self.runtime
                .block_on(self.store.delete(&key))
                .map_err(unreachable)?;
        }
        Ok(())
    }

    /// Whether a snapshot's file is there; doubt counts as present.
    pub(super) fn may_have(&self, snapshot: &str) -> bool {
        let key = self.below("snapshots").join(snapshot);
        !matches!(
            self.runtime.block_on(self.store.head(&key)),
            Err(Error::NotFound { .. })
        )
    }
}

/// The bucket as rustic asks it.
#[derive(Debug)]
pub(super) struct StrictBucket {
    client: Arc<Client>,
    faults: Arc<Faults>,
}

impl StrictBucket {
    pub(super) fn new(client: Arc<Client>, faults: Arc<Faults>) -> Self {
        Self { client, faults }
    }

    fn get(&self, key: &Path, range: Option<std::ops::Range<u64>>) -> Result<Bytes, Error> {
        let store = &self.client.store;
        self.client.runtime.block_on(async {
            match range {
                None => store.get(key).await?.bytes().await,
                Some(range) => store.get_range(key, range).await,
            }
        })
    }
}

fn backend_error(what: &'static str, key: &Path, cause: Error) -> Box<RusticError> {
    RusticError::with_source(ErrorKind::Backend, what, cause).attach_context("key", key.to_string())
}

impl ReadBackend for StrictBucket {
    fn location(&self) -> String {
        self.client.bucket.to_string()
    }

    fn list_with_size(&self, tpe: FileType) -> RusticResult<Vec<(Id, u32)>> {
        let short = |length| u32::try_from(length).unwrap_or(u32::MAX);
        if tpe == FileType::Config {
            let key = self.client.below("config");
            return match self.client.runtime.block_on(self.client.store.head(&key)) {
                Ok(meta) => Ok(vec![(Id::default(), short(meta.size))]),
                Err(Error::NotFound { .. }) => Ok(Vec::new()),
                Err(cause) => Err(backend_error(
                    "The object `{key}` cannot be looked at.",
                    &key,
                    cause,
                )),
            };
        }
        let folder = match tpe {
            FileType::Pack => self.client.below("data"),
            FileType::Config | FileType::Index | FileType::Key | FileType::Snapshot => {
                self.client.below(tpe.dirname())
            }
        };
        let found = self
            .client
            .list(&folder)
            .map_err(|cause| backend_error("The folder `{key}` cannot be listed.", &folder, cause))?;
        Ok(found
            .into_iter()
            .filter_map(|(key, length)| Some((key.filename()?.parse::<Id>().ok()?, short(length))))
            .collect())
    }

    fn read_full(&self, tpe: FileType, id: &Id) -> RusticResult<Bytes> {
        let key = self.client.key(tpe, id);
        self.get(&key, None)
            .map_err(|cause| backend_error("The object `{key}` cannot be read.", &key, cause))
    }

    fn read_partial(
        &self,
        tpe: FileType,
        id: &Id,
        _cacheable: bool,
        offset: u32,
        length: u32,
    ) -> RusticResult<Bytes> {
        let key = self.client.key(tpe, id);
        let begin = u64::from(offset);
        let part = self
            .get(&key, Some(begin..begin + u64::from(length)))
            .map_err(|cause| backend_error("The object `{key}` cannot be read.", &key, cause))?;
        if part.len() as u64 == u64::from(length) {
            return Ok(part);
        }
        Err(RusticError::new(
            ErrorKind::Backend,
            "The object `{key}` is shorter than it should be.",
        )
        .attach_context("key", key.to_string()))
    }

    fn warmup_path(&self, tpe: FileType, id: &Id) -> String {
        self.client.key(tpe, id).to_string()
    }
}

impl WriteBackend for StrictBucket {
    fn create(&self) -> RusticResult<()> {
        // A bucket has no folders to make, and is never made itself.
        Ok(())
    }

    fn write_bytes(&self, tpe: FileType, id: &Id, _cacheable: bool, content: BytesList) -> RusticResult<()> {
        // The snapshot file is the commit: it is the last thing written, so every fault is known by now.
        if tpe == FileType::Snapshot && self.faults.any() {
            return Err(RusticError::new(
                ErrorKind::InputOutput,
                "The source could not be read whole; no snapshot is written.",
            ));
        }
        let key = self.client.key(tpe, id);
        let payload: PutPayload = content.into_vec().into_iter().collect();
        let mode = match tpe {
            FileType::Config => PutMode::Create,
            // Named by their content.
            FileType::Index | FileType::Key | FileType::Snapshot | FileType::Pack => PutMode::Overwrite,
        };
        let written =
            self.client
                .runtime
                .block_on(self.client.store.put_opts(&key, payload, PutOptions::from(mode)));
        written
            .map(|_| ())
            .map_err(|cause| backend_error("The object `{key}` cannot be written.", &key, cause))
    }

    fn remove(&self, tpe: FileType, id: &Id, _cacheable: bool) -> RusticResult<()> {
        let key = self.client.key(tpe, id);
        match self.client.runtime.block_on(self.client.store.delete(&key)) {
            // What is absent is what was asked for.
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(cause) => Err(backend_error(
                "The object `{key}` cannot be removed.",
                &key,
                cause,
            )),
        }
    }
}
