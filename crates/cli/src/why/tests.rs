use super::*;
use serde_json::{Value, json};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn told(metadata: &Value, status: &Value) -> String {
    let mut all = json!({ "namespace": "a", "name": "x", "finalizers": [names::FINALIZER] });
    for (key, value) in metadata.as_object().unwrap() {
        all[key] = value.clone();
    }
    let snapshot: Snapshot = serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "Snapshot", "metadata": all, "spec": {}, "status": status,
    }))
    .unwrap();
    tell(&snapshot, None, at("2026-01-02T03:10:00Z"), Style::PLAIN)
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-02T03:00:00Z" })
}

fn deleted() -> Value {
    json!({ "deletionTimestamp": "2026-01-02T03:05:00Z" })
}

#[test]
fn a_live_one_is_not_being_deleted() {
    let status = json!({
        "phase": "Succeeded",
        "snapshot": { "kopiaSnapshotID": "k1" },
        "stats": { "sizeBytes": 2_048 },
        "resolved": { "repository": { "kind": "Repository", "name": "main" } },
    });
    assert_eq!(
        told(&json!({}), &status),
        "Snapshot a/x\n  phase      Succeeded\n  data       snapshot k1, 2.0 KiB\n  in         Repository main\n\n\
         It is not being deleted.\n"
    );
}

#[test]
fn a_held_one_shows_reason_time_and_both_ways_out() {
    let message =
        "12 are pending. To delete: kubectl -n a annotate repository/main k=\"v\" --overwrite. Done.";
    let status = json!({ "conditions": [condition("DeletionHeld", "True", "MassDeletionBreaker", message)] });
    let text = told(&deleted(), &status);
    assert!(text.contains("It was deleted 5 min ago"), "{text}");
    assert!(
        text.contains("Held by the breaker (MassDeletionBreaker, since 10 min ago).\n  12 are pending."),
        "{text}"
    );
    assert!(
        text.contains("\n    kubectl -n a annotate repository/main k=\"v\" --overwrite\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "\n    kubectl -n a annotate snapshot/x kopiur.home-operations.com/skip-snapshot-cleanup=\"\"\n"
        ),
        "{text}"
    );
}

#[test]
fn a_hold_that_ended_is_not_told_as_one() {
    let status = json!({ "conditions": [condition("DeletionHeld", "False", "Acknowledged", "")],
        "deletion": { "job": "snapdel-main-1", "attempts": 0 } });
    let text = told(&deleted(), &status);
    assert!(!text.contains("Held"), "{text}");
    assert!(
        text.contains("The delete Job snapdel-main-1 includes it"),
        "{text}"
    );
}

#[test]
fn a_waiting_one_says_what_for_and_what_failed() {
    let status = json!({
        "conditions": [condition("DeletionBlocked", "True", "BackingOff", "the last try failed")],
        "deletion": { "job": "snapdel-main-1", "outcome": "Failed", "attempts": 3, "lastError": "no space",
            "nextAttemptAt": "2026-01-02T03:12:00Z" },
    });
    let text = told(&deleted(), &status);
    assert!(
        text.contains("It waits (BackingOff, since 10 min ago).\n  the last try failed"),
        "{text}"
    );
    assert!(
        text.contains("3 tries failed, the last one said: no space."),
        "{text}"
    );
    assert!(text.contains("It is tried again in 2 min."), "{text}");
}

#[test]
fn silence_of_the_operator_is_told_as_such() {
    let text = told(&deleted(), &json!({}));
    assert!(text.contains("Nothing has been decided yet"), "{text}");
    let others = json!({ "deletionTimestamp": "2026-01-02T03:05:00Z", "finalizers": ["example.org/x"] });
    let text = told(&others, &json!({}));
    assert!(text.contains("still there because of example.org/x"), "{text}");
}
