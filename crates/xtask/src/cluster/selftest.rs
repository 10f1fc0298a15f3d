//! Two clusters at once: both are used, both are removed, nothing is left.
//!
//! Promise: passes only if in each cluster a restricted Job wrote to a volume and was read back,
//! and a Service of its own (not the other cluster's) answered through its address; and if after
//! `down` no process, mount, namespace, interface, cgroup or folder of either is there.

use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use super::{Options, Running, binaries, down, netns, packages, processes, up};
use crate::image::BUSYBOX;
use crate::paths::{ClusterPaths, RUN_ROOT};
use crate::progress::{Step, say, seconds};
use crate::sh::run;

/// Brings up two clusters under fresh names, uses both, ends both, and looks for remains.
pub fn selftest(workspace: &Path) -> Result<()> {
    let started = Instant::now();
    // Before the clusters: the two would only wait for each other.
    packages::ensure(true)?;
    packages::etcd()?;
    packages::busybox()?;
    binaries::kubernetes(workspace, binaries::MINORS[0], true)?;
    binaries::containerd(workspace)?;
    binaries::pause(workspace)?;
    let unique = std::process::id();
    let names = [format!("selftest-{unique}-a"), format!("selftest-{unique}-b")];
    let both_up = Barrier::new(names.len());
    let both_used = Barrier::new(names.len());
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        let tests: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| one(workspace, name, &both_up, &both_used)))
            .collect();
        tests
            .into_iter()
            .map(|test| test.join().unwrap_or_else(|_| Err(anyhow!("the test panicked"))))
            .collect()
    });
    for outcome in outcomes {
        outcome?;
    }
    say(format!(
        "two clusters at once: each ran a Job with a volume and a Service of its own, nothing is left of them ({})",
        seconds(started.elapsed())
    ));
    Ok(())
}

/// One cluster's life. Both barriers are passed whatever happens, or the other would wait forever.
fn one(workspace: &Path, name: &str, both_up: &Barrier, both_used: &Barrier) -> Result<()> {
    let paths = ClusterPaths::new(workspace, name)?;
    let running = up(&Options {
        workspace: workspace.to_path_buf(),
        name: name.to_owned(),
        minor: None,
        control_plane_only: false,
    });
    both_up.wait();
    let used = running.and_then(|running| using(&running));
    both_used.wait();
    let containers = down::container_ids(&paths);
    // Also after a failure: a test leaves nothing.
    super::down(workspace, name)?;
    used.with_context(|| format!("cluster {name}"))?;
    let mut left: Vec<String> = processes::strays(&paths)
        .iter()
        .map(|process| format!("process {} ({})", process.name, process.pid))
        .collect();
    left.extend(
        down::mounts(&paths)
            .into_iter()
            .map(|mount| format!("mount {mount}")),
    );
    left.extend(
        down::cgroups_left(&containers)
            .iter()
            .map(|path| format!("cgroup {}", path.display())),
    );
    if netns::exists(&paths) {
        left.push(format!("network namespace or interface {}", paths.netns()));
    }
    for folder in [&paths.data, &paths.run, &paths.out] {
        if folder.exists() {
            left.push(format!("folder {}", folder.display()));
        }
    }
    // Nobody else uses this name, so its lock can go too.
    let _ = std::fs::remove_file(Path::new(RUN_ROOT).join(super::up::lock_name(&paths)));
    ensure!(
        !containers.is_empty(),
        "cluster {name} had no containers: nothing was tested"
    );
    ensure!(
        left.is_empty(),
        "after `down` of cluster {name} there remain: {}",
        left.join(", ")
    );
    Ok(())
}

/// A restricted Job with a volume, and a Service reached through its address.
fn using(running: &Running) -> Result<()> {
    let name = &running.paths.name;
    let step = Step::start(format!("{name}: a Job and a Service"));
    running.apply("create the test's objects", &manifest(name))?;
    let wait = |what: &str, job: &str| {
        let outcome = run(
            what,
            &mut in_test(
                running,
                &["wait", "--for=condition=complete", job, "--timeout=90s"],
            ),
        );
        outcome.with_context(|| {
            let all = in_test(running, &["get", "pods,pvc,events", "-o", "wide"]).output();
            all.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                .unwrap_or_default()
        })
    };
    wait("complete the Job with a volume", "job/writer")?;
    let message = "jsonpath={.items[0].status.containerStatuses[0].state.terminated.message}";
    let said = run(
        "read the Job's termination message",
        &mut in_test(running, &["get", "pods", "-l", "job-name=writer", "-o", message]),
    )?;
    ensure!(
        said == format!("65532 wrote {name}"),
        "the Job's termination message is {said:?}"
    );
    wait("reach the Service", "job/client")?;
    let page = run(
        "read the client's log",
        &mut in_test(running, &["logs", "job/client"]),
    )?;
    ensure!(
        page.lines().eq([name, name]),
        "the Service answered {page:?}, not this cluster's {name:?}"
    );
    let outside = running.inside(Path::new("ip")).arg("link").output()?;
    ensure!(
        outside.status.success(),
        "the cluster's network cannot be entered"
    );
    run(
        "delete the volume",
        &mut in_test(running, &["delete", "job/writer", "deployment/web", "pvc/data"]),
    )?;
    let volumes = running.paths.data.join("volumes");
    processes::wait_until(
        &running.paths,
        "the removal of the volume",
        std::time::Duration::from_secs(30),
        &[],
        || std::fs::read_dir(&volumes).is_ok_and(|left| left.count() == 1),
    )?;
    step.done("as they should");
    Ok(())
}

fn in_test(running: &Running, args: &[&str]) -> Command {
    let mut command = running.kubectl(["--namespace=selftest"]);
    command.args(args);
    command
}

/// Everything the test creates, in a namespace that admits restricted pods only.
fn manifest(name: &str) -> String {
    let container = |script: &str, volume: &str| {
        format!(
            r#"    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      securityContext: {{runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
      - name: main
        image: {BUSYBOX}
        imagePullPolicy: IfNotPresent
        command: ["sh", "-c", "{script}"]
        securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
        volumeMounts: [{{name: volume, mountPath: /data}}]
      volumes: [{{name: volume, {volume}}}]
"#
        )
    };
    let claim = "persistentVolumeClaim: {claimName: data}";
    let writer = container(
        &format!(
            "echo {name} > /data/index.html && echo -n $(id -u) wrote $(cat /data/index.html) > /dev/termination-log"
        ),
        claim,
    );
    let server = container(
        "until test -s /data/index.html; do sleep 0.2; done; exec httpd -f -p 8080 -h /data",
        claim,
    )
    .replace("restartPolicy: Never", "restartPolicy: Always");
    let client = container(
        "until timeout 2 wget -q -O - http://$WEB_SERVICE_HOST:$WEB_SERVICE_PORT/ 2>/dev/null; do sleep 0.3; done; wget -q -O - http://web.selftest.svc/",
        "emptyDir: {}",
    );
    // Runs until the end, with a volume: `down` must cope with both.
    let stays = container("exec sleep 100000", "persistentVolumeClaim: {claimName: kept}")
        .replace("restartPolicy: Never", "restartPolicy: Always");
    format!(
        r#"apiVersion: v1
kind: Namespace
metadata:
  name: selftest
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data, namespace: selftest}}
spec: {{accessModes: [ReadWriteMany], resources: {{requests: {{storage: 1Mi}}}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: kept, namespace: selftest}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: selftest}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: selftest}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
{server}---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: stays, namespace: selftest}}
spec:
  selector: {{matchLabels: {{app: stays}}}}
  template:
    metadata: {{labels: {{app: stays}}}}
{stays}---
apiVersion: batch/v1
kind: Job
metadata: {{name: writer, namespace: selftest}}
spec:
  template:
{writer}---
apiVersion: batch/v1
kind: Job
metadata: {{name: client, namespace: selftest}}
spec:
  template:
{client}"#
    )
}
