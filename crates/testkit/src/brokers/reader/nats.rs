//! NATS JetStream: a stream in files, read message by message.

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

/// An answer: its headers, empty where it has none, and its body.
struct Answer {
    headers: String,
    body: Vec<u8>,
}

/// Makes a stream in files, which the server of the kit writes through before it confirms.
pub(super) async fn prepare(port: u16, password: &str, subject: &str) -> Result<(), ReadError> {
    let stream = json!({
        "name": STREAM, "subjects": [subject], "storage": "file", "retention": "limits",
        "num_replicas": 1, "allow_direct": true, "duplicate_window": 24 * 3600 * NANOSECONDS,
    });
    let mut session = Session::open(port, password).await?;
    let answer = session.ask(&format!("$JS.API.STREAM.CREATE.{STREAM}"), &stream).await?;
    let output: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if output["config"].is_object() { Ok(()) } else { Err(ReadError::Answer(output.to_string())) }
}

/// All that the stream has, by its sequence.
pub(super) async fn read(port: u16, password: &str) -> Result<Vec<Event>, ReadError> {
    let mut session = Session::open(port, password).await?;
    let mut all = Vec::new();
    for sequence in 1.. {
        let answer = session.ask(&format!("$JS.API.DIRECT.GET.{STREAM}"), &json!({ "seq": sequence })).await?;
        if answer.headers.starts_with("NATS/1.0 404") {
            break;
        }
        let header = |name: &str| {
            let value = answer.headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.ok_or_else(|| ReadError::Answer(format!("no {name} in {:?}", answer.headers)))
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
        socket.write_all(format!("CONNECT {hello}\r\nSUB look 1\r\n").as_bytes()).await?;
        Ok(Self(socket))
    }

    async fn ask(&mut self, subject: &str, question: &Value) -> Result<Answer, ReadError> {
        let question = question.to_string();
        let question = format!("PUB {subject} look {}\r\n{question}\r\n", question.len());
        self.0.write_all(question.as_bytes()).await?;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["MSG", .., whole] => return self.body(0, length(whole)?).await,
                ["HMSG", .., headers, whole] => return self.body(length(headers)?, length(whole)?).await,
                ["PING"] => self.0.write_all(b"PONG\r\n").await?,
                ["INFO", ..] | ["PONG"] => {}
                _ => return Err(ReadError::Answer(line)),
            }
        }
    }

    async fn body(&mut self, headers: usize, length: usize) -> Result<Answer, ReadError> {
        let mut whole = vec![0; length + 2];
        self.0.read_exact(&mut whole).await?;
        whole.truncate(length);
        let body = whole.split_off(headers.min(length));
        let headers =
            String::from_utf8(whole).map_err(|_| ReadError::Answer("headers that are no text".into()))?;
        Ok(Answer { headers, body })
    }
}
