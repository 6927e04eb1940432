//! Names use the words of docs/glossary.md, not the words that it replaced.

use std::collections::BTreeSet;

use crate::{File, files, is_rust, is_sql, none};

/// Metaphors that no name may contain. docs/glossary.md has the word to use instead.
const METAPHORS: [&str; 28] = [
    "abreast", "bell", "bells", "courier", "crew", "crowd", "crowds", "desk", "dice", "flights", "goods", "kin",
    "lent", "minted", "office", "pulse", "reel", "ringer", "rooms", "rope", "seat", "seats", "shelf", "sleeper",
    "sleepers", "tower", "warrant", "yard",
];

/// Words that are plain English in the sentence of a test name, and a metaphor in a short name.
const VAGUE: [&str; 12] = [
    "landing", "nobody", "parting", "patience", "room", "scene", "stage", "story", "tape", "together", "told",
    "verdict",
];

/// A name of this many words is a sentence.
const SENTENCE: usize = 5;

/// The words of an identifier or a file name, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous_is_upper = true;
    for letter in name.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && !previous_is_upper) {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            words.last_mut().unwrap().extend(letter.to_lowercase());
        }
        previous_is_upper = letter.is_uppercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_replaced(name: &str) -> bool {
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    has(&METAPHORS) || (words.len() < SENTENCE && has(&VAGUE))
}

/// The identifiers that follow one of these keywords in a text without comments and strings.
fn declared(text: &str, keywords: &[&str]) -> BTreeSet<String> {
    let words: Vec<_> = text
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
        .filter(|word| !word.is_empty())
        .collect();
    let follows = |pair: &&[&str]| keywords.contains(&pair[0].to_lowercase().as_str());
    words.windows(2).filter(follows).map(|pair| pair[1].to_owned()).collect()
}

/// The declarations of a Rust file. A line that begins otherwise is prose, a string or an expression.
fn rust_names(file: &File) -> BTreeSet<String> {
    const KEYWORDS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "mod", "const", "static"];
    let mut found = BTreeSet::new();
    for line in file.text.lines().map(str::trim_start) {
        let visible = line.strip_prefix("pub").map(|rest| rest.trim_start_matches(|c| c != ' ').trim_start());
        let line = visible.unwrap_or(line);
        let first = line.split(' ').next().unwrap_or_default();
        if KEYWORDS.contains(&first) || matches!(first, "async" | "unsafe") {
            found.extend(declared(line.split(['(', '=', '<', '{', '"']).next().unwrap_or_default(), &KEYWORDS));
        }
    }
    found
}

fn sql_names(file: &File) -> BTreeSet<String> {
    const KEYWORDS: [&str; 10] =
        ["function", "table", "view", "index", "type", "domain", "trigger", "sequence", "role", "constraint"];
    let code: String =
        file.text.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join("\n");
    declared(&code, &KEYWORDS)
}

#[test]
fn no_name_uses_a_word_that_the_glossary_replaced() {
    let mut places = Vec::new();
    for file in files(|path| !path.starts_with("LICENSE") && !path.ends_with(".lock")) {
        // Folder by folder, because a whole path is longer than a sentence.
        if file.path.split('/').any(is_replaced) {
            places.push(file.path.clone());
        }
        let names = match file.path.as_str() {
            path if is_rust(path) => rust_names(&file),
            path if is_sql(path) => sql_names(&file),
            _ => BTreeSet::new(),
        };
        places.extend(names.iter().filter(|name| is_replaced(name)).map(|name| format!("{}: {name}", file.path)));
    }
    none("names with a word that docs/glossary.md replaced", &places);
}

#[test]
fn a_name_is_split_into_its_words() {
    assert_eq!(words("MAX_BATCH"), ["max", "batch"]);
    assert_eq!(
        words("crates/relay/src/CompletionBatcher.rs"),
        ["crates", "relay", "src", "completion", "batcher", "rs"]
    );
    assert!(
        is_replaced("wake_sleepers")
            && is_replaced("BellRinger")
            && is_replaced("yard.rs")
            && is_replaced("TOGETHER")
    );
    assert!(!is_replaced("backstage") && !is_replaced("IN_FLIGHT") && !is_replaced("a_page_is_told_of_a_change"));
    let rust = File {
        path: String::new(),
        text: "pub(crate) async fn a() {}\n// fn b()\nlet fn_c = \"fn d\";\nconst E: u8 = 1;".into(),
    };
    assert_eq!(rust_names(&rust), ["E", "a"].map(str::to_owned).into());
}
