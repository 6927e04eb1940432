//! Checks of the repository: rules of the code, and that the documents name only what exists.
//!
//! # Layout
//!
//! - `client_docs`: the SQL of docs/clients/
//! - `columns`: the width of Markdown lines
//! - `glossary`: words that names must not use
//! - `guarantees`: docs/guarantees.md names every proof
//! - `links`: links and anchors of the documents
//! - `names`: files, tests, SQL objects, settings, metrics, variables and commands that the documents name
//! - `readme`: the SQL and the commands of README.md
//! - `sql`: where SQL text may stand, and what the schema's functions must have
//! - `test_rules`: no ignored test, and no test that sleeps
#![expect(clippy::unwrap_used, reason = "a test that cannot read the repository has failed")]

mod client_docs;
mod columns;
mod glossary;
mod guarantees;
mod links;
mod names;
mod readme;
mod sql;
mod test_rules;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) struct File {
    /// Below the root of the repository, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The text files of the repository whose path passes.
pub(crate) fn files(passes: impl Fn(&str) -> bool) -> Vec<File> {
    fn walk(folder: &Path, root: &Path, passes: &dyn Fn(&str) -> bool, found: &mut Vec<File>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            // In a second working tree .git is a file.
            if matches!(name.as_str(), ".git" | "target") {
                continue;
            }
            // The schema is linked into a crate: its files count once.
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                walk(&path, root, passes, found);
                continue;
            }
            let below = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if passes(&below)
                && let Ok(text) = fs::read_to_string(&path)
            {
                found.push(File { path: below, text });
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, &passes, &mut found);
    assert!(!found.is_empty(), "a check of no file checks nothing");
    found
}

/// Fails with every place that was found, so that one run shows all of them.
pub(crate) fn none(what: &str, places: &[String]) {
    assert!(places.is_empty(), "{what}:\n  {}", places.join("\n  "));
}

/// The lines of the files that are wrong, as `path:line: text`.
pub(crate) fn lines(files: &[File], is_wrong: impl Fn(&File, &str) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            if is_wrong(file, line) {
                places.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    places
}

pub(crate) fn is_sql(path: &str) -> bool {
    path.starts_with("schema/") && path.ends_with(".sql")
}

pub(crate) fn is_rust(path: &str) -> bool {
    path.starts_with("crates/") && path.ends_with(".rs")
}

/// The documents for users and contributors.
pub(crate) fn is_document(path: &str) -> bool {
    path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/") || path == "schema/README.md")
}

/// The text between the fences of a Markdown file: the language, the line of the fence, and the content.
pub(crate) fn code_blocks(markdown: &str) -> Vec<(String, usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, usize, String)> = None;
    for (number, line) in markdown.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some((language.trim().to_owned(), number + 1, String::new())),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some((language, at, text))) => open = Some((language, at, text + line + "\n")),
            (None, None) => {}
        }
    }
    blocks
}

/// The inline code of a Markdown file outside of fences, by line.
pub(crate) fn code_spans(markdown: &str) -> Vec<(usize, &str)> {
    let mut spans = Vec::new();
    let mut fenced = false;
    for (number, line) in markdown.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            spans.extend(line.split('`').skip(1).step_by(2).map(|span| (number + 1, span)));
        }
    }
    spans
}

#[test]
fn no_path_of_one_machine_is_written_down() {
    let all = files(|path| !path.ends_with(".lock") && !path.starts_with("LICENSE"));
    // Not spelled out, because this file is checked too.
    let forbidden = ["work", "root", "farm"].map(|folder| format!("/{folder}/"));
    none("paths of one machine", &lines(&all, |_, line| forbidden.iter().any(|path| line.contains(path))));
}
