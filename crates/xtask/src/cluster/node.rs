//! The node: containerd, kubelet, kube-proxy, and the network between pods.
//!
//! The node's programs live in a mount namespace of their own, held by a keeper process. What the
//! kubelet and containerd mount is invisible outside and goes with the last process, and the
//! fixed paths they insist on (`/var/lib/kubelet`, `/run/containerd`, `/run/netns`) are private to
//! the cluster. So removing a folder on the host never reaches through a mount.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::certs::Pki;
use super::processes::{self, Place};
use super::{NODE, Running};
use crate::image;
use crate::sh::{self, run, succeeds};

/// The range of pod addresses, the same in every cluster: each has a network of its own.
const POD_RANGE: &str = "10.244.0.0/16";

/// Starts the node and waits until it is Ready.
pub fn start(running: &mut Running, pki: &Pki, containerd: &Path) -> Result<()> {
    let step = running.step("node");
    keeper(running)?;
    step.note("containerd");
    start_containerd(running, containerd)?;
    step.note("images");
    for image in image::node_images(&running.paths)? {
        image::load(&running.paths, &image)?;
    }
    step.note("kubelet and kube-proxy");
    kubelet(running, pki)?;
    kube_proxy(running, pki)?;
    step.note("waiting for Ready");
    let needed: Vec<_> = running.state.processes.iter().collect();
    processes::wait_until(
        &running.paths,
        "a Ready node",
        Duration::from_secs(120),
        &needed,
        || {
            let condition = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            running
                .kubectl(["get", "node", NODE, "-o", condition])
                .output()
                .is_ok_and(|output| output.stdout == b"True")
        },
    )?;
    step.done("Ready");
    Ok(())
}

/// Starts the process that holds the mount namespace, and fills that namespace.
fn keeper(running: &mut Running) -> Result<()> {
    let args = ["--mount", "--propagation=private", "--", "sleep", "infinity"];
    let keeper = processes::spawn(
        &running.paths,
        Place::Net(&running.paths.netns()),
        "keeper",
        Path::new("unshare"),
        &args.map(str::to_owned),
    )?;
    running.state.keeper = Some(keeper.clone());
    running.state.save(&running.paths)?;
    // Only once it sleeps is it in a namespace of its own: mounts made earlier would be the host's.
    let comm = format!("/proc/{}/comm", keeper.pid);
    processes::wait_until(
        &running.paths,
        "the node's namespace",
        Duration::from_secs(10),
        &[&keeper],
        || fs::read_to_string(&comm).is_ok_and(|name| name.trim() == "sleep"),
    )?;
    anyhow::ensure!(
        fs::read_link(format!("/proc/{}/ns/mnt", keeper.pid))? != fs::read_link("/proc/self/ns/mnt")?,
        "the node's processes got no mount namespace of their own: is unshare(2) allowed here?"
    );
    let data = running.paths.data.display();
    let mut script = String::from("set -eu\n");
    for (source, target) in [
        ("kubelet", "/var/lib/kubelet"),
        ("pod-logs", "/var/log/pods"),
        ("container-logs", "/var/log/containers"),
        ("cni-state", "/var/lib/cni"),
    ] {
        script += &format!("mkdir -p {data}/{source} {target}\nmount --bind {data}/{source} {target}\n");
    }
    for target in ["/run/containerd", "/run/netns"] {
        script += &format!("mkdir -p {target}\nmount -t tmpfs holdfast {target}\n");
    }
    let mut command = processes::at(Place::Of(&keeper), Path::new("sh"));
    run("prepare the node's mounts", command.arg("-c").arg(script))?;
    Ok(())
}

fn start_containerd(running: &mut Running, programs: &Path) -> Result<()> {
    let (data, run_dir) = (running.paths.data.clone(), running.paths.run.clone());
    let socket = running.paths.containerd_socket();
    fs::create_dir_all(&run_dir)?;
    let cni = data.join("cni");
    fs::create_dir_all(&cni)?;
    fs::write(
        cni.join("10-holdfast.conflist"),
        format!(
            r#"{{"cniVersion": "1.0.0", "name": "holdfast", "plugins": [
  {{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {{"type": "host-local", "dataDir": "{}", "ranges": [[{{"subnet": "{POD_RANGE}"}}]],
            "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
  {{"type": "portmap", "capabilities": {{"portMappings": true}}}}
]}}
"#,
            data.join("ipam").display()
        ),
    )?;
    let config = data.join("containerd.toml");
    fs::write(
        &config,
        format!(
            r#"version = 3
root = "{data}/containerd"
state = "{run}/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "{socket}"

[plugins.'io.containerd.nri.v1.nri']
  disable = true

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE no process may lower its OOM score, and every pod would fail.
  restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "{cni}"

[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "/usr/sbin/runc"
  SystemdCgroup = false
"#,
            data = data.display(),
            run = run_dir.display(),
            socket = socket.display(),
            cni = cni.display(),
            pause = image::PAUSE,
        ),
    )?;
    // containerd looks for its shim on PATH.
    let path = format!("PATH={}:{}", programs.display(), sh::path());
    let args = vec![
        path,
        programs.join("containerd").display().to_string(),
        format!("--config={}", config.display()),
    ];
    running.start_on_node("containerd", Path::new("env"), args)?;
    let ctr = programs.join("ctr");
    let needed: Vec<_> = running.state.processes.iter().collect();
    processes::wait_until(
        &running.paths,
        "containerd",
        Duration::from_secs(60),
        &needed,
        || {
            succeeds(
                std::process::Command::new(&ctr)
                    .arg(format!("--address={}", socket.display()))
                    .args(["--timeout=3s", "version"]),
            )
        },
    )
}

fn kubelet(running: &mut Running, pki: &Pki) -> Result<()> {
    let data = &running.paths.data;
    let resolv = data.join("resolv.conf");
    // The node has no way out: a refused question is better than a slow one.
    fs::write(&resolv, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")?;
    let config = data.join("kubelet.yaml");
    fs::write(
        &config,
        format!(
            r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: "{ca}"}}
authorization: {{mode: Webhook}}
containerRuntimeEndpoint: "unix://{socket}"
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
oomScoreAdj: 0
readOnlyPort: 0
serializeImagePulls: false
resolvConf: "{resolv}"
clusterDNS: ["{address}"]
clusterDomain: cluster.local
# Other things use the disk too: images are never collected, pods never evicted.
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: "0%"
  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
  imagefs.available: "0%"
  imagefs.inodesFree: "0%"
"#,
            ca = pki.file("ca.crt").display(),
            socket = running.paths.containerd_socket().display(),
            resolv = resolv.display(),
            address = running.state.address,
        ),
    )?;
    let args = vec![
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", pki.kubeconfig("kubelet").display()),
        format!("--hostname-override={NODE}"),
        format!("--node-ip={}", running.state.address),
    ];
    let program = running.kubernetes("kubelet");
    running
        .start_on_node("kubelet", &program, args)
        .context("the kubelet could not be started")
}

fn kube_proxy(running: &mut Running, pki: &Pki) -> Result<()> {
    let config = running.paths.data.join("kube-proxy.yaml");
    // masqueradeAll: answers between pods of one bridge come back through the node even where
    // the kernel does not show bridged packets to iptables.
    fs::write(
        &config,
        format!(
            r#"apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: {NODE}
clusterCIDR: {POD_RANGE}
clientConnection: {{kubeconfig: "{kubeconfig}"}}
healthzBindAddress: "127.0.0.1:10256"
metricsBindAddress: "127.0.0.1:10249"
oomScoreAdj: 0
iptables: {{masqueradeAll: true}}
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
"#,
            kubeconfig = pki.kubeconfig("kube-proxy").display(),
        ),
    )?;
    let args = vec![format!("--config={}", config.display())];
    let program = running.kubernetes("kube-proxy");
    running.start_on_node("kube-proxy", &program, args)
}
