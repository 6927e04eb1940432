//! Patroni's REST API: who leads, who follows, and a switchover.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{NODES, Replication};

/// A paused node accepts the connection and never answers.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// A switchover is answered after it.
const SWITCHOVER_TIMEOUT: Duration = Duration::from_secs(120);

/// Whether this node holds the leader's lock and accepts writes.
pub(super) async fn is_leader(node: SocketAddr) -> bool {
    request(node, "GET", "/primary", "", QUERY_TIMEOUT).await.is_some_and(|(status, _)| status == 200)
}

/// The cluster's members as this node sees them, as JSON.
pub(super) async fn members(node: SocketAddr) -> String {
    request(node, "GET", "/cluster", "", QUERY_TIMEOUT)
        .await
        .map_or_else(|| "unknown".to_owned(), |(_, body)| body)
}

/// Whether all members run, on one timeline, and one of them is synchronous if commits wait for one.
pub(super) async fn is_healthy(leader: SocketAddr, replication: Replication) -> bool {
    let cluster: Value = serde_json::from_str(&members(leader).await).unwrap_or_default();
    let Some(members) = cluster["members"].as_array() else { return false };
    let runs = |member: &Value| matches!(member["state"].as_str(), Some("running" | "streaming"));
    let same_timeline = members.iter().all(|member| member["timeline"] == members[0]["timeline"]);
    let synchronous = members.iter().any(|member| member["role"] == "sync_standby");
    members.len() == NODES
        && members.iter().all(runs)
        && same_timeline
        && (synchronous || replication == Replication::Asynchronous)
}

/// Asks the leader to switch over to any standby. Returns status and answer.
pub(super) async fn switch_over(leader: SocketAddr, name: &str) -> (u16, String) {
    let body = json!({ "leader": name }).to_string();
    let answer = request(leader, "POST", "/switchover", &body, SWITCHOVER_TIMEOUT).await;
    answer.unwrap_or_else(|| (0, "no answer".to_owned()))
}

/// Asks a node to copy its data from the leader again.
pub(super) async fn reinitialize(node: SocketAddr) {
    // It answers at once. If it refuses, the caller asks again.
    let _ = request(node, "POST", "/reinitialize", r#"{"force": true}"#, QUERY_TIMEOUT).await;
}

/// Sends a request, and returns status and body; `None` if there is no answer.
async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
    timeout: Duration,
) -> Option<(u16, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        // HTTP/1.0: the end of the body is the end of the connection.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    };
    tokio::time::timeout(timeout, exchange).await.ok().flatten()
}
