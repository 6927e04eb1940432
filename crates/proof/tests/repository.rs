//! Checks of the repository itself: what must never come back, and what the documents claim.
#![expect(clippy::unwrap_used, reason = "a test that cannot read the repository has failed")]

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
            // In a second working tree .git is a file.
            if matches!(name.as_str(), ".git" | "target") {
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
    "select ",
    "insert into",
    "update ",
    "delete from",
    "truncate ",
    "create ",
    "alter ",
    "drop ",
    "grant ",
    "revoke ",
    "listen ",
    "notify ",
    "set local",
    "copy ",
];

/// The string literals of a Rust file that begin like a statement, by the line they begin on.
///
/// Good enough for this repository's own code: it knows plain and raw strings, escapes and line comments.
fn statements_in(rust: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (rust, 1);
    while let Some(at) = rest.find(['"', '/', '\'', '\n']) {
        let (skipped, here) = rest.split_at(at);
        let raw = skipped.ends_with('#') || skipped.ends_with('r');
        if let Some(comment) = here.strip_prefix("//") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]);
        } else if let Some(quoted) = here.strip_prefix("'\"'").or_else(|| here.strip_prefix("'\\\"'")) {
            rest = quoted;
        } else if let Some(inside) = here.strip_prefix('"') {
            let hashes = if raw { skipped.bytes().rev().take_while(|byte| *byte == b'#').count() } else { 0 };
            let end = if raw {
                inside.find(&format!("\"{}", "#".repeat(hashes)))
            } else {
                let mut escaped = false;
                inside.char_indices().find_map(|(at, c)| {
                    let closes = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    closes.then_some(at)
                })
            };
            let literal = &inside[..end.unwrap_or(inside.len())];
            let words = literal.replace("\\n", " ").replace('\\', " ");
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
            let begins = SQL_VERBS.iter().any(|verb| words.starts_with(verb));
            // Words for people begin so as well; a statement names something of the database.
            let signs = ["symphony.", "m10_recovery.", "pg_", "$1", " from ", " table ", " role ", " database "];
            if begins && signs.iter().any(|sign| words.contains(sign)) {
                found.push((line, words));
            }
            line += literal.matches('\n').count();
            rest = inside.get(literal.len() + 1..).unwrap_or("");
        } else {
            line += usize::from(here.starts_with('\n'));
            rest = &here[1..];
        }
    }
    found
}

#[test]
fn sql_text_stands_in_the_schema_and_in_the_crate_that_calls_it() {
    // crates/outbox calls the functions; crates/proof, tests and benchmarks attack them. Nobody else speaks SQL to the outbox.
    // The second store for metadata is another database, without any of our functions: there SQL is the wire format.
    const SECOND_STORE: &str = "crates/sinks/src/metadata/postgres.rs";
    let rust = files(|path| {
        is_rust(path)
            && path != SECOND_STORE
            && !path.starts_with("crates/outbox/")
            && !path.starts_with("crates/proof/")
            && !path.contains("/tests/")
            && !path.contains("/benches/")
    });
    let mut places = Vec::new();
    for file in &rust {
        places.extend(
            statements_in(&file.text).iter().map(|(line, words)| format!("{}:{line}: {words}", file.path)),
        );
    }
    none("SQL text outside of schema/ and crates/outbox", &places);
}

#[test]
fn the_check_for_sql_text_knows_it_when_it_sees_it() {
    let found = |rust: &str| !statements_in(rust).is_empty();
    assert!(found(r#"client.query("select * from symphony.claim_outbox_batch($1, $2, $3)", &[])"#));
    assert!(found(r#"let text = "DELETE FROM symphony.payment_outbox_pending";"#));
    assert!(found("const CLAIM: &str = \"\\\n    select *\n    from symphony.claim_outbox_batch($1)\";"));
    assert!(found("let quote = '\"'; let sql = \"select 1 from pg_class\";"));
    assert!(found("// don't \"\nlet sql = \"select 1 from pg_class\";"));
    assert!(found("let sql = r##\"update symphony.payment_rails set paused = true\"##;"));
    assert!(!found(r#"println!("set DATABASE_URL or give --database-url");"#));
    assert!(!found(r#"// "select 1 from pg_class""#));
    // It finds those of the crate that has them.
    assert!(files(|path| path.starts_with("crates/outbox/src/payment/")).iter().any(|file| found(&file.text)));
}

#[test]
fn there_is_no_dispatching_state() {
    let word = ["DISPATCH", "ING"].concat();
    let code = files(|path| is_sql(path) || is_rust(path));
    none("a state between claimed and completed", &lines(&code, |_, line| line.contains(&word)));
}

/// The files, of the schema and of the crate that calls it, in which a statement does one of these to a table.
fn who_does(verbs: &[&str], table: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files(|path| is_sql(path) || path.starts_with("crates/outbox/src/")) {
        let words: Vec<_> = file
            .text
            .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
            .filter(|word| !word.is_empty() && !matches!(word.to_lowercase().as_str(), "only" | "table"))
            .map(str::to_lowercase)
            .collect();
        let does = |verb: &str| {
            let verb: Vec<_> = verb.split(' ').collect();
            words.windows(verb.len() + 1).any(|window| {
                let named = window[verb.len()].trim_start_matches("symphony.").trim_start_matches("m10_recovery.");
                window[..verb.len()] == verb && named == table
            })
        };
        if verbs.iter().any(|verb| does(verb)) {
            found.insert(file.path);
        }
    }
    found
}

/// An outcome that ends its outbox for certain is recorded by the first, every other by the second.
fn where_leases_end() -> BTreeSet<String> {
    ["end_outboxes", "settle_outbox_leases"].map(|name| format!("schema/functions/payment/{name}.sql")).into()
}

#[test]
fn pending_rows_are_deleted_where_leases_end_and_nowhere_else() {
    let mut expected = where_leases_end();
    // What the ledger had ended before is kept elsewhere.
    expected.insert("schema/functions/payment/quarantine_outbox.sql".to_owned());
    assert_eq!(who_does(&["delete from", "truncate", "merge into"], "payment_outbox_pending"), expected);
}

#[test]
fn the_ledger_is_written_by_insert_and_where_leases_end() {
    assert_eq!(who_does(&["insert into", "copy"], "payment_outbox_attempts"), where_leases_end());
    for log in ["payment_outbox_attempts", "payment_outbox_operations", "payment_outbox_quarantine"] {
        assert_eq!(who_does(&["update", "delete from", "truncate", "merge into"], log), BTreeSet::new(), "{log}");
    }
}

#[test]
fn each_move_of_an_event_is_made_in_one_function_and_none_is_deleted() {
    let event = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| format!("schema/functions/event/{name}.sql")).collect()
    };
    assert_eq!(who_does(&["insert into", "copy"], "outbox"), event(&["publish_outbox"]));
    assert_eq!(who_does(&["update"], "outbox"), event(&["claim_outbox_events", "complete_outbox_event"]));
    assert_eq!(who_does(&["delete from", "truncate", "merge into"], "outbox"), BTreeSet::new());
    assert_eq!(who_does(&["insert into", "copy"], "outbox_errors"), event(&["complete_outbox_event"]));
    assert_eq!(who_does(&["update", "delete from", "truncate", "merge into"], "outbox_errors"), BTreeSet::new());
}

#[test]
fn each_move_of_an_entry_of_metadata_is_made_in_one_function_and_none_is_deleted() {
    let metadata = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| format!("schema/functions/metadata/{name}.sql")).collect()
    };
    assert_eq!(who_does(&["insert into", "copy"], "metadata_outbox"), metadata(&["create_metadata_entry"]));
    assert_eq!(
        who_does(&["update"], "metadata_outbox"),
        metadata(&["claim_metadata_batch", "publish_metadata_claims", "settle_metadata_claim"])
    );
    assert_eq!(who_does(&["delete from", "truncate", "merge into"], "metadata_outbox"), BTreeSet::new());
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
        let path = if file.path.starts_with("schema/functions/event/") {
            "set search_path = pg_catalog, m10_recovery, symphony, pg_temp"
        } else {
            "set search_path = pg_catalog, symphony, pg_temp"
        };
        if !file.text.contains(path) {
            places.push(format!("{}: no fixed search_path", file.path));
        }
    }
    none("functions whose header or path is incomplete", &places);
}

#[test]
fn no_sql_is_assembled_at_run_time() {
    let sql = files(is_sql);
    none(
        "EXECUTE in SQL",
        &lines(&sql, |_, line| {
            let line = line.trim_start().to_lowercase();
            line.starts_with("execute ") && !line.starts_with("execute function")
        }),
    );
}

#[test]
fn no_test_is_ignored_and_none_sleeps() {
    // Where time itself is what the test is made of. None of them takes the end of a pause for a sign that something happened.
    const PACED: [&str; 5] = [
        // How long a sink takes.
        "crates/relay/tests/event/stage.rs",
        // The time over which the cost of idling is measured.
        "crates/symphony/tests/relayer/idling.rs",
        // A moment by chance, at which the kill comes.
        "crates/symphony/tests/relayer/killing.rs",
        // The pace at which payments are enqueued.
        "crates/symphony/tests/relayer/load.rs",
        // The pause of a loop that looks, with a bound, whether a process has ended.
        "crates/symphony/tests/usage.rs",
    ];
    let tests = files(|path| {
        is_rust(path)
            && (path.contains("/tests/") || path.contains("/proofs/"))
            && !path.ends_with("/repository.rs")
    });
    none(
        "tests that are ignored or sleep",
        &lines(&tests, |file, line| {
            let sleeps = ["sleep(", "sleep_until(", "park_timeout("].iter().any(|word| line.contains(word))
                && !file.path.starts_with(PAUSED)
                && !PACED.contains(&file.path.as_str());
            line.contains("#[ignore") || sleeps || line.contains("pg_sleep")
        }),
    );
}

/// Tests whose clock stands still unless every task waits: to sleep there is to move it, and takes no time.
const PAUSED: &str = "crates/relay/tests/engine/";

#[test]
fn where_tests_may_sleep_their_clock_is_paused() {
    let tests = files(|path| path.starts_with(PAUSED));
    none(
        "tests by the real clock",
        &lines(&tests, |_, line| {
            line.contains("tokio::test") && !line.contains("start_paused = true")
                || line.contains("thread::sleep")
                || line.contains("time::resume")
        }),
    );
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
    none("links that lead nowhere", &places);
}

#[test]
fn the_guarantees_name_every_proof_and_no_other() {
    let text = fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let rows: Vec<(u8, &str)> = text
        .lines()
        .filter_map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            Some((cells.first()?.parse().ok()?, cells.last()?.trim_matches('`')))
        })
        .collect();
    let proofs: Vec<_> = symphony_proof::proofs::all().iter().map(|proof| (proof.number, proof.name)).collect();
    assert_eq!(rows, proofs);
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
