//! The largest batch: it fits the message, and being killed in the middle of it loses nothing.

use crate::support::{Bench, batch, ids_in, member};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const MEMBERS: usize = 200;
const ROUNDS: usize = 20;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn killed_in_the_middle_and_run_again_all_are_confirmed() {
    let bench = Bench::new();
    let begun = Instant::now();
    let taken = bench.back_up(0..MEMBERS);
    println!("{MEMBERS} backups in one run: {:?}", begun.elapsed());
    let operation = batch(taken.iter().map(member).collect());
    let document = bench.document(operation.clone());
    let size = serde_json::to_string(&document).unwrap().len();
    assert!(size <= holdfast_protocol::WORK_LIMIT, "{size}");
    let repository = bench.path("repository");
    let full = bench.path("full");
    copy(&repository, &full);
    let mut partly = 0;
    for round in 0..ROUNDS {
        let mut child = bench.command(&document).stdout(Stdio::null()).spawn().unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        while ids_in(&repository).len() == MEMBERS && Instant::now() < patience {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let left = ids_in(&repository).len();
        println!("round {round}: killed with {left} of {MEMBERS} left");
        assert!(left < MEMBERS, "the mover never began to delete");
        let begun = Instant::now();
        let again = bench.run(operation.clone());
        println!("second run: {:?}", begun.elapsed());
        assert_eq!(again.code, Some(0), "{}", again.message);
        let letters = again.letters();
        assert_eq!(letters.len(), MEMBERS);
        assert_eq!(letters.matches('D').count(), left);
        assert_eq!(letters.matches('A').count(), MEMBERS - left);
        assert!(bench.ids().is_empty());
        partly += usize::from(left > 0);
        if partly >= 3 {
            return;
        }
        fs::remove_dir_all(&repository).unwrap();
        copy(&full, &repository);
    }
    assert!(partly > 0, "no kill hit the middle of a batch in {ROUNDS} rounds");
}
