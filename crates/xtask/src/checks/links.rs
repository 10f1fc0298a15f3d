//! The links of the documentation lead somewhere.
//!
//! Promise: the file of every relative link exists, and so does the heading, if it names one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Fails with a sentence if a relative link of a Markdown file of the checkout leads nowhere.
pub fn links_lead_somewhere(workspace: &Path) -> Result<()> {
    let mut files = Vec::new();
    for place in ["README.md", "CONTRIBUTING.md", "docs", "examples", "charts"] {
        markdown(&workspace.join(place), &mut files)?;
    }
    let mut broken = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        for link in relative_links(&text) {
            if !leads_somewhere(&file, link) {
                let shown = file.strip_prefix(workspace).unwrap_or(&file).display();
                broken.push(format!("{link} in {shown}"));
            }
        }
    }
    if !broken.is_empty() {
        bail!(
            "links that lead nowhere: {}; correct or remove them",
            broken.join(", ")
        );
    }
    Ok(())
}

/// All Markdown files at or below `place`.
fn markdown(place: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if place.is_dir() {
        for entry in fs::read_dir(place)? {
            markdown(&entry?.path(), files)?;
        }
    } else if place.extension().is_some_and(|extension| extension == "md") {
        files.push(place.to_path_buf());
    }
    Ok(())
}

/// The targets of inline links that are neither addresses nor mail.
fn relative_links(text: &str) -> Vec<&str> {
    text.match_indices("](")
        .filter_map(|(start, open)| text[start + open.len()..].split([')', '\n']).next())
        .filter(|link| !link.contains(':') && !link.is_empty())
        .collect()
}

fn leads_somewhere(file: &Path, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => file.to_path_buf(),
        path => file.parent().unwrap_or(file).join(path),
    };
    if anchor.is_empty() {
        return target.exists();
    }
    fs::read_to_string(target).is_ok_and(|text| {
        text.lines()
            .filter_map(|line| line.strip_prefix('#'))
            .any(|heading| anchor_of(heading) == anchor)
    })
}

/// The anchor that a heading gets.
fn anchor_of(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("docs/page.md");
        fs::create_dir_all(folder.path().join("docs")).expect("made");
        let good = "# The `page`: one\n[a](page.md) [b](../docs/page.md#the-page-one) [c](#the-page-one) [d](https://x.y)";
        fs::write(&page, good).expect("written");
        for other in ["README.md", "CONTRIBUTING.md", "examples.md", "charts.md"] {
            fs::write(folder.path().join(other), "").expect("written");
        }
        links_lead_somewhere(folder.path()).expect("all lead somewhere");
        fs::write(&page, format!("{good} [e](gone.md) [f](#gone)")).expect("written");
        let error = links_lead_somewhere(folder.path())
            .expect_err("two lead nowhere")
            .to_string();
        assert!(
            error.contains("gone.md in docs/page.md, #gone in docs/page.md"),
            "{error}"
        );
    }
}
