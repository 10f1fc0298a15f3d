use super::*;
use holdfast_protocol::outcome::{Failure, OperationResult, Outcome};

fn read(unique_id: &str, letters: Option<&str>, class: Option<FailureClass>) -> Read {
    Read::Outcome {
        exited_well: class.is_none(),
        outcome: Box::new(Outcome {
            version: holdfast_protocol::VERSION,
            unique_id: Some(unique_id.to_owned()),
            error: class.map(|class| Failure {
                class,
                message: "disk full".to_owned(),
            }),
            result: letters.map_or(OperationResult::None, |letters| OperationResult::Batch {
                missing: Vec::new(),
                letters: letters.to_owned(),
            }),
        }),
    }
}

fn letters(verdict: &Verdict) -> Vec<Letter> {
    match verdict {
        Verdict::Members { results, .. } => results.iter().map(|r| r.letter).collect(),
        Verdict::Repository { .. } => Vec::new(),
    }
}

fn is_repository(verdict: &Verdict, word: &str) -> bool {
    match verdict {
        Verdict::Members { .. } => false,
        Verdict::Repository { reason, .. } => reason == word,
    }
}

#[test]
fn an_absent_id_that_was_never_recorded_here_confirms_nothing_and_is_no_trouble_of_the_repository() {
    let verdict = judge(1, "id", &read("id", Some("N"), None));
    assert_eq!(letters(&verdict), [Letter::NeverSeen]);
    let Verdict::Members { results, .. } = verdict else {
        panic!("a member's")
    };
    assert!(results[0].why.contains("may be in another one"));
}

#[test]
fn each_member_has_its_own_result() {
    let verdict = judge(
        3,
        "id",
        &read("id", Some("DFA"), Some(FailureClass::OperationFailed)),
    );
    assert_eq!(
        letters(&verdict),
        vec![Letter::Deleted, Letter::Failed, Letter::Absent]
    );
    let Verdict::Members { results, .. } = verdict else {
        unreachable!()
    };
    assert_eq!(results[1].why, "disk full");
    assert_eq!(results[0].why, "");
}

#[test]
fn an_unreadable_outcome_confirms_nothing() {
    let verdict = judge(1, "id", &Read::Unreadable("killed".into()));
    assert!(is_repository(&verdict, "NoResult"));
}

#[test]
fn letters_of_another_length_confirm_nothing() {
    assert!(is_repository(
        &judge(3, "id", &read("id", Some("DD"), None)),
        "NoResult"
    ));
}

#[test]
fn letters_of_another_repository_confirm_nothing() {
    let verdict = judge(2, "id", &read("other", Some("DD"), None));
    assert!(is_repository(&verdict, "RepositoryReplaced"));
}

#[test]
fn a_repository_that_cannot_be_written_counts_against_no_member() {
    let verdict = judge(
        2,
        "id",
        &read("id", Some("FF"), Some(FailureClass::BackendUnreachable)),
    );
    assert!(is_repository(&verdict, "BackendUnreachable"));
    let one_worked = judge(
        2,
        "id",
        &read("id", Some("FD"), Some(FailureClass::BackendUnreachable)),
    );
    assert_eq!(letters(&one_worked), vec![Letter::Failed, Letter::Deleted]);
    let its_own = judge(
        2,
        "id",
        &read("id", Some("FF"), Some(FailureClass::OperationFailed)),
    );
    assert_eq!(letters(&its_own).len(), 2);
}
