//! As much of HTTP as it takes to ask the bank and the relayer: one request for each connection, of a server that is ours.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than anything takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The status and the body; nothing where nobody listens or the connection breaks.
pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        // HTTP/1.0: the end of the body is the end of the connection.
        let head = format!("{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    };
    tokio::time::timeout(PATIENCE, asked).await.ok().flatten()
}

/// The body of what must be answered with 200.
pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    let (status, body) = ask(address, "GET", path, "").await.unwrap_or_else(|| panic!("no answer to {path}"));
    assert_eq!(status, 200, "{path}: {body}");
    body
}
