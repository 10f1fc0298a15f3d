//! The page of refused fields, from the tables the definitions are made from.

use std::path::PathBuf;

use holdfast_api::unsupported::{self, Unsupported};

use super::{Generated, MARKDOWN_HEAD, cell};

/// `docs/reference/unsupported-fields.md`.
pub fn page() -> Generated {
    let mut text = format!(
        "{MARKDOWN_HEAD}# Fields that this release refuses

Every field of the interface is known. One that is not supported yet is refused when the object is applied, with a
sentence that names it; none is accepted and ignored.
"
    );
    let kinds: [(&str, &str, &[Unsupported]); 7] = [
        ("Repository", "", unsupported::REPOSITORY),
        (
            "ClusterRepository",
            "What a Repository refuses.\n",
            unsupported::CLUSTER_REPOSITORY,
        ),
        ("SnapshotPolicy", "", unsupported::POLICY),
        ("SnapshotSchedule", "", unsupported::SCHEDULE),
        ("Snapshot", "", unsupported::SNAPSHOT),
        ("Restore", "", unsupported::RESTORE),
        ("Maintenance", "", unsupported::MAINTENANCE),
    ];
    for (kind, before, fields) in kinds {
        text.push_str(&format!("\n## {kind}\n\n{before}"));
        if !fields.is_empty() {
            text.push_str("| field | instead |\n|---|---|\n");
        }
        for field in fields {
            text.push_str(&format!("| `{}` | {} |\n", field.path(), cell(field.instead)));
        }
    }
    text.push_str("\n## Rules\n\nObjects are also refused by these rules, in these words:\n\n");
    for (kind, message) in rules() {
        text.push_str(&format!("- {kind}: {}\n", cell(message)));
    }
    Generated {
        path: PathBuf::from("docs/reference/unsupported-fields.md"),
        content: text,
    }
}

fn rules() -> Vec<(&'static str, &'static str)> {
    use holdfast_api::crd::rules;
    let kinds = [
        ("Repository and ClusterRepository", rules::REPOSITORY),
        ("Repository", rules::NAMESPACED_REPOSITORY),
        ("ClusterRepository", rules::CLUSTER_REPOSITORY),
        ("SnapshotPolicy", rules::POLICY),
        ("SnapshotSchedule", rules::SCHEDULE),
        ("Snapshot", rules::SNAPSHOT),
        ("Restore", rules::RESTORE),
        ("Maintenance", rules::MAINTENANCE),
        ("Artifact", rules::ARTIFACT),
        ("BackupStore", rules::STORE),
    ];
    kinds
        .into_iter()
        .flat_map(|(kind, rules)| rules.iter().map(move |rule| (kind, rule.message)))
        .collect()
}
