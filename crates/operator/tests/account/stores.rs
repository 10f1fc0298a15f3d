//! BackupStores: what drivers do not report is measured, by listing a real S3 server.

use super::lab::SIZE;
use super::office::Tenant;
use super::scripted::Scripted;
use holdfast_api::ledger::BackupStore;
use holdfast_api::ledger::BackupStoreStatus;
use holdfast_api::{conditions, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::path::PathBuf;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const MONGO: &str = "MongoDB";

/// The bucket, its server, and the BackupStore that describes the tenant's part of it.
struct Archive<'a> {
    tenant: &'a Tenant,
    folder: PathBuf,
    server: JoinHandle<()>,
    api: Api<BackupStore>,
}

impl<'a> Archive<'a> {
    async fn open(tenant: &'a Tenant) -> Self {
        let namespace = tenant.namespace();
        let folder = std::env::temp_dir().join(format!("holdfast-{namespace}"));
        std::fs::create_dir_all(folder.join("shared-archive")).expect("a bucket");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let served = folder.clone();
        let server = tokio::spawn(async move {
            let ended = holdfast_standin::s3::serve(listener, &served, "id", "secret").await;
            panic!("the server ended: {ended:?}");
        });
        let api = describe(tenant, &endpoint).await;
        Self {
            tenant,
            folder,
            server,
            api,
        }
    }

    fn path(tenant: &Tenant, name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("holdfast-{}", tenant.namespace()));
        folder
            .join("shared-archive")
            .join(tenant.namespace())
            .join("control")
            .join(name)
    }

    fn put(tenant: &Tenant, name: &str, bytes: usize) {
        let path = Self::path(tenant, name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, vec![1_u8; bytes]).expect("written");
    }

    fn prune(&self, name: &str) {
        std::fs::remove_file(Self::path(self.tenant, name)).expect("it was there");
    }

    async fn status(&self) -> BackupStoreStatus {
        let store = self.api.get(self.tenant.namespace()).await.expect("there");
        store.status.unwrap_or_default()
    }

    async fn until(&self, what: &str, is: impl Fn(&BackupStoreStatus) -> bool) -> BackupStoreStatus {
        self.tenant
            .lab
            .until(what, async || is(&self.status().await))
            .await;
        self.status().await
    }

    async fn annotate(&self, key: &str, value: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        let annotated = self
            .api
            .patch(self.tenant.namespace(), &PatchParams::default(), &patch)
            .await;
        annotated.expect("annotated");
    }

    async fn ask(&self) -> Timestamp {
        let asked = Timestamp::now();
        self.annotate(names::LIST_REQUESTED_AT, &asked.to_string()).await;
        asked
    }

    /// Asks for a listing and waits for its end.
    async fn list(&self) -> BackupStoreStatus {
        let asked = self.ask().await;
        self.until("the listing that was asked for", |status| {
            let last = status.last_complete_listing.as_ref();
            last.is_some_and(|last| last.started_at >= asked)
        })
        .await
    }

    async fn close(self) {
        let gone = self
            .api
            .delete(self.tenant.namespace(), &DeleteParams::default())
            .await;
        gone.expect("deleted");
        self.server.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The tenant's part of a bucket, described under the tenant's name, and the keys to it.
async fn describe(tenant: &Tenant, endpoint: &str) -> Api<BackupStore> {
    let namespace = tenant.namespace();
    let secrets: Api<Secret> = tenant.lab.api();
    let secret = json!({
        "metadata": { "name": "keys" },
        "stringData": { "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret" },
    });
    let secret: Secret = serde_json::from_value(secret).expect("a Secret");
    let made = secrets.create(&PostParams::default(), &secret).await;
    made.expect("created");
    let api: Api<BackupStore> = Api::all(tenant.lab.client.clone());
    let store = json!({
        "metadata": { "name": namespace },
        "spec": {
            "bucket": "shared-archive", "prefix": format!("{namespace}/control/"), "endpoint": endpoint,
            "credentials": { "name": "keys", "namespace": namespace },
            "layout": { "path": "{artifact...}", "namespace": namespace },
        },
    });
    let store: BackupStore = serde_json::from_value(store).expect("a BackupStore");
    api.create(&PostParams::default(), &store).await.expect("created");
    api
}

fn is_ready(status: &BackupStoreStatus, yes: &str, reason: &str) -> bool {
    conditions::get(&status.conditions, conditions::READY)
        .is_some_and(|ready| ready.status == yes && ready.reason == reason)
}

#[tokio::test]
async fn a_store_is_measured_pruned_archives_are_released_and_large_releases_wait() {
    let Some(tenant) = Tenant::new("stores").await else {
        return;
    };
    tenant.quota().await;
    Archive::put(&tenant, "one.db", 1 << 20);
    Archive::put(&tenant, "two.db", 3 << 20);
    Archive::put(&tenant, "left-behind", 5);
    for name in ["one", "two"] {
        tenant.backup(name, MONGO, Some(&tenant.uri(name)), None).await;
    }
    tenant.until_used("0", "2").await;
    let archive = Archive::open(&tenant).await;
    tenant.until_used("4Mi", "2").await;
    let status = archive
        .until("it to be listed", |status| is_ready(status, "True", "Listed"))
        .await;
    let found = status.unaccounted.first().expect("what was left behind");
    assert_eq!(
        (found.namespace.as_str(), found.objects, found.bytes),
        (tenant.namespace(), 1, 5)
    );
    assert_eq!(status.versioned, None, "the server does not say");
    let last = status.last_complete_listing.expect("one");
    assert_eq!((last.objects, last.bytes), (3, (4 << 20) + 5));

    // Pruned behind our back: one listing is not enough.
    tenant.delete_backup("one").await;
    archive.prune("one.db");
    archive.list().await;
    assert_eq!(tenant.lab.used("cap").await[SIZE], "4Mi");
    archive.list().await;
    tenant.until_used("3Mi", "1").await;

    // All that is left of the scope: that waits.
    tenant.delete_backup("two").await;
    archive.prune("two.db");
    archive.list().await;
    let status = archive.list().await;
    let pending = status.pending_release.clone().expect("it waits");
    assert_eq!(
        (pending.records, pending.bytes, pending.reason.as_str()),
        (1, 3 << 20, "HalfTheBytes")
    );
    assert!(
        is_ready(&status, "True", "ReleaseWaits"),
        "{:?}",
        status.conditions
    );
    archive.annotate(names::APPROVE_RELEASE, "another").await;
    archive.list().await;
    assert_eq!(tenant.lab.used("cap").await[SIZE], "3Mi");
    archive.annotate(names::APPROVE_RELEASE, &pending.token).await;
    tenant.until_used("0", "0").await;
    archive
        .until("the approval to be noted", |status| {
            let noted = status.approved_release.as_ref();
            status.pending_release.is_none() && noted.is_some_and(|noted| noted.token == pending.token)
        })
        .await;
    archive.close().await;
    tenant.end().await;
}

#[tokio::test]
async fn a_store_that_cannot_be_listed_changes_nothing_and_says_why() {
    let Some(tenant) = Tenant::new("stores").await else {
        return;
    };
    tenant.quota().await;
    Archive::put(&tenant, "one.db", 1 << 20);
    tenant.backup("one", MONGO, Some(&tenant.uri("one")), None).await;
    tenant.until_used("0", "1").await;
    let archive = Archive::open(&tenant).await;
    tenant.until_used("1Mi", "1").await;
    let before = archive
        .until("it to be listed", |status| is_ready(status, "True", "Listed"))
        .await;
    let secrets: Api<Secret> = tenant.lab.api();
    let wrong = Patch::Merge(json!({ "stringData": { "AWS_SECRET_ACCESS_KEY": "hunter2" } }));
    let patched = secrets.patch("keys", &PatchParams::default(), &wrong).await;
    patched.expect("patched");
    archive.ask().await;
    let status = archive
        .until("the listing to fail", |status| {
            is_ready(status, "False", "ListingFailed")
        })
        .await;
    assert_eq!(status.failures, 1);
    assert_eq!(status.last_complete_listing, before.last_complete_listing);
    let error = status.last_error.expect("why");
    assert!(!error.contains("hunter2"), "{error}");
    secrets
        .delete("keys", &DeleteParams::default())
        .await
        .expect("deleted");
    archive.ask().await;
    let status = archive
        .until("the Secret to be missed", |status| {
            is_ready(status, "False", "SecretUnusable")
        })
        .await;
    assert!(status.last_error.expect("why").contains("/keys is not there"));
    assert_eq!(tenant.lab.used("cap").await[SIZE], "1Mi");
    archive.close().await;
    tenant.end().await;
}

/// Versions are noticed at each listing and said, as is that nobody is told any more.
#[tokio::test]
async fn a_bucket_that_keeps_versions_is_said_to_hide_bytes_that_nobody_is_charged_for() {
    let Some(tenant) = Tenant::new("versions").await else {
        return;
    };
    let server = Scripted::start(0, |_| String::new()).await;
    server.with(|script| script.versions(Some("Enabled")));
    let api = describe(&tenant, &server.endpoint).await;
    let name = tenant.namespace();
    for (versioned, reason, word) in [
        (Some(true), Some("VersionsKept"), "listings do not see"),
        (Some(false), Some("NoVersions"), "no old versions"),
        (None, None, ""),
    ] {
        tenant
            .lab
            .until(&format!("versioned to be told as {versioned:?}"), async || {
                let status = api.get(name).await.expect("there").status.unwrap_or_default();
                status.last_complete_listing.is_some() && status.versioned == versioned
            })
            .await;
        let status = api.get(name).await.expect("there").status.expect("a status");
        let told = conditions::get(&status.conditions, "Versioned");
        assert_eq!(told.map(|told| told.reason.as_str()), reason);
        assert_eq!(
            told.map(|told| told.status == "True"),
            versioned,
            "{:?}",
            status.conditions
        );
        assert!(told.is_none_or(|told| told.message.contains(word)), "{told:?}");
        // What is said next.
        server.with(|script| match versioned {
            Some(true) => script.versions(None),
            Some(false) | None => script.forbid_versions(),
        });
        let again = Timestamp::now().to_string();
        let patch =
            Patch::Merge(json!({ "metadata": { "annotations": { names::LIST_REQUESTED_AT: again } } }));
        let asked = api.patch(name, &PatchParams::default(), &patch).await;
        asked.expect("asked");
    }
    api.delete(name, &DeleteParams::default()).await.expect("deleted");
    tenant.end().await;
}
