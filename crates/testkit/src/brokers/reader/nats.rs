//! NATS JetStream: creates a file-backed stream, and reads it message by message.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{ReadError, event, length};
use crate::brokers::USER;
use crate::port::HOST;
use crate::reconciliation::events::Event;

/// The name of the stream.
const STREAM: &str = "EVENTS";
const NANOSECONDS: u64 = 1_000_000_000;

struct Session(BufReader<TcpStream>);

/// A reply: its headers (may be empty) and its body.
struct Reply {
    headers: String,
    body: Vec<u8>,
}

/// Creates a file-backed stream. The test server syncs each message to disk before it acknowledges.
pub(super) async fn prepare(port: u16, password: &str, subject: &str) -> Result<(), ReadError> {
    let stream = json!({
        "name": STREAM, "subjects": [subject], "storage": "file", "retention": "limits",
        "num_replicas": 1, "allow_direct": true, "duplicate_window": 24 * 3600 * NANOSECONDS,
    });
    let mut session = Session::open(port, password).await?;
    let reply = session.request(&format!("$JS.API.STREAM.CREATE.{STREAM}"), &stream).await?;
    let output: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if output["config"].is_object() { Ok(()) } else { Err(ReadError::Reply(output.to_string())) }
}

/// How many messages the stream has.
pub(super) async fn count(port: u16, password: &str) -> Result<u64, ReadError> {
    let mut session = Session::open(port, password).await?;
    let reply = session.request(&format!("$JS.API.STREAM.INFO.{STREAM}"), &json!({})).await?;
    let output: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    output["state"]["messages"].as_u64().ok_or_else(|| ReadError::Reply(output.to_string()))
}

/// All events of the stream, by sequence number.
pub(super) async fn read(port: u16, password: &str) -> Result<Vec<Event>, ReadError> {
    let mut session = Session::open(port, password).await?;
    let mut all = Vec::new();
    for sequence in 1.. {
        let reply = session.request(&format!("$JS.API.DIRECT.GET.{STREAM}"), &json!({ "seq": sequence })).await?;
        if reply.headers.starts_with("NATS/1.0 404") {
            break;
        }
        let header = |name: &str| {
            let value = reply.headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.ok_or_else(|| ReadError::Reply(format!("no {name} in {:?}", reply.headers)))
        };
        all.push(event(header("ce-id")?, header("ce-partitionkey")?)?);
    }
    Ok(all)
}

impl Session {
    async fn open(port: u16, password: &str) -> Result<Self, ReadError> {
        let mut socket = BufReader::new(TcpStream::connect((HOST, port)).await?);
        let hello =
            json!({"verbose": false, "user": USER, "pass": password, "headers": true, "no_responders": true});
        socket.write_all(format!("CONNECT {hello}\r\nSUB inbox 1\r\n").as_bytes()).await?;
        Ok(Self(socket))
    }

    async fn request(&mut self, subject: &str, body: &Value) -> Result<Reply, ReadError> {
        let body = body.to_string();
        let message = format!("PUB {subject} inbox {}\r\n{body}\r\n", body.len());
        self.0.write_all(message.as_bytes()).await?;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["MSG", .., whole] => return self.body(0, length(whole)?).await,
                ["HMSG", .., headers, whole] => return self.body(length(headers)?, length(whole)?).await,
                ["PING"] => self.0.write_all(b"PONG\r\n").await?,
                ["INFO", ..] | ["PONG"] => {}
                _ => return Err(ReadError::Reply(line)),
            }
        }
    }

    async fn body(&mut self, headers: usize, length: usize) -> Result<Reply, ReadError> {
        let mut whole = vec![0; length + 2];
        self.0.read_exact(&mut whole).await?;
        whole.truncate(length);
        let body = whole.split_off(headers.min(length));
        let headers =
            String::from_utf8(whole).map_err(|_| ReadError::Reply("headers that are not UTF-8".into()))?;
        Ok(Reply { headers, body })
    }
}
