//! What only root may read or set is backed up and comes back whole, where the namespace agreed to privileged movers; where
//! it did not, they wait, and without asking for one a run says what it could not read. What such a mover writes to the
//! repository every other one can delete.

use anyhow::{Context, Result, ensure};
use holdfast_api::restore::RestoreStatus;
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{SnapshotPolicy, conditions, names};
use holdfast_e2e::restores::{
    admit, as_root, attributes, carry_over, completed, content, restore, says, set_attribute,
};
use holdfast_e2e::scenario::{
    DATA_CLAIM, POLICY, REPOSITORY, SECRET, Scenario, VAULT_CLAIM, remove_namespace, shell, suffix,
};
use holdfast_e2e::{Lab, Look, objects, pods, until};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

const NOT_PERMITTED: &str = "PrivilegedMoverNotPermitted";

/// What a program may do that has the capability to bind low ports, as the kernel keeps it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Runs `script` as root in the folder of a claim, in a namespace that admits restricted pods only before and after.
async fn root(lab: &Lab, namespace: &str, claim: &str, script: &str) -> Result<pods::Ended> {
    let was: Api<Namespace> = Api::all(lab.client.clone());
    let labels = was.get(namespace).await?.metadata.labels.unwrap_or_default();
    let level = labels
        .get("pod-security.kubernetes.io/enforce")
        .context("a level")?;
    admit(lab, namespace, "privileged").await?;
    let name = format!("root-{}", suffix());
    let script = format!("cd /volumes/{claim} && {script}");
    let mut job = objects::shell_job(namespace, &name, &lab.tools_image, &[claim.to_owned()], &script);
    as_root(&mut job);
    let ended = pods::run(lab, job, Duration::from_secs(120)).await?;
    admit(lab, namespace, level).await?;
    Ok(ended)
}

/// Every entry with kind, mode, owner, length, time, links, content, as root sees them.
async fn everything(lab: &Lab, namespace: &str, claim: &str) -> Result<Vec<String>> {
    let script = r#"find . -mindepth 1 | grep -v -x ./lost+found | sort | while read -r f; do
  what=-; size=-; time=-; links=-
  if [ -L "$f" ]; then what=$(readlink "$f"); mode=link; else mode=$(stat -c %a "$f"); time=$(stat -c %Y "$f"); fi
  if [ -f "$f" ] && [ ! -L "$f" ]; then
    what=$(sha256sum < "$f" | cut -c1-64); size=$(stat -c %s "$f"); links=$(stat -c %h "$f")
  fi
  [ -d "$f" ] && [ ! -L "$f" ] && time=$(stat -c %Y "$f")
  echo "ENTRY $(stat -c %F "$f" | tr ' ' _) $mode $(stat -c %u:%g "$f") $size $links $time $what $f"
done"#;
    let ended = root(lab, namespace, claim, script).await?;
    let lines = ended.log.lines().filter_map(|line| line.strip_prefix("ENTRY "));
    Ok(lines.map(str::to_owned).collect())
}

/// Files of every kind and of many owners, some of which only root may read.
async fn furnish(lab: &Lab, namespace: &str) -> Result<()> {
    let script = "mkdir -p deep/er/est empty locked && echo deep > deep/er/est/file && : > nothing \
         && ln -s deep/er target-of-link && ln -s /nowhere dangling && echo twice > one && ln one two \
         && truncate -s 64M holed && printf x | dd of=holed bs=1 seek=1000000 conv=notrunc 2>/dev/null \
         && mkfifo pipe && echo run > tool && echo program > program && chmod 0755 program && echo odd > 'with space' \
         && echo private > private && echo inside > locked/inside && echo groups > groups \
         && chown -hR 0:0 . && chown 1000:2000 deep one private && chown -h 1001:2001 dangling && chown 999:65532 tool \
         && chown 70000:70001 'with space' && chown 3:4 pipe empty && chown 1000:2000 groups \
         && chmod 0600 private && chmod 0000 nothing && chmod 0700 locked && chmod 4755 tool && chmod 2750 deep \
         && chmod 2775 empty && chmod 2640 groups && chmod 1777 deep/er \
         && touch -d '2020-01-02 03:04:05' one nothing empty locked && chmod 0755 .";
    root(lab, namespace, DATA_CLAIM, script).await?;
    Ok(())
}

async fn ask_for_privileges(lab: &Lab, namespace: &str, asks: Value) -> Result<()> {
    let policies: Api<SnapshotPolicy> = lab.api(namespace);
    let patch = Patch::Merge(json!({ "spec": { "mover": asks } }));
    policies.patch(POLICY, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn agree(lab: &Lab, namespace: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    let patch = json!({ "metadata": { "annotations": { names::PRIVILEGED_MOVERS: "true" } } });
    namespaces
        .patch(namespace, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// The pod of a Job.
async fn pod(lab: &Lab, namespace: &str, job: &str) -> Result<Value> {
    let pods: Api<Pod> = lab.api(namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let pod = pods.list(&of_job).await?.items.pop().context("the mover's pod")?;
    Ok(serde_json::to_value(pod)?)
}

fn is_as_it_may_be(pod: &Value, capabilities: &[&str]) {
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccountName"], names::MOVER_SERVICE_ACCOUNT);
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["securityContext"]["fsGroup"], Value::Null);
    let security = &spec["containers"][0]["securityContext"];
    assert_eq!(
        security,
        &json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"], "add": capabilities },
            "runAsUser": 0,
            "runAsNonRoot": false,
        })
    );
    let mounts = spec["containers"][0]["volumeMounts"].to_string();
    assert!(
        !mounts.contains("/var/run/secrets/kubernetes.io/serviceaccount"),
        "{mounts}"
    );
}

fn condition(status: &RestoreStatus, kind: &str) -> (String, String) {
    let found = conditions::get(&status.conditions, kind);
    found.map_or_else(Default::default, |c| (c.status.clone(), c.reason.clone()))
}

#[tokio::test]
async fn without_asking_what_could_not_be_read_is_said_and_nothing_is_recorded() -> Result<()> {
    let Some(lab) = Lab::for_test("without_asking_what_could_not_be_read_is_said").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "unreadable", None).await?;
    let ns = &scenario.namespace;
    let script = "mkdir locked && echo private > private && chmod 0600 private && chmod 0700 locked";
    root(&lab, ns, DATA_CLAIM, script).await?;
    let mut run = objects::snapshot(ns, "run", POLICY);
    run["spec"]["failurePolicy"] = json!({ "backoffLimit": 0 });
    lab.create(run).await?;
    let status = until("the run to fail", Duration::from_secs(120), || async {
        let status = scenario
            .snapshot("run")
            .await?
            .and_then(|s| s.status)
            .unwrap_or_default();
        Ok(match status.phase {
            Some(SnapshotPhase::Failed) => Look::Done(status),
            other => Look::Not(format!("{other:?}")),
        })
    })
    .await?;
    let failure = status.failure.context("why")?;
    assert_eq!(failure.class, "SourceUnreadable");
    assert!(
        failure.message.contains("private") || failure.message.contains("locked"),
        "{}",
        failure.message
    );
    assert!(failure.message.contains("privilegedMode"), "{}", failure.message);
    assert_eq!(status.snapshot, None);
    // Kopia leaves a record that it calls incomplete itself, clears itself, and that nothing takes for a snapshot.
    if objects::keeps_every_kind_of_file() {
        assert_eq!(scenario.count().await?, 0, "a snapshot with gaps is none");
    }
    scenario.end().await
}

#[tokio::test]
async fn a_privileged_mover_waits_for_the_namespace_and_its_pod_security() -> Result<()> {
    let Some(lab) = Lab::for_test("a_privileged_mover_waits_for_the_namespace").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "agrees", None).await?;
    let ns = &scenario.namespace;
    root(
        &lab,
        ns,
        DATA_CLAIM,
        "echo private > private && chmod 0600 private",
    )
    .await?;
    ask_for_privileges(&lab, ns, json!({ "privilegedMode": true })).await?;
    // Nothing on the policy is an agreement, nor is any other word on the namespace.
    let policies: Api<SnapshotPolicy> = lab.api(ns);
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    let on = |value: &str| {
        Patch::Merge(json!({ "metadata": { "annotations": { names::PRIVILEGED_MOVERS: value } } }))
    };
    policies
        .patch(POLICY, &PatchParams::default(), &on("true"))
        .await?;
    namespaces.patch(ns, &PatchParams::default(), &on("yes")).await?;
    let mut asks = objects::snapshot(ns, "asks", POLICY);
    asks["metadata"]["annotations"] = json!({ names::PRIVILEGED_MOVERS: "true" });
    lab.create(asks).await?;
    let held = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| c.reason == NOT_PERMITTED;
    scenario
        .snapshot_condition("asks", conditions::READY, held)
        .await?;
    let said = scenario
        .snapshot_condition("asks", conditions::MOVER_PERMITTED, held)
        .await?;
    assert_eq!(said.status, "False");
    let command = format!(
        "kubectl annotate namespace {ns} {}=true",
        names::PRIVILEGED_MOVERS
    );
    assert!(said.message.contains(&command), "{}", said.message);
    // It is looked at again meanwhile, and said once.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let events: Api<Event> = lab.api(ns);
    let warned = ListParams::default().fields(&format!("reason={NOT_PERMITTED}"));
    assert_eq!(events.list(&warned).await?.items.len(), 1);
    let jobs: Api<Job> = lab.api(ns);
    assert!(jobs.get_opt("asks").await?.is_none(), "nothing runs");

    // The command of the message is enough for us, and not for a namespace that admits restricted pods only.
    shell(&lab, &format!("{command} --overwrite"), None).await?;
    let refused = scenario
        .snapshot_condition("asks", conditions::READY, |c| c.reason == "JobRefused")
        .await?;
    for word in [
        "violates PodSecurity \"restricted:latest\"",
        "baseline",
        ns.as_str(),
    ] {
        assert!(refused.message.contains(word), "{word}: {}", refused.message);
    }
    let agreed = scenario
        .snapshot_condition("asks", conditions::MOVER_PERMITTED, |c| c.status == "True")
        .await?;
    assert_eq!(agreed.reason, "Permitted");
    admit(&lab, ns, "baseline").await?;
    scenario
        .succeeded_within("asks", Duration::from_secs(300))
        .await?;
    is_as_it_may_be(&pod(&lab, ns, "asks").await?, &["DAC_OVERRIDE", "SETUID"]);

    // What it wrote is the repository's user's: an unprivileged mover deletes it.
    let owners = content(&lab, ns, VAULT_CLAIM).await?.owners;
    let others: Vec<_> = owners.iter().filter(|o| !o.starts_with("65532:65532 ")).collect();
    ensure!(others.is_empty() && owners.len() > 5, "{others:?} of {owners:?}");
    scenario.delete("asks").await?;
    scenario.gone("asks").await?;
    assert_eq!(scenario.count().await?, 0);
    scenario.end().await
}

#[tokio::test]
async fn with_the_namespaces_agreement_everything_comes_back_into_a_new_one() -> Result<()> {
    let Some(lab) = Lab::for_test("with_the_namespaces_agreement_everything_comes_back").await? else {
        return Ok(());
    };
    let old = Scenario::with_repository(&lab, "whole", None).await?;
    let host = old.namespace.clone();
    furnish(&lab, &host).await?;
    let at = (host.as_str(), DATA_CLAIM);
    for (file, name, value) in [
        ("one", "user.note", &b"kept"[..]),
        ("private", "user.note", b"of another"),
        ("locked", "user.folder", b"too"),
        ("program", "security.capability", &CAPABILITY),
    ] {
        let set = set_attribute(&lab, at, file, name, value).await?;
        assert!(
            set,
            "{name} of {file}: the volumes of the cluster have to be on this machine"
        );
    }
    agree(&lab, &host).await?;
    admit(&lab, &host, "baseline").await?;
    ask_for_privileges(
        &lab,
        &host,
        json!({ "securityContext": { "runAsUser": 0, "runAsGroup": 0 } }),
    )
    .await?;
    let had = attributes(&lab, &host, DATA_CLAIM).await?;
    assert_eq!(
        had.len(),
        5,
        "four were set, one of them on a file of two names: {had:?}"
    );
    let was = everything(&lab, &host, DATA_CLAIM).await?;
    let blocks = content_blocks(&lab, &host, DATA_CLAIM).await?;
    old.back_up("kept", POLICY).await?;
    assert_eq!(
        was,
        everything(&lab, &host, DATA_CLAIM).await?,
        "a backup changes nothing in its source"
    );

    let ns = format!("{host}-again");
    carry_over(&lab, &host, &ns, VAULT_CLAIM).await?;
    lab.create(objects::secret(&ns, SECRET, objects::PASSWORD))
        .await?;
    let mut repository = objects::repository(&ns, REPOSITORY, VAULT_CLAIM, SECRET, None);
    repository["spec"]["create"]["enabled"] = json!(false);
    lab.create(repository).await?;
    let identity = json!({ "identity": { "username": POLICY, "hostname": host, "sourcePath": "/pvc/data" } });
    let mut wanted = restore(
        &ns,
        "back",
        identity,
        json!({ "pvc": { "name": "back", "capacity": "1Gi" } }),
    );
    wanted["spec"]["repository"] = json!({ "name": REPOSITORY });
    wanted["spec"]["options"] = json!({ "ignorePermissionErrors": false });
    wanted["spec"]["mover"] = json!({ "privilegedMode": true });
    lab.create(wanted).await?;

    // Another namespace is another agreement.
    let held = says(&lab, &ns, "back", NOT_PERMITTED).await?;
    let no = |word: &str| ("False".to_owned(), word.to_owned());
    assert_eq!(condition(&held, conditions::MOVER_PERMITTED), no(NOT_PERMITTED));
    agree(&lab, &ns).await?;
    admit(&lab, &ns, "baseline").await?;
    let status = completed(&lab, &ns, "back").await?;
    let yes = ("True".to_owned(), "Permitted".to_owned());
    assert_eq!(condition(&status, conditions::MOVER_PERMITTED), yes);
    let job = status.job.clone().context("the Job")?.name;
    let given = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETFCAP"];
    is_as_it_may_be(&pod(&lab, &ns, &job).await?, &given);

    let is = everything(&lab, &ns, "back").await?;
    if objects::keeps_every_kind_of_file() {
        assert_eq!(is, was, "bytes, modes, owners, links, times");
        assert_eq!(attributes(&lab, &ns, "back").await?, had, "extended attributes");
        let lacks = status.not_restored.unwrap_or_default();
        assert_eq!(
            (
                lacks.owners,
                lacks.modes,
                lacks.times,
                lacks.xattrs,
                lacks.special_files
            ),
            (0, 0, 0, 0, 0),
            "{lacks:?}"
        );
    } else {
        let in_it = |line: &&String| !line.starts_with("fifo ");
        // Kopia's time of a folder is that of the newest thing in it, and two names of one file are two files.
        let as_it_is_kept = |line: &String| {
            let mut parts: Vec<&str> = line.splitn(8, ' ').collect();
            match parts.first().copied() {
                Some("directory") => parts[5] = "-",
                Some("regular_file") => parts[4] = "1",
                Some(_) | None => {}
            }
            parts.join(" ")
        };
        let kept = |all: &[String]| -> Vec<String> { all.iter().filter(in_it).map(as_it_is_kept).collect() };
        assert_eq!(
            kept(&is),
            kept(&was),
            "bytes, modes, owners, symbolic links, times"
        );
    }
    let now = content_blocks(&lab, &ns, "back").await?;
    assert!(
        now < 8 * 1024 * 1024 && blocks < 8 * 1024 * 1024,
        "the holes are back: {now} bytes for {blocks}"
    );
    remove_namespace(&lab, &ns).await
}

/// Bytes that the file with holes takes.
async fn content_blocks(lab: &Lab, namespace: &str, claim: &str) -> Result<u64> {
    let said = root(lab, namespace, claim, "echo BLOCKS $(stat -c %b holed)").await?;
    let line = said.log.lines().find_map(|line| line.strip_prefix("BLOCKS "));
    Ok(line.context("blocks")?.parse::<u64>()? * 512)
}
