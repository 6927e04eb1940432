//! `symphony prove`: it does what it says, and leaves nothing behind.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod program;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use program::symphony;
use symphony_db::connect::Target;
use symphony_testkit::postgres::{Binaries, Cluster, Options};

/// A private server, so that every object left behind is counted.
async fn server() -> Cluster {
    Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap()
}

/// The databases and roles that are not there from the beginning.
async fn left_behind(cluster: &Cluster) -> Vec<String> {
    let client = Target::parse(&cluster.url("postgres")).unwrap().connect().await.unwrap();
    let asked = "select datname::text from pg_database where datname not in ('postgres', 'template0', 'template1')
                 union all
                 select rolname::text from pg_roles where rolname not like 'pg\\_%' and rolname <> 'postgres'";
    client.query(asked, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn proofs_show_what_was_tried_and_leave_nothing_behind() {
    let cluster = server().await;
    let url = cluster.url("postgres");
    let output = symphony(&url, &["prove", "--only", "1", "--only", "11", "--json"]).exits(0).json();
    assert_eq!((&output["passed"], &output["failed"]), (&2.into(), &0.into()));
    for (proof, number) in output["proofs"].as_array().unwrap().iter().zip([1, 11]) {
        assert_eq!((&proof["number"], &proof["ok"]), (&number.into(), &true.into()));
        for step in proof["steps"].as_array().unwrap() {
            assert!(["tried", "expected", "happened"].iter().all(|word| !step[word].as_str().unwrap().is_empty()));
        }
    }
    let text = symphony(&url, &["prove", "--only", "1"]).exits(0).stdout;
    assert!(text.starts_with(" 1  ok  no_role_can_change_the_ledger: tried "), "{text}");
    let line = text.lines().next().unwrap();
    assert!(line.contains("; expected refused with ") && line.contains("; happened: refused with "), "{text}");
    assert!(line.contains(" steps, ") && line.ends_with("s)"), "{text}");
    assert!(text.ends_with("1 proofs held, 0 FAILED\n"), "{text}");
    assert_eq!(text.lines().count(), 2, "a line per proof, and the sum: {text}");
    let text = symphony(&url, &["prove", "--only", "1", "--verbose"]).exits(0).stdout;
    let steps = output["proofs"][0]["steps"].as_array().unwrap().len();
    assert_eq!(text.matches("\n      tried ").count(), steps, "{text}");
    assert_eq!(left_behind(&cluster).await, Vec::<String>::new());
}

#[tokio::test]
async fn proofs_take_every_address_that_the_other_commands_take() {
    let cluster = server().await;
    let port = cluster.port();
    // A user's login whose name resembles a role of Symphony's.
    let client = Target::parse(&cluster.url("postgres")).unwrap().connect().await.unwrap();
    client.batch_execute("create role symphony_app login createdb").await.unwrap();
    for address in [
        format!("host=127.0.0.1 port={port} user = postgres dbname='postgres' sslmode=allow"),
        format!("postgres://127.0.0.1:{port}/postgres?user=postgres&sslmode=allow"),
    ] {
        // Those that listen, or come as a login of their own.
        let only = ["prove", "--only", "8", "--only", "20", "--only", "21", "--only", "22"];
        let output = symphony(&address, &only).exits(0);
        assert!(output.stdout.ends_with("4 proofs held, 0 FAILED\n"), "{}", output.all());
    }
    assert_eq!(left_behind(&cluster).await, ["symphony_app"]);
}

#[test]
fn every_proof_is_listed_without_a_database() {
    let listed = symphony("", &["prove", "--list", "--json"]).exits(0).json();
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|proof| proof["name"].as_str().unwrap()).collect();
    assert_eq!(names, symphony_proof::all().iter().map(|proof| proof.name).collect::<Vec<_>>());
}

#[tokio::test]
async fn who_interrupts_the_proofs_finds_nothing_left_behind() {
    let cluster = server().await;
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_symphony"))
            .arg("prove")
            .env("DATABASE_URL", cluster.url("postgres"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The first proof is done, so another is under way.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("ok"));
        let interrupted = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(interrupted.success());
        lines.for_each(drop);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(left_behind(&cluster).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn who_may_not_create_databases_is_told_so() {
    let cluster = server().await;
    let client = Target::parse(&cluster.url("postgres")).unwrap().connect().await.unwrap();
    client.batch_execute("create role weak login").await.unwrap();
    let url = cluster.url("postgres").replace("postgres@", "weak@");
    let refused = symphony(&url, &["prove"]).exits(3);
    assert!(refused.stderr.contains("the login weak may not create databases"), "{}", refused.all());
    assert_eq!(left_behind(&cluster).await, ["weak"]);
}

#[tokio::test]
async fn roles_that_were_there_before_the_proofs_stay() {
    let cluster = server().await;
    let url = cluster.url("postgres");
    symphony(&url, &["install"]).exits(0);
    let before = left_behind(&cluster).await;
    symphony(&url, &["prove", "--only", "1"]).exits(0);
    assert_eq!(left_behind(&cluster).await, before);
    symphony(&url, &["verify"]).exits(0);
}
