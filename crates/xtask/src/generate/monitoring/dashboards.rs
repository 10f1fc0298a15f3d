//! The dashboards, in the JSON of Grafana: a table of panels for each.
//!
//! Every query takes the largest over replicas: figures are the leader's, the others export none, or zero.

use serde_json::{Value, json};

/// Width of the whole, in Grafana's columns.
const COLUMNS: u32 = 24;
/// Shown beside every query of a namespace.
const NAMESPACES: &str = "label_values(cozystack_backup_quota_used_bytes, namespace)";

/// How a panel shows its figures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// One number.
    Number,
    /// Lines over time.
    Lines,
    /// Lines over time, one on top of the other.
    Stack,
    /// What is now, a row for each.
    Table,
}

struct Panel {
    title: &'static str,
    about: &'static str,
    look: Look,
    unit: &'static str,
    width: u32,
    /// Query and legend of each.
    queries: &'static [(&'static str, &'static str)],
}

/// Name and content of each dashboard.
pub fn all() -> Vec<(&'static str, Value)> {
    vec![
        (
            "account",
            dashboard(
                "holdfast-account",
                "Holdfast: backup storage",
                Some(NAMESPACES),
                ACCOUNT,
            ),
        ),
        (
            "protect",
            dashboard(
                "holdfast-protect",
                "Holdfast: snapshots and deletions",
                None,
                PROTECT,
            ),
        ),
    ]
}

const ACCOUNT: &[Panel] = &[
    Panel {
        title: "Ledger complete",
        about: "1 when every list has been added up; before that nothing is published.",
        look: Look::Number,
        unit: "none",
        width: 4,
        queries: &[("max(cozystack_backup_quota_ledger_complete)", "")],
    },
    Panel {
        title: "Not recorded yet",
        about: "Objects that were seen and are not in the ledger yet.",
        look: Look::Number,
        unit: "none",
        width: 4,
        queries: &[("max(cozystack_backup_quota_ledger_behind)", "")],
    },
    Panel {
        title: "Records",
        about: "Records of the ledger.",
        look: Look::Number,
        unit: "none",
        width: 4,
        queries: &[("max(cozystack_backup_quota_records)", "")],
    },
    Panel {
        title: "Namespaces at a limit",
        about: "With the gate on their BackupJobs are refused.",
        look: Look::Number,
        unit: "none",
        width: 4,
        queries: &[(
            "count((max by (namespace) (cozystack_backup_quota_used_bytes) >= max by (namespace) (cozystack_backup_quota_limit_bytes)) > 0 or (max by (namespace) (cozystack_backup_quota_used_artifacts) >= max by (namespace) (cozystack_backup_quota_limit_artifacts)) > 0) or vector(0)",
            "",
        )],
    },
    Panel {
        title: "Quotas that may not be written",
        about: "Somebody forbids that figures are written to them (FigureRefused).",
        look: Look::Number,
        unit: "none",
        width: 4,
        queries: &[(
            "sum(max by (namespace, quota) (cozystack_backup_quota_write_refused)) or vector(0)",
            "",
        )],
    },
    Panel {
        title: "Declarations that cannot be read",
        about: "Strategies whose declaration of capabilities is not in force (CapabilitiesUnreadable).",
        look: Look::Number,
        unit: "none",
        width: 4,
        queries: &[("max(cozystack_backup_quota_bad_declarations)", "")],
    },
    Panel {
        title: "Used of the limit of bytes",
        about: "What is charged, as published in the ResourceQuota.",
        look: Look::Lines,
        unit: "percentunit",
        width: 12,
        queries: &[(
            "max by (namespace) (cozystack_backup_quota_used_bytes{namespace=~\"$namespace\"}) / (max by (namespace) (cozystack_backup_quota_limit_bytes{namespace=~\"$namespace\"}) > 0)",
            "{{namespace}}",
        )],
    },
    Panel {
        title: "Used of the limit of things",
        about: "Things in storage that are charged.",
        look: Look::Lines,
        unit: "percentunit",
        width: 12,
        queries: &[(
            "max by (namespace) (cozystack_backup_quota_used_artifacts{namespace=~\"$namespace\"}) / (max by (namespace) (cozystack_backup_quota_limit_artifacts{namespace=~\"$namespace\"}) > 0)",
            "{{namespace}}",
        )],
    },
    Panel {
        title: "What the bytes are",
        about: "Attributed: a Backup refers to them. Retained: none does any more. Pending purge is part of retained.",
        look: Look::Stack,
        unit: "bytes",
        width: 12,
        queries: &[
            (
                "sum(max by (namespace) (cozystack_backup_quota_attributed_bytes{namespace=~\"$namespace\"}))",
                "attributed",
            ),
            (
                "sum(max by (namespace) (cozystack_backup_quota_retained_bytes{namespace=~\"$namespace\"})) - sum(max by (namespace) (cozystack_backup_quota_pending_purge_bytes{namespace=~\"$namespace\"}))",
                "retained",
            ),
            (
                "sum(max by (namespace) (cozystack_backup_quota_pending_purge_bytes{namespace=~\"$namespace\"}))",
                "pending purge",
            ),
        ],
    },
    Panel {
        title: "What is not charged",
        about: "Bytes that no record explains, that an administrator wrote off, and of namespaces that are gone.",
        look: Look::Stack,
        unit: "bytes",
        width: 12,
        queries: &[
            (
                "sum(max by (namespace) (cozystack_backup_quota_unaccounted_bytes{namespace=~\"$namespace\"}))",
                "unaccounted",
            ),
            (
                "sum(max by (namespace) (cozystack_backup_quota_written_off_bytes{namespace=~\"$namespace\"}))",
                "written off",
            ),
            (
                "sum(max by (namespace) (cozystack_backup_quota_stranded_bytes))",
                "stranded",
            ),
        ],
    },
    Panel {
        title: "Namespaces",
        about: "The largest first.",
        look: Look::Table,
        unit: "bytes",
        width: 12,
        queries: &[(
            "topk(50, max by (namespace) (cozystack_backup_quota_used_bytes{namespace=~\"$namespace\"}))",
            "",
        )],
    },
    Panel {
        title: "Size unknown",
        about: "Things charged whose size nobody knows: they add nothing to the bytes.",
        look: Look::Table,
        unit: "none",
        width: 6,
        queries: &[(
            "max by (namespace) (cozystack_backup_quota_unreported_artifacts{namespace=~\"$namespace\"}) > 0",
            "",
        )],
    },
    Panel {
        title: "Misspelt keys",
        about: "Keys of a quota that do not do what they look like.",
        look: Look::Table,
        unit: "none",
        width: 6,
        queries: &[(
            "max by (namespace, quota, reason) (cozystack_backup_quota_misspelt_keys)",
            "",
        )],
    },
    Panel {
        title: "Answers of the gate",
        about: "By the decision's one word.",
        look: Look::Stack,
        unit: "reqps",
        width: 8,
        queries: &[(
            "sum by (reason) (rate(cozystack_backup_quota_admissions_total[5m]))",
            "{{reason}}",
        )],
    },
    Panel {
        title: "How long an answer took",
        about: "Inside the operator, at the 99th percentile.",
        look: Look::Lines,
        unit: "s",
        width: 8,
        queries: &[(
            "histogram_quantile(0.99, sum by (le) (rate(cozystack_backup_quota_admission_seconds_bucket[5m])))",
            "p99",
        )],
    },
    Panel {
        title: "Runs under way",
        about: "Recorded, and admitted without a record yet.",
        look: Look::Stack,
        unit: "none",
        width: 8,
        queries: &[
            (
                "sum(max by (namespace) (cozystack_backup_quota_in_flight{namespace=~\"$namespace\"}))",
                "recorded",
            ),
            ("max(cozystack_backup_quota_reservations)", "reserved"),
        ],
    },
    Panel {
        title: "Records by what they became",
        about: "State and reason.",
        look: Look::Stack,
        unit: "ops",
        width: 8,
        queries: &[(
            "sum by (state, reason) (rate(cozystack_backup_quota_transitions_total[15m]))",
            "{{state}} {{reason}}",
        )],
    },
    Panel {
        title: "Figures written",
        about: "To ResourceQuotas, by why. Drifted: somebody had changed one.",
        look: Look::Stack,
        unit: "ops",
        width: 8,
        queries: &[(
            "sum by (reason) (rate(cozystack_backup_quota_writes_total[5m]))",
            "{{reason}}",
        )],
    },
    Panel {
        title: "Records lost",
        about: "Deleted by somebody else and written again; and times that all were gone.",
        look: Look::Lines,
        unit: "none",
        width: 8,
        queries: &[
            (
                "sum(increase(cozystack_backup_quota_records_restored_total[1h]))",
                "written again",
            ),
            (
                "sum(cozystack_backup_quota_ledger_rebuilt_total)",
                "LedgerRebuilt",
            ),
        ],
    },
    Panel {
        title: "Stores: last complete listing",
        about: "How long ago it ended.",
        look: Look::Table,
        unit: "s",
        width: 8,
        queries: &[(
            "time() - max by (store) (cozystack_backup_store_listed_timestamp_seconds)",
            "",
        )],
    },
    Panel {
        title: "Stores: bytes",
        about: "What the last complete listing saw, and what of it no record explains.",
        look: Look::Lines,
        unit: "bytes",
        width: 8,
        queries: &[
            ("max by (store) (cozystack_backup_store_bytes)", "{{store}}"),
            (
                "max by (store) (cozystack_backup_store_unaccounted_bytes)",
                "{{store}}, unaccounted",
            ),
        ],
    },
    Panel {
        title: "Stores: listings and objects",
        about: "Attempts by how they ended in a day, objects seen, and records whose release waits.",
        look: Look::Table,
        unit: "none",
        width: 8,
        queries: &[
            (
                "sum by (store, reason) (increase(cozystack_backup_store_listings_total[1d]))",
                "",
            ),
            ("max by (store) (cozystack_backup_store_objects)", ""),
            ("max by (store) (cozystack_backup_store_waiting_records)", ""),
        ],
    },
    Panel {
        title: "Records that are missing",
        about: "Fewer than were noted when a replica began to lead, in a day.",
        look: Look::Lines,
        unit: "none",
        width: 12,
        queries: &[(
            "sum(increase(cozystack_backup_quota_records_missing_total[1d]))",
            "missing",
        )],
    },
    Panel {
        title: "Records removed",
        about: "By why, in a day.",
        look: Look::Stack,
        unit: "none",
        width: 12,
        queries: &[(
            "sum by (reason) (increase(cozystack_backup_quota_records_removed_total[1d]))",
            "{{reason}}",
        )],
    },
];

const PROTECT: &[Panel] = &[
    Panel {
        title: "Leader",
        about: "Replicas that lead: one.",
        look: Look::Number,
        unit: "none",
        width: 6,
        queries: &[("sum(holdfast_leader)", "")],
    },
    Panel {
        title: "Another manager",
        about: "1 while another manager of the API group is alive, or may be: nothing is decided (ForeignManager).",
        look: Look::Number,
        unit: "none",
        width: 6,
        queries: &[("max(holdfast_foreign_manager)", "")],
    },
    Panel {
        title: "Deletions held",
        about: "By the breaker (MassDeletionBreaker).",
        look: Look::Number,
        unit: "none",
        width: 6,
        queries: &[(
            "sum(max by (repo_kind, repo_name) (kopiur_snapshot_deletions_held)) or vector(0)",
            "",
        )],
    },
    Panel {
        title: "Deletions waiting",
        about: "For a decision or a batch, the held ones included.",
        look: Look::Number,
        unit: "none",
        width: 6,
        queries: &[(
            "sum(max by (repo_kind, repo_name) (kopiur_snapshot_deletions_pending_external)) or vector(0)",
            "",
        )],
    },
    Panel {
        title: "Held, by repository",
        about: "Deletions that the breaker holds.",
        look: Look::Lines,
        unit: "none",
        width: 12,
        queries: &[(
            "max by (repo_kind, repo_name) (kopiur_snapshot_deletions_held) > 0",
            "{{repo_kind}} {{repo_name}}",
        )],
    },
    Panel {
        title: "Waiting, by repository",
        about: "Deletions that wait for a decision or a batch.",
        look: Look::Lines,
        unit: "none",
        width: 12,
        queries: &[(
            "max by (repo_kind, repo_name) (kopiur_snapshot_deletions_pending_external) > 0",
            "{{repo_kind}} {{repo_name}}",
        )],
    },
    Panel {
        title: "Backup runs",
        about: "That ended, in an hour.",
        look: Look::Stack,
        unit: "none",
        width: 12,
        queries: &[(
            "sum by (result) (increase(kopiur_snapshots_completed_total[1h]))",
            "{{result}}",
        )],
    },
    Panel {
        title: "Policies that fail",
        about: "Failed runs within a day.",
        look: Look::Table,
        unit: "none",
        width: 12,
        queries: &[(
            "sum by (namespace, policy) (increase(kopiur_snapshots_completed_total{result=\"failed\"}[1d])) > 0",
            "",
        )],
    },
    Panel {
        title: "Snapshots let go",
        about: "By what became of the data, in an hour.",
        look: Look::Stack,
        unit: "none",
        width: 12,
        queries: &[(
            "sum by (outcome) (increase(kopiur_snapshot_deletions_total[1h]))",
            "{{outcome}}",
        )],
    },
    Panel {
        title: "Kept, orphaned, failed",
        about: "Kept because a schedule or a policy went; let go without contact; deletions that were not confirmed.",
        look: Look::Lines,
        unit: "none",
        width: 12,
        queries: &[
            (
                "sum(increase(kopiur_snapshots_cascade_retained_total[1h]))",
                "schedule went",
            ),
            (
                "sum(increase(kopiur_snapshots_policy_cascade_retained_total[1h]))",
                "policy went",
            ),
            ("sum(increase(kopiur_orphaned_snapshots_total[1h]))", "orphaned"),
            (
                "sum(increase(kopiur_snapshot_deletion_failures_total[1h]))",
                "not confirmed",
            ),
        ],
    },
    Panel {
        title: "Restores",
        about: "That ended, in a day.",
        look: Look::Stack,
        unit: "none",
        width: 12,
        queries: &[(
            "sum by (result) (increase(kopiur_restore_duration_seconds_count[1d]))",
            "{{result}}",
        )],
    },
    Panel {
        title: "How long a restore took",
        about: "At the 90th percentile, of those that ended well.",
        look: Look::Lines,
        unit: "s",
        width: 12,
        queries: &[(
            "histogram_quantile(0.9, sum by (le) (rate(kopiur_restore_duration_seconds_bucket{result=\"succeeded\"}[1d])))",
            "p90",
        )],
    },
    Panel {
        title: "Batch delete Jobs",
        about: "Reaped in an hour.",
        look: Look::Stack,
        unit: "none",
        width: 8,
        queries: &[(
            "sum by (outcome) (increase(kopiur_snapshot_delete_batch_jobs_total[1h]))",
            "{{outcome}}",
        )],
    },
    Panel {
        title: "Members of batches",
        about: "Confirmed gone, or not, in an hour.",
        look: Look::Stack,
        unit: "none",
        width: 8,
        queries: &[(
            "sum by (outcome) (increase(kopiur_snapshot_delete_batch_members_total[1h]))",
            "{{outcome}}",
        )],
    },
    Panel {
        title: "Reappeared",
        about: "Snapshots that were proven gone and were found again. Never above zero.",
        look: Look::Lines,
        unit: "none",
        width: 8,
        queries: &[(
            "sum by (repo_kind, repo_name) (increase(kopiur_deleted_snapshots_reappeared_total[1h]))",
            "{{repo_kind}} {{repo_name}}",
        )],
    },
    Panel {
        title: "Reconciliations",
        about: "By kind.",
        look: Look::Lines,
        unit: "ops",
        width: 8,
        queries: &[(
            "sum by (kind) (rate(kopiur_controller_reconciliations_total[5m]))",
            "{{kind}}",
        )],
    },
    Panel {
        title: "Reconciliations that failed",
        about: "By who ends the failure.",
        look: Look::Lines,
        unit: "ops",
        width: 8,
        queries: &[(
            "sum by (kind, class) (rate(kopiur_controller_reconcile_errors_total[5m]))",
            "{{kind}} {{class}}",
        )],
    },
    Panel {
        title: "How long a reconciliation took",
        about: "At the 99th percentile.",
        look: Look::Lines,
        unit: "s",
        width: 8,
        queries: &[(
            "histogram_quantile(0.99, sum by (le, kind) (rate(kopiur_controller_reconcile_duration_seconds_bucket[5m])))",
            "{{kind}}",
        )],
    },
    Panel {
        title: "Repositories that are away",
        about: "Connected once, and degraded or failed now.",
        look: Look::Lines,
        unit: "none",
        width: 12,
        queries: &[
            (
                "max by (repo_kind, repo_name) (kopiur_repository_breaker_open) > 0",
                "{{repo_kind}} {{repo_name}}",
            ),
            (
                "max by (repo_kind, repo_name) (kopiur_repository_consecutive_backend_failures) > 0",
                "{{repo_kind}} {{repo_name}}: failures in a row",
            ),
        ],
    },
    Panel {
        title: "Connections that failed",
        about: "By why, in an hour.",
        look: Look::Stack,
        unit: "none",
        width: 12,
        queries: &[(
            "sum by (outcome) (increase(kopiur_repository_health_probe_failures_total[1h]))",
            "{{outcome}}",
        )],
    },
    Panel {
        title: "Maintenance runs",
        about: "That ended, in a day; and how many repositories have a Maintenance.",
        look: Look::Lines,
        unit: "none",
        width: 12,
        queries: &[
            (
                "sum by (mode, result) (increase(kopiur_maintenance_runs_total[1d]))",
                "{{mode}} {{result}}",
            ),
            (
                "sum(max by (repo_kind, repo_name) (kopiur_repository_maintenance_configured))",
                "repositories with one",
            ),
        ],
    },
    Panel {
        title: "Freed by maintenance",
        about: "Bytes of storage, by the last run of each repository.",
        look: Look::Lines,
        unit: "bytes",
        width: 12,
        queries: &[(
            "max by (repo_kind, repo_name) (kopiur_maintenance_last_reclaimed_bytes)",
            "{{repo_kind}} {{repo_name}}",
        )],
    },
];

fn dashboard(uid: &str, title: &str, namespaces: Option<&str>, panels: &[Panel]) -> Value {
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let mut variables = vec![json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
    })];
    if let Some(query) = namespaces {
        variables.push(json!({
            "name": "namespace", "label": "Namespace", "type": "query", "datasource": source, "query": query,
            "multi": true, "includeAll": true, "allValue": ".*", "refresh": 2, "sort": 1,
            "current": { "text": "All", "value": "$__all" },
        }));
    }
    let (mut x, mut y, mut tallest) = (0, 0, 0);
    let mut placed = Vec::new();
    for (panel, id) in panels.iter().zip(1_u32..) {
        let height = if panel.look == Look::Number { 4 } else { 8 };
        if x + panel.width > COLUMNS {
            (x, y, tallest) = (0, y + tallest, 0);
        }
        placed.push(shown(
            panel,
            id,
            &source,
            json!({ "x": x, "y": y, "w": panel.width, "h": height }),
        ));
        x += panel.width;
        tallest = tallest.max(height);
    }
    json!({
        "uid": uid, "title": title, "tags": ["holdfast", "backup"], "schemaVersion": 39, "version": 1,
        "editable": true, "graphTooltip": 1, "refresh": "1m", "timezone": "",
        "time": { "from": "now-24h", "to": "now" },
        "annotations": { "list": [] }, "links": [],
        "templating": { "list": variables },
        "panels": placed,
    })
}

fn shown(panel: &Panel, id: u32, source: &Value, place: Value) -> Value {
    let instant = matches!(panel.look, Look::Number | Look::Table);
    let targets: Vec<Value> = panel
        .queries
        .iter()
        .zip('A'..)
        .map(|((query, legend), letter)| {
            json!({
                "refId": letter, "datasource": source, "expr": query, "legendFormat": legend,
                "instant": instant, "range": !instant,
                "format": if panel.look == Look::Table { "table" } else { "time_series" },
            })
        })
        .collect();
    let (kind, custom) = match panel.look {
        Look::Number => ("stat", json!({})),
        Look::Lines => ("timeseries", json!({ "fillOpacity": 0, "showPoints": "never" })),
        Look::Stack => (
            "timeseries",
            json!({ "fillOpacity": 30, "showPoints": "never", "stacking": { "mode": "normal" } }),
        ),
        Look::Table => ("table", json!({})),
    };
    json!({
        "id": id, "type": kind, "title": panel.title, "description": panel.about,
        "datasource": source, "gridPos": place, "targets": targets,
        "fieldConfig": { "defaults": { "unit": panel.unit, "min": 0, "custom": custom }, "overrides": [] },
        "options": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_fill_their_rows_and_none_lies_on_another() {
        for (name, dashboard) in all() {
            let panels = dashboard["panels"].as_array().expect("panels");
            let mut taken = std::collections::BTreeSet::new();
            for panel in panels {
                let at = |key: &str| panel["gridPos"][key].as_u64().expect(key);
                assert!(
                    at("x") + at("w") <= u64::from(COLUMNS),
                    "{name}: {}",
                    panel["title"]
                );
                for x in at("x")..at("x") + at("w") {
                    for y in at("y")..at("y") + at("h") {
                        assert!(taken.insert((x, y)), "{name}: {} lies on another", panel["title"]);
                    }
                }
            }
        }
    }
}
