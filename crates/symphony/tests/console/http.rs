//! A minimal HTTP client: one request per connection.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than any request takes on a slow machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// A header; empty if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| {
            let (given, value) = line.split_once(':')?;
            given.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        line.unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails the test unless the status is this.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// The detail of the problem with this status.
    #[track_caller]
    pub(crate) fn refused(self, status: u16) -> String {
        let answer = self.is(status);
        assert_eq!(answer.header("content-type"), "application/problem+json", "{answer:?}");
        let problem = answer.json();
        assert_eq!(problem["status"], status, "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

/// Sends a request with these headers, and a Host unless they contain one.
pub(crate) async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "host") {
            head.push_str(&format!("host: {address}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head: head.to_owned(), body: body.to_owned() };
        if answer.header("transfer-encoding") == "chunked" {
            answer.body = unchunked(&answer.body);
        }
        answer
    };
    tokio::time::timeout(REQUEST_TIMEOUT, asked).await.unwrap_or_else(|_| panic!("no answer to {method} {path}"))
}

/// Decodes a complete chunked body.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
}
