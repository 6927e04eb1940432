//! The event stream that makes open pages refresh.

use symphony_testkit::wait::DEFAULT_TIMEOUT;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::fixture::Fixture;

#[tokio::test]
async fn an_open_page_is_notified_of_a_change() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[]).await;
    let mut stream = TcpStream::connect(console.address).await.unwrap();
    let head = format!("GET /live HTTP/1.1\r\nhost: {}\r\n\r\n", console.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let next_line_has = async |lines: &mut tokio::io::Lines<_>, words: &str| {
        let received = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(words) {
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(DEFAULT_TIMEOUT, received).await.unwrap()
    };
    // The response begins after the first read of the database.
    assert!(next_line_has(&mut lines, "text/event-stream").await);
    fixture.enqueue(1).await;
    assert!(next_line_has(&mut lines, "event: changed").await);
    fixture.claim().await;
    assert!(next_line_has(&mut lines, "event: changed").await);
}
