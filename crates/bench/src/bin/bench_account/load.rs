//! What is asked of a loaded operator, and what that costs.

use super::cluster::{BUSY, Cluster, SIZE, all_of, some_of, wait};
use super::figures::Figures;
use super::operator::Operator;
use super::sum;
use anyhow::{Context as _, Result, ensure};
use axum::http::Request;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Where the gate listens.
const PATH: &str = holdfast_operator::account::gate::PATH;
/// Upper bounds of the gate's histogram that tell something about a millisecond, in seconds.
const BOUNDS: [f64; 8] = [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.01, 0.1];
/// Questions under way at once: more would measure how they wait for a processor.
const ASKING: usize = 8;
/// One question of so many is no dry run.
const RESERVED: usize = 20;
/// Ordinary objects created at once.
const CREATES: usize = 50;
/// Events and the like that are on their way still.
const AFTER: Duration = Duration::from_secs(3);

/// One Backup of each namespace becomes larger; writes for each.
pub async fn change_one_in_each(cluster: &Cluster, figures: &Figures) -> Result<f64> {
    let before = cluster.writes().await?;
    let work = (0..cluster.namespaces)
        .map(|n| async move { cluster.resize(&Cluster::namespace(n), n, SIZE + 1).await });
    all_of(work, "Backups changed", cluster.namespaces).await?;
    figures
        .until_sizes(cluster, cluster.each() as i64 * SIZE + 1)
        .await?;
    tokio::time::sleep(AFTER).await;
    Ok((cluster.writes().await? - before) / cluster.namespaces as f64)
}

/// Every Backup of one namespace becomes larger; writes for each.
pub async fn change_many_in_one(cluster: &Cluster, figures: &Figures) -> Result<f64> {
    let before = cluster.writes().await?;
    let (namespace, each) = (Cluster::namespace(0), cluster.each());
    let work = (0..each).map(|n| cluster.resize(&namespace, n * cluster.namespaces, SIZE + 10));
    all_of(work, "Backups changed", each).await?;
    let size = each as i64 * (SIZE + 10);
    wait("the changed figure", async || Ok(figures.shows(&namespace, size))).await?;
    tokio::time::sleep(AFTER).await;
    Ok((cluster.writes().await? - before) / each as f64)
}

/// Asks the gate while the ledger goes on; how long the answers took inside the operator.
pub async fn ask(cluster: &Cluster, operator: &Operator, questions: usize) -> Result<Value> {
    let gate = operator.gate(&cluster.client).await?;
    let before = operator.metrics().await?;
    let end = AtomicBool::new(false);
    let began = Instant::now();
    let asking = async {
        let work = (0..questions).map(|n| {
            let gate = gate.clone();
            async move {
                let allowed = ask_once(&gate, cluster, n).await?;
                ensure!(allowed, "a BackupJob far from every limit was refused");
                Ok(())
            }
        });
        let answered = some_of(ASKING, work, "questions to the gate", questions).await;
        end.store(true, Ordering::Relaxed);
        answered
    };
    let busy = async {
        let mut n = 0;
        while !end.load(Ordering::Relaxed) {
            n += 1;
            cluster
                .resize(
                    &Cluster::namespace(n % cluster.namespaces),
                    n % cluster.namespaces,
                    SIZE + 100 + n as i64,
                )
                .await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    let (answered, changed) = tokio::join!(asking, busy);
    answered?;
    changed?;
    let took = began.elapsed();
    let after = operator.metrics().await?;
    let name = "cozystack_backup_quota_admission_seconds";
    let grown = |what: &str| -> Result<f64> {
        let figure = format!("{name}_{what}");
        Ok(sum(&after, &figure, &[])? - sum(&before, &figure, &[])?)
    };
    let count = grown("count")?;
    ensure!(
        count as usize >= questions,
        "{count} answers were counted, {questions} were given"
    );
    let within = |bound| Ok::<_, anyhow::Error>(bucket(&after, name, bound)? - bucket(&before, name, bound)?);
    let mut p99 = f64::INFINITY;
    for bound in BOUNDS {
        if within(bound)? >= count * 0.99 {
            p99 = bound;
            break;
        }
    }
    Ok(json!({
        "answers": count,
        "perSecond": count / took.as_secs_f64(),
        "meanMillis": grown("sum")? / count * 1e3,
        "withinOneMilli": within(0.001)? / count,
        "p99AtMostMillis": if p99.is_finite() { json!(p99 * 1e3) } else { Value::Null },
    }))
}

/// Answers that took at most `bound` seconds.
fn bucket(text: &str, name: &str, bound: f64) -> Result<f64> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix("_bucket{le=\""));
    for line in lines {
        let (limit, rest) = line.split_once('"').context("a bucket without a bound")?;
        if limit.parse::<f64>().is_ok_and(|limit| limit == bound) {
            let number = rest.trim_start_matches('}').split_ascii_whitespace().next();
            return Ok(number.context("a bucket without a number")?.parse()?);
        }
    }
    anyhow::bail!("{name} has no bucket for {bound} s")
}

async fn ask_once(gate: &Client, cluster: &Cluster, n: usize) -> Result<bool> {
    let job = json!({
        "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "BackupJob",
        "metadata": { "name": format!("job-{n}"), "namespace": Cluster::namespace(n % cluster.namespaces), "uid": format!("job-{n}") },
        "spec": {
            "applicationRef": { "apiGroup": "apps.cozystack.io", "kind": "Etcd", "name": "app-1" },
            "backupClassName": "standard",
        },
    });
    let version =
        |key: &str, what: &str| json!({ "group": "backups.cozystack.io", "version": "v1alpha1", key: what });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": format!("call-{n}"),
            "kind": version("kind", "BackupJob"), "resource": version("resource", "backupjobs"),
            "name": job["metadata"]["name"], "namespace": job["metadata"]["namespace"],
            "operation": "CREATE", "userInfo": {}, "object": job,
            // Some are reserved, as many as may wait for their records at a time.
            "dryRun": !n.is_multiple_of(RESERVED),
        },
    });
    let request = Request::post(PATH)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&review)?)?;
    let answer: Value = gate.request(request).await?;
    answer["response"]["allowed"]
        .as_bool()
        .with_context(|| format!("no answer: {answer}"))
}

/// Creates Secrets and Pods in a namespace whose figures change every second.
pub async fn create_beside_busy_ledger(
    cluster: &Cluster,
    figures: &Figures,
    time: Duration,
) -> Result<Value> {
    cluster.create_busy().await?;
    wait("the first figures", async || Ok(figures.shows(BUSY, SIZE))).await?;
    let (end, conflicts, other, created) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let seen = |answer: Result<(), kube::Error>| match answer {
        Ok(()) => _ = created.fetch_add(1, Ordering::Relaxed),
        Err(kube::Error::Api(status)) if status.code == 409 => _ = conflicts.fetch_add(1, Ordering::Relaxed),
        Err(error) => {
            other.fetch_add(1, Ordering::Relaxed);
            eprintln!("a create failed: {error}");
        }
    };
    let changes_before = figures.changes(BUSY);
    let began = Instant::now();
    let creating = async {
        let mut round = 0;
        while began.elapsed() < time {
            let secrets =
                (0..CREATES / 2).map(|n| create::<Secret>(cluster, format!("secret-{round}-{n}"), json!({})));
            let pod = json!({ "spec": { "containers": [{ "name": "main", "image": "localhost/none:1" }] } });
            let pods =
                (0..CREATES / 2).map(|n| create::<Pod>(cluster, format!("pod-{round}-{n}"), pod.clone()));
            let (secrets, pods) = tokio::join!(join_all(secrets), join_all(pods));
            secrets.into_iter().chain(pods).for_each(&seen);
            round += 1;
            eprintln!("{} ordinary objects created", created.load(Ordering::Relaxed));
        }
        end.store(true, Ordering::Relaxed);
    };
    let busy = async {
        let mut size = SIZE;
        while !end.load(Ordering::Relaxed) {
            size += 1;
            cluster.resize(BUSY, 0, size).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    let ((), changed) = tokio::join!(creating, busy);
    changed?;
    let seconds = began.elapsed().as_secs_f64();
    let [conflicts, other, created] = [conflicts, other, created].map(AtomicUsize::into_inner);
    ensure!(
        other == 0,
        "{other} creates failed for another reason than a conflict"
    );
    Ok(json!({
        "creates": created + conflicts,
        "conflicts": conflicts,
        "figureChanges": figures.changes(BUSY) - changes_before,
        "seconds": seconds,
    }))
}

async fn create<K>(cluster: &Cluster, name: String, mut object: Value) -> Result<(), kube::Error>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    object["metadata"] = json!({ "name": name });
    let object: K = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let api: Api<K> = Api::namespaced(cluster.client.clone(), BUSY);
    api.create(&PostParams::default(), &object).await.map(drop)
}
