//! A Redis server, read over a socket by its text protocol (RESP).

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use symphony_relay::sink::Published;
use symphony_testkit::brokers::{Broker, Kind, USER};
use symphony_testkit::wait::{self, DEFAULT_TIMEOUT};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::certificate_authority::CertificateAuthority;
use crate::fixture::{DESTINATION, Files, PASSWORD, ReceivedEvent, SinkFixture, broker, event, sink_to};

pub(crate) struct Redis {
    pub(crate) broker: Broker,
    pub(crate) tls: bool,
}

impl SinkFixture for Redis {
    const DEDUPLICATES: bool = true;
    const REFUSED_DESTINATION: &'static str = "a-list";
    const HAS_HEADERS: bool = false;

    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self> {
        let fixture = Self { broker: broker(Kind::Redis, tls).await, tls: tls.is_some() };
        if tls.is_none() {
            fixture.command(&["RPUSH", Self::REFUSED_DESTINATION, "no stream"]).await;
        }
        Some(fixture)
    }

    fn settings(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("kind = 'redis'\nurl = '{scheme}://localhost:{}'\nuser = '{USER}'", self.broker.port())
    }

    fn password_setting(&self) -> Option<&'static str> {
        Some("password_file")
    }

    async fn read(&self) -> Vec<ReceivedEvent> {
        let Reply::Array(entries) = self.command(&["XRANGE", DESTINATION, "-", "+"]).await else {
            panic!("no array")
        };
        entries.into_iter().map(found).collect()
    }

    async fn kill(&mut self) {
        self.broker.kill9().await.unwrap();
    }

    async fn restart(&mut self) {
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
pub(crate) enum Reply {
    Text(String),
    Array(Vec<Reply>),
}

impl Redis {
    pub(crate) async fn command(&self, command: &[&str]) -> Reply {
        run_over(self.connect().await, command).await
    }

    /// The same with TLS and this trusted root.
    pub(crate) async fn command_by_tls(&self, command: &[&str], root: &str) -> Reply {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, self.connect().await).await.unwrap();
        run_over(stream, command).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.broker.port())).await.unwrap()
    }
}

async fn run_over(stream: impl AsyncRead + AsyncWrite + Unpin, command: &[&str]) -> Reply {
    let mut stream = BufReader::new(stream);
    for words in [&["AUTH", USER, PASSWORD][..], command] {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        stream.write_all(text.as_bytes()).await.unwrap();
    }
    stream.flush().await.unwrap();
    read_reply(&mut stream).await;
    read_reply(&mut stream).await
}

async fn read_reply(stream: &mut (impl AsyncBufRead + Unpin)) -> Reply {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "$" => {
            let mut body = vec![0; rest.parse::<usize>().unwrap() + 2];
            stream.read_exact(&mut body).await.unwrap();
            body.truncate(body.len() - 2);
            Reply::Text(String::from_utf8(body).unwrap())
        }
        "*" => {
            let mut all = Vec::new();
            for _ in 0..rest.parse::<usize>().unwrap() {
                all.push(Box::pin(read_reply(stream)).await);
            }
            Reply::Array(all)
        }
        "+" | ":" => Reply::Text(rest.to_owned()),
        _ => panic!("refused: {line}"),
    }
}

#[tokio::test]
async fn an_event_is_confirmed_when_as_many_replicas_have_it_as_the_settings_say() {
    let fixture = Redis::start(None).await.unwrap();
    let files = Files::new();
    let sink = sink_to(&fixture, &files, "replicas = 1\ntimeout = '2s'\nconnect_timeout = '1500ms'");
    let outcome = sink.publish(&event("1", "1")).await;
    let Published::Failed(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("0 of 1 replicas"), "{why}");

    let replica = Redis { broker: broker(Kind::Redis, None).await, tls: false };
    replica.command(&["CONFIG", "SET", "masteruser", USER, "masterauth", PASSWORD]).await;
    replica.command(&["REPLICAOF", "127.0.0.1", &fixture.broker.port().to_string()]).await;
    // The first publication was stored, so this is a repeat. WAIT applies to it as well.
    let confirmed = async || sink.publish(&event("1", "1")).await == Published::Confirmed { repeat: true };
    wait::until("the replica has it", DEFAULT_TIMEOUT, confirmed).await.unwrap();
    assert_eq!(replica.read().await.len(), 1);
}

#[tokio::test]
async fn a_stream_keeps_about_as_many_entries_as_the_settings_say() {
    let fixture = Redis::start(None).await.unwrap();
    let files = Files::new();
    let sink = sink_to(&fixture, &files, "max_length = 10\ntimeout = '60s'");
    for n in 0..250 {
        assert_eq!(sink.publish(&event(&n.to_string(), "1")).await, Published::Confirmed { repeat: false });
    }
    let left = fixture.read().await;
    assert!((10..250).contains(&left.len()), "{} are left", left.len());
    assert_eq!(left.last().unwrap().id, "249");
}

#[tokio::test]
async fn a_repeat_is_remembered_as_long_as_the_settings_say() {
    let fixture = Redis::start(None).await.unwrap();
    let files = Files::new();
    let sink = sink_to(&fixture, &files, "repeats_for = '5m'\ntimeout = '60s'");
    sink.publish(&event("1", "1")).await;
    let Reply::Text(left) = fixture.command(&["PTTL", "symphony:seen:{orders}:/shop#1"]).await else {
        panic!("no number")
    };
    assert!((200_000..=300_000).contains(&left.parse::<i64>().unwrap()), "{left}");
}

fn found(entry: Reply) -> ReceivedEvent {
    let Reply::Array(mut parts) = entry else { panic!("no entry") };
    let Some(Reply::Array(fields)) = parts.pop() else { panic!("no fields") };
    let fields: Vec<String> = fields
        .into_iter()
        .map(|field| match field {
            Reply::Text(text) => text,
            Reply::Array(_) => panic!("an array in a field"),
        })
        .collect();
    let fields: BTreeMap<&str, &str> = fields.chunks(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let field = |name: &str| fields[name].to_owned();
    assert_eq!((fields["specversion"], fields["datacontenttype"]), ("1.0", "application/json"));
    ReceivedEvent {
        id: field("id"),
        source: field("source"),
        event_type: field("type"),
        subject: field("subject"),
        key: field("partitionkey"),
        data: field("data"),
        traceparent: None,
    }
}
