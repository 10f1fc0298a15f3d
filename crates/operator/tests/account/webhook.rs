//! The gate behind a webhook of its own: the API server asks it over TLS, as in a cluster.

use super::lab::Lab;
use super::office::Tenant;
use holdfast_api::backups::BackupJob;
use holdfast_operator::account::gate::{self, Count, Gate, KubeNames, Plans};
use holdfast_operator::runtime::certs::Certs;
use holdfast_operator::runtime::leader::Leadership;
use holdfast_operator::runtime::server;
use holdfast_operator::runtime::tls::{Material, settle};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::core::ApiResource;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often the gate has answered.
#[derive(Default)]
struct Answers(AtomicUsize);

impl Count for Answers {
    fn answered(&self, _: &'static str, _: Duration) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn reserved(&self, _: usize) {}
}

/// Whether connections go through; whatever is sent, those that there are end.
type Through = watch::Sender<bool>;

/// See the module.
pub struct Webhook {
    /// The gate that is asked.
    pub gate: Arc<Gate>,
    /// What it serves with.
    pub certs: Certs,
    lab: Lab,
    configuration: String,
    answers: Arc<Answers>,
    through: Arc<Through>,
    end: CancellationToken,
}

/// Certificates made just now.
pub fn material() -> Material {
    let (made, _) = settle(None, &server_names(), Timestamp::now()).expect("made");
    made.expect("new")
}

/// Our address as the API server of the tests reaches it: its network may be one of its own.
fn our_address() -> IpAddr {
    let path = std::env::var("HOLDFAST_E2E_CONTROL_PLANE").expect("checked");
    let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
    let cluster = kubeconfig
        .clusters
        .first()
        .and_then(|named| named.cluster.clone());
    let server = cluster.and_then(|cluster| cluster.server).expect("an address");
    let server = server.trim_start_matches("https://").trim_end_matches('/');
    // Nothing is sent: connecting only looks the way up.
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect(server).expect("a way there");
    socket.local_addr().expect("an address").ip()
}

/// What the certificates are for.
pub fn server_names() -> Vec<String> {
    vec![our_address().to_string()]
}

impl Webhook {
    /// A gate with nothing reserved, asked about BackupJobs of these namespaces.
    pub async fn open(tenant: &Tenant, namespaces: &[&str]) -> Self {
        let configuration = format!("gate-{}", tenant.namespace());
        Self::open_as(tenant, &configuration, namespaces, &material()).await
    }

    /// The same, under this name and with these certificates.
    pub async fn open_as(tenant: &Tenant, configuration: &str, of: &[&str], served: &Material) -> Self {
        let account = tenant.office.account();
        let answers = Arc::<Answers>::default();
        let (plans, _) = Plans::new();
        let gate = Gate::new(
            account.clone(),
            Arc::new(KubeNames(account.client.clone())),
            Leadership::always(),
            answers.clone(),
            plans,
        );
        let end = CancellationToken::new();
        tokio::spawn(gate::take_over(
            Arc::clone(&gate),
            account.client.clone(),
            end.clone(),
        ));
        let certs = Certs::default();
        certs.load(served).expect("served");
        let listener = server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("bound");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(server::serve_https(
            listener,
            certs.ready().await,
            gate.router(),
            Leadership::always(),
            end.clone(),
        ));
        let (port, through) = front(address).await;
        let webhook = Self {
            gate,
            certs,
            lab: tenant.lab.clone(),
            configuration: configuration.to_owned(),
            answers,
            through: Arc::new(through),
            end,
        };
        webhook.configure(port, of, served).await;
        webhook
    }

    /// The chart's configuration, with an address that the API server of the tests can reach.
    async fn configure(&self, port: u16, of: &[&str], served: &Material) {
        let chart = include_str!("../../../../charts/holdfast/templates/gate.yaml");
        let chart = chart.replace("{{ .Values.quota.failurePolicy }}", "Fail");
        let plain: Vec<&str> = chart.lines().filter(|line| !line.contains("{{")).collect();
        let mut value: Value = serde_saphyr::from_str(&plain.join("\n")).expect("YAML");
        value["metadata"] = json!({ "name": self.configuration });
        let webhook = &mut value["webhooks"][0];
        webhook["clientConfig"] = json!({
            "url": format!("https://{}:{port}{}", our_address(), gate::PATH),
            "caBundle": ByteString(served.bundle().into_bytes()),
        });
        webhook["namespaceSelector"] = json!({ "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": "In", "values": of },
        ] });
        let params = PatchParams::apply("tests").force();
        self.configurations()
            .patch(&self.configuration, &params, &Patch::Apply(&value))
            .await
            .expect("configured");
        // The API server takes it up in its own time, and so does the gate with what was admitted before.
        self.lab
            .until("the gate to be asked and to have taken over", async || {
                let answer = self.ask("probe", true).await;
                let is_new = answer.is_err_and(|error| error.to_string().contains("just taken over"));
                self.answers() > 0 && !is_new
            })
            .await;
    }

    fn configurations(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.lab.client.clone())
    }

    /// How often the gate has answered.
    pub fn answers(&self) -> usize {
        self.answers.0.load(Ordering::SeqCst)
    }

    /// Asks the API server, as an administrator, for a BackupJob in the tenant's namespace.
    pub async fn ask(&self, name: &str, dry_run: bool) -> kube::Result<DynamicObject> {
        self.ask_for(&self.lab.namespace, job(name), dry_run).await
    }

    /// The same for this object in this namespace.
    pub async fn ask_for(&self, namespace: &str, job: Value, dry_run: bool) -> kube::Result<DynamicObject> {
        let resource = ApiResource::erase::<BackupJob>(&());
        let jobs: Api<DynamicObject> = Api::namespaced_with(self.lab.client.clone(), namespace, &resource);
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let job: DynamicObject = serde_json::from_value(job).expect("an object");
        jobs.create(&params, &job).await
    }

    /// Asks until the answer is as expected; a change of limits is seen a moment later.
    pub async fn until(&self, allowed: bool) {
        self.lab
            .until(&format!("a question whose answer is {allowed}"), async || {
                self.ask("probe", true).await.is_ok() == allowed
            })
            .await;
    }

    /// Ends every connection: the next question has to shake hands anew.
    pub async fn cut(&self) {
        self.through.send_replace(true);
        // Until the API server has noticed.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    /// Nobody answers, or somebody does again.
    pub fn let_through(&self, through: bool) {
        self.through.send_replace(through);
    }

    /// Takes the webhook away.
    pub async fn close(self) {
        self.configurations()
            .delete(&self.configuration, &DeleteParams::default())
            .await
            .expect("deleted");
        self.end.cancel();
    }
}

/// A BackupJob that no controller takes up.
pub fn job(name: &str) -> Value {
    json!({
        "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "BackupJob", "metadata": { "name": name },
        "spec": {
            "applicationRef": { "apiGroup": "apps.cozystack.io", "kind": "Etcd", "name": name },
            "backupClassName": "no-such-class",
        },
    })
}

/// Stands between the API server and the gate. Answers its port.
async fn front(gate: SocketAddr) -> (u16, Through) {
    let listener = TcpListener::bind((our_address(), 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (through, state) = watch::channel(true);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let mut state = state.clone();
            tokio::spawn(async move {
                if !*state.borrow_and_update() {
                    return;
                }
                if let Ok(mut to) = TcpStream::connect(gate).await {
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = state.changed() => {}
                    }
                }
            });
        }
    });
    (port, through)
}
