//! The page of the reasons of a Maintenance, from the enum that decisions are told in.
//!
//! Promise: every reason has a heading of its own, so that its word is an anchor.

use std::path::PathBuf;

use holdfast_core::maintenance::{Means, Reason};

use super::{Generated, MARKDOWN_HEAD};

/// `docs/reference/maintenance-reasons.md`.
pub fn page() -> Generated {
    let mut text = format!(
        "{MARKDOWN_HEAD}# Reasons of a Maintenance

One word for each: the reason of the conditions `Ready`, `Reconciling` and `Stalled`, of the events, and a heading on
this page. How maintenance works as a whole is in [maintenance.md](../maintenance.md).
"
    );
    for (means, title, intro) in [
        (Means::Ready, "It is Ready", "It runs, or runs when it is due."),
        (
            Means::Reconciling,
            "It waits",
            "What it needs is not there, or a due run is put off. It goes on by itself.",
        ),
        (Means::Stalled, "It is Stalled", "A person has to act."),
    ] {
        text.push_str(&format!("\n## {title}\n\n{intro}\n"));
        for reason in Reason::ALL.into_iter().filter(|r| r.means() == means) {
            text.push_str(&format!("\n### {}\n\n{}\n", reason.as_str(), reason.meaning()));
        }
    }
    Generated {
        path: PathBuf::from("docs/reference/maintenance-reasons.md"),
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
