//! The page of Account's words: states, reasons, and what the known drivers do.
//!
//! Promise: every reason has a heading of its own, so that its word is an anchor. The matches have no catch-all: a
//! new reason does not compile until the page can say what it means.

use std::path::PathBuf;

use holdfast_core::quota::capability::TABLE;
use holdfast_core::quota::enumerate::HeldReason;
use holdfast_core::quota::gate::RefuseReason;
use holdfast_core::quota::ledger::Start;
use holdfast_core::quota::publish::WarningReason;
use holdfast_core::quota::{Reason, RemoveReason};

use super::{Generated, MARKDOWN_HEAD, cell};

/// `docs/reference/account-reasons.md`.
pub fn page() -> Generated {
    let mut text = format!(
        "{MARKDOWN_HEAD}# Account: reasons and drivers

One word for each reason. The same word is in the record, the event, the metric's label and a heading on this page. How
storage is counted as a whole is in [account.md](../account.md).
"
    );
    section(
        &mut text,
        "Why a record is in its state",
        "`status.reason` of an Artifact.",
        Reason::ALL.iter().map(|r| (r.as_str(), capital(r.sentence()))),
    );
    section(
        &mut text,
        "Why a record is deleted",
        "A run's record ends with one of these; it was never charged. One that was released is forgotten in the end.",
        RemoveReason::ALL
            .iter()
            .map(|r| (r.as_str(), removed(*r).to_owned())),
    );
    section(
        &mut text,
        "Why a BackupJob is refused",
        "The answer is 403 with a sentence. A name that exists already is answered 409.",
        RefuseReason::ALL
            .iter()
            .map(|r| (r.as_str(), refused(*r).to_owned())),
    );
    section(
        &mut text,
        "Why a release waits for an administrator",
        "`status.pendingRelease.reason` of a BackupStore.",
        HeldReason::ALL.iter().map(|r| (r.as_str(), held(*r).to_owned())),
    );
    section(
        &mut text,
        "Keys of a quota that do not do what they look like",
        "Each is a Warning event on the ResourceQuota.",
        WarningReason::ALL
            .iter()
            .map(|r| (r.as_str(), warned(*r).to_owned())),
    );
    section(
        &mut text,
        "What is told when an operator begins to lead",
        "Only the last one needs a person.",
        Start::ALL.iter().map(|r| (r.as_str(), started(*r).to_owned())),
    );
    text.push_str(
        "
## Known drivers

Kinds of the group `strategy.backups.cozystack.io`. Every other kind has the careful values until it declares itself.

| kind | deletion | size | pruning | identity | grows after Ready | enumerable | a run counts for at most | because |
|---|---|---|---|---|---|---|---|---|
",
    );
    for row in TABLE {
        let c = row.capabilities;
        let limit = row
            .deadline_seconds
            .map_or_else(|| "24 h".to_owned(), |seconds| format!("{} min", seconds / 60));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {} | {limit} | {} |\n",
            row.kind,
            c.deletion.as_str(),
            c.size.as_str(),
            c.pruning.as_str(),
            c.identity.as_str(),
            if c.grows_after_ready { "yes" } else { "no" },
            c.enumerable.as_str(),
            cell(row.evidence),
        ));
    }
    Generated {
        path: PathBuf::from("docs/reference/account-reasons.md"),
        content: text,
    }
}

fn section(
    text: &mut String,
    title: &str,
    intro: &str,
    reasons: impl IntoIterator<Item = (&'static str, String)>,
) {
    text.push_str(&format!("\n## {title}\n\n{intro}\n"));
    for (word, meaning) in reasons {
        text.push_str(&format!("\n### {word}\n\n{meaning}\n"));
    }
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}

fn removed(reason: RemoveReason) -> &'static str {
    match reason {
        RemoveReason::Recorded => "The run's Backup is there and has a record.",
        RemoveReason::RunFailed => {
            "The BackupJob failed, and the driver's own object does not say that the run goes on."
        }
        RemoveReason::RunOver => "The driver's own object says that the run failed.",
        RemoveReason::DiedWithJob => "The BackupJob was deleted, and the run was a pod that it owned.",
        RemoveReason::DeadlinePassed => {
            "The driver's deadline, or a day for drivers without one, has passed."
        }
        RemoveReason::NeverTakenUp => {
            "No controller took the BackupJob up within a day. An event on it says so."
        }
        RemoveReason::Replaced => {
            "The run succeeded without a Backup of its own; what it wrote has another record."
        }
        RemoveReason::Forgotten => "It was released a week ago, and no Backup refers to it.",
    }
}

fn refused(reason: RefuseReason) -> &'static str {
    match reason {
        RefuseReason::ExceededQuota => "A limit is reached. Free space, or ask for a higher limit.",
        RefuseReason::SizeUnknown => {
            "Under a limit of size, a run of the same application is under way and no size of an earlier one is known. \
             Try again when it has ended."
        }
        RefuseReason::NotYetCounted => {
            "The operator has just started and has not counted yet. Try again in a minute."
        }
        RefuseReason::LedgerStale => {
            "A watch of the API server has told nothing for 90 seconds, or what was seen could not be recorded for a minute. Try \
             again; if it lasts, look at the operator's log."
        }
        RefuseReason::TakingOver => {
            "Another replica has just taken over and waits for a minute for what the last one admitted."
        }
        RefuseReason::LimitUnreadable => "The limit in the quota is no number that can be kept.",
    }
}

fn held(reason: HeldReason) -> &'static str {
    match reason {
        HeldReason::ManyRecords => "More than ten records are missing from two complete listings in a row.",
        HeldReason::HalfTheBytes => {
            "What is missing is more than half the bytes charged in the store's scope."
        }
        HeldReason::EmptyListing => "The listing saw no object at all.",
    }
}

fn warned(reason: WarningReason) -> &'static str {
    match reason {
        WarningReason::RequestsPrefix => {
            "With `requests.` it is a dimension of Pods: it limits no backups, and Pods are refused while it has no figure."
        }
        WarningReason::LimitsPrefix => "With `limits.` it limits nothing.",
        WarningReason::NativeBackupCount => {
            "It refuses the Backup of a run that has ended, and nothing refers to the run's bytes then."
        }
        WarningReason::UnknownKey => "It has the prefix of our dimensions and is none of them.",
        WarningReason::ScopedQuota => "In a quota with scopes our dimensions are neither kept nor published.",
    }
}

fn started(start: Start) -> &'static str {
    match start {
        Start::First => {
            "There was no ledger before. Live Backups are counted; what was deleted before is not."
        }
        Start::Resumed => "The records are there.",
        Start::Rebuilt => {
            "There was a ledger and its records are lost. Live Backups are counted anew, and retained begins at zero."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_one_heading() {
        let page = page().content;
        let headings: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("### "))
            .collect();
        let distinct: BTreeSet<&str> = headings.iter().copied().collect();
        assert_eq!(
            headings.len(),
            distinct.len(),
            "a word stands for two reasons: {headings:?}"
        );
        for reason in Reason::ALL {
            assert!(distinct.contains(reason.as_str()), "{}", reason.as_str());
        }
    }
}
