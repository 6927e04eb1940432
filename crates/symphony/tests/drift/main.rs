//! `symphony verify` against databases that were changed by hand, shared with other applications, restored or upgraded.
//!
//! # Layout
//! - `manual_changes`: verify reports every kind of drift, with its severity
//! - `unprivileged_logins`: what other logins may create stops no relayer
//! - `restore_and_upgrade`: a dump, a restore and an upgrade are no drift
//! - `restore_procedures`: the steps of docs/restore.md
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, but does not recognise helpers outside of test functions"
)]

mod manual_changes;
#[path = "../program/mod.rs"]
mod program;
mod restore_and_upgrade;
mod restore_procedures;
mod unprivileged_logins;

use program::{Ran, symphony};
use symphony_db::connect::Target;
use symphony_testkit::postgres::Cluster;
use tokio_postgres::Client;

async fn connect(url: &str) -> Client {
    Target::parse(url).unwrap().connect().await.unwrap()
}

/// Creates a database of this name with these lanes. Returns a superuser session.
async fn installed(cluster: &Cluster, name: &str, lanes: &[&str]) -> Client {
    connect(&cluster.url("postgres")).await.batch_execute(&format!("create database {name}")).await.unwrap();
    let lanes = lanes.iter().flat_map(|lane| ["--lane", lane]);
    let arguments: Vec<_> = ["install"].into_iter().chain(lanes).collect();
    symphony(&cluster.url(name), &arguments).exits(0);
    connect(&cluster.url(name)).await
}

/// The differences that verify reports, each with its severity.
fn differences(verified: &Ran) -> Vec<String> {
    if verified.stdout.starts_with("no difference") {
        return Vec::new();
    }
    verified.stdout.lines().map(str::to_owned).collect()
}

/// Runs `symphony run --check` on payments and events, as a login with the role of a relayer.
async fn run_check(cluster: &Cluster, superuser: &Client, database: &str) -> Ran {
    let url = cluster.url(database);
    if !symphony(&url, &["rail", "list"]).exits(0).stdout.contains("sepa") {
        symphony(&url, &["rail", "add", "sepa", "--actor", "a", "--reason", "b"]).exits(0);
    }
    superuser
        .batch_execute(
            "do $$ begin
               if to_regrole('relayer') is null then
                 create role relayer login;
                 grant symphony_executor to relayer;
               end if;
             end $$",
        )
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (settings, secret) = (folder.path().join("symphony.toml"), folder.path().join("secret"));
    std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let text = format!(
        "[relayer]\nendpoints = '127.0.0.1:0'\n\
         [event]\nsource = '//shop.example'\n\
         [[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'bus'\ndestination = 'orders'\n\
         [sinks.bus]\nkind = 'redis'\nurl = 'redis://127.0.0.1:1'\nallow_plain = true\n\
         [rails.sepa]\nkind = 'http'\nurl = 'https://bank.example/payments'\n\
         inquiry_url = 'https://bank.example/payments/{{idempotency_key}}'\ndestination = 'iban'\nsecret_file = '{}'\n",
        secret.display()
    );
    std::fs::write(&settings, text).unwrap();
    let url = format!("postgres://relayer@127.0.0.1:{}/{database}", cluster.port());
    symphony(&url, &["run", "--config", settings.to_str().unwrap(), "--check"])
}
