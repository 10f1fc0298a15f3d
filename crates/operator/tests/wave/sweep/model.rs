//! The repositories, and the mover that works on them.
//!
//! **Promises.** A mover does what its work document says: it opens the repository of the recorded unique id, deletes what is there,
//! and answers one letter for each member, `D` only for what a fresh look no longer finds. What it is to do wrong is
//! said beforehand, by snapshot id or by run.

use holdfast_protocol::WORK_ANNOTATION;
use holdfast_protocol::work::{Operation, WorkDocument, cut};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How a whole run goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The work is done, the message is lost.
    MessageLost,
    /// Killed after half of the members, without a message.
    KilledHalfWay,
    /// The backend cannot be reached; nothing is touched.
    Unreachable,
    /// Its container never starts.
    NeverStarts,
}

/// What a mover leaves.
pub struct Left {
    pub well: bool,
    pub message: String,
}

#[derive(Default)]
pub struct Model {
    /// Snapshot ids by unique id of the repository.
    pub stores: BTreeMap<String, BTreeSet<String>>,
    /// Ids that are answered with a letter, so many times.
    pub letters: BTreeMap<String, (char, u32)>,
    /// Trouble of the n-th run.
    pub trouble: BTreeMap<usize, Trouble>,
    pub runs: usize,
    /// Ids that an answer proved gone.
    pub proven: BTreeSet<String>,
}

impl Model {
    pub fn add(&mut self, unique_id: &str, id: &str) {
        self.stores
            .entry(unique_id.to_owned())
            .or_default()
            .insert(id.to_owned());
    }

    pub fn has(&self, id: &str) -> bool {
        self.stores.values().any(|ids| ids.contains(id))
    }

    /// A run begins: does it come to anything?
    pub fn begin(&mut self) -> Option<Trouble> {
        self.runs += 1;
        self.trouble.get(&(self.runs - 1)).copied()
    }

    /// Carries out the work document of a Job.
    pub fn work(&mut self, job: &Value, trouble: Option<Trouble>) -> Left {
        let text = &job["spec"]["template"]["metadata"]["annotations"][WORK_ANNOTATION];
        let document: WorkDocument = serde_json::from_str(text.as_str().unwrap()).unwrap();
        let Operation::DeleteBatch { members, kept } = document.operation else {
            unreachable!("only deletions are modelled");
        };
        let unique_id = document.repository.unique_id.unwrap();
        let none = Left {
            well: false,
            message: String::new(),
        };
        let upto = match trouble {
            Some(Trouble::Unreachable) => {
                let error = json!({ "class": "BackendUnreachable", "message": "no route" });
                let result = json!({ "batch": { "letters": "" } });
                let message = json!({ "version": 1, "error": error, "result": result });
                return Left {
                    well: false,
                    message: message.to_string(),
                };
            }
            Some(Trouble::NeverStarts) => return none,
            Some(Trouble::KilledHalfWay) => members.len().div_ceil(2),
            Some(Trouble::MessageLost) | None => members.len(),
        };
        let mut letters = String::new();
        // As the mover does: a prune is carried out only if what retention kept is in the same listing.
        let listed: Vec<String> = self
            .stores
            .get(&unique_id)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let is_listed = |id: &String| listed.iter().any(|known| cut(known) == id);
        for member in members.iter().take(upto) {
            let justified = member.justified_by.is_none_or(|group| {
                kept.get(group as usize)
                    .is_some_and(|ids| ids.iter().all(is_listed))
            });
            letters.push(if justified {
                match self.delete(&unique_id, &member.snapshot_id) {
                    'A' if !member.seen_here => 'N',
                    letter => letter,
                }
            } else {
                'V'
            });
        }
        if trouble.is_some() {
            return none;
        }
        for (member, letter) in members.iter().zip(letters.chars()) {
            if matches!(letter, 'D' | 'A') {
                self.proven.insert(member.snapshot_id.clone());
            }
        }
        let well = letters.chars().all(|l| matches!(l, 'D' | 'A'));
        let mut message =
            json!({ "version": 1, "uniqueId": unique_id, "result": { "batch": { "letters": letters } } });
        if !well {
            message["error"] = json!({ "class": "OperationFailed", "message": "disk full" });
        }
        Left {
            well,
            message: message.to_string(),
        }
    }

    fn delete(&mut self, unique_id: &str, id: &str) -> char {
        if let Some((letter, times)) = self.letters.get_mut(id)
            && *times > 0
        {
            *times -= 1;
            return *letter;
        }
        let there = self.stores.get_mut(unique_id).is_some_and(|ids| ids.remove(id));
        if there { 'D' } else { 'A' }
    }
}
