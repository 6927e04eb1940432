//! Where SQL text may stand, which functions change which table, and what every function must have.

use std::collections::BTreeSet;

use crate::{files, is_rust, is_sql, lines, none, root};

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
            // Prose may begin with the same verbs; a statement also names an object of the database.
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
fn sql_text_is_in_the_schema_and_in_the_crates_that_call_it() {
    // crates/client and crates/db call the functions; crates/proof, crates/testkit, tests and benchmarks attack them.
    // The second store for metadata is another database, without our functions: there SQL is the wire format.
    const SECOND_STORE: &str = "crates/sinks/src/metadata/postgres.rs";
    let rust = files(|path| {
        is_rust(path)
            && path != SECOND_STORE
            && !["crates/client/", "crates/db/", "crates/proof/", "crates/testkit/"]
                .iter()
                .any(|allowed| path.starts_with(allowed))
            && !path.contains("/tests/")
            && !path.contains("/benches/")
    });
    let mut places = Vec::new();
    for file in &rust {
        places.extend(
            statements_in(&file.text).iter().map(|(line, words)| format!("{}:{line}: {words}", file.path)),
        );
    }
    none("SQL text outside of schema/, crates/client and crates/db", &places);
}

#[test]
fn the_check_for_sql_text_finds_statements() {
    let found = |rust: &str| !statements_in(rust).is_empty();
    assert!(found(r#"client.query("select * from symphony.claim_outbox_batch($1, $2, $3)", &[])"#));
    assert!(found(r#"let text = "DELETE FROM symphony.payment_outbox_pending";"#));
    assert!(found("const CLAIM: &str = \"\\\n    select *\n    from symphony.claim_outbox_batch($1)\";"));
    assert!(found("let quote = '\"'; let sql = \"select 1 from pg_class\";"));
    assert!(found("// don't \"\nlet sql = \"select 1 from pg_class\";"));
    assert!(found("let sql = r##\"update symphony.payment_rails set paused = true\"##;"));
    assert!(!found(r#"println!("set DATABASE_URL or give --database-url");"#));
    assert!(!found(r#"// "select 1 from pg_class""#));
    // It finds the statements of a crate that has some.
    assert!(files(|path| path.starts_with("crates/db/src/payment/")).iter().any(|file| found(&file.text)));
}

#[test]
fn there_is_no_dispatching_state() {
    let word = ["DISPATCH", "ING"].concat();
    let code = files(|path| is_sql(path) || is_rust(path));
    none("a state between claimed and completed", &lines(&code, |_, line| line.contains(&word)));
}

/// The files of the schema and of the calling crates in which a statement changes a table with one of these verbs.
fn files_that(verbs: &[&str], table: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in
        files(|path| is_sql(path) || path.starts_with("crates/db/src/") || path.starts_with("crates/client/src/"))
    {
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

/// The first records the usual outcome, the second other terminal outcomes, the third all others.
fn where_leases_end() -> BTreeSet<String> {
    ["complete_outbox_batch", "record_terminal_attempts", "record_attempts"]
        .map(|name| format!("schema/functions/payment/{name}.sql"))
        .into()
}

#[test]
fn pending_rows_are_deleted_where_leases_end_and_nowhere_else() {
    let mut expected = where_leases_end();
    // Moves a row whose outbox had already ended to quarantine.
    expected.insert("schema/functions/payment/quarantine_outbox.sql".to_owned());
    assert_eq!(files_that(&["delete from", "truncate", "merge into"], "payment_outbox_pending"), expected);
}

#[test]
fn the_ledger_is_written_by_insert_and_where_leases_end() {
    assert_eq!(files_that(&["insert into", "copy"], "payment_outbox_attempts"), where_leases_end());
    let erasure = BTreeSet::from(["schema/functions/payment/erase_payment_payload.sql".to_owned()]);
    for log in [
        "payment_outbox_attempts",
        "payment_outbox_operations",
        "payment_outbox_quarantine",
        "payment_payload_erasures",
        "payment_ledger_archives",
        "retention_policies",
        "retention_removals",
        "epoch",
    ] {
        assert_eq!(files_that(&["delete from", "truncate", "merge into"], log), BTreeSet::new(), "{log}");
        let has_payloads = matches!(log, "payment_outbox_attempts" | "payment_outbox_quarantine");
        let expected = if has_payloads { erasure.clone() } else { BTreeSet::new() };
        assert_eq!(files_that(&["update"], log), expected, "{log}");
    }
    assert_eq!(files_that(&["insert into", "copy"], "payment_payload_erasures"), erasure);
}

#[test]
fn keys_are_deleted_by_retention_alone() {
    assert_eq!(
        files_that(&["delete from", "truncate", "merge into"], "payment_outbox_keys"),
        ["schema/functions/payment/remove_expired_keys.sql".to_owned()].into()
    );
}

#[test]
fn a_lease_is_checked_by_the_same_conditions_wherever_it_is_checked() {
    // A DELETE of terminal outcomes is also their lock, so the check cannot be a call.
    const CHECK: &str =
        "and p.lease_token = g.lease_token and p.claimed_by = p_worker_id and p.lease_expires_at > now()";
    let checks: BTreeSet<_> = files(|path| path.starts_with("schema/functions/payment/"))
        .into_iter()
        .filter(|file| file.text.contains("p.lease_token = g.lease_token"))
        .map(|file| {
            let words = file.text.split_whitespace().collect::<Vec<_>>().join(" ");
            (file.path, words.matches(CHECK).count())
        })
        .collect();
    let expected = ["complete_outbox_batch", "lock_leased_outboxes", "record_terminal_attempts"];
    assert_eq!(checks, expected.map(|name| (format!("schema/functions/payment/{name}.sql"), 1)).into());
}

#[test]
fn each_change_of_an_event_is_in_one_function_and_retention_alone_deletes() {
    let event = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| format!("schema/functions/event/{name}.sql")).collect()
    };
    assert_eq!(files_that(&["insert into", "copy"], "outbox"), event(&["publish_outbox"]));
    assert_eq!(
        files_that(&["update"], "outbox"),
        event(&[
            "claim_events_by_sink",
            "claim_events_in_order",
            "claim_newest_event",
            "claim_outbox_events",
            "complete_published_events",
            "park_events_behind",
            "try_complete_event",
            "unpark_next_events",
        ])
    );
    assert_eq!(
        files_that(&["delete from", "truncate", "merge into"], "outbox"),
        event(&["remove_processed_events"])
    );
    assert_eq!(files_that(&["insert into", "copy"], "outbox_errors"), event(&["try_complete_event"]));
    assert_eq!(
        files_that(&["update", "delete from", "truncate", "merge into"], "outbox_errors"),
        event(&["remove_processed_events"])
    );
}

#[test]
fn each_change_of_a_metadata_entry_is_in_one_function_and_retention_alone_deletes() {
    let metadata = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| format!("schema/functions/metadata/{name}.sql")).collect()
    };
    assert_eq!(files_that(&["insert into", "copy"], "metadata_outbox"), metadata(&["create_metadata_entry"]));
    assert_eq!(
        files_that(&["update"], "metadata_outbox"),
        metadata(&[
            "claim_metadata_batch",
            "claim_metadata_by_store",
            "claim_newest_metadata",
            "publish_metadata_claims",
            "try_complete_metadata_claim",
        ])
    );
    assert_eq!(
        files_that(&["delete from", "truncate", "merge into"], "metadata_outbox"),
        metadata(&["remove_ended_metadata"])
    );
}

#[test]
fn every_function_header_names_its_locks_and_its_role() {
    let mut places = Vec::new();
    for file in files(|path| path.starts_with("schema/functions/")) {
        let header: String = file.text.lines().take_while(|line| line.starts_with("--")).collect();
        for word in ["Locks:", "For:"] {
            if !header.contains(word) {
                places.push(format!("{}: no {word}", file.path));
            }
        }
        let path = if file.text.contains("create or replace function m10_recovery.") {
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
    // DDL has no parameters: see docs/decisions/0009-ledger-partitions.md.
    const PARTITIONS: [&str; 5] = [
        "schema/functions/payment/attach_first_partition.sql",
        "schema/functions/payment/create_ledger_partition.sql",
        "schema/functions/payment/drop_archived_partition.sql",
        "schema/functions/payment/extend_ledger_at.sql",
        "schema/functions/payment/ledger_partition_digest.sql",
    ];
    let sql = files(|path| is_sql(path) && !PARTITIONS.contains(&path));
    none(
        "EXECUTE in SQL",
        &lines(&sql, |_, line| {
            let line = line.trim_start().to_lowercase();
            line.starts_with("execute ") && !line.starts_with("execute function")
        }),
    );
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
