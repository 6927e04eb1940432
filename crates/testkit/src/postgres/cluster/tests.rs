//! Tests with real servers of the first installation that is found.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[tokio::test]
async fn a_cluster_listens_on_the_loopback_address_and_leaves_nothing_behind() {
    let cluster = start(Options::default()).await;
    let folder = cluster.folder().to_path_buf();

    assert_eq!(query_text(&cluster, "select 1").await, "1");
    assert_eq!(query_text(&cluster, "show listen_addresses").await, "127.0.0.1");
    assert_eq!(query_text(&cluster, "show fsync").await, "off");
    assert_eq!(query_text(&cluster, "show server_encoding").await, "UTF8");
    let version = query_text(&cluster, "show server_version").await;
    assert_eq!(version, cluster.binaries().version());
    let mode = fs::metadata(folder.join("data")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    cluster.remove().unwrap();
    assert!(!folder.exists());
}

#[tokio::test]
async fn dropping_a_cluster_stops_its_server_and_removes_its_folder() {
    let cluster = start(Options::default()).await;
    let (folder, url) = (cluster.folder().to_path_buf(), cluster.url("postgres"));
    drop(cluster);
    assert!(!folder.exists());
    assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
}

#[tokio::test]
async fn two_clusters_run_at_the_same_time() {
    let (one, other) = tokio::join!(start(Options::default()), start(Options::default()));
    assert_ne!(one.port(), other.port());
    assert_eq!(query_text(&one, "select 1").await, "1");
    assert_eq!(query_text(&other, "select 1").await, "1");
}

#[tokio::test]
async fn what_was_committed_survives_a_kill_of_every_process() {
    let mut cluster = start(Options { durable: true, ..Options::default() }).await;
    assert_eq!(query_text(&cluster, "show fsync").await, "on");
    run(&cluster, "create table kept (value int); insert into kept values (7)").await;
    let url = cluster.url("postgres");
    let (uncommitted, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    uncommitted.batch_execute("begin; insert into kept values (8)").await.unwrap();

    cluster.kill9().await;
    assert!(!cluster.is_running());
    assert!(connection.await.unwrap().is_err());

    cluster.restart().await.unwrap();
    assert_eq!(cluster.url("postgres"), url);
    assert_eq!(query_text(&cluster, "select string_agg(value::text, ',') from kept").await, "7");
}

#[tokio::test]
async fn a_stopped_cluster_keeps_its_data_and_its_port() {
    let mut cluster = start(Options::default()).await;
    let port = cluster.port();
    run(&cluster, "create table kept (value int); insert into kept values (7)").await;

    cluster.stop().await.unwrap();
    assert!(!cluster.is_running());
    assert!(tokio_postgres::connect(&cluster.url("postgres"), NoTls).await.is_err());
    cluster.stop().await.unwrap();

    cluster.restart().await.unwrap();
    assert_eq!(cluster.port(), port);
    assert_eq!(query_text(&cluster, "select value from kept").await, "7");
}

#[tokio::test]
async fn a_port_that_another_process_took_is_replaced_by_a_free_one() {
    let mut cluster = start(Options::default()).await;
    cluster.stop().await.unwrap();
    let taken = TcpListener::bind((HOST, cluster.port())).unwrap();

    cluster.serve(Port::AnyFree).await.unwrap();

    assert_ne!(cluster.port(), taken.local_addr().unwrap().port());
    assert_eq!(query_text(&cluster, "select 1").await, "1");
}

#[tokio::test]
async fn a_server_that_cannot_start_shows_its_log() {
    let settings = vec![("max_connections".to_owned(), "many".to_owned())];
    let binaries = Binaries::find().unwrap();
    let refusal = Cluster::start(&binaries, Options { settings, ..Options::default() }).await.unwrap_err();
    assert!(matches!(&refusal, Error::Ended { log, .. } if log.contains("max_connections")), "{refusal}");
}

#[tokio::test]
async fn a_server_that_misses_its_deadline_is_an_error_and_is_removed() {
    let mut cluster = start(Options::default()).await;
    cluster.stop().await.unwrap();
    cluster.options.deadline = Duration::ZERO;
    let refusal = cluster.serve(Port::Same).await.unwrap_err();
    assert!(matches!(refusal, Error::Deadline { what: "accept connections", .. }), "{refusal}");

    let folder = cluster.folder().to_path_buf();
    drop(cluster);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_server_outlives_the_thread_that_started_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let started = std::thread::spawn(move || runtime().block_on(start(Options::default())));
    let cluster = started.join().unwrap();
    assert_eq!(query_text(&cluster, "select 1").await, "1");
}

async fn start(options: Options) -> Cluster {
    Cluster::start(&Binaries::find().unwrap(), options).await.unwrap()
}

async fn connect(cluster: &Cluster) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&cluster.url("postgres"), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn run(cluster: &Cluster, sql: &str) {
    connect(cluster).await.batch_execute(sql).await.unwrap();
}

/// The first column of the first row, as text.
async fn query_text(cluster: &Cluster, sql: &str) -> String {
    let messages = connect(cluster).await.simple_query(sql).await.unwrap();
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    row.unwrap()
}
