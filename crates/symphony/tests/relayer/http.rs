//! A minimal HTTP client for the bank and the relayer: one request per connection.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than any request takes on a slow machine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a request and returns status and body; `None` if the connection is refused or breaks.
pub(crate) async fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    request_with(address, method, path, "", body).await
}

/// The same, with these header lines, each with its end.
pub(crate) async fn request_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Option<(u16, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        // HTTP/1.0: the end of the body is the end of the connection.
        let head = format!("{method} {path} HTTP/1.0\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    };
    tokio::time::timeout(REQUEST_TIMEOUT, exchange).await.ok().flatten()
}

/// The body of a GET that must return 200.
pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    let (status, body) = request(address, "GET", path, "").await.unwrap_or_else(|| panic!("no answer to {path}"));
    assert_eq!(status, 200, "{path}: {body}");
    body
}
