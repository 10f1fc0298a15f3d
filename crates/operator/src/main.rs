//! Wiring: flags, log, client, election, servers, watches, workers.

use anyhow::Context as _;
use clap::Parser;
use holdfast_operator::account::gate::{self, Gate};
use holdfast_operator::account::settings::AccountSettings;
use holdfast_operator::account::{self, Account};
use holdfast_operator::context::{Context, Endpoint, Gates, Queues};
use holdfast_operator::protect;
use holdfast_operator::runtime::certs::{self, Certs, KubeCerts};
use holdfast_operator::runtime::clock::Clock;
use holdfast_operator::runtime::endpoints::{self, Here};
use holdfast_operator::runtime::events::Events;
use holdfast_operator::runtime::foreign::{self, Foreign};
use holdfast_operator::runtime::leader::{self, Leadership};
use holdfast_operator::runtime::lease_store::KubeLease;
use holdfast_operator::runtime::metrics::Metrics;
use holdfast_operator::runtime::results::Results;
use holdfast_operator::runtime::review::{KubeReviewer, Reviews};
use holdfast_operator::runtime::{server, shutdown, watch};
use holdfast_operator::settings::{LogFormat, Settings};
use holdfast_operator::world::World;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference, Service};
use kube::core::PartialObjectMeta;
use kube::runtime::events::EventType;
use kube::{Api, Client};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Name of the Service without selector that movers call.
const SERVICE: &str = "holdfast";
/// How long a leader that ends waits until what it admitted is in the ledger.
const HAND_OVER: Duration = Duration::from_secs(8);

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let settings = Settings::parse();
    log(settings.log_format);
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| {
            anyhow::anyhow!("another TLS provider was installed before ours; this is a bug in Holdfast")
        })?;
    let told_to_end = shutdown::on_signal().context("signals cannot be received")?;
    // Cancelled later than that: what was admitted is handed over first.
    let end = CancellationToken::new();
    let client = Client::try_default()
        .await
        .context("no access to a Kubernetes API server: run inside a cluster, or set KUBECONFIG")?;
    let cluster = cluster_uid(&client).await?;
    let election = settings.leader.settings()?;
    // Ends after the workers have: what they had begun must not arrive after the next leader's first look.
    let abdicate = CancellationToken::new();
    let leadership = Leadership::standby();
    let world = World::new();
    let identity = leader::identity(&settings.pod_name);
    let reviews = Reviews::new(Arc::new(KubeReviewer::new(client.clone())));
    let ctx = Arc::new(Context {
        client: client.clone(),
        world: Arc::clone(&world),
        clock: Clock::system(),
        leadership: leadership.clone(),
        events: Events::new(client.clone(), &settings.pod_name),
        metrics: Arc::new(Metrics::new()),
        results: Results::new(reviews, leadership.clone()),
        endpoint: RwLock::new(None),
        cluster,
        identity: identity.clone(),
        queues: Queues::new(),
        foreign: Foreign::unknown(),
        gates: Gates::default(),
        settings,
    });
    let elected = tokio::spawn(leader::run(
        KubeLease::new(
            client.clone(),
            &ctx.settings.namespace,
            &ctx.settings.leader.lease_name,
        ),
        identity,
        election,
        leadership,
        abdicate.clone(),
    ));
    let account = ctx.settings.quota.is_on().then(|| {
        Account::new(
            client.clone(),
            AccountSettings::of(&ctx.settings),
            ctx.clock.clone(),
            ctx.leadership.clone(),
            ctx.events.clone(),
            Arc::clone(&ctx.metrics),
        )
    });
    let gate = account
        .as_ref()
        .filter(|_| ctx.settings.quota.enforcement)
        .map(|account| open_gate(&ctx, account, &end));
    serve(&ctx, gate.as_ref(), &end)?;
    tokio::spawn(foreign::run(
        client.clone(),
        ctx.foreign.clone(),
        (
            ctx.settings.namespace.clone(),
            ctx.settings.leader.lease_name.clone(),
        ),
        ctx.clock.clone(),
        end.clone(),
    ));
    tokio::spawn(tell_of_foreign(Arc::clone(&ctx)));
    let sink_ctx = Arc::clone(&ctx);
    let sink: watch::Sink = Arc::new(move |dirty| sink_ctx.queues.add(dirty));
    let mut watches = watch::start(
        &client,
        &world,
        &sink,
        ctx.settings.streaming_lists,
        &ctx.clock,
        &ctx.foreign,
    );
    let mut workers = protect::start(&ctx, &end);
    if let Some(account) = &account {
        // Its workers end with the others; the set is kept until they have.
        let mut of_account = account::start(account, &end);
        workers.spawn(async move { while of_account.join_next().await.is_some() {} });
    }
    let broken = tokio::select! {
        () = told_to_end.cancelled() => None,
        // Without one of them the world would grow old and nobody would notice: begin anew.
        ended = watches.join_next() => Some(ended),
    };
    if let Some(gate) = &gate
        && !gate.close(HAND_OVER).await
    {
        ctx.leadership.keep_lease();
    }
    end.cancel();
    if tokio::time::timeout(Duration::from_secs(10), async {
        while workers.join_next().await.is_some() {}
    })
    .await
    .is_err()
    {
        tracing::warn!("passes were still under way after 10 s; ending without waiting for them");
    }
    // The Lease is released, so that the other replica takes over at once.
    abdicate.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(10), elected).await;
    match broken {
        None => Ok(()),
        Some(ended) => anyhow::bail!("a watch ended ({ended:?}); this is a bug in Holdfast"),
    }
}

/// What follows from the answer about other managers: an event on our Lease, and another look at everything when the
/// other one is gone.
async fn tell_of_foreign(ctx: Arc<Context>) {
    let mut answer = ctx.foreign.changed();
    while answer.changed().await.is_ok() {
        answer.borrow_and_update();
        let Some(why) = ctx.foreign.alive() else {
            ctx.queues.add(ctx.world.everything());
            continue;
        };
        if ctx.leadership.is_leader() {
            let about = ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                name: Some(ctx.settings.leader.lease_name.clone()),
                namespace: Some(ctx.settings.namespace.clone()),
                ..ObjectReference::default()
            };
            let note = format!("{why}; nothing is decided until it is stopped");
            let _ = ctx
                .events
                .publish(
                    &about,
                    EventType::Warning,
                    foreign::REASON,
                    &note,
                    "StopOtherManager",
                )
                .await;
        }
    }
}

fn log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(terminal);
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
}

/// UID of `kube-system`: which cluster this is (`docs/design.md` 3.7).
async fn cluster_uid(client: &Client) -> anyhow::Result<String> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    loop {
        match api.get("kube-system").await {
            Ok(namespace) => {
                return namespace
                    .metadata
                    .uid
                    .context("the namespace kube-system has no UID");
            }
            Err(error) => {
                tracing::warn!(%error, "the namespace kube-system cannot be read; trying again in 2 s");
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}

/// The gate, and what goes on beside its answers.
fn open_gate(ctx: &Arc<Context>, account: &Arc<Account>, end: &CancellationToken) -> Arc<Gate> {
    let (plans, refusals) = gate::Plans::new();
    let gate = Gate::new(
        Arc::<Account>::clone(account),
        Arc::new(gate::KubeNames(ctx.client.clone())),
        ctx.leadership.clone(),
        Arc::<Metrics>::clone(&ctx.metrics),
        plans,
    );
    tokio::spawn(gate::take_over(
        Arc::clone(&gate),
        ctx.client.clone(),
        end.clone(),
    ));
    tokio::spawn(gate::tell_plans(
        Arc::clone(&gate),
        refusals,
        ctx.client.clone(),
        ctx.events.clone(),
        ctx.settings.quota.touch_plans,
        end.clone(),
    ));
    gate
}

/// Starts the HTTPS server, the plain one, the certificates and the EndpointSlice.
fn serve(ctx: &Arc<Context>, gate: Option<&Arc<Gate>>, end: &CancellationToken) -> anyhow::Result<()> {
    let namespace = ctx.settings.namespace.clone();
    let certs = Certs::default();
    tokio::spawn(certs::run(
        KubeCerts::new(ctx.client.clone(), &namespace),
        certs::names(&namespace),
        certs.clone(),
        ctx.leadership.clone(),
        end.clone(),
    ));
    let (ready, is_ready) = tokio::sync::watch::channel(false);
    let world = Arc::clone(&ctx.world);
    tokio::spawn(async move {
        while !world.is_synced() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        tracing::info!(
            snapshots = world.snapshot_count(),
            "the cluster's objects are read"
        );
        ready.send_replace(true);
    });
    let addresses = &ctx.settings.server;
    let plain =
        server::bind(addresses.http_addr).context("the port for health and metrics cannot be opened")?;
    let router = server::plain_router(
        is_ready,
        Arc::clone(&ctx.metrics),
        ctx.leadership.clone(),
        ctx.foreign.clone(),
    );
    tokio::spawn(server::serve_plain(plain, router, end.clone()));
    let https = server::bind(addresses.https_addr).context("the HTTPS port cannot be opened")?;
    let mut router = ctx.results.router();
    if let Some(gate) = gate {
        router = router.merge(gate.router());
        tokio::spawn(gate::publish_bundle(
            ctx.client.clone(),
            certs.clone(),
            ctx.leadership.clone(),
            end.clone(),
        ));
    }
    let (leadership, until, served) = (ctx.leadership.clone(), end.clone(), certs.clone());
    tokio::spawn(async move {
        let tls = served.ready().await;
        if let Err(error) = server::serve_https(https, tls, router, leadership, until).await {
            tracing::error!(%error, "the HTTPS server ended; movers cannot post listings");
        }
    });
    match ctx.settings.pod_ip {
        Some(pod_ip) => {
            let here = Here {
                namespace: namespace.clone(),
                pod_ip,
                pod: ctx.settings.pod_name.clone(),
                port: addresses.https_addr.port(),
            };
            tokio::spawn(endpoints::run(
                ctx.client.clone(),
                here,
                ctx.leadership.clone(),
                end.clone(),
            ));
        }
        None => {
            tracing::warn!("POD_IP is not set: movers cannot reach this process, listings will not arrive")
        }
    }
    tokio::spawn(find_endpoint(Arc::clone(ctx), certs));
    Ok(())
}

/// Keeps the address and the CA that movers are told up to date.
async fn find_endpoint(ctx: Arc<Context>, certs: Certs) {
    let api: Api<Service> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    loop {
        let ip = match api.get_opt(SERVICE).await {
            Ok(service) => service.and_then(|s| s.spec?.cluster_ip),
            Err(error) => {
                tracing::debug!(%error, "the Service {SERVICE} cannot be read");
                None
            }
        };
        if let (Some(ip), Some(ca)) = (ip, certs.bundle()) {
            let server_name = certs::names(&ctx.settings.namespace).swap_remove(0);
            let endpoint = Endpoint {
                address: format!("{ip}:443"),
                server_name,
                ca: ca.to_string(),
            };
            *ctx.endpoint
                .write()
                .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(endpoint);
        }
        let known = ctx
            .endpoint
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .is_some();
        tokio::time::sleep(Duration::from_secs(if known { 60 } else { 2 })).await;
    }
}
