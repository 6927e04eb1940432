//! NATS JetStream, set up and read over a socket by the protocol of NATS.

use serde_json::{Value, json};
use symphony_proof::kit::brokers::USER;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::bus::{Arrived, DESTINATION, PASSWORD};

const NANOSECONDS: u64 = 1_000_000_000;

struct Session(BufReader<TcpStream>);

/// An answer: its headers, empty where it has none, and its body.
struct Answer {
    headers: String,
    body: Vec<u8>,
}

/// Makes a stream in files, which the server of the kit writes through before it confirms.
pub(crate) async fn prepare(port: u16) {
    let stream = json!({
        "name": "EVENTS", "subjects": [DESTINATION], "storage": "file", "retention": "limits",
        "num_replicas": 1, "allow_direct": true, "duplicate_window": 24 * 3600 * NANOSECONDS,
    });
    let answer = Session::open(port).await.ask("$JS.API.STREAM.CREATE.EVENTS", &stream).await;
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    assert!(answer["error"].is_null(), "{answer}");
}

pub(crate) async fn read(port: u16) -> Vec<Arrived> {
    let mut session = Session::open(port).await;
    let mut all = Vec::new();
    for sequence in 1.. {
        let answer = session.ask("$JS.API.DIRECT.GET.EVENTS", &json!({ "seq": sequence })).await;
        if answer.headers.starts_with("NATS/1.0 404") {
            break;
        }
        let header = |name: &str| {
            let value = answer.headers.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            value.unwrap_or_else(|| panic!("no {name} in {:?}", answer.headers)).to_owned()
        };
        all.push(Arrived { id: header("ce-id").parse().unwrap(), key: header("ce-partitionkey") });
    }
    all
}

impl Session {
    async fn open(port: u16) -> Self {
        let mut socket = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
        let hello =
            json!({"verbose": false, "user": USER, "pass": PASSWORD, "headers": true, "no_responders": true});
        socket.write_all(format!("CONNECT {hello}\r\nSUB look 1\r\n").as_bytes()).await.unwrap();
        Self(socket)
    }

    async fn ask(&mut self, subject: &str, question: &Value) -> Answer {
        let question = question.to_string();
        let question = format!("PUB {subject} look {}\r\n{question}\r\n", question.len());
        self.0.write_all(question.as_bytes()).await.unwrap();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["MSG", .., length] => return self.body(0, length.parse().unwrap()).await,
                ["HMSG", .., headers, length] => {
                    return self.body(headers.parse().unwrap(), length.parse().unwrap()).await;
                }
                ["PING"] => self.0.write_all(b"PONG\r\n").await.unwrap(),
                ["INFO", ..] | ["PONG"] => {}
                _ => panic!("unexpected: {line:?}"),
            }
        }
    }

    async fn body(&mut self, headers: usize, length: usize) -> Answer {
        let mut whole = vec![0; length + 2];
        self.0.read_exact(&mut whole).await.unwrap();
        whole.truncate(length);
        let body = whole.split_off(headers);
        Answer { headers: String::from_utf8(whole).unwrap(), body }
    }
}
