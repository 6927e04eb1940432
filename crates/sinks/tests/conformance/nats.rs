//! A NATS server, read over a socket by its text protocol.

use async_nats::jetstream;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use symphony_testkit::brokers::{Broker, Kind, USER};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::certificate_authority::CertificateAuthority;
use crate::fixture::{DESTINATION, Files, PASSWORD, ReceivedEvent, SinkFixture, broker};

pub(crate) struct Nats {
    broker: Broker,
    tls: bool,
}

impl SinkFixture for Nats {
    const DEDUPLICATES: bool = true;
    const REFUSED_DESTINATION: &'static str = "no.stream.here";

    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self> {
        let broker = broker(Kind::Nats, tls).await;
        let files = Files::new();
        let mut options = async_nats::ConnectOptions::with_user_and_password(USER.into(), PASSWORD.into());
        if let Some(authority) = tls {
            options = options.add_root_certificates(files.write("ca.pem", &authority.pem())).require_tls(true);
        }
        let client = options.connect(format!("nats://localhost:{}", broker.port())).await.unwrap();
        let config = jetstream::stream::Config {
            name: "EVENTS".to_owned(),
            subjects: vec![DESTINATION.to_owned()],
            ..Default::default()
        };
        jetstream::new(client).create_stream(config).await.unwrap();
        Some(Self { broker, tls: tls.is_some() })
    }

    fn settings(&self) -> String {
        let scheme = if self.tls { "tls" } else { "nats" };
        format!("kind = 'nats'\nurl = '{scheme}://localhost:{}'\nuser = '{USER}'", self.broker.port())
    }

    fn password_setting(&self) -> Option<&'static str> {
        Some("password_file")
    }

    async fn read(&self) -> Vec<ReceivedEvent> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.broker.port())).await.unwrap());
        let connect = format!(
            "CONNECT {{\"verbose\":false,\"user\":\"{USER}\",\"pass\":\"{PASSWORD}\",\"headers\":true}}\r\nSUB look 1\r\n"
        );
        stream.write_all(connect.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        for sequence in 1.. {
            let ask = format!("{{\"seq\":{sequence}}}");
            let ask = format!("PUB $JS.API.STREAM.MSG.GET.EVENTS look {}\r\n{ask}\r\n", ask.len());
            stream.write_all(ask.as_bytes()).await.unwrap();
            let answer = answer(&mut stream).await;
            if answer["error"]["code"] == 404 {
                break;
            }
            all.push(found(&answer["message"]));
        }
        all
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

/// The next message, as JSON.
async fn answer(stream: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["MSG", .., length] => {
                let mut body = vec![0; length.parse::<usize>().unwrap() + 2];
                stream.read_exact(&mut body).await.unwrap();
                return serde_json::from_slice(&body).unwrap();
            }
            ["PING"] => stream.write_all(b"PONG\r\n").await.unwrap(),
            ["INFO", ..] | ["PONG"] => {}
            _ => panic!("unexpected: {line:?}"),
        }
    }
}

fn found(message: &Value) -> ReceivedEvent {
    let text = |name: &str| {
        let bytes = STANDARD.decode(message[name].as_str().unwrap_or_default()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let headers = text("hdrs");
    let header = |name: &str| {
        let value = headers.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap();
        percent_decode_str(value).decode_utf8().unwrap().into_owned()
    };
    assert_eq!((header("ce-specversion"), header("content-type")), ("1.0".into(), "application/json".into()));
    ReceivedEvent {
        id: header("ce-id"),
        source: header("ce-source"),
        event_type: header("ce-type"),
        subject: header("ce-subject"),
        key: header("ce-partitionkey"),
        data: text("data"),
        traceparent: headers.lines().find_map(|line| line.strip_prefix("traceparent: ")).map(str::to_owned),
    }
}
