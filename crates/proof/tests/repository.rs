//! Checks of the repository itself: what must never come back, and what the documents claim.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot read the repository has failed")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

struct File {
    /// Below the root of the repository, with forward slashes.
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The text files of the repository whose path passes.
fn files(passes: impl Fn(&str) -> bool) -> Vec<File> {
    fn walk(folder: &Path, root: &Path, passes: &dyn Fn(&str) -> bool, found: &mut Vec<File>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), ".git" | "target") {
                    walk(&path, root, passes, found);
                }
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
    assert!(!found.is_empty(), "a check that looks at no file checks nothing");
    found
}

/// Fails with every place that was found, so that one run shows them all.
fn none(what: &str, places: &[String]) {
    assert!(places.is_empty(), "{what}:\n  {}", places.join("\n  "));
}

/// The lines of the files that a test condemns, as `path:line: text`.
fn lines(files: &[File], condemned: impl Fn(&File, &str) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            if condemned(file, line) {
                places.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    places
}

fn is_sql(path: &str) -> bool {
    path.starts_with("schema/") && path.ends_with(".sql")
}

fn is_rust(path: &str) -> bool {
    path.starts_with("crates/") && path.ends_with(".rs")
}

const SQL_VERBS: [&str; 14] = [
    "select ", "insert into", "update ", "delete from", "truncate ", "create ", "alter ", "drop ", "grant ", "revoke ",
    "listen ", "notify ", "set local", "copy ",
];

/// Whether a line of Rust opens a string that begins like a statement.
fn opens_sql(line: &str) -> bool {
    line.split('"').skip(1).step_by(2).any(|literal| {
        let literal = literal.trim_start().to_lowercase();
        SQL_VERBS.iter().any(|verb| literal.starts_with(verb))
            // Words for people begin so as well; a statement names something of the database.
            && ["symphony.", "pg_", "$1", " from ", " table ", " role ", " database "].iter().any(|sign| literal.contains(sign))
    })
}

#[test]
fn sql_text_stands_in_the_schema_and_in_the_crate_that_calls_it() {
    // crates/outbox calls the functions; crates/proof attacks them. Nobody else speaks SQL.
    let rust = files(|path| {
        is_rust(path) && !path.starts_with("crates/outbox/") && !path.starts_with("crates/proof/")
    });
    none("SQL text outside of schema/ and crates/outbox", &lines(&rust, |_, line| opens_sql(line)));
}

#[test]
fn the_check_for_sql_text_knows_it_when_it_sees_it() {
    assert!(opens_sql(r#"client.query("select * from symphony.claim_outbox_batch($1, $2, $3)", &[])"#));
    assert!(opens_sql(r#"let text = "DELETE FROM symphony.payment_outbox_pending";"#));
    assert!(!opens_sql(r#"println!("set DATABASE_URL or give --database-url");"#));
}

#[test]
fn there_is_no_dispatching_state() {
    let word = ["DISPATCH", "ING"].concat();
    let code = files(|path| is_sql(path) || is_rust(path));
    none("a state between claimed and completed", &lines(&code, |_, line| line.contains(&word)));
}

/// Statements of the schema that do `verb` to `table`, by the file they stand in.
fn statements(verb: &str, table: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files(is_sql) {
        let flat = file.text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        for name in [table.to_owned(), format!("symphony.{table}")] {
            for end in [" ", ";", "\n"] {
                if flat.contains(&format!("{verb} {name}{end}")) {
                    found.insert(file.path.clone());
                }
            }
        }
    }
    found
}

#[test]
fn pending_rows_are_deleted_where_leases_are_settled_and_nowhere_else() {
    let settle = "schema/functions/payment/settle_outbox_leases.sql".to_owned();
    assert_eq!(statements("delete from", "payment_outbox_pending"), BTreeSet::from([settle]));
    assert_eq!(statements("truncate", "payment_outbox_pending"), BTreeSet::new());
}

#[test]
fn the_ledger_is_written_by_insert_and_in_one_place() {
    let settle = "schema/functions/payment/settle_outbox_leases.sql".to_owned();
    assert_eq!(statements("insert into", "payment_outbox_attempts"), BTreeSet::from([settle]));
    for log in ["payment_outbox_attempts", "payment_outbox_operations"] {
        for verb in ["update", "update only", "delete from", "truncate", "truncate table", "merge into"] {
            assert_eq!(statements(verb, log), BTreeSet::new(), "{verb} {log}");
        }
    }
}

#[test]
fn every_function_says_what_it_locks_and_for_whom_it_is() {
    let mut places = Vec::new();
    for file in files(|path| path.starts_with("schema/functions/")) {
        let header: String = file.text.lines().take_while(|line| line.starts_with("--")).collect();
        for word in ["Locks:", "For:"] {
            if !header.contains(word) {
                places.push(format!("{}: no {word}", file.path));
            }
        }
        if !file.text.contains("set search_path = pg_catalog, symphony, pg_temp") {
            places.push(format!("{}: no fixed search_path", file.path));
        }
    }
    none("functions whose header or path is incomplete", &places);
}

#[test]
fn no_sql_is_assembled_at_run_time() {
    let sql = files(is_sql);
    none("EXECUTE in SQL", &lines(&sql, |_, line| {
        let line = line.trim_start().to_lowercase();
        line.starts_with("execute ") && !line.starts_with("execute function")
    }));
}

#[test]
fn no_test_is_ignored_and_none_sleeps() {
    let tests = files(|path| is_rust(path) && (path.contains("/tests/") || path.contains("/proofs/")) && !path.ends_with("/repository.rs"));
    none("tests that are ignored or sleep", &lines(&tests, |_, line| {
        line.contains("#[ignore") || line.contains("sleep(") || line.contains("pg_sleep")
    }));
}

#[test]
fn no_path_of_one_machine_is_written_down() {
    let all = files(|path| !path.ends_with(".lock") && !path.starts_with("LICENSE"));
    // Spelled so that this file does not condemn itself.
    let condemned = ["work", "root", "farm"].map(|folder| format!("/{folder}/"));
    none("paths of one machine", &lines(&all, |_, line| condemned.iter().any(|path| line.contains(path))));
}

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
    text.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let root = root();
    let mut places = Vec::new();
    for file in files(|path| path.ends_with(".md")) {
        for (at, _) in file.text.match_indices("](") {
            let target = file.text[at + 2..].split(')').next().unwrap();
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if path.is_empty() { root.join(&file.path) } else { root.join(&file.path).parent().unwrap().join(path) };
            let Ok(text) = fs::read_to_string(&there).or_else(|error| if there.is_dir() { Ok(String::new()) } else { Err(error) })
            else {
                places.push(format!("{}: {target}", file.path));
                continue;
            };
            if !heading.is_empty() && !anchors(&text).contains(heading) {
                places.push(format!("{}: {target} (no such heading)", file.path));
            }
        }
    }
    none("links that lead nowhere", &places);
}

#[test]
fn a_file_that_the_schema_names_in_a_comment_is_there() {
    let root = root();
    let mut places = Vec::new();
    for file in files(is_sql) {
        for word in file.text.split([' ', '\n', ';', ',', ')', '(']) {
            let word = word.trim_end_matches('.');
            if word.starts_with("docs/") && !root.join(word).exists() {
                places.push(format!("{}: {word}", file.path));
            }
        }
    }
    none("documents that the schema names", &places);
}
