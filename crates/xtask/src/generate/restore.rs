//! The page of the reasons of a Restore, from the enum that decisions are told in.
//!
//! Promise: every reason has a heading of its own, so that its word is an anchor.

use std::path::PathBuf;

use holdfast_core::restore::{Means, Reason};

use super::{Generated, MARKDOWN_HEAD};

/// `docs/reference/restore-reasons.md`.
pub fn page() -> Generated {
    let mut text = format!(
        "{MARKDOWN_HEAD}# Reasons of a Restore

One word for each: the reason of the conditions `Ready`, `Reconciling` and `Stalled`, of the event at the end, and a
heading on this page. How restoring works as a whole is in [restore.md](../restore.md).
"
    );
    for (means, title, intro) in [
        (
            Means::Waits,
            "It waits",
            "Phase Pending or Restoring. It goes on by itself when the wait is over.",
        ),
        (Means::Runs, "It runs", "Phase Resolving or Restoring."),
        (Means::Done, "It is done", "Phase Completed."),
        (
            Means::Failed,
            "It failed",
            "Phase Failed, with a Warning event. It is not tried again: make a new Restore, or with the target populator a new claim.",
        ),
    ] {
        text.push_str(&format!("\n## {title}\n\n{intro}\n"));
        for reason in Reason::ALL.into_iter().filter(|r| r.means() == means) {
            text.push_str(&format!("\n### {}\n\n{}\n", reason.as_str(), reason.meaning()));
        }
    }
    Generated {
        path: PathBuf::from("docs/reference/restore-reasons.md"),
        content: text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_heading() {
        let page = page().content;
        for reason in Reason::ALL {
            let heading = format!("### {}", reason.as_str());
            assert_eq!(
                page.lines().filter(|line| *line == heading).count(),
                1,
                "{reason:?}"
            );
        }
    }
}
