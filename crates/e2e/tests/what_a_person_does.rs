//! A person foresees a wave, looks at it, and releases or rejects it with the plugin, with the person's own rights.
//!
//! The plugin is `HOLDFAST_PLUGIN`, else built here by cargo.

use anyhow::{Context, Result, ensure};
use holdfast_api::{conditions, names};
use holdfast_e2e::scenario::{POLICY, REPOSITORY, Scenario};
use holdfast_e2e::{Lab, Look, until};
use kube::api::Api;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// What the plugin said and how it ended.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("no JSON: {}{}", self.out, self.err))
    }
}

/// The plugin's program.
async fn plugin() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HOLDFAST_PLUGIN").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    let place = own
        .parent()
        .and_then(Path::parent)
        .context("no folder of programs")?;
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--package=kubectl-holdfast"]);
    if place.ends_with("release") {
        build.arg("--release");
    }
    let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().await?;
    ensure!(
        built.success(),
        "the plugin cannot be built; name one with HOLDFAST_PLUGIN"
    );
    Ok(place.join("kubectl-holdfast"))
}

/// A plugin, a kubeconfig and a namespace.
struct Person {
    plugin: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

impl Person {
    async fn new(scenario: &Scenario) -> Result<Self> {
        Ok(Self {
            plugin: plugin().await?,
            kubeconfig: scenario.lab.kubeconfig.clone(),
            namespace: scenario.namespace.clone(),
        })
    }

    /// Another person of the same namespace, who has the built-in role `role` in it and nothing else.
    async fn with_role(&self, scenario: &Scenario, name: &str, role: &str) -> Result<Self> {
        let user = format!("{name}-of-{}", self.namespace);
        scenario
            .lab
            .create(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": { "name": name, "namespace": self.namespace },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
            }))
            .await?;
        let mut config = Kubeconfig::read_from(&self.kubeconfig)?;
        for info in config
            .auth_infos
            .iter_mut()
            .filter_map(|named| named.auth_info.as_mut())
        {
            info.impersonate = Some(user.clone());
        }
        let path = std::env::temp_dir().join(format!("{user}.kubeconfig"));
        std::fs::write(&path, serde_json::to_vec(&config)?)?;
        Ok(Self {
            plugin: self.plugin.clone(),
            kubeconfig: path,
            namespace: self.namespace.clone(),
        })
    }

    /// Runs the plugin without a terminal.
    async fn says(&self, args: &[&str]) -> Result<Said> {
        let output = Command::new(&self.plugin)
            .args(args)
            .args(["-n", &self.namespace])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .stdin(Stdio::null())
            .output()
            .await?;
        Ok(Said {
            code: output.status.code(),
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }
}

/// The condition of the repository once `wanted` Snapshots are held on it.
async fn held(scenario: &Scenario, wanted: usize) -> Result<String> {
    let said = format!("{wanted} held here");
    let condition = scenario
        .repository_condition(conditions::MASS_DELETION_HELD, |c| {
            c.status == "True" && c.message.contains(&said)
        })
        .await?;
    until("each to be marked", Duration::from_secs(60), || async {
        let all = scenario.snapshots().await?;
        let marked = all
            .iter()
            .filter_map(|s| s.status.as_ref())
            .filter(|s| conditions::is_true(&s.conditions, conditions::DELETION_HELD))
            .count();
        Ok(if marked == wanted {
            Look::Done(())
        } else {
            Look::Not(format!("{marked} of {}", all.len()))
        })
    })
    .await?;
    Ok(condition.message)
}

async fn all_gone(scenario: &Scenario) -> Result<()> {
    until("every Snapshot to be gone", Duration::from_secs(90), || async {
        let left = scenario.snapshots().await?.len();
        Ok(if left == 0 {
            Look::Done(())
        } else {
            Look::Not(format!("{left} left"))
        })
    })
    .await
}

async fn acknowledged(scenario: &Scenario) -> Result<Option<String>> {
    let api: Api<holdfast_api::Repository> = scenario.lab.api(&scenario.namespace);
    let annotations = api.get(REPOSITORY).await?.metadata.annotations;
    Ok(annotations.unwrap_or_default().remove(names::ALLOW_MASS_DELETION))
}

#[tokio::test]
async fn foreseen_held_and_released() -> Result<()> {
    let Some(lab) = Lab::for_test("foreseen_held_and_released").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "person", Some(3)).await?;
    let (_, members) = scenario.seeded("nightly", "Delete", 4).await?;
    let person = Person::new(&scenario).await?;
    let viewer = person.with_role(&scenario, "viewer", "view").await?;

    // What is foreseen, by one who may only look, is what happens.
    for one in [&person, &viewer] {
        let said = one
            .says(&["forecast", "delete", "snapshotschedule/nightly", "-o", "json"])
            .await?;
        assert_eq!(said.code, Some(0), "{}", said.err);
        let forecast = said.json()?;
        assert_eq!(
            (&forecast["snapshots"], &forecast["totals"]["held"]),
            (&json!(4), &json!(4))
        );
    }
    let one = format!("snapshot/{}", members[0].name);
    let said = viewer.says(&["why", &one]).await?;
    assert!(
        said.out.contains("If it were deleted now") && said.out.contains("BelowThreshold"),
        "{}{}",
        said.out,
        said.err
    );
    scenario.delete_schedule("nightly").await?;
    let message = held(&scenario, 4).await?;
    let said = viewer.says(&["why", &one]).await?;
    assert!(
        said.out.contains("by rule 9 (MassDeletionBreaker)"),
        "{}{}",
        said.out,
        said.err
    );

    // Nobody said yes; and one who lacks the verb is told which.
    let object = format!("repository/{REPOSITORY}");
    let said = person.says(&["release", &object]).await?;
    assert_eq!(said.code, Some(4), "{}{}", said.out, said.err);
    assert!(
        said.err.contains("4 Snapshots") && said.err.contains("--yes"),
        "{}",
        said.err
    );
    let said = viewer.says(&["release", "--yes"]).await?;
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.err);
    assert!(said.err.contains("holdfast-approver"), "{}", said.err);
    assert_eq!(acknowledged(&scenario).await?, None);

    let said = person.says(&["release", "--yes", "-o", "json"]).await?;
    assert_eq!(said.code, Some(0), "{}", said.err);
    let value = acknowledged(&scenario).await?.context("no acknowledgement")?;
    assert_eq!(said.json()?["value"], value);
    assert!(message.contains(&format!("=\"{value}\"")), "{message}");
    all_gone(&scenario).await?;
    assert_eq!(scenario.count().await?, 0);
    until("nothing more to release", Duration::from_secs(30), || async {
        let said = person.says(&["release", &object]).await?;
        Ok(
            if said.out.contains("holds no deletion") && said.code == Some(0) {
                Look::Done(())
            } else {
                Look::Not(said.out + &said.err)
            },
        )
    })
    .await?;
    std::fs::remove_file(&viewer.kubeconfig)?;
    scenario.end().await
}

#[tokio::test]
async fn retention_is_foreseen_as_it_is_and_as_it_would_be_edited() -> Result<()> {
    let name = "retention_is_foreseen_as_it_is_and_as_it_would_be_edited";
    let Some(lab) = Lab::for_test(name).await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "foreseen", Some(2)).await?;
    for name in ["first", "second", "third"] {
        scenario.back_up(name, POLICY).await?;
    }
    let viewer = Person::new(&scenario)
        .await?
        .with_role(&scenario, "viewer", "view")
        .await?;
    let policy = format!("snapshotpolicy/{POLICY}");
    let foreseen = async |edit: &[&str]| {
        let mut args = vec!["forecast", "retention", &policy, "-o", "json"];
        args.extend(edit);
        let said = viewer.says(&args).await?;
        ensure!(said.code == Some(0), "{}{}", said.out, said.err);
        let json = said.json()?;
        let counts = ["kept", "pruned", "held"].map(|one| json[one].as_u64());
        anyhow::Ok((json["asIfEdited"].clone(), counts, json["toPrune"].clone()))
    };
    // It names no count: nothing is ever pruned.
    let (edited, counts, _) = foreseen(&[]).await?;
    assert_eq!((edited, counts), (json!(false), [Some(3), Some(0), Some(0)]));
    let (edited, counts, _) = foreseen(&["--keep-latest", "2"]).await?;
    assert_eq!((edited, counts), (json!(true), [Some(2), Some(1), Some(0)]));
    // Two at once are the repository's threshold: an edit that prunes them waits for a person.
    let (_, counts, to_prune) = foreseen(&["--keep-latest", "1"]).await?;
    assert_eq!(counts, [Some(1), Some(0), Some(2)]);
    assert!(to_prune.to_string().contains("allow-mass-prune"), "{to_prune}");
    assert_eq!(scenario.snapshots().await?.len(), 3, "it was only asked");
    std::fs::remove_file(&viewer.kubeconfig)?;
    scenario.end().await
}

#[tokio::test]
async fn rejected_is_kept() -> Result<()> {
    let Some(lab) = Lab::for_test("rejected_is_kept").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "person", Some(3)).await?;
    scenario.seeded("nightly", "Delete", 4).await?;
    scenario.delete_schedule("nightly").await?;
    held(&scenario, 4).await?;
    let person = Person::new(&scenario).await?;
    let viewer = person.with_role(&scenario, "viewer", "view").await?;
    let editor = person.with_role(&scenario, "editor", "edit").await?;

    let said = editor.says(&["reject"]).await?;
    assert_eq!(said.code, Some(4), "{}{}", said.out, said.err);
    // An error stops nothing else, and each is told.
    let said = viewer.says(&["reject", "--yes", "-o", "json"]).await?;
    assert_eq!(said.code, Some(5), "{}{}", said.out, said.err);
    let failed = said.json()?["failed"].clone();
    assert_eq!(failed.as_array().map(Vec::len), Some(4), "{failed}");
    assert!(
        failed.to_string().contains("you may not patch snapshots"),
        "{failed}"
    );

    // Whoever may edit Snapshots may keep their data: no verb acknowledge is needed.
    let said = editor.says(&["reject", "--yes", "-o", "json"]).await?;
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.json()?["marked"], 4);
    all_gone(&scenario).await?;
    assert_eq!(scenario.count().await?, 4, "the data of all is kept");
    assert_eq!(acknowledged(&scenario).await?, None);
    let said = editor.says(&["reject", "--yes"]).await?;
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    for path in [&viewer.kubeconfig, &editor.kubeconfig] {
        std::fs::remove_file(path)?;
    }
    scenario.end().await
}
