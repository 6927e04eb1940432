//! A database that was dumped and restored, or upgraded, is what an install makes: verify finds nothing, a relayer starts.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use symphony_proof::kit::postgres::{Binaries, Cluster, Options};

use super::{connect, differences, installed, program::symphony, run_check};

/// The oldest and the newest PostgreSQL here that come with the programs of a DBA.
fn oldest_and_newest() -> [Binaries; 2] {
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

async fn start(binaries: &Binaries) -> Cluster {
    Cluster::start(binaries, Options::default()).await.unwrap()
}

async fn is_clean(cluster: &Cluster, what: &str) {
    let superuser = connect(&cluster.url("shop")).await;
    let verified = symphony(&cluster.url("shop"), &["verify", "--strict"]);
    assert_eq!(differences(&verified), Vec::<String>::new(), "{what}");
    verified.exits(0);
    run_check(cluster, &superuser, "shop").await.exits(0);
    // The install has nothing to do either.
    let said = symphony(&cluster.url("shop"), &["install"]).exits(0);
    assert!(said.stdout.starts_with("already current"), "{what}: {}", said.all());
}

fn write(mut command: Command, to: &Path) {
    let status = command.stdout(File::create(to).unwrap()).status().unwrap();
    assert!(status.success(), "{command:?}");
}

fn feed(mut command: Command, from: &Path) {
    let output = command.stdin(File::open(from).unwrap()).stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Dumps the roles and the database of one server and restores them into a fresh one of this version, with its programs:
/// pg_dump of the newer version is the one to use for an upgrade.
async fn restored(from: &Cluster, into: &Binaries) -> Cluster {
    let to = start(into).await;
    let folder = tempfile::tempdir().unwrap();
    let (roles, shop) = (folder.path().join("roles"), folder.path().join("shop"));
    let mut command = Command::new(into.program("pg_dumpall"));
    command.args(["--roles-only", "--dbname"]).arg(from.url("postgres"));
    write(command, &roles);
    let mut command = Command::new(into.program("pg_dump"));
    command.args(["--create", "--dbname"]).arg(from.url("shop"));
    write(command, &shop);

    let psql = || {
        let mut command = Command::new(into.program("psql"));
        command.args(["--no-psqlrc", "--quiet"]).arg(to.url("postgres"));
        command
    };
    // The superuser is there already, and that is no reason to stop.
    feed(psql(), &roles);
    let mut strict = psql();
    strict.arg("--set=ON_ERROR_STOP=1");
    feed(strict, &shop);
    to
}

#[tokio::test]
async fn a_restored_dump_is_no_drift_however_often() {
    let [oldest, newest] = oldest_and_newest();
    let mut cluster = start(&oldest).await;
    installed(&cluster, "shop", &["payment", "event", "metadata"]).await;
    is_clean(&cluster, "installed").await;
    for into in [&oldest, &newest, &newest] {
        cluster = restored(&cluster, into).await;
        is_clean(&cluster, &format!("restored into {}", into.version())).await;
    }
}

#[tokio::test]
async fn a_restored_dump_of_the_newest_version_is_no_drift() {
    let [_, newest] = oldest_and_newest();
    let cluster = start(&newest).await;
    installed(&cluster, "shop", &["payment", "event", "metadata"]).await;
    is_clean(&restored(&cluster, &newest).await, "restored").await;
}

#[tokio::test]
async fn an_upgraded_server_is_no_drift() {
    let [oldest, newest] = oldest_and_newest();
    let cluster = start(&oldest).await;
    installed(&cluster, "shop", &["payment", "event", "metadata"]).await;
    is_clean(&cluster, "installed").await;
    let cluster = cluster.upgrade(&newest).await.unwrap();
    is_clean(&cluster, "upgraded").await;
}
