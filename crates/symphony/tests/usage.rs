//! Bad input: each command says what to do, with the exit code of its kind, and never shows a password.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod program;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use program::{symphony, symphony_with_input};
use symphony_testkit::test_database::Server;

const OUTBOX: &str = "0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f";

/// Wrong arguments that need no database to be seen, and what the answer must say.
const WRONG: &[(&[&str], &str)] = &[
    (&[], "Usage: symphony"),
    (&["instal"], "install"),
    (&["install", "--lane", "pigeon"], "this build has: payment"),
    (&["install", "--print", "--json"], "cannot be used with"),
    (&["install", "--no-transaction"], "--print"),
    (&["verify", "--lane", ""], "there is no lane"),
    (&["verify", "extra"], "unexpected argument 'extra'"),
    (&["enqueue"], "--instruction <ID>"),
    (
        &["enqueue", "--instruction", "i", "--participant", "p", "--key", "k", "--rail", "r"],
        "--payload-file <FILE>",
    ),
    (
        &["enqueue", "--instruction", "i", "--participant", "p", "--key", "k", "--rail", "r", "--payload", "{]"],
        "the payload is not JSON: line 1, column 2",
    ),
    (
        &[
            "enqueue",
            "--instruction",
            "i",
            "--participant",
            "p",
            "--key",
            "k",
            "--rail",
            "r",
            "--payload-file",
            "/nowhere/at/all",
        ],
        "cannot read /nowhere/at/all",
    ),
    (&["inspect"], "<ID>"),
    (&["status", "--jsn"], "--json"),
    (&["status", "--watch", "0"], "0 is not in 1..=3600"),
    (&["run", "--json"], "--check"),
    (&["completions", "tcl"], "bash"),
    (&["rail"], "pause"),
    (&["rail", "preview", "sepa"], "--payload <FILE>"),
    (&["rail", "preview", "sepa", "--config", "/nowhere", "--payload", "-"], "cannot read the settings file"),
    (&["rail", "set", "sepa"], "--actor <NAME>"),
    (
        &["rail", "set", "sepa", "--ordered", "maybe", "--actor", "a", "--reason", "b"],
        "[possible values: true, false]",
    ),
    (
        &["rail", "set", "sepa", "--max-in-flight", "few", "--actor", "a", "--reason", "b"],
        "a whole number, or none",
    ),
    (&["rail", "set", "sepa", "--on-unknown", "PRAY", "--actor", "a", "--reason", "b"], "INQUIRE, RESEND, STOP"),
    (&["rail", "pause", "sepa", "--actor", "a"], "--reason <TEXT>"),
    (&["dlq", "list", "--limit", "0"], "from 1 to 1000"),
    (
        &["dlq", "redrive", "not-an-id", "--actor", "a", "--reason", "b"],
        "invalid value 'not-an-id' for '[OUTBOX]': not an outbox id; find one with: symphony dlq list",
    ),
    (
        &["dlq", "resolve", "7", "--as", "PAID", "--actor", "a", "--reason", "b"],
        "find one with: symphony dlq list",
    ),
    (&["erase", "7", "--dry-run"], "find one with: symphony inspect INSTRUCTION"),
    (&["audit", "outbox", "7"], "find one with: symphony inspect INSTRUCTION"),
    (&["audit", "operations", "--from", "yesterday", "--to", "2026-05-01"], "write a date such as 2026-05-01"),
    (&["audit", "operations", "--from", "2026-05-01", "--to", "2026-05-01T00:00Z"], "--from is not before --to"),
    (&["archive", "--to", "/tmp", "--before", "May", "--dry-run"], "write a date such as 2026-05-01"),
    (&["dlq", "resolve", OUTBOX, "--as", "MAYBE", "--actor", "a", "--reason", "b"], "PAID, NOT_PAID, SKIPPED"),
    (&["prove", "--only", "999"], "--list"),
    (&["demo", "--kep"], "--keep"),
    (&["demo", "--for", "ages"], "a duration such as 10s or 2m"),
    (&["demo", "--kill-every", "1ms"], "500ms at least"),
    (&["demo", "--faults", "all"], "none, some, many"),
];

#[test]
fn wrong_arguments_are_answered_with_what_to_do() {
    for (arguments, says) in WRONG {
        let ran = symphony("postgres://me:s3cret@127.0.0.1:1/x", arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.all());
        assert!(ran.stderr.contains(says), "{arguments:?} does not say {says:?}: {}", ran.all());
        assert!(ran.stdout.is_empty() && !ran.stderr.contains("s3cret"), "{arguments:?}: {}", ran.all());
    }
}

#[tokio::test]
async fn what_only_the_database_can_refuse_is_wrong_input_as_well() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let url = database.url();
    let audit_context = ["--actor", "ana", "--reason", "a test"];
    symphony(&url, &[&["rail", "add", "sepa"], &audit_context[..]].concat()).exits(0);

    let named = ["enqueue", "--participant", "p", "--key", "k", "--rail"];
    let blank = [&named[..], &["sepa", "--payload", "{}", "--instruction", " "]].concat();
    assert!(symphony(&url, &blank).exits(2).stderr.contains("--instruction must not be blank"));
    let list = [&named[..], &["sepa", "--payload", "[]", "--instruction", "i"]].concat();
    assert!(symphony(&url, &list).exits(2).stderr.contains("must be a JSON object"));
    let range = [&["rail", "set", "sepa", "--max-attempts", "99"], &audit_context[..]].concat();
    assert!(symphony(&url, &range).exits(2).stderr.contains("--max-attempts is 99; allowed: 1 to 20"));
    // There is no such thing.
    let typo = [&named[..], &["sepia", "--payload", "{}", "--instruction", "i"]].concat();
    assert!(symphony(&url, &typo).exits(1).stderr.contains("symphony rail list"));
    for action in
        [&["dlq", "redrive", OUTBOX][..], &["dlq", "resolve", OUTBOX, "--as", "PAID"], &["erase", OUTBOX]]
    {
        let nowhere = symphony(&url, &[action, &audit_context[..]].concat()).exits(1);
        assert!(nowhere.stderr.contains(&format!("there is no outbox {OUTBOX}")), "{}", nowhere.all());
    }
    let enqueued = [&named[..], &["sepa", "--payload", "{}", "--instruction", "i", "--json"]].concat();
    let enqueued = symphony(&url, &enqueued).exits(0).json();
    let known = enqueued["outbox_id"].as_str().unwrap();
    let blank_reason = symphony(&url, &["dlq", "redrive", known, "--actor", "ana", "--reason", " "]).exits(2);
    assert!(blank_reason.stderr.contains("--reason must not be blank"), "{}", blank_reason.all());
    let nothing = symphony(&url, &["inspect", "nothing"]).exits(1);
    assert!(nothing.stderr.contains("\"nothing\""), "{}", nothing.all());
    assert!(
        symphony(&url, &[&["rail", "pause", "sepia"], &audit_context[..]].concat())
            .exits(1)
            .stderr
            .contains("P7006")
    );
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_payload_is_read_from_a_file_or_stdin_and_no_further_than_allowed() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let url = database.url();
    symphony(&url, &["rail", "add", "sepa", "--actor", "ana", "--reason", "a test"]).exits(0);
    let enqueue = |file: &str, input: &str| {
        let named =
            ["enqueue", "--instruction", "i", "--participant", "p", "--key", "k", "--rail", "sepa", "--json"];
        symphony_with_input(&url, &[&named[..], &["--payload-file", file]].concat(), input)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("payload.json");
    std::fs::write(&path, r#"{"amount": 1.10}"#).unwrap();

    let first = enqueue("-", r#"{"amount": 1.10}"#).exits(0).json();
    assert_eq!((&first["replayed"], &first["sequence_id"]), (&false.into(), &1.into()));
    let again = enqueue(path.to_str().unwrap(), "").exits(0).json();
    assert_eq!((&again["replayed"], &again["outbox_id"]), (&true.into(), &first["outbox_id"]));
    let conflict = enqueue("-", r#"{"amount": 1.11}"#).exits(3);
    assert!(conflict.stderr.contains("SQLSTATE P7004") && !conflict.stderr.contains("1.11"), "{}", conflict.all());
    let too_much = enqueue("-", &" ".repeat(300 * 1024)).exits(2);
    assert!(too_much.stderr.contains("stdin holds more than 262144 bytes"), "{}", too_much.all());
    database.close().await.unwrap();
}

#[test]
fn a_database_that_is_not_reached_is_exit_code_4_and_a_bad_address_2() {
    let which = symphony("", &["status"]).exits(2);
    assert!(which.stderr.contains("--database-url") && which.stderr.contains("DATABASE_URL"), "{}", which.all());
    let unreachable = symphony("postgres://me:s3cret@127.0.0.1:1/shop", &["status"]).exits(4);
    assert!(
        unreachable.stderr.contains("cannot connect to 127.0.0.1:1, database shop as me"),
        "{}",
        unreachable.all()
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("postgres://me:s3cret@127.0.0.1:{port}/shop?connect_timeout=1");
    let silence = symphony(&url, &["verify"]).exits(4);
    assert!(silence.stderr.contains("did not answer within 1s"), "{}", silence.all());
    for (bad, says) in [
        ("mysql://me:s3cret@host/shop", "postgres://"),
        ("postgres://me:s3@cret@host/shop", "%40"),
        ("postgres://me:s3cret@host/shop?sslmode=verify-full", "sslrootcert"),
        ("postgres://me:s3cret@host/shop?sslmode=verify-full&sslrootcert=/no/such.pem", "/no/such.pem"),
        ("host=db password='s3cret", "name=value"),
        ("host=db password = s3cret colour=red", "name=value"),
        (r"host=db password='a\'s3cret' colour=red", "name=value"),
        ("postgres://me:my s3cret@host:port/shop", "port"),
        ("postgres://me:s3cret", "port"),
    ] {
        let refused = symphony(bad, &["verify"]).exits(2);
        assert!(refused.stderr.contains(says), "{bad}: {}", refused.all());
        let unproven = symphony("", &["prove", "--database-url", bad]).exits(2);
        assert_eq!(refused.stderr, unproven.stderr);
        // Where no address belongs.
        let lost = symphony("", &[bad]).exits(2);
        assert!(!lost.all().contains("s3cret") && !lost.all().contains("cret@"), "{}", lost.all());
        for run in [&refused, &unreachable, &silence] {
            assert!(!run.all().contains("s3cret") && !run.all().contains("cret@"), "{}", run.all());
        }
    }
    // Nor is the one of the variable in the help.
    let help = symphony("postgres://me:s3cret@host/shop", &["--help"]).exits(0);
    assert!(help.stdout.contains("DATABASE_URL") && !help.stdout.contains("s3cret"), "{}", help.all());
}

/// The one JSON object on stderr.
fn json_failure(ran: &program::Ran) -> serde_json::Value {
    assert!(ran.stdout.is_empty(), "{}", ran.all());
    serde_json::from_str(&ran.stderr).unwrap_or_else(|error| panic!("{error}: {}", ran.all()))
}

#[tokio::test]
async fn errors_of_a_command_with_json_are_one_json_object_whose_code_tells_unreachable_from_refused() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let url = database.url();
    let nobody = database.url_as_login(&[]).await.unwrap();
    let wrong_password = "postgres://me:s3cret@127.0.0.1:1/shop";
    let missing = url.replace(database.name(), "no_such_database");
    for (url, arguments, code, exit_code, sqlstate, says) in [
        (wrong_password, &["status", "--json"][..], "UNREACHABLE", 4, None, "cannot connect to 127.0.0.1:1"),
        (&missing, &["status", "--json"], "REFUSED", 3, Some("3D000"), "does not exist"),
        (&nobody, &["dlq", "list", "--json"], "REFUSED", 3, Some("42501"), "permission denied"),
        ("", &["--json", "status"], "USAGE", 2, None, "unexpected argument"),
        ("", &["status", "--json"], "USAGE", 2, None, "neither --database-url nor DATABASE_URL"),
        ("", &["dlq", "redrive", "x", "--json"], "USAGE", 2, None, "not an outbox id"),
        (
            &url,
            &["rail", "add", "sepa", "--max-attempts", "50", "--actor", "a", "--reason", "b", "--json"],
            "USAGE",
            2,
            Some("P7005"),
            "--max-attempts is 50; allowed: 1 to 20",
        ),
        (&url, &["inspect", "nothing", "--json"], "FAILED", 1, None, "there is no outbox and no instruction"),
    ] {
        let ran = symphony(url, arguments);
        let failure = json_failure(&ran);
        assert_eq!(ran.code, exit_code, "{}", ran.all());
        assert_eq!((&failure["code"], &failure["exit_code"]), (&code.into(), &exit_code.into()), "{failure}");
        assert_eq!(failure["sqlstate"].as_str(), sqlstate, "{failure}");
        assert!(failure["message"].as_str().unwrap().contains(says), "{failure}");
        assert!(!ran.stderr.contains("s3cret") && !ran.stderr.contains("error: "), "{}", ran.all());
    }
    let help = symphony("", &["status", "--help"]).exits(0).stdout;
    assert!(
        help.contains("3  the database refused") && help.contains("4  the database cannot be reached"),
        "{help}"
    );
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_period_may_be_given_by_dates_and_dead_letters_are_filtered_by_both_codes() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let url = database.url();
    symphony(&url, &["rail", "add", "sepa", "--actor", "ana", "--reason", "a test"]).exits(0);
    let log = symphony(&url, &["audit", "operations", "--from", "2020-01-01", "--to", "2100-01-01"]).exits(0);
    assert!(log.stdout.contains("REGISTER") && log.stdout.contains("ana"), "{}", log.all());
    let fail = "select symphony.enqueue_payment_outbox('i' || n, 'p', 'k' || n, 'sepa', '{}') from generate_series(1, 2) n;
                select symphony.complete_outbox_attempt(
                  c.outbox_id, c.lease_token, 'w', 'FAILED', p_error_code => 'RAIL_REFUSED',
                  p_rail_code => case c.instruction_id when 'i1' then 'AC04' else 'AM04' end)
                from symphony.claim_outbox_batch(2, 'w', 60) c";
    database.connect().await.unwrap().batch_execute(fail).await.unwrap();
    let found = |filter: &[&str]| {
        let list = symphony(&url, &[&["dlq", "list", "--json"], filter].concat()).exits(0).json();
        let count = symphony(&url, &[&["dlq", "redrive", "--dry-run", "--json"], filter].concat()).exits(0).json();
        (list.as_array().unwrap().len(), count["matching"].as_i64().unwrap())
    };
    assert_eq!(found(&[]), (2, 2));
    assert_eq!(found(&["--error-code", "RAIL_REFUSED"]), (2, 2));
    assert_eq!(found(&["--rail-code", "AC04"]), (1, 1));
    assert_eq!(found(&["--rail-code", "AC04", "--error-code", "NOT_SENT"]), (0, 0));
    let nothing = symphony(&url, &["dlq", "redrive", "--rail-code", "AC01", "--dry-run"]).exits(0).stdout;
    assert_eq!(nothing, "0 match\n");
    let redrive =
        ["dlq", "redrive", "--rail-code", "AM04", "--expect", "1", "--actor", "ana", "--reason", "a test"];
    symphony(&url, &redrive).exits(0);
    assert_eq!(found(&[]), (1, 1));
    assert_eq!(found(&["--rail-code", "AM04"]), (0, 0), "it was redriven");
    database.close().await.unwrap();
}

#[test]
fn an_address_where_none_belongs_is_not_shown_with_its_password() {
    for address in [
        "postgres://me:s3cret@host/shop",
        "postgres://me:s3 cret@host/shop",
        "postgres://me:s3\"cret@host/shop",
        "host=h password = s3cret",
        "host=h password=\u{1b}[31ms3cret",
    ] {
        let limit = format!("--limit={address}");
        for arguments in [
            &[address][..],
            &["status", address],
            &["status", "--json", address],
            &["dlq", "list", "--limit", address],
            &["dlq", "list", &limit],
            &["verify", "--lane", address],
            &["--database-ur", address, "status"],
        ] {
            let lost = symphony("", arguments).exits(2);
            assert!(!lost.all().contains("cret"), "{}", lost.all());
            assert!(lost.stderr.contains("***") || arguments[0] == "--database-ur", "{}", lost.all());
        }
    }
    let lost = symphony("", &["status", "postgres://me:s3 cret@host/shop"]).exits(2);
    assert!(lost.stderr.contains("unexpected argument 'postgres://***' found"), "{}", lost.all());
}

#[test]
fn an_argument_that_is_no_text_is_wrong_and_not_shown() {
    use std::os::unix::ffi::OsStrExt as _;

    let address = std::ffi::OsStr::from_bytes(b"postgres://me:s3cret\xff@host/shop");
    let ran = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["status", "--database-url"])
        .arg(address)
        .output()
        .unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains("UTF-8") && !stderr.contains("s3cret"), "{stderr}");
}

#[test]
fn an_error_has_its_exit_code_even_if_stderr_cannot_be_written() {
    for (arguments, code) in [(&["status"][..], 4), (&["instal"], 2)] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ended = Command::new(env!("CARGO_BIN_EXE_symphony"))
            .args(arguments)
            .env("DATABASE_URL", "postgres://me@127.0.0.1:1/shop")
            .stderr(full)
            .status()
            .unwrap();
        assert_eq!(ended.code(), Some(code), "{arguments:?}");
    }
}

/// Commands without --json: they print scripts, manual pages or JSON, or have their own formats.
const NO_RESULT: [&str; 5] = ["api", "audit", "bank", "completions", "man"];

/// The commands, and those below them, as the manual lists them.
fn commands() -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let pages = symphony("", &["man", "--to", folder.path().to_str().unwrap()]).exits(0).stdout;
    let name = |page: &str| page.rsplit('/').next().unwrap().trim_end_matches(".1").to_owned();
    let commands =
        pages.lines().map(|page| name(page).splitn(3, '-').skip(1).map(str::to_owned).collect::<Vec<_>>());
    commands.filter(|command| !command.is_empty()).collect()
}

#[test]
fn every_command_that_prints_a_result_prints_it_as_json_too() {
    let commands = commands();
    assert!(commands.len() > 15, "{commands:?}");
    for command in &commands {
        let is_a_group = commands.iter().any(|other| other.len() > command.len() && other.starts_with(command));
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let help = symphony("", &[&words[..], &["--help"]].concat()).exits(0).stdout;
        let wanted = !is_a_group && !NO_RESULT.contains(&words[0]);
        assert_eq!(help.contains("--json"), wanted, "{command:?}: {help}");
    }
}

#[test]
fn the_manual_has_a_page_for_every_command_and_tells_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let secret = "postgres://me:s3cret@host/shop";
    let written = symphony(secret, &["man", "--to", pages.to_str().unwrap()]).exits(0).stdout;
    for page in ["symphony.1", "symphony-status.1", "symphony-dlq-redrive.1"] {
        assert!(written.lines().any(|line| line.ends_with(page)), "{written}");
    }
    for page in std::fs::read_dir(&pages).unwrap() {
        let text = std::fs::read_to_string(page.unwrap().path()).unwrap();
        assert!(text.contains(".TH symphony") && !text.contains("s3cret"), "{text}");
    }
    let page = std::fs::read_to_string(pages.join("symphony-status.1")).unwrap();
    let is_complete =
        page.contains("symphony\\-status") && page.contains("\\-\\-watch") && page.contains("Exit codes:");
    assert!(is_complete, "{page}");
    assert!(symphony(secret, &["man"]).exits(0).stdout.contains("symphony\\-dlq(1)"));

    // A file that cannot be written is an error.
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "").unwrap();
    let refused = symphony("", &["man", "--to", taken.to_str().unwrap()]).exits(1);
    assert!(
        refused.stderr.contains("cannot write pages to") && refused.stderr.contains("hint: "),
        "{}",
        refused.all()
    );
}

#[test]
fn shells_are_told_what_can_be_completed() {
    for (shell, sign) in [("bash", "complete -F"), ("zsh", "#compdef symphony"), ("fish", "complete -c symphony")]
    {
        let script = symphony("postgres://me:s3cret@host/shop", &["completions", shell]).exits(0).stdout;
        assert!(script.contains(sign), "{script}");
        assert!(["status", "redrive", "watch"].iter().all(|word| script.contains(word)), "{script}");
        assert!(!script.contains("s3cret"), "{script}");
    }
    let script = symphony("", &["completions", "bash"]).exits(0).stdout;
    // What bash itself would offer after "symphony dlq re".
    let asked = "COMP_WORDS=(symphony dlq re) COMP_CWORD=2; _symphony symphony re dlq; echo \"${COMPREPLY[@]}\"";
    let offered = Command::new("bash").args(["-c", &format!("{script}\n{asked}")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&offered.stdout).trim(), "redrive resolve", "{offered:?}");
}

#[test]
fn every_command_has_an_example_and_says_what_its_exit_code_means() {
    for command in [
        &["install"][..],
        &["verify"],
        &["prove"],
        &["enqueue"],
        &["inspect"],
        &["status"],
        &["completions"],
        &["man"],
        &["run"],
        &["repair"],
        &["demo"],
        &["bank"],
        &["rail"],
        &["rail", "list"],
        &["rail", "add"],
        &["rail", "set"],
        &["rail", "retire"],
        &["rail", "pause"],
        &["rail", "resume"],
        &["dlq"],
        &["dlq", "list"],
        &["dlq", "redrive"],
        &["dlq", "resolve"],
        &["erase"],
    ] {
        let help = symphony("", &[command, &["--help"]].concat()).exits(0).stdout;
        assert!(help.contains(&format!("Examples:\n  symphony {}", command.join(" "))), "{help}");
        assert!(help.contains("Exit codes:"), "{help}");
    }
}

#[test]
fn the_lean_build_links_no_test_code() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", "symphony", "--no-default-features", "--edges", "normal", "--prefix", "none"])
        .args(["--locked", "--offline", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .output()
        .unwrap();
    let crates = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    assert!(crates.contains("symphony-relay "), "{crates}");
    for test_code in ["symphony-testkit ", "symphony-proof ", "symphony-bank "] {
        assert!(!crates.contains(test_code), "{crates}");
    }
}

#[test]
fn a_relayer_that_waits_for_a_silent_database_ends_when_it_is_told_to() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://me@{}/x?connect_timeout=3600&sslmode=disable", silent.local_addr().unwrap());
    let settings = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(settings.path(), "[rails.sepa]\nkind = 'http'\nurl = 'https://bank.example/v1/payments'\n")
        .unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .arg("run")
        .env("DATABASE_URL", url)
        .env("SYMPHONY_CONFIG", settings.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It listens for signals before it connects.
    let _connection = silent.accept().unwrap();
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let patience = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = child.try_wait().unwrap().is_some();
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(ended, "it still waits: {stderr}");
    assert_eq!(output.status.code(), Some(143), "{stderr}");
    assert!(stderr.contains("before anything was claimed"), "{stderr}");
}

#[test]
fn a_rail_previews_the_request_for_a_payload_without_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let token = file("token", "hidden");
    let config = file(
        "symphony.toml",
        &format!(
            "[rails.sepa]\nkind = 'http'\nurl = 'http://bank.example/pay'\nallow_http = true\nbearer_file = '{token}'\n\
             body = {{ template = '{{\"to\": \"{{{{ payload.destination.iban }}}}\"}}', format = 'json' }}\n"
        ),
    );
    let payload = r#"{"amount": "10.00", "currency": "EUR", "destination": {"iban": "DE89370400440532013000"}}"#;
    let preview = |arguments: &[&str], payload: &str| {
        let base = ["rail", "preview", "--config", &config, "--payload", "-", "--key", "order-7/1"];
        symphony_with_input("", &[&base[..], arguments].concat(), payload)
    };
    let shown = preview(&["sepa"], payload).exits(0).stdout;
    assert!(shown.starts_with("POST http://bank.example/pay\n"), "{shown}");
    for line in
        ["idempotency-key: order-7/1\n", "authorization: ***\n", "\n\n{\"to\": \"DE89370400440532013000\"}\n"]
    {
        assert!(shown.contains(line), "{line:?} is not in {shown}");
    }
    assert!(!shown.contains("hidden"));
    let json = preview(&["sepa", "--json"], payload).exits(0).json();
    assert!(json["request"].as_str().unwrap().ends_with("{\"to\": \"DE89370400440532013000\"}"), "{json}");
    let invalid = preview(&["sepa"], r#"{"amount": "10.00", "currency": "EUR"}"#).exits(1).stderr;
    assert!(invalid.contains("INVALID_PAYLOAD") && invalid.contains("names a field"), "{invalid}");
    let wrong = preview(&["sepa"], "s3cret").exits(2).stderr;
    assert!(wrong.contains("does not hold the JSON") && !wrong.contains("s3cret"), "{wrong}");
    assert!(preview(&["sepia"], payload).exits(2).stderr.contains("no section [rails.sepia]"));
}
