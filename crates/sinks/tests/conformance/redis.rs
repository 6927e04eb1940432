//! Redis, read over a socket by its own protocol.

use std::collections::BTreeMap;

use symphony_proof::kit::brokers::{Broker, Kind, USER};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::authority::Authority;
use crate::place::{HERE, PASSWORD, Place, Seen, broker};

pub(crate) struct Redis {
    broker: Broker,
    tls: bool,
}

impl Place for Redis {
    const DROPS_REPEATS: bool = true;
    const NOWHERE: &'static str = "a-list";

    async fn start(tls: Option<&Authority>) -> Option<Self> {
        let place = Self { broker: broker(Kind::Redis, tls).await, tls: tls.is_some() };
        if tls.is_none() {
            place.ask(&["RPUSH", Self::NOWHERE, "no stream"]).await;
        }
        Some(place)
    }

    fn settings(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("kind = 'redis'\nurl = '{scheme}://localhost:{}'\nuser = '{USER}'", self.broker.port())
    }

    fn password_setting(&self) -> Option<&'static str> {
        Some("password_file")
    }

    async fn read(&self) -> Vec<Seen> {
        let Answer::Array(entries) = self.ask(&["XRANGE", HERE, "-", "+"]).await else { panic!("no array") };
        entries.into_iter().map(found).collect()
    }

    async fn down(&mut self) {
        self.broker.kill9().await.unwrap();
    }

    async fn up(&mut self) {
        self.broker.restart().await.unwrap();
    }

    fn pause(&mut self) {
        self.broker.pause();
    }

    fn resume(&mut self) {
        self.broker.resume();
    }
}

#[derive(Debug)]
pub(crate) enum Answer {
    Text(String),
    Array(Vec<Answer>),
}

impl Redis {
    pub(crate) async fn ask(&self, command: &[&str]) -> Answer {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.broker.port())).await.unwrap());
        for words in [&["AUTH", USER, PASSWORD][..], command] {
            let mut text = format!("*{}\r\n", words.len());
            for word in words {
                text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
            }
            stream.write_all(text.as_bytes()).await.unwrap();
        }
        answer(&mut stream).await;
        answer(&mut stream).await
    }
}

async fn answer(stream: &mut BufReader<TcpStream>) -> Answer {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "$" => {
            let mut body = vec![0; rest.parse::<usize>().unwrap() + 2];
            stream.read_exact(&mut body).await.unwrap();
            body.truncate(body.len() - 2);
            Answer::Text(String::from_utf8(body).unwrap())
        }
        "*" => {
            let mut all = Vec::new();
            for _ in 0..rest.parse::<usize>().unwrap() {
                all.push(Box::pin(answer(stream)).await);
            }
            Answer::Array(all)
        }
        "+" | ":" => Answer::Text(rest.to_owned()),
        _ => panic!("refused: {line}"),
    }
}

fn found(entry: Answer) -> Seen {
    let Answer::Array(mut parts) = entry else { panic!("no entry") };
    let Some(Answer::Array(fields)) = parts.pop() else { panic!("no fields") };
    let fields: Vec<String> = fields
        .into_iter()
        .map(|field| match field {
            Answer::Text(text) => text,
            Answer::Array(_) => panic!("an array in a field"),
        })
        .collect();
    let fields: BTreeMap<&str, &str> = fields.chunks(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let field = |name: &str| fields[name].to_owned();
    assert_eq!((fields["specversion"], fields["datacontenttype"]), ("1.0", "application/json"));
    Seen {
        id: field("id"),
        source: field("source"),
        event_type: field("type"),
        subject: field("subject"),
        key: field("partitionkey"),
        data: field("data"),
    }
}
