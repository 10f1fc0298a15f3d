//! Dashboards, alerts and pages speak of figures that the operator exports, in sentences that Prometheus can read.

use holdfast_api::ledger::{BackupStoreStatus, convert};
use holdfast_core::quota::publish::{Published, WarningReason, WriteReason};
use holdfast_operator::account::enumerate::reason::StoreReason;
use holdfast_operator::account::metrics::Limits;
use holdfast_operator::runtime::metrics::{
    BackupResult, BatchOutcome, DeletionOutcome, ErrorClass, Kind, MaintenanceMode, MaintenanceResult,
    MemberOutcome, Metrics, ProbeOutcome, RepositoryKind,
};
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Labels of each figure, by its name.
type Exported = BTreeMap<String, BTreeSet<String>>;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every figure once; one that is missing here is not known to dashboards either.
fn exported() -> Exported {
    let metrics = Metrics::new();
    metrics.reconciled(Kind::Snapshot, Duration::ZERO, Some(ErrorClass::Transient));
    for outcome in [
        DeletionOutcome::Deleted,
        DeletionOutcome::Orphaned,
        DeletionOutcome::CascadeRetained,
        DeletionOutcome::PolicyCascadeRetained,
    ] {
        metrics.deletion("a", outcome);
    }
    metrics.deletion_failed("a");
    metrics.batch_job(BatchOutcome::Failed);
    metrics.batch_members(MemberOutcome::Failed, 1);
    metrics.reappeared(RepositoryKind::Repository, "a", 1);
    metrics.wave(RepositoryKind::Repository, "a", 1, 1);
    metrics.backup(BackupResult::Failed, "a", "b");
    metrics.restored(BackupResult::Failed, 1.0);
    metrics.scheduled();
    metrics.probe_failed(RepositoryKind::Repository, "a", ProbeOutcome::Slow, 1, true);
    metrics.maintained(
        RepositoryKind::Repository,
        "a",
        MaintenanceMode::Quick,
        MaintenanceResult::Succeeded,
        Some(1),
    );
    metrics.maintenance_configured(RepositoryKind::Repository, "a", true);
    metrics.leader(true);
    metrics.foreign(true);
    let quota = &metrics.quota;
    let published = Published {
        own: Default::default(),
        stranded: Default::default(),
        unaccounted: Some(1),
    };
    let limits = Limits {
        size: Some(1),
        count: Some(1),
    };
    quota.figures("a", &published, limits);
    quota.stranded("gone", Some(1));
    quota.missing(1);
    quota.removed(holdfast_core::quota::RemoveReason::NeverTakenUp);
    quota.written(WriteReason::Changed);
    quota.refused("a", "b", Some(true));
    quota.misspelt("a", "b", WarningReason::UnknownKey, 1);
    let artifact = json!({
        "metadata": { "name": "a" },
        "spec": { "namespace": "a", "applicationRef": { "kind": "Etcd", "name": "b" } },
        "status": { "state": "Retained", "reason": "NotPurged" },
    });
    quota.transition(&convert::record(
        &serde_json::from_value(artifact).expect("an Artifact"),
    ));
    quota.ledger(1, 1, true);
    quota.rebuilt();
    quota.restored();
    quota.bad_declarations(1);
    quota.answered("NoLimit", Duration::ZERO);
    quota.reserved(1);
    metrics.stores.attempted("a", StoreReason::Listed);
    let status = json!({ "lastCompleteListing": {
        "startedAt": "2026-01-01T00:00:00Z", "completedAt": "2026-01-01T00:00:00Z", "objects": 1, "bytes": 1,
    } });
    let status: BackupStoreStatus = serde_json::from_value(status).expect("a status");
    metrics.stores.stands("a", &status);
    let mut all = Exported::new();
    for line in metrics.text().lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).expect("a name");
        let labels = line[end..]
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'));
        let known = all.entry(line[..end].to_owned()).or_default();
        for pair in labels
            .map_or("", |(labels, _)| labels)
            .split(',')
            .filter(|pair| !pair.is_empty())
        {
            known.insert(pair.split_once('=').expect("a label").0.to_owned());
        }
    }
    all
}

/// What an expression names.
#[derive(Default)]
struct Names {
    metrics: BTreeSet<String>,
    /// Figure and a label that is asked of it.
    asked: BTreeSet<(String, String)>,
    /// Labels by which something is added up.
    by: BTreeSet<String>,
}

impl Names {
    fn selector(&mut self, selector: &VectorSelector) {
        let name = selector.name.clone().expect("a figure without a name");
        for matcher in &selector.matchers.matchers {
            self.asked.insert((name.clone(), matcher.name.clone()));
        }
        self.metrics.insert(name);
    }
}

impl ExprVisitor for Names {
    type Error = Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Infallible> {
        match expr {
            Expr::VectorSelector(selector) => self.selector(selector),
            Expr::MatrixSelector(selector) => self.selector(&selector.vs),
            Expr::Aggregate(aggregate) => {
                let labels = aggregate
                    .modifier
                    .iter()
                    .flat_map(|modifier| modifier.labels().labels.iter());
                self.by.extend(labels.cloned());
            }
            Expr::Unary(_)
            | Expr::Binary(_)
            | Expr::Paren(_)
            | Expr::Subquery(_)
            | Expr::NumberLiteral(_)
            | Expr::StringLiteral(_)
            | Expr::Call(_)
            | Expr::Extension(_) => {}
        }
        Ok(true)
    }
}

/// Reads an expression and fails if it names something that is not exported.
fn names(of: &str, expr: &str, exported: &Exported) -> Names {
    // Grafana puts a list of values there.
    let parsed = parser::parse(&expr.replace("$namespace", ".*"));
    let parsed = parsed.unwrap_or_else(|error| panic!("{of}: {expr} cannot be read: {error}"));
    let mut names = Names::default();
    let Ok(_) = walk_expr(&mut names, &parsed);
    assert!(!names.metrics.is_empty(), "{of}: {expr} asks for nothing");
    let mut labels = BTreeSet::new();
    for metric in &names.metrics {
        let known = exported.get(metric);
        labels.extend(known.unwrap_or_else(|| panic!("{of}: {metric} is not exported")));
    }
    for (metric, label) in &names.asked {
        assert!(
            exported[metric].contains(label),
            "{of}: {metric} has no label {label}"
        );
    }
    for label in &names.by {
        assert!(
            labels.contains(label),
            "{of}: nothing in {expr} has a label {label}"
        );
    }
    names
}

fn files(folder: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(checkout().join(folder)).expect(folder);
    let all: Vec<PathBuf> = all.map(|entry| entry.expect("an entry").path()).collect();
    assert!(!all.is_empty(), "{folder} is empty");
    all
}

/// Words between `open` and whatever cannot be part of a name.
fn words<'a>(text: &'a str, open: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[test]
fn alerts_can_be_read_and_ask_for_what_is_exported() {
    let exported = exported();
    let mut rules = 0;
    for file in files("charts/holdfast/alerts") {
        let text = std::fs::read_to_string(&file).expect("a file");
        let groups: Vec<Value> = serde_saphyr::from_str(&text).expect("groups");
        for rule in groups
            .iter()
            .flat_map(|group| group["rules"].as_array().expect("rules"))
        {
            rules += 1;
            let name = rule["alert"].as_str().expect("a name");
            let names = names(name, rule["expr"].as_str().expect("an expression"), &exported);
            for annotation in rule["annotations"].as_object().expect("annotations").values() {
                for label in words(annotation.as_str().expect("a text"), "$labels.") {
                    assert!(
                        names.by.contains(label),
                        "{name} speaks of {label}, by which it does not add up"
                    );
                }
            }
            let lasting = rule["for"].as_str().expect("for");
            let (number, unit) = lasting.split_at(lasting.len() - 1);
            assert!(
                number.parse::<u32>().is_ok() && "smhd".contains(unit),
                "{name}: {lasting}"
            );
        }
    }
    assert!(rules >= 15, "{rules} alerts");
}

#[test]
fn dashboards_can_be_read_and_ask_for_what_is_exported() {
    let exported = exported();
    let mut shown = BTreeSet::new();
    for file in files("charts/holdfast/dashboards") {
        let text = std::fs::read_to_string(&file).expect("a file");
        let dashboard: Value = serde_json::from_str(&text).expect("JSON");
        for panel in dashboard["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().expect("a title");
            for target in panel["targets"].as_array().expect("queries") {
                let names = names(title, target["expr"].as_str().expect("a query"), &exported);
                for label in words(target["legendFormat"].as_str().expect("a legend"), "{{") {
                    assert!(names.by.contains(label), "{title}: the legend has {label}");
                }
                shown.extend(names.metrics);
            }
        }
        for variable in dashboard["templating"]["list"].as_array().expect("variables") {
            for metric in words(variable["query"].as_str().expect("a query"), "label_values(") {
                assert!(exported.contains_key(metric), "{metric} is not exported");
            }
        }
    }
    let series = |name: &&String| !name.ends_with("_count") && !name.ends_with("_sum");
    let missing: Vec<&String> = exported
        .keys()
        .filter(series)
        .filter(|name| !shown.contains(*name))
        // Each is a Snapshot that a schedule made: the runs are shown.
        .filter(|name| *name != "kopiur_schedule_snapshots_created_total")
        .collect();
    assert!(missing.is_empty(), "no dashboard shows {missing:?}");
}

#[test]
fn pages_name_figures_that_are_exported() {
    let exported = exported();
    let mut pages = files("docs");
    pages.extend(files("docs/reference"));
    pages.extend(files("docs/runbooks"));
    let mut found = 0;
    for page in pages
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
    {
        let text = std::fs::read_to_string(page).expect("a page");
        for prefix in ["`cozystack_backup_", "`kopiur_", "`holdfast_"] {
            for rest in words(&text, prefix) {
                let name = format!("{}{rest}", &prefix[1..]);
                // A common beginning, as in `cozystack_backup_quota_`.
                let begins = name.ends_with('_') && exported.keys().any(|known| known.starts_with(&name));
                assert!(
                    begins || exported.contains_key(&name),
                    "{} speaks of {name}, which is not exported",
                    page.display()
                );
                found += 1;
            }
        }
    }
    assert!(found > 0, "no page names a figure");
}

/// The list of the page about counting is whole, and has nothing else in it.
#[test]
fn the_page_about_counting_lists_every_figure_of_account() {
    let prefix = "cozystack_backup_quota_";
    let text = std::fs::read_to_string(checkout().join("docs/account.md")).expect("the page");
    let (_, rest) = text
        .split_once(&format!("Metrics begin with `{prefix}`."))
        .expect("the list of metrics");
    let (list, _) = rest.split_once("\n\n").expect("its end");
    let listed: BTreeSet<String> = words(list, "`")
        .filter(|word| !word.is_empty())
        .map(|word| format!("{prefix}{word}"))
        .collect();
    let exported: BTreeSet<String> = exported()
        .into_keys()
        .filter(|name| name.starts_with(prefix))
        .map(|name| {
            let histogram = ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            histogram.map_or(name.clone(), str::to_owned)
        })
        .collect();
    assert_eq!(listed, exported);
}
