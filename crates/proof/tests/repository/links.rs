//! Links and anchors of the documents resolve.

use std::{collections::BTreeSet, fs};

use crate::{files, none, root};

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept: String = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect();
    kept.replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && line.starts_with('#') {
            found.insert(anchor(line.trim_start_matches('#')));
        }
    }
    found
}

#[test]
fn every_link_and_anchor_of_the_documents_resolves() {
    let root = root();
    let mut places = Vec::new();
    for file in files(|path| path.ends_with(".md")) {
        for (at, _) in file.text.match_indices("](") {
            let target = file.text[at + 2..].split(')').next().unwrap();
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if path.is_empty() {
                root.join(&file.path)
            } else {
                root.join(&file.path).parent().unwrap().join(path)
            };
            let Ok(text) = fs::read_to_string(&there)
                .or_else(|error| if there.exists() { Ok(String::new()) } else { Err(error) })
            else {
                places.push(format!("{}: {target}", file.path));
                continue;
            };
            if !heading.is_empty() && !anchors(&text).contains(heading) {
                places.push(format!("{}: {target} (no such heading)", file.path));
            }
        }
    }
    none("broken links", &places);
}

#[test]
fn a_comment_in_a_code_block_is_no_anchor() {
    let found = anchors("# One `two`\n```sh\n# three\n```\n## Four, five\n");
    assert_eq!(found, ["four-five", "one-two"].map(str::to_owned).into());
}
