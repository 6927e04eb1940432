//! A restored or upgraded database has no drift: verify reports no difference, and a relayer starts.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use symphony_testkit::postgres::{Binaries, Cluster, Options};

use super::{connect, differences, installed, program::symphony, run_check};

const INSTALLED: &str = "installed";

/// The oldest and the newest PostgreSQL on this machine that have pg_dump, pg_dumpall, psql and pg_upgrade.
pub(super) fn oldest_and_newest() -> [Binaries; 2] {
    let has_programs = |binaries: &Binaries| {
        ["pg_dump", "pg_dumpall", "psql", "pg_upgrade"].iter().all(|name| binaries.program(name).is_file())
    };
    let mut found: Vec<_> = Binaries::every().into_iter().filter(has_programs).collect();
    found.sort_by_key(Binaries::major);
    let (oldest, newest) = (found.first().cloned(), found.last().cloned());
    match (oldest, newest) {
        (Some(oldest), Some(newest)) if oldest.major() < newest.major() => [oldest, newest],
        _ => panic!("this needs two PostgreSQL versions with pg_dump and pg_upgrade: scripts/setup --postgres 18"),
    }
}

pub(super) async fn start(binaries: &Binaries) -> Cluster {
    Cluster::start(binaries, Options::default()).await.unwrap()
}

pub(super) async fn has_no_drift(cluster: &Cluster, what: &str) {
    let superuser = connect(&cluster.url("shop")).await;
    if what != INSTALLED {
        opens_an_epoch(cluster);
    }
    let verified = symphony(&cluster.url("shop"), &["verify", "--strict"]);
    assert_eq!(differences(&verified), Vec::<String>::new(), "{what}");
    verified.exits(0);
    run_check(cluster, &superuser, "shop").await.exits(0);
    // An install has nothing to do.
    let installed = symphony(&cluster.url("shop"), &["install"]).exits(0);
    assert!(installed.stdout.starts_with("already current"), "{what}: {}", installed.all());
}

/// Verify says that the epoch is of another server, and nothing else, until one is opened by hand.
pub(super) fn opens_an_epoch(cluster: &Cluster) {
    let url = cluster.url("shop");
    let verified = symphony(&url, &["verify"]).exits(0);
    let differences = differences(&verified);
    assert!(
        matches!(&differences[..], [one] if one.starts_with("warning: changed: newest epoch: server")),
        "{differences:?}"
    );
    symphony(&url, &["verify", "--strict"]).exits(1);
    symphony(&url, &["recover", "open", "--at-least", "2", "--actor", "ana", "--reason", "restored"]).exits(0);
}

pub(super) fn write_output(mut command: Command, to: &Path) {
    let status = command.stdout(File::create(to).unwrap()).status().unwrap();
    assert!(status.success(), "{command:?}");
}

pub(super) fn run_with_input(mut command: Command, from: &Path) {
    let output = command.stdin(File::open(from).unwrap()).stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Dumps the roles and the database of one server and restores them into a new server of this version. It uses the new
/// version's programs, as PostgreSQL recommends for an upgrade.
async fn restored(from: &Cluster, into: &Binaries) -> Cluster {
    let to = start(into).await;
    let folder = tempfile::tempdir().unwrap();
    let (roles, shop) = (folder.path().join("roles"), folder.path().join("shop"));
    let mut command = Command::new(into.program("pg_dumpall"));
    command.args(["--roles-only", "--dbname"]).arg(from.url("postgres"));
    write_output(command, &roles);
    let mut command = Command::new(into.program("pg_dump"));
    command.args(["--create", "--dbname"]).arg(from.url("shop"));
    write_output(command, &shop);

    let psql = || {
        let mut command = Command::new(into.program("psql"));
        command.args(["--no-psqlrc", "--quiet"]).arg(to.url("postgres"));
        command
    };
    // The superuser already exists; psql continues after that error.
    run_with_input(psql(), &roles);
    let mut strict = psql();
    strict.arg("--set=ON_ERROR_STOP=1");
    run_with_input(strict, &shop);
    to
}

#[tokio::test]
async fn a_restored_dump_is_no_drift_however_often() {
    let [oldest, newest] = oldest_and_newest();
    let mut cluster = start(&oldest).await;
    installed(&cluster, "shop", &["payment", "event", "metadata"]).await;
    has_no_drift(&cluster, INSTALLED).await;
    for into in [&oldest, &newest, &newest] {
        cluster = restored(&cluster, into).await;
        has_no_drift(&cluster, &format!("restored into {}", into.version())).await;
    }
}

#[tokio::test]
async fn a_restored_dump_of_the_newest_version_is_no_drift() {
    let [_, newest] = oldest_and_newest();
    let cluster = start(&newest).await;
    installed(&cluster, "shop", &["payment", "event", "metadata"]).await;
    has_no_drift(&restored(&cluster, &newest).await, "restored").await;
}

#[tokio::test]
async fn an_upgraded_server_is_no_drift() {
    let [oldest, newest] = oldest_and_newest();
    let cluster = start(&oldest).await;
    installed(&cluster, "shop", &["payment", "event", "metadata"]).await;
    has_no_drift(&cluster, INSTALLED).await;
    let cluster = cluster.upgrade(&newest).await.unwrap();
    has_no_drift(&cluster, "upgraded").await;
}
