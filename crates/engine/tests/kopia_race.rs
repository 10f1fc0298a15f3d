//! The race that Kopia loses: deletions while others write (`docs/design.md` 3.6). Needs the program: `KOPIA_BIN`.
//!
//! The gate here does what the operator's does: while a batch runs no backup starts, and those that run end first.
//! Without it, runs were seen in which every deletion succeeded and all forty snapshots stayed.
#![allow(clippy::unwrap_used, missing_docs)]

mod person;

use holdfast_engine::kopia::Kopia;
use holdfast_engine::{Engine, Listing, Password};
use person::{PASSWORD, Person, program};
use std::fs;
use std::path::Path;
use std::sync::RwLock;
use std::thread;

const ROUNDS: usize = 10;
const DELETIONS: usize = 40;
const BACKUPS: usize = 24;

fn list(repository: &Path) -> Listing {
    let connected = Kopia::default().connect(repository, &Password::new(PASSWORD));
    connected.unwrap().list().unwrap()
}

#[test]
fn no_deletion_is_lost_while_backups_are_wanted() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let repository = dir.path().join("repository");
    Kopia::default()
        .create(&repository, &Password::new(PASSWORD))
        .unwrap();
    let sources: Vec<String> = (0..DELETIONS)
        .map(|number| {
            let source = dir.path().join(format!("source-{number}"));
            fs::create_dir(&source).unwrap();
            fs::write(source.join("file"), format!("content {number}")).unwrap();
            source.to_str().unwrap().to_owned()
        })
        .collect();
    let people: Vec<Person<'_>> = (0..BACKUPS).map(|_| Person::at(&program, &repository)).collect();
    people[0].ok(&["policy", "set", "--global", "--keep-latest=2147483647"]);
    let mut taken = 0;
    for round in 0..ROUNDS {
        let old: Vec<String> = list(&repository).snapshots.into_iter().map(|s| s.id).collect();
        assert_eq!(
            old.len(),
            taken,
            "round {round}: what was deleted before came back"
        );
        let create: Vec<&str> = ["snapshot", "create"]
            .into_iter()
            .chain(sources.iter().map(String::as_str))
            .collect();
        people[0].ok(&create);
        let doomed: Vec<String> = list(&repository)
            .snapshots
            .into_iter()
            .map(|s| s.id)
            .filter(|id| !old.contains(id))
            .collect();
        assert_eq!(doomed.len(), DELETIONS);

        let gate = RwLock::new(());
        let confirmed = thread::scope(|scope| {
            for (number, person) in people.iter().enumerate() {
                let (gate, source) = (&gate, &sources[number]);
                scope.spawn(move || {
                    let _backing_up = gate.read().unwrap();
                    person.ok(&["snapshot", "create", source]);
                });
            }
            let deleting = scope.spawn(|| {
                let _alone = gate.write().unwrap();
                let connected = Kopia::default()
                    .connect(&repository, &Password::new(PASSWORD))
                    .unwrap();
                connected.delete(&doomed).unwrap();
                let after = connected.list().unwrap();
                doomed
                    .iter()
                    .filter(|id| !after.contains(id))
                    .cloned()
                    .collect::<Vec<_>>()
            });
            deleting.join().unwrap()
        });
        taken += BACKUPS;

        let now = list(&repository);
        let back: Vec<&String> = confirmed.iter().filter(|id| now.contains(id)).collect();
        assert!(back.is_empty(), "round {round}: confirmed and listed: {back:?}");
        let left: Vec<&String> = doomed.iter().filter(|id| now.contains(id)).collect();
        assert!(left.is_empty(), "round {round}: left behind: {left:?}");
        assert_eq!(now.snapshots.len(), taken, "round {round}: every backup is there");
    }
}
