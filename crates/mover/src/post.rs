//! Posting chunks to the operator's HTTPS port.
//!
//! **Promises.** Only the CA of the work document is trusted, only the address of the work document is connected
//! to, whatever a name server, a proxy variable or a redirect says. The token is read anew for every try, since
//! the kubelet renews it, and appears in no text. Each chunk is offered for the time of `Places::patience`, with
//! growing pauses, unless the operator refuses it for good.

use crate::places::Places;
use crate::run::say;
use holdfast_protocol::chunks;
use holdfast_protocol::restore::{Progress, progress_path};
use holdfast_protocol::work::ResultsEndpoint;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Sends the chunks of one scan.
pub(crate) struct Poster {
    agent: Agent,
    authority: String,
    scan: String,
    token: PathBuf,
    patience: Duration,
}

/// Every name is the operator's address: movers need no DNS.
#[derive(Debug)]
struct OneAddress(SocketAddr);

impl Resolver for OneAddress {
    fn resolve(
        &self,
        _uri: &Uri,
        _config: &ureq::config::Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(self.0);
        Ok(addresses)
    }
}

/// How one try ended.
enum Refusal {
    /// Trying again makes no sense.
    ForGood(String),
    /// It may yet succeed.
    Yet(String),
}

impl Poster {
    /// Reads the endpoint; errors say which field is wrong.
    pub(crate) fn new(endpoint: &ResultsEndpoint, places: &Places) -> Result<Self, String> {
        let address: SocketAddr = endpoint
            .address
            .parse()
            .map_err(|e| format!("`results.address` is not an address and port: {e}"))?;
        let certificates: Vec<Certificate<'static>> = parse_pem(endpoint.ca.as_bytes())
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
                Ok(_) => None,
                Err(e) => Some(Err(format!("`results.ca` cannot be read: {e}"))),
            })
            .collect::<Result<_, _>>()?;
        if certificates.is_empty() {
            return Err("`results.ca` holds no certificate".to_owned());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::new_with_certs(&certificates))
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .https_only(true)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(5)))
            .timeout_global(Some(Duration::from_secs(30)))
            .build();
        Ok(Self {
            agent: Agent::with_parts(config, DefaultConnector::default(), OneAddress(address)),
            authority: format!("{}:{}", endpoint.server_name, address.port()),
            scan: endpoint.scan.clone(),
            token: places.token.clone(),
            patience: places.patience,
        })
    }

    /// Offers one chunk until it is taken, refused for good, or patience ends.
    pub(crate) fn post(&self, number: u32, body: &[u8]) -> Result<(), String> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(250);
        loop {
            let why = match self.offer(number, body) {
                Ok(()) => return Ok(()),
                Err(Refusal::ForGood(why)) => {
                    return Err(format!(
                        "the operator refused chunk {number} of the listing: {why}"
                    ));
                }
                Err(Refusal::Yet(why)) => why,
            };
            if begun.elapsed() + pause > self.patience {
                let seconds = self.patience.as_secs();
                return Err(format!(
                    "chunk {number} of the listing could not be posted within {seconds} s: {why}. Check that the \
                     operator runs and that network policies let movers reach its port"
                ));
            }
            say(&format!("chunk {number} not taken yet ({why}); trying again"));
            sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tells how far a restore is, once: the next one says more.
    pub(crate) fn tell(&self, progress: &Progress) -> Result<(), String> {
        let body = serde_json::to_vec(progress).map_err(|e| e.to_string())?;
        self.send(&progress_path(&self.scan), &body)
            .map_err(|refusal| match refusal {
                Refusal::ForGood(why) | Refusal::Yet(why) => why,
            })
    }

    fn offer(&self, number: u32, body: &[u8]) -> Result<(), Refusal> {
        self.send(&chunks::path(&self.scan, number), body)
    }

    fn send(&self, path: &str, body: &[u8]) -> Result<(), Refusal> {
        let token = std::fs::read_to_string(&self.token)
            .map_err(|cause| Refusal::Yet(format!("the token cannot be read: {cause}")))?;
        let url = format!("https://{}{path}", self.authority);
        let response = self
            .agent
            .post(&url)
            .header("authorization", format!("Bearer {}", token.trim()))
            .header("content-type", "application/json")
            .send(body)
            .map_err(|e| Refusal::Yet(e.to_string()))?;
        let status = response.status().as_u16();
        let mut text = response.into_body().read_to_string().unwrap_or_default();
        text.truncate(text.char_indices().nth(200).map_or(text.len(), |(end, _)| end));
        let why = format!("status {status} {}", text.trim());
        match status {
            200..=299 => Ok(()),
            // Malformed, too large, contradicting: the same bytes will not do better.
            400 | 403 | 409 | 410 | 413 | 415 | 422 => Err(Refusal::ForGood(why)),
            _ => Err(Refusal::Yet(why)),
        }
    }
}
