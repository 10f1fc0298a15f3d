//! etcd, API server, controller manager, scheduler.
//!
//! Settings are upstream's defaults, but for what makes tests quick (no fsync, quota resync every
//! ten seconds, no leader election) or is needed to run in a namespace. The garbage collector
//! keeps its own pace: it is part of what Holdfast is tested against.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::certs::Pki;
use super::{Running, processes};
use crate::sh::succeeds;

/// The first address of the Service range: the API server's own Service.
pub const KUBERNETES_SERVICE: &str = "10.96.0.1";
/// The range of Service addresses, the same in every cluster: each has a network of its own.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";

/// Starts the control plane and waits until it answers.
pub fn start(running: &mut Running, pki: &Pki, etcd: &Path) -> Result<()> {
    let step = running.step("control plane");
    step.note("etcd");
    let data = running.paths.data.join("etcd");
    running.start_in_net(
        "etcd",
        etcd,
        vec![
            "--name=holdfast".into(),
            format!("--data-dir={}", data.display()),
            "--listen-client-urls=http://127.0.0.1:2379".into(),
            "--advertise-client-urls=http://127.0.0.1:2379".into(),
            "--listen-peer-urls=http://127.0.0.1:2380".into(),
            "--initial-advertise-peer-urls=http://127.0.0.1:2380".into(),
            "--initial-cluster=holdfast=http://127.0.0.1:2380".into(),
            "--quota-backend-bytes=4294967296".into(),
            "--logger=zap".into(),
            "--unsafe-no-fsync".into(),
        ],
    )?;
    step.note("kube-apiserver");
    api_server(running, pki)?;
    controllers(running, pki)?;
    wait(running)?;
    step.done(format!("Kubernetes {} answers", running.state.kubernetes));
    Ok(())
}

fn api_server(running: &mut Running, pki: &Pki) -> Result<()> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.file(name).display());
    let address = running.state.address;
    let args = vec![
        "--etcd-servers=http://127.0.0.1:2379".into(),
        "--bind-address=0.0.0.0".into(),
        "--secure-port=6443".into(),
        format!("--advertise-address={address}"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--allow-privileged=true".into(),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        "--kubelet-preferred-address-types=InternalIP".into(),
        file("client-ca-file", "ca.crt"),
        file("tls-cert-file", "apiserver.crt"),
        file("tls-private-key-file", "apiserver.key"),
        file("service-account-key-file", "service-accounts.pub"),
        file("service-account-signing-key-file", "service-accounts.key"),
        file("kubelet-client-certificate", "apiserver-kubelet.crt"),
        file("kubelet-client-key", "apiserver-kubelet.key"),
    ];
    let program = running.kubernetes("kube-apiserver");
    running.start_in_net("kube-apiserver", &program, args)
}

fn controllers(running: &mut Running, pki: &Pki) -> Result<()> {
    let config = |flag: &str, name: &str| format!("--{flag}={}", pki.kubeconfig(name).display());
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.file(name).display());
    let common = |name: &str| {
        vec![
            config("kubeconfig", name),
            config("authentication-kubeconfig", name),
            config("authorization-kubeconfig", name),
            "--bind-address=127.0.0.1".into(),
            "--leader-elect=false".into(),
        ]
    };
    let mut manager = common("kube-controller-manager");
    manager.extend([
        file("service-account-private-key-file", "service-accounts.key"),
        file("root-ca-file", "ca.crt"),
        "--use-service-account-credentials=true".into(),
        "--resource-quota-sync-period=10s".into(),
    ]);
    // Both give up when the API server does not answer yet, so they start once it does.
    let kubectl = running.kubernetes("kubectl");
    let kubeconfig = running.paths.kubeconfig();
    let needed: Vec<_> = running.state.processes.iter().collect();
    processes::wait_until(
        &running.paths,
        "an answer of the API server",
        Duration::from_secs(120),
        &needed,
        || {
            succeeds(
                std::process::Command::new(&kubectl)
                    .arg(format!("--kubeconfig={}", kubeconfig.display()))
                    .args(["get", "--raw=/readyz", "--request-timeout=5s"]),
            )
        },
    )?;
    let program = running.kubernetes("kube-controller-manager");
    running.start_in_net("kube-controller-manager", &program, manager)?;
    let program = running.kubernetes("kube-scheduler");
    running.start_in_net("kube-scheduler", &program, common("kube-scheduler"))
}

/// Waits for what only a working controller manager makes.
fn wait(running: &Running) -> Result<()> {
    let needed: Vec<_> = running.state.processes.iter().collect();
    processes::wait_until(
        &running.paths,
        "the default ServiceAccount",
        Duration::from_secs(120),
        &needed,
        || {
            succeeds(&mut running.kubectl([
                "-n",
                "default",
                "get",
                "serviceaccount/default",
                "configmap/kube-root-ca.crt",
            ]))
        },
    )
}
