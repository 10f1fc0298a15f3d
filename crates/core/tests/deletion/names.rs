//! Names of Jobs, labels and locks.

use crate::support::*;
use holdfast_core::deletion::RepositoryKey;
use holdfast_core::deletion::names::{EmptyBatch, job_name, lane_lease_name, repository_label};

fn is_dns_label(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[test]
fn case_01_repositories_of_one_name_in_two_namespaces_and_of_two_kinds_differ() {
    let cluster = RepositoryKey::ClusterRepository { name: "nas".into() };
    assert!(nas() != other() && nas() != cluster && other() != cluster);
    let labels = [
        repository_label(&nas()),
        repository_label(&other()),
        repository_label(&cluster),
    ];
    assert!(labels[0] != labels[1] && labels[1] != labels[2] && labels[0] != labels[2]);
}

#[test]
fn case_02_a_long_name_gives_a_stable_label_that_differs_by_namespace() {
    let key = |namespace: &str| RepositoryKey::Repository {
        namespace: namespace.into(),
        name: "a.b".repeat(84),
    };
    let label = repository_label(&key("one"));
    assert!(is_dns_label(&label), "{label}");
    assert_eq!(label, repository_label(&key("one")));
    assert_ne!(label, repository_label(&key("two")));
    assert_eq!(
        repository_label(&nas()),
        "nas-dec45918",
        "contract across releases"
    );
}

#[test]
fn case_64_the_same_set_has_the_same_name_and_another_set_another() {
    let key = nas();
    let name = job_name(&key, &["b", "a", "c"]).unwrap();
    assert_eq!(name, job_name(&key, &["c", "b", "a"]).unwrap());
    assert_ne!(name, job_name(&key, &["a", "b"]).unwrap());
    assert_ne!(job_name(&key, &["ab", "c"]), job_name(&key, &["a", "bc"]));
    for repository in ["n", "nas", "UPPER.dots_and-dashes-", &"x".repeat(253), "---", "é"] {
        let key = RepositoryKey::ClusterRepository {
            name: repository.into(),
        };
        let name = job_name(&key, &["a"]).unwrap();
        assert!(is_dns_label(&name) && name.starts_with("snapdel-"), "{name}");
    }
    let long: Vec<String> = (0..200).map(|n| format!("{n:036}")).collect();
    assert!(is_dns_label(&job_name(&key, &long).unwrap()));
}

#[test]
fn case_65_an_empty_set_has_no_name() {
    assert_eq!(job_name::<&str>(&nas(), &[]), Err(EmptyBatch));
}

#[test]
fn the_lock_of_a_lane_is_named_by_engine_and_unique_id() {
    let name = lane_lease_name("Restic", "abc");
    assert!(is_dns_label(&name) && name.starts_with("holdfast-lane-"));
    assert_ne!(name, lane_lease_name("Kopia", "abc"));
    assert_ne!(name, lane_lease_name("Restic", "abd"));
}
