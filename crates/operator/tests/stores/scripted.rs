//! An S3 server that says what a test tells it: how many keys there are, and whether the bucket keeps versions.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

/// Keys in a page, as S3 has it.
pub const PAGE: usize = 1_000;

/// What it says, and what it was asked.
pub struct Script {
    /// Number of keys.
    pub keys: usize,
    /// The key of a number.
    pub key: fn(usize) -> String,
    /// Answer to the question about versions: code and body.
    pub versioning: (u16, String),
    /// Pages that were asked for.
    pub pages: usize,
}

impl Script {
    /// What S3 says of a bucket's versions: `Enabled`, `Suspended`, or nothing at all.
    pub fn versions(&mut self, status: Option<&str>) {
        let status = status
            .map(|word| format!("<Status>{word}</Status>"))
            .unwrap_or_default();
        let body = format!(
            "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{status}</VersioningConfiguration>"
        );
        self.versioning = (200, body);
    }

    /// Who may only list is not told.
    pub fn forbid_versions(&mut self) {
        self.versioning = (403, "<Error><Code>AccessDenied</Code></Error>".to_owned());
    }

    fn page(&mut self, query: &str) -> String {
        self.pages += 1;
        let token = query
            .split('&')
            .find_map(|part| part.strip_prefix("continuation-token="));
        let from: usize = token.map_or(0, |token| token.parse().expect("a token of ours"));
        let to = (from + PAGE).min(self.keys);
        let mut text = String::from("<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        if to < self.keys {
            let _ = write!(
                text,
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{to}</NextContinuationToken>"
            );
        } else {
            text.push_str("<IsTruncated>false</IsTruncated>");
        }
        for number in from..to {
            let key = (self.key)(number);
            let _ = write!(
                text,
                "<Contents><Key>{key}</Key><LastModified>2026-08-22T00:00:09.000Z</LastModified>\
                 <ETag>&quot;e&quot;</ETag><Size>3</Size></Contents>"
            );
        }
        text.push_str("</ListBucketResult>");
        text
    }
}

/// A server with one script.
pub struct Scripted {
    /// Its address.
    pub endpoint: String,
    /// May be changed at any time.
    pub script: Arc<Mutex<Script>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scripted {
    /// Serves so many keys of a bucket that never had versions.
    pub async fn start(keys: usize, key: fn(usize) -> String) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut script = Script {
            keys,
            key,
            versioning: (200, String::new()),
            pages: 0,
        };
        script.versions(None);
        let script = Arc::new(Mutex::new(script));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&script));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("served") });
        Self {
            endpoint,
            script,
            task,
        }
    }

    /// Looks at the script, or changes it.
    pub fn with<T>(&self, look: impl FnOnce(&mut Script) -> T) -> T {
        look(&mut self.script.lock().expect("no panic"))
    }
}

async fn answer(
    State(script): State<Arc<Mutex<Script>>>,
    headers: HeaderMap,
    uri: Uri,
) -> (StatusCode, String) {
    let query = uri.query().unwrap_or_default();
    if !headers.contains_key("authorization") {
        return (StatusCode::FORBIDDEN, format!("{uri} is not signed"));
    }
    let mut script = script.lock().expect("no panic");
    if query.starts_with("versioning") {
        let (code, body) = script.versioning.clone();
        return (StatusCode::from_u16(code).expect("a code"), body);
    }
    assert!(query.contains("list-type=2"), "{uri}");
    (StatusCode::OK, script.page(query))
}
