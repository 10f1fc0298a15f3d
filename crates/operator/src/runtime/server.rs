//! Two listeners: HTTPS for movers (and the admission gate), plain HTTP for the kubelet and for Prometheus.
//!
//! **Promises.** On losing the leadership every HTTPS connection is closed at once, because clients, the API server
//! among them, keep talking to an old address for as long as their connection lives (`docs/design.md` 4.4). For the
//! same reason a replica that does not lead answers what it is asked and hangs up. The listener itself stays open
//! without a gap. A certificate that is reloaded leaves open connections alone. A connection that sends nothing, or
//! sends slowly, is cut.
//!
//! **Assumes.** Handlers ask the leadership themselves; closing connections only makes clients look again.

use super::foreign::Foreign;
use super::leader::{Leadership, Standing};
use super::metrics::{CONTENT_TYPE, Metrics};
use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::routing::get;
use axum_server::tls_rustls::RustlsConfig;
use axum_server::{Handle, tls_rustls::RustlsAcceptor};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Port of the HTTPS server unless another is set.
pub const HTTPS_PORT: u16 = 8443;
/// How long open requests may go on after the process was told to end.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long open requests may go on when a standby hangs up.
const HANG_UP: Duration = Duration::from_secs(1);
/// How long a client may take for the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);

/// Addresses of the two listeners, each a flag and an environment variable.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerArgs {
    /// Address of `/healthz`, `/readyz` and `/metrics`.
    #[arg(long, env = "KOPIUR_HTTP_ADDR", default_value = "[::]:8081")]
    pub http_addr: SocketAddr,
    /// Address of the HTTPS server that movers post results to.
    #[arg(long, env = "HOLDFAST_HTTPS_ADDR", default_value = "[::]:8443")]
    pub https_addr: SocketAddr,
}

/// Binds; `[::]` means all addresses, also on a machine without IPv6.
///
/// # Errors
/// When the address is taken or not ours.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address) {
        Err(_) if address.is_ipv6() && address.ip().is_unspecified() => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
        }
        bound => bound,
    }
}

/// Serves HTTPS until `end`; on each loss of leadership all connections are closed, and so they are after an answer that
/// was given while not leading: whoever reached a replica that does not lead is to look for the one that does.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve_https(
    listener: TcpListener,
    tls: RustlsConfig,
    router: Router,
    leadership: Leadership,
    end: CancellationToken,
) -> std::io::Result<()> {
    let mut standing = leadership.changed();
    let hang_up = Arc::new(Notify::new());
    let router = hanging_up(router, leadership, Arc::clone(&hang_up));
    loop {
        let handle = Handle::new();
        let acceptor = RustlsAcceptor::new(tls.clone()).handshake_timeout(HEAD_PATIENCE);
        let mut server = axum_server::from_tcp(listener.try_clone()?)?
            .acceptor(acceptor)
            .handle(handle.clone())
            .first_request_timeout(HEAD_PATIENCE)
            .accept_error_handler(|peer, error| tracing::debug!(?peer, %error, "a connection failed"));
        server.http_builder().http1().header_read_timeout(HEAD_PATIENCE);
        let serving = server.serve(router.clone().into_make_service());
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => return served,
            () = end.cancelled() => {
                handle.graceful_shutdown(Some(FAREWELL));
                return serving.await;
            }
            () = hang_up.notified() => {
                // What was answered goes out first.
                handle.graceful_shutdown(Some(HANG_UP));
                serving.await?;
            }
            () = lost(&mut standing) => {
                tracing::info!(connections = handle.connection_count(), "not leading any more: closing connections");
                handle.shutdown();
                serving.await?;
            }
        }
    }
}

/// The same routes, after whose answers `hang_up` is told if this replica does not lead.
fn hanging_up(router: Router, leadership: Leadership, hang_up: Arc<Notify>) -> Router {
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let (leadership, hang_up) = (leadership.clone(), Arc::clone(&hang_up));
        async move {
            let answer = next.run(request).await;
            if !leadership.is_leader() {
                hang_up.notify_one();
            }
            answer
        }
    }))
}

/// Resolves when a term of leadership is over, even if the next one has begun already.
async fn lost(standing: &mut watch::Receiver<Standing>) {
    let term = standing
        .wait_for(|now| *now != Standing::Standby)
        .await
        .map(|term| *term);
    let over = match term {
        Ok(term) => standing.wait_for(|now| *now != term).await.is_ok(),
        Err(_) => false,
    };
    if !over {
        std::future::pending::<()>().await; // The election ended with the process.
    }
}

/// `/healthz` (the process answers), `/readyz` (the world is synced, and no other manager is alive) and `/metrics`.
pub fn plain_router(
    ready: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
    leadership: Leadership,
    foreign: Foreign,
) -> Router {
    let others = foreign.clone();
    let readiness = move || {
        let answer = match (*ready.borrow(), others.alive()) {
            (true, None) => (StatusCode::OK, "ok\n".to_owned()),
            (true, Some(why)) => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{why}; nothing is decided\n"),
            ),
            (false, _) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "still reading the cluster's objects\n".to_owned(),
            ),
        };
        async move { answer }
    };
    let figures = move || {
        metrics.leader(leadership.is_leader());
        metrics.foreign(foreign.alive().is_some());
        let text = metrics.text();
        async move { ([(header::CONTENT_TYPE, CONTENT_TYPE)], text) }
    };
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readiness))
        .route("/metrics", get(figures))
}

/// Serves plain HTTP until `end`.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve_plain(
    listener: TcpListener,
    router: Router,
    end: CancellationToken,
) -> std::io::Result<()> {
    let handle = Handle::new();
    let mut server = axum_server::from_tcp(listener)?
        .handle(handle.clone())
        .first_request_timeout(HEAD_PATIENCE);
    server.http_builder().http1().header_read_timeout(HEAD_PATIENCE);
    let serving = server.serve(router.into_make_service());
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => served,
        () = end.cancelled() => {
            handle.graceful_shutdown(Some(FAREWELL));
            serving.await
        }
    }
}
