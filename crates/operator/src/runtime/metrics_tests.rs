use super::*;

#[test]
fn the_exported_names_are_the_ones_dashboards_use() {
    let metrics = Metrics::new();
    metrics.reconciled(
        Kind::Snapshot,
        Duration::from_millis(3),
        Some(ErrorClass::Transient),
    );
    metrics.deletion("a", DeletionOutcome::Deleted);
    metrics.deletion("a", DeletionOutcome::Retained);
    metrics.deletion("a", DeletionOutcome::Orphaned);
    metrics.deletion("a", DeletionOutcome::CascadeRetained);
    metrics.deletion("a", DeletionOutcome::PolicyCascadeRetained);
    metrics.deletion_failed("a");
    metrics.batch_job(BatchOutcome::Succeeded);
    metrics.batch_job(BatchOutcome::Failed);
    metrics.batch_members(MemberOutcome::Deleted, 200);
    metrics.batch_members(MemberOutcome::Failed, 2);
    metrics.wave(RepositoryKind::ClusterRepository, "main", 700, 690);
    metrics.wave(RepositoryKind::Unknown, "unknown", 1, 0);
    metrics.backup(BackupResult::Succeeded, "a", "nightly");
    metrics.scheduled();
    metrics.restored(BackupResult::Failed, 7.0);
    metrics.leader(true);
    let text = metrics.text();
    for line in [
        "kopiur_controller_reconciliations_total{kind=\"Snapshot\"} 1",
        "kopiur_controller_reconcile_errors_total{kind=\"Snapshot\",class=\"transient\"} 1",
        "kopiur_controller_reconcile_duration_seconds_count{kind=\"Snapshot\"} 1",
        "kopiur_restore_duration_seconds_count{result=\"failed\"} 1",
        "kopiur_snapshot_deletions_total{namespace=\"a\",outcome=\"deleted\"} 1",
        "kopiur_snapshot_deletions_total{namespace=\"a\",outcome=\"retained\"} 1",
        "kopiur_snapshot_deletions_total{namespace=\"a\",outcome=\"orphaned\"} 1",
        "kopiur_snapshot_deletions_total{namespace=\"a\",outcome=\"cascade_retained\"} 1",
        "kopiur_snapshot_deletions_total{namespace=\"a\",outcome=\"policy_cascade_retained\"} 1",
        "kopiur_snapshots_cascade_retained_total{namespace=\"a\"} 1",
        "kopiur_snapshots_policy_cascade_retained_total{namespace=\"a\"} 1",
        "kopiur_orphaned_snapshots_total{namespace=\"a\"} 1",
        "kopiur_snapshot_deletion_failures_total{namespace=\"a\"} 1",
        "kopiur_snapshot_delete_batch_jobs_total{outcome=\"succeeded\"} 1",
        "kopiur_snapshot_delete_batch_jobs_total{outcome=\"failed\"} 1",
        "kopiur_snapshot_delete_batch_members_total{outcome=\"deleted\"} 200",
        "kopiur_snapshot_delete_batch_members_total{outcome=\"failed\"} 2",
        "kopiur_snapshot_deletions_pending_external{repo_kind=\"ClusterRepository\",repo_name=\"main\"} 700",
        "kopiur_snapshot_deletions_pending_external{repo_kind=\"unknown\",repo_name=\"unknown\"} 1",
        "kopiur_snapshot_deletions_held{repo_kind=\"ClusterRepository\",repo_name=\"main\"} 690",
        "kopiur_snapshots_completed_total{result=\"succeeded\",namespace=\"a\",policy=\"nightly\"} 1",
        "kopiur_schedule_snapshots_created_total 1",
        "holdfast_leader 1",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing from\n{text}"
        );
    }
}

#[test]
fn the_gauges_of_a_repository_that_went_are_gone() {
    let metrics = Metrics::new();
    metrics.wave(RepositoryKind::Repository, "main", 3, 0);
    metrics.forget_repository(RepositoryKind::Repository, "main");
    assert!(!metrics.text().contains("repo_name"));
}

#[test]
fn a_standby_says_nothing_about_what_is_held() {
    let metrics = Metrics::new();
    metrics.wave(RepositoryKind::Repository, "main", 3, 3);
    metrics.leader(true);
    assert!(metrics.text().contains("repo_name"));
    metrics.leader(false);
    assert!(!metrics.text().contains("repo_name"));
}

#[test]
fn a_label_value_cannot_break_out_of_its_quotes() {
    let metrics = Metrics::new();
    metrics.wave(RepositoryKind::Repository, "a\"} 1\nb", 3, 0);
    assert!(metrics.text().contains("repo_name=\"a\\\"} 1\\nb\"} 3"));
}
