//! A real operator, in a process of its own.

use super::Args;
use anyhow::{Context as _, Result, bail};
use axum::http::Request;
use holdfast_api::names;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// See the module. Killed when dropped.
pub struct Operator {
    child: RefCell<Child>,
    pid: u32,
    plain: Client,
    https_port: u16,
}

impl Operator {
    /// Starts it, with the gate on.
    pub fn start(args: &Args) -> Result<Self> {
        let (http, https) = (free_port()?, free_port()?);
        let program = program()?;
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&args.log)?;
        let child = Command::new(&program)
            .env("KUBECONFIG", &args.kubeconfig)
            .env("RUST_LOG", "info")
            .env("KOPIUR_HTTP_ADDR", format!("127.0.0.1:{http}"))
            .env("HOLDFAST_HTTPS_ADDR", format!("127.0.0.1:{https}"))
            // Nobody else wants to lead, and a busy machine may be slow to answer.
            .env("KOPIUR_LEASE_DURATION_SECONDS", "60")
            .env("KOPIUR_RENEW_DEADLINE_SECONDS", "45")
            .env("HOLDFAST_QUOTA_ACCOUNTING", "true")
            .env("HOLDFAST_QUOTA_ENFORCEMENT", "true")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        Ok(Self {
            pid: child.id().context("the operator ended at once")?,
            child: RefCell::new(child),
            plain: Client::try_from(Config::new(format!("http://127.0.0.1:{http}").parse()?))?,
            https_port: https,
        })
    }

    /// Fails if it has ended.
    pub fn is_alive(&self) -> Result<()> {
        match self.child.borrow_mut().try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the operator ended ({status}); its log says why"),
        }
    }

    /// What it holds now and held at most, in MiB.
    pub fn memory(&self) -> Result<Value> {
        self.is_alive()?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let mebibytes = |key: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
            let number = kibibytes.with_context(|| format!("{key} is not in /proc"))?;
            Ok(number.trim().parse::<f64>()? / 1024.0)
        };
        Ok(json!({ "now": mebibytes("VmRSS:")?, "peak": mebibytes("VmHWM:")? }))
    }

    /// Its figures.
    pub async fn metrics(&self) -> Result<String> {
        Ok(self
            .plain
            .request_text(Request::get("/metrics").body(Vec::new())?)
            .await?)
    }

    /// A client of its HTTPS server.
    pub async fn gate(&self, cluster: &Client) -> Result<Client> {
        let secrets: Api<Secret> = Api::namespaced(cluster.clone(), names::OPERATOR_NAMESPACE);
        let secret = secrets.get("holdfast-tls").await?;
        let bundle = secret
            .data
            .unwrap_or_default()
            .remove("ca.crt")
            .context("no authority")?;
        let pem = String::from_utf8(bundle.0)?;
        let mut config = Config::new(format!("https://127.0.0.1:{}", self.https_port).parse()?);
        config.root_cert = Some(certificates(&pem)?);
        config.tls_server_name = Some("localhost".to_owned());
        Ok(Client::try_from(config)?)
    }

    /// Ends it as the kubelet does and waits.
    pub async fn stop(self) -> Result<()> {
        self.is_alive()?;
        let ended = Command::new("kill").arg(self.pid.to_string()).status().await?;
        if !ended.success() {
            bail!("the operator could not be told to end");
        }
        let mut child = self.child.into_inner();
        let status = tokio::time::timeout(Duration::from_secs(60), child.wait())
            .await
            .context("the operator did not end within a minute")??;
        if !status.success() {
            bail!("the operator ended badly: {status}");
        }
        Ok(())
    }
}

/// The operator's program, built beside this one.
fn program() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let built = here.parent().context("this program is nowhere")?;
    Ok(built.join("holdfast-operator"))
}

fn certificates(pem: &str) -> Result<Vec<Vec<u8>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    all.map(|one| Ok(one?.to_vec())).collect()
}

/// A port that nobody listens on now.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
