//! Whose snapshots a Restore gets from a ClusterRepository, by a name that was typed and by one that we recorded.

use crate::cluster_repository::{SHARED, shared};
use crate::story::{JOBS, Story, snapshot_path};
use holdfast_operator::protect::restore;
use holdfast_operator::world::keys::ObjectKey;
use serde_json::{Value, json};

fn policy_path() -> String {
    snapshot_path("p").replace("/snapshots/", "/snapshotpolicies/")
}

fn restore_path() -> String {
    snapshot_path("back").replace("/snapshots/", "/restores/")
}

impl Story {
    fn asks_for(&self, repository: Value, source: Value) {
        let mut spec = json!({ "source": source, "target": { "pvcRef": { "name": "data" } } });
        if !repository.is_null() {
            spec["repository"] = repository;
        }
        self.server.put(
            &restore_path(),
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Restore",
                "metadata": { "name": "back", "namespace": "backup", "uid": "r-uid", "generation": 1 },
                "spec": spec,
            }),
        );
    }

    /// Its condition after some passes, and whether a mover was asked for anything.
    async fn looked_for(&self) -> (String, String, bool) {
        let key = ObjectKey::new("backup", "back");
        for _ in 0..3 {
            restore::pass(&self.ctx, &key).await.expect("a pass");
        }
        let back = self.server.get(&restore_path()).unwrap();
        let (_, reason, message) = self.condition(&back, "Ready");
        (reason, message, !self.server.under(JOBS).is_empty())
    }
}

fn vault() -> Value {
    json!({ "kind": "ClusterRepository", "name": "shared" })
}

/// A story of a ClusterRepository that other clusters write to as well; this one is `lab`.
fn lab() -> Story {
    let story = shared(10);
    story.server.edit(SHARED, |r| {
        r["spec"]["identityDefaults"] = json!({ "cluster": "lab" })
    });
    story.run("a");
    story.server.remove(&snapshot_path("a"));
    story
}

#[tokio::test]
async fn a_policy_of_another_repository_says_no_name_of_another_cluster() {
    // Its repository need not be there, and in one of the tenant's own a policy may say any name.
    for repository in [json!({ "name": "nothing" }), json!({ "name": "nas" })] {
        let story = lab();
        story.server.edit(&policy_path(), |p| {
            p["spec"]["repository"] = repository.clone();
            p["spec"]["identity"] = json!({ "username": "db", "hostname": "backup.prod" });
        });
        story.asks_for(vault(), json!({ "fromPolicy": { "name": "p" } }));
        let (reason, message, asked) = story.looked_for().await;
        assert_eq!(reason, "IdentityNotAllowed", "{message}");
        assert!(!asked, "{repository}");
        // Also where it stands recorded already: it is asked again before anything is written.
        story.asks_for(vault(), json!({ "fromPolicy": { "name": "p" } }));
        story.server.edit(&restore_path(), |r| {
            r["status"] = json!({ "phase": "Restoring", "observedGeneration": 1, "resolved": {
                "resolution": "Snapshot", "kopiaSnapshotID": "k", "repository": vault(), "uniqueId": "id",
                "identity": { "username": "db", "hostname": "backup.prod", "sourcePath": "/pvc/data" },
                "pinnedAt": "2026-01-01T00:00:00Z",
            } });
        });
        let (reason, message, asked) = story.looked_for().await;
        assert_eq!(reason, "IdentityNotAllowed", "{message}");
        assert!(!asked, "{repository}");
        // Under the name of this cluster it is the tenant's.
        story.server.edit(&policy_path(), |p| {
            p["spec"]["identity"] = json!({ "username": "db", "hostname": "backup.lab" });
        });
        story.asks_for(vault(), json!({ "fromPolicy": { "name": "p" } }));
        let (reason, message, asked) = story.looked_for().await;
        assert!(asked, "{repository}: {reason}: {message}");
    }
}

#[tokio::test]
async fn a_repository_that_is_not_there_yet_fails_no_restore_for_good() {
    for source in [
        json!({ "identity": { "username": "p", "hostname": "backup.lab" } }),
        json!({ "fromPolicy": { "name": "p" } }),
    ] {
        let story = lab();
        story.server.edit(&policy_path(), |p| {
            p["spec"]["repository"] = vault();
            p["spec"]["identity"] = json!({ "hostname": "backup.lab" });
        });
        let late = story.server.get(SHARED).unwrap();
        story.server.remove(SHARED);
        story.asks_for(vault(), source);
        let (reason, message, asked) = story.looked_for().await;
        assert_eq!(reason, "RepositoryNotFound", "{message}");
        assert!(!asked);
        story.server.put(SHARED, late);
        let (reason, message, asked) = story.looked_for().await;
        assert!(asked, "{reason}: {message}");
    }
}
