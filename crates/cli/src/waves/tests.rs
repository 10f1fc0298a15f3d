use super::*;
use serde_json::{Value, json};

pub const MESSAGE: &str = "12 deletions are pending on repository a/main, the threshold is 10. 12 held here since \
    2026-01-02T03:00:00Z, in namespaces: a (12). To delete all of them: kubectl -n a annotate repository/main \
    kopiur.home-operations.com/allow-mass-deletion=\"2026-01-02T03:04:05Z\" --overwrite. To keep the data of a \
    Snapshot and let the object go, put the annotation kopiur.home-operations.com/skip-snapshot-cleanup on it.";
const COMMAND: &str = "kubectl -n a annotate repository/main \
    kopiur.home-operations.com/allow-mass-deletion=\"2026-01-02T03:04:05Z\" --overwrite";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub fn repository(namespace: &str, name: &str, held: &str, message: &str) -> Repository {
    serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "Repository",
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "engine": "Restic",
            "backend": { "filesystem": { "volume": { "pvc": { "name": "x" } } } },
            "encryption": { "passwordSecretRef": { "name": "x" } },
        },
        "status": { "conditions": [{
            "type": "MassDeletionHeld", "status": held, "reason": "ThresholdExceeded", "message": message,
            "lastTransitionTime": "2026-01-02T03:00:00Z",
        }] },
    }))
    .unwrap()
}

fn snapshot(namespace: &str, pin: Value, held: &str, deleted: &str) -> Snapshot {
    serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "Snapshot",
        "metadata": { "namespace": namespace, "name": "s", "deletionTimestamp": deleted },
        "spec": {},
        "status": {
            "resolved": { "repository": pin },
            "stats": { "sizeBytes": 1_048_576 },
            "conditions": [{
                "type": "DeletionHeld", "status": held, "reason": "MassDeletionBreaker", "message": "",
                "lastTransitionTime": "2026-01-02T03:00:00Z",
            }],
        },
    }))
    .unwrap()
}

pub fn wave_of(repository: &Repository) -> Option<Wave> {
    wave(
        RepositoryKind::Repository,
        &repository.metadata,
        &repository.spec,
        repository.status.as_ref(),
    )
}

#[test]
fn only_a_true_condition_is_a_wave() {
    assert!(wave_of(&repository("a", "main", "False", MESSAGE)).is_none());
    let wave = wave_of(&repository("a", "main", "True", MESSAGE)).unwrap();
    assert_eq!(wave.threshold, 10);
    assert_eq!(wave.command.as_deref(), Some(COMMAND), "to the letter");
}

#[test]
fn held_snapshots_pinned_to_this_object_are_counted() {
    let mut wave = wave_of(&repository("a", "main", "True", "no command in here")).unwrap();
    let here = json!({ "kind": "Repository", "name": "main" });
    let other = json!({ "kind": "Repository", "name": "other" });
    let cluster = json!({ "kind": "ClusterRepository", "name": "main" });
    wave.count(&[
        snapshot("a", here.clone(), "True", "2026-01-02T03:04:04Z"),
        snapshot("a", here.clone(), "True", "2026-01-02T03:04:05Z"),
        snapshot("a", here.clone(), "False", "2026-01-02T03:09:00Z"),
        snapshot("a", other, "True", "2026-01-02T03:09:00Z"),
        snapshot("a", cluster, "True", "2026-01-02T03:09:00Z"),
        snapshot("b", here, "True", "2026-01-02T03:09:00Z"),
    ]);
    assert_eq!(
        wave.command.as_deref(),
        Some(COMMAND),
        "made from the newest of them"
    );
    let held = wave.held.unwrap();
    assert_eq!((held.count, held.bytes), (2, 2_097_152));
    assert_eq!(held.namespaces, BTreeMap::from([("a".to_owned(), 2)]));
}

#[test]
fn the_table_has_figures_and_the_command() {
    let mut wave = wave_of(&repository("a", "main", "True", MESSAGE)).unwrap();
    let pin = json!({ "kind": "Repository", "name": "main" });
    wave.count(&vec![snapshot("a", pin, "True", "2026-01-02T03:04:05Z"); 12]);
    let found = Found {
        waves: vec![wave],
        notes: Vec::new(),
    };
    let text = render::table(&found, None, at("2026-01-02T03:10:00Z"), Style::PLAIN);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["REPOSITORY", "HELD", "THRESHOLD", "SIZE", "SINCE", "NAMESPACES"]
    );
    assert_eq!(
        rows[1],
        [
            "repository",
            "a/main",
            "12",
            "10",
            "12.0",
            "MiB",
            "10",
            "min",
            "ago",
            "a",
            "(12)"
        ]
    );
    assert!(text.contains(&format!("\n    {COMMAND}\n")), "{text}");
    assert!(!text.contains('\x1b'), "no colours without a terminal");
}

#[test]
fn a_message_is_cut_before_the_sentence_with_its_command() {
    assert_eq!(
        without_commands(MESSAGE),
        "12 deletions are pending on repository a/main, the threshold is 10. 12 held here since \
         2026-01-02T03:00:00Z, in namespaces: a (12)."
    );
    for whole in ["no command in here. None.", "kubectl alone"] {
        assert_eq!(without_commands(whole), whole);
    }
}

#[test]
fn what_could_not_be_read_is_said() {
    let found = Found {
        waves: vec![wave_of(&repository("a", "main", "True", MESSAGE)).unwrap()],
        notes: vec!["the Snapshots are not counted".to_owned()],
    };
    let text = render::table(&found, Some("a"), at("2026-01-02T03:10:00Z"), Style::PLAIN);
    assert!(
        text.contains('?') && text.contains("note: the Snapshots are not counted"),
        "{text}"
    );
    let json: Value = serde_json::from_str(&render::json(&found).unwrap()).unwrap();
    assert_eq!(json["waves"][0]["held"], Value::Null);
    assert_eq!(json["waves"][0]["command"], COMMAND);
}

#[test]
fn nothing_held_is_a_sentence_that_says_where_it_looked() {
    let text = render::table(&Found::default(), Some("a"), Timestamp::UNIX_EPOCH, Style::PLAIN);
    assert_eq!(text, "No deletion is held in namespace a (-A asks for all).\n");
}

#[test]
fn the_json_of_waves_has_every_figure_under_its_name() {
    let mut wave = wave_of(&repository("a", "main", "True", MESSAGE)).unwrap();
    let pin = json!({ "kind": "Repository", "name": "main" });
    wave.count(&vec![snapshot("a", pin, "True", "2026-01-02T03:04:05Z"); 12]);
    let found = Found {
        waves: vec![wave],
        notes: Vec::new(),
    };
    let told: Value = serde_json::from_str(&render::json(&found).unwrap()).unwrap();
    let whole = json!({
        "waves": [{
            "kind": "Repository", "namespace": "a", "name": "main", "threshold": 10,
            "since": "2026-01-02T03:00:00Z",
            "held": {
                "count": 12, "bytes": 12_582_912, "namespaces": { "a": 12 }, "newest": "2026-01-02T03:04:05Z",
            },
            "command": COMMAND,
            "message": MESSAGE,
        }],
        "notes": [],
    });
    assert_eq!(told, whole);
}
