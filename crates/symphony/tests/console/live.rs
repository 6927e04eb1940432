//! Pages are told when something changed, and only then.

use symphony_proof::kit::wait::BOUND;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::office::Office;

#[tokio::test]
async fn a_page_that_is_open_is_told_that_something_changed() {
    let office = Office::open().await;
    let console = office.console(&[]).await;
    let mut stream = TcpStream::connect(console.address).await.unwrap();
    let head = format!("GET /live HTTP/1.1\r\nhost: {}\r\n\r\n", console.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let told = async |lines: &mut tokio::io::Lines<_>, words: &str| {
        let heard = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(words) {
                    return true;
                }
            }
            false
        };
        tokio::time::timeout(BOUND, heard).await.unwrap()
    };
    // The answer begins once the first look was taken.
    assert!(told(&mut lines, "text/event-stream").await);
    office.enqueue(1).await;
    assert!(told(&mut lines, "event: changed").await);
    office.claim().await;
    assert!(told(&mut lines, "event: changed").await);
}
