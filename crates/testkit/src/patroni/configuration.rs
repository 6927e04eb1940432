//! Arguments of etcd, and the files of Patroni and HAProxy.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::Replication;
use crate::port::HOST;

/// The superuser of all servers, whom they trust on this machine.
pub(super) const SUPERUSER: &str = "postgres";

/// Ports of a node, and the ports of its tunnels.
pub(super) struct Ports {
    pub(super) postgres: u16,
    pub(super) rest: u16,
    /// Leads to etcd.
    pub(super) etcd: u16,
    /// Leads to its PostgreSQL, for the other nodes.
    pub(super) replication: u16,
    /// Leads to its REST API, for the other nodes.
    pub(super) peers: u16,
}

pub(super) fn etcd(folder: &Path, client: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (format!("http://{HOST}:{client}"), format!("http://{HOST}:{peer}"));
    [
        ("--name", "etcd".to_owned()),
        ("--data-dir", folder.join("etcd").display().to_string()),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", peer.clone()),
        ("--initial-advertise-peer-urls", peer.clone()),
        ("--initial-cluster", format!("etcd={peer}")),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect()
}

/// Patroni's file. JSON is YAML.
pub(super) fn patroni(
    name: &str,
    folder: &Path,
    data: &Path,
    programs: &Path,
    ports: &Ports,
    replication: Replication,
) -> String {
    let configuration = json!({
        "scope": "symphony",
        "name": name,
        "restapi": { "listen": at(ports.rest), "connect_address": at(ports.peers) },
        // As a proxy, so that Patroni does not go around the tunnel to the address that etcd advertises.
        "etcd3": { "hosts": at(ports.etcd), "use_proxies": true },
        "bootstrap": {
            "dcs": dynamic(replication),
            "initdb": [{ "auth": "trust" }, { "encoding": "UTF8" }, { "locale": "C" }, "data-checksums", "no-sync"],
        },
        "postgresql": {
            "listen": at(ports.postgres),
            "connect_address": at(ports.replication),
            "data_dir": data,
            "bin_dir": programs,
            "pgpass": folder.join("pgpass"),
            "authentication": {
                "superuser": { "username": SUPERUSER, "password": "unused" },
                "replication": { "username": "replicator", "password": "unused" },
            },
            "parameters": { "unix_socket_directories": folder },
            "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
            // Without WAL in common, the node is copied again.
            "remove_data_directory_on_rewind_failure": true,
            "remove_data_directory_on_diverged_timelines": true,
            "basebackup": [{ "checkpoint": "fast" }, "no-sync"],
        },
    });
    format!("{configuration:#}\n")
}

/// The settings that the cluster keeps in etcd.
fn dynamic(replication: Replication) -> Value {
    json!({
        // Newer Patroni raises a ttl below 20 s.
        "ttl": 8,
        "loop_wait": 1,
        "retry_timeout": 3,
        // A standby that lags is promoted all the same, so that a failover loses commits.
        "maximum_lag_on_failover": 1_073_741_824,
        // A killed server is not restarted in its place: a standby is promoted. Before Patroni 3 the name was another.
        "primary_start_timeout": 0,
        "master_start_timeout": 0,
        "synchronous_mode": replication == Replication::Synchronous,
        "postgresql": {
            "use_pg_rewind": true,
            "use_slots": true,
            "parameters": {
                "max_connections": 100,
                "shared_buffers": "64MB",
                "wal_log_hints": "on",
                "wal_keep_size": "512MB",
                "max_wal_size": "1GB",
                // What is killed are processes, so what was written is kept without fsync.
                "fsync": "off",
                "synchronous_commit": "on",
            },
        },
    })
}

/// HAProxy's file, as Patroni's documentation recommends it: nodes are this name, this port and this REST port.
pub(super) fn haproxy(port: u16, nodes: &[(&str, u16, u16)]) -> String {
    let mut text = format!(
        "global\n  maxconn 400\n\
         defaults\n  mode tcp\n  retries 2\n  timeout connect 4s\n  timeout client 30m\n  timeout server 30m\n\
         \x20 timeout check 2s\n\
         listen primary\n  bind {HOST}:{port}\n  option httpchk OPTIONS /primary\n  http-check expect status 200\n\
         \x20 default-server inter 500ms fall 3 rise 1 on-marked-down shutdown-sessions\n"
    );
    for (name, postgres, rest) in nodes {
        let _ = writeln!(text, "  server {name} {HOST}:{postgres} check port {rest}");
    }
    text
}

fn at(port: u16) -> String {
    format!("{HOST}:{port}")
}
