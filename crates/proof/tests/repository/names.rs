//! What the documents name in backticks exists: files, tests, SQL objects, settings, metrics, variables and commands.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::PathBuf,
    process::Command,
};

use crate::{code_blocks, code_spans, files, is_document, is_rust, is_sql, none, root};

/// Names of PostgreSQL and OpenTelemetry, and values that the sources spell otherwise.
const LOOK_ALIKES: [&str; 11] = [
    "clock_timestamp",
    "error.type",
    "idle_in_transaction_session_timeout",
    "retryable_with_retry_after",
    "messaging.system",
    "postgresql.conf",
    "service.name",
    "symphony.attempt",
    "symphony.lane",
    "symphony.state",
    "symphony.worker",
];

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The whole words of files, identifiers with their underscores.
fn words_of(passes: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files(passes) {
        found.extend(
            file.text
                .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                .filter(|word| !word.is_empty())
                .map(str::to_owned),
        );
    }
    found
}

/// Everything that a document may name.
struct Known {
    paths: BTreeSet<String>,
    /// Names of Rust functions and of proofs.
    functions: BTreeSet<String>,
    /// Words of the schema: functions, tables, views, columns, roles.
    sql: BTreeSet<String>,
    sql_functions: BTreeSet<String>,
    /// Words of programs and scripts: metrics, variables.
    sources: BTreeSet<String>,
    /// String literals of the programs, such as the values of a setting.
    literals: BTreeSet<String>,
    /// The types of events that SQL publishes, such as `payment.failed`.
    event_types: BTreeSet<String>,
    /// The keys of each section of symphony.example.toml, commented ones included.
    settings: BTreeMap<String, BTreeSet<String>>,
}

impl Known {
    fn read() -> Self {
        let mut functions: BTreeSet<String> =
            symphony_proof::all().iter().map(|proof| proof.name.to_owned()).collect();
        for file in files(is_rust) {
            let declared = file
                .text
                .split("fn ")
                .skip(1)
                .map(|rest| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')));
            functions.extend(declared.filter_map(|mut words| words.next()).map(str::to_owned));
        }
        let paths: BTreeSet<String> = files(|_| true).into_iter().map(|file| file.path).collect();
        let sql_functions = paths
            .iter()
            .filter(|path| path.starts_with("schema/functions/"))
            .filter_map(|path| path.rsplit('/').next()?.strip_suffix(".sql").map(str::to_owned))
            .collect();
        Self {
            paths,
            functions,
            sql: words_of(is_sql),
            sql_functions,
            sources: words_of(|path| {
                !path.ends_with(".md")
                    && !path.starts_with("crates/proof/tests/repository/")
                    && ["crates/", "scripts/", "ops/", "bench/"].iter().any(|folder| path.starts_with(folder))
            }),
            literals: files(|path| is_rust(path) && path.contains("/src/"))
                .iter()
                .flat_map(|file| file.text.split('"'))
                .filter(|text| is_word(text))
                .map(str::to_owned)
                .collect(),
            event_types: files(is_sql)
                .iter()
                .flat_map(|file| file.text.split('\''))
                .filter(|text| text.strip_prefix("payment.").is_some_and(is_word))
                .map(str::to_owned)
                .collect(),
            settings: settings(&std::fs::read_to_string(root().join("symphony.example.toml")).unwrap()),
        }
    }

    /// Why a name in backticks is wrong; `None` if it exists, or is not of a kind that this check knows.
    fn problem(&self, span: &str) -> Option<&'static str> {
        let name = span.split('(').next().unwrap_or_default();
        if LOOK_ALIKES.contains(&name) || name.starts_with("pg_") {
            return None;
        }
        if let Some((first, _)) = span.split_once('/')
            && !first.is_empty()
            && root().join(first).exists()
            && span.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'))
        {
            return (!root().join(span).exists()).then_some("no such file");
        }
        if [".rs", ".sql", ".yml"].iter().any(|ending| span.ends_with(ending)) && !span.contains([' ', '*', '/']) {
            let exists = self.paths.iter().any(|path| path.rsplit('/').next() == Some(span));
            return (!exists).then_some("no file of this name");
        }
        if let Some(object) = name.strip_prefix("symphony.").or_else(|| name.strip_prefix("m10_recovery."))
            && is_word(object)
        {
            let known = if span.contains('(') { &self.sql_functions } else { &self.sql };
            return (!known.contains(object)).then_some("no such object in schema/");
        }
        if let Some((section, key)) = span.split_once('.')
            && let Some(keys) = self.settings.get(section)
            && is_word(key)
        {
            let nested = self.settings.contains_key(span);
            let known = keys.contains(key) || nested || self.event_types.contains(span);
            return (!known).then_some("no such setting in symphony.example.toml");
        }
        if let Some(variable) = span.split('=').next().filter(|variable| variable.starts_with("SYMPHONY_")) {
            return (!self.sources.contains(variable)).then_some("no such variable");
        }
        if span.starts_with("symphony_") && is_word(span) {
            // The registry adds the prefix of a metric, and the suffix of a counter.
            let metric = span.trim_start_matches("symphony_").trim_end_matches("_total");
            let exists = self.literals.contains(metric) || self.sources.contains(span) || self.sql.contains(span);
            return (!exists).then_some("no such metric or role");
        }
        if is_word(name) && name.contains('_') && span.contains('(') {
            let exists = self.sql_functions.contains(name) || self.functions.contains(name);
            return (!exists).then_some("no such function");
        }
        if is_word(span) && span.matches('_').count() >= 3 {
            let exists = self.functions.contains(span)
                || self.sql.contains(span)
                || self.settings.values().any(|keys| keys.contains(span))
                || self.sources.contains(&format!("symphony_{span}"))
                || self.literals.contains(span);
            return (!exists).then_some("no such test, function, column, metric or value");
        }
        None
    }
}

fn settings(toml: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in toml.lines().map(|line| line.trim_start_matches("# ")) {
        if let Some(name) = line.strip_prefix('[').map(|name| name.trim_matches(['[', ']'])) {
            section = name.to_owned();
            found.entry(section.clone()).or_default();
        } else if let Some((key, _)) = line.split_once(" = ").filter(|(key, _)| is_word(key)) {
            found.entry(section.clone()).or_default().insert(key.to_owned());
        }
    }
    found
}

#[test]
fn what_the_documents_name_exists() {
    let known = Known::read();
    let mut places = Vec::new();
    for file in files(is_document) {
        for (line, span) in code_spans(&file.text) {
            if let Some(problem) = known.problem(span) {
                places.push(format!("{}:{line}: `{span}`: {problem}", file.path));
            }
        }
    }
    none("names in documents", &places);
}

#[test]
fn a_wrong_name_is_found() {
    let known = Known::read();
    for wrong in [
        "crates/outbox/src/lib.rs",
        "no_such_file.rs",
        "symphony.claim_no_such_object",
        "symphony.claim_outbox_batches('w', 1)",
        "claim_outbox_batches(1)",
        "payment.no_such_key",
        "SYMPHONY_UNHEARD_VARIABLE=1",
        "symphony_no_such_metric_total",
        "a_test_that_was_renamed_long_ago",
    ] {
        assert!(known.problem(wrong).is_some(), "{wrong}");
    }
    for right in [
        "crates/proof/src/lib.rs",
        "symphony.claim_outbox_batch",
        "payment.lease",
        "payment.breaker",
        "relayer.endpoints",
        "SYMPHONY_SEED=1",
        "symphony_ingest",
        "what_the_documents_name_exists",
        "max_in_flight",
    ] {
        assert_eq!(known.problem(right), None, "{right}");
    }
}

/// The program next to this test in the target folder.
pub(crate) fn symphony() -> PathBuf {
    let test = env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("symphony");
    assert!(program.exists(), "build the programs first: cargo build --workspace --bins");
    program
}

/// The subcommand and the flags of a `symphony …` command line.
fn command(line: &str) -> Option<(Vec<&str>, BTreeSet<&str>)> {
    let line = line.split(['#', '>', '|', ';']).next().unwrap().strip_prefix("symphony ")?;
    let words: Vec<_> = line.split_whitespace().collect();
    let is_subcommand =
        |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
    let path = words.iter().take_while(is_subcommand).copied().collect();
    let flags =
        words.iter().filter(|word| word.starts_with("--")).map(|flag| flag.split('=').next().unwrap()).collect();
    Some((path, flags))
}

/// What is wrong with a command line, by the `--help` of its subcommand.
fn command_problem(line: &str) -> Option<String> {
    let (path, flags) = command(line)?;
    let help = Command::new(symphony()).args(&path).arg("--help").output().unwrap();
    if !help.status.success() {
        return Some(format!("symphony {} --help: {}", path.join(" "), String::from_utf8_lossy(&help.stderr)));
    }
    let text = String::from_utf8_lossy(&help.stdout);
    let listed: BTreeSet<_> = text.split(|c: char| !(c.is_alphanumeric() || c == '-')).collect();
    flags
        .iter()
        .find(|flag| !listed.contains(*flag))
        .map(|flag| format!("symphony {} has no {flag}", path.join(" ")))
}

#[test]
fn every_command_of_the_documents_exists_with_its_flags() {
    let mut commands: BTreeMap<String, String> = BTreeMap::new();
    for file in files(is_document) {
        for (line, span) in code_spans(&file.text) {
            commands.insert(span.to_owned(), format!("{}:{line}", file.path));
        }
        for (_, line, text) in
            code_blocks(&file.text).iter().filter(|(language, ..)| matches!(language.as_str(), "sh" | "bash"))
        {
            for (offset, command) in text.replace("\\\n", "  ").lines().enumerate() {
                let command = command.trim_start_matches("$ ").trim().to_owned();
                commands.insert(command, format!("{}:{}", file.path, line + offset + 1));
            }
        }
    }
    let problem = |(line, place): (&String, &String)| Some(format!("{place}: {line}: {}", command_problem(line)?));
    let places: Vec<_> = commands.iter().filter_map(problem).collect();
    none("commands that do not exist", &places);
}

#[test]
fn a_wrong_command_is_found() {
    for wrong in ["symphony forget", "symphony rail forget sepa", "symphony status --forget"] {
        assert!(command_problem(wrong).is_some(), "{wrong}");
    }
    assert_eq!(command_problem("symphony rail add sepa --ordered true --actor you --reason 'first rail'"), None);
}
