//! What systemd hears from a relayer, through the socket that a unit of `Type=notify` gives it.

use std::path::PathBuf;

use symphony_testkit::wait::DEFAULT_TIMEOUT;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::harness::Harness;
use crate::relayer::{NO_DATABASE, Settings};

/// The socket of a service manager with a watchdog of 200 ms, and settings of a relayer that reports to it.
fn service_manager(harness: &Harness) -> (UnixDatagram, Settings) {
    let path: PathBuf = harness.folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut settings = harness.settings();
    settings.variables.push(("NOTIFY_SOCKET", path.to_str().unwrap().to_owned()));
    settings.variables.push(("WATCHDOG_USEC", "200000".to_owned()));
    (socket, settings)
}

async fn receive(socket: &UnixDatagram) -> String {
    let mut message = vec![0; 4096];
    let length = timeout(DEFAULT_TIMEOUT, socket.recv(&mut message)).await.unwrap().unwrap();
    String::from_utf8(message[..length].to_vec()).unwrap().trim().to_owned()
}

#[tokio::test]
async fn systemd_hears_of_the_start_of_life_and_of_the_stop() {
    let harness = Harness::start().await;
    let (socket, settings) = service_manager(&harness);
    let relayer = harness.start_relayer(&settings).await;
    assert_eq!(receive(&socket).await, "READY=1");
    for _ in 0..3 {
        assert_eq!(receive(&socket).await, "WATCHDOG=1");
    }
    relayer.program.term();
    while receive(&socket).await != "STOPPING=1" {}
    assert_eq!(relayer.program.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0);
}

#[tokio::test]
async fn systemd_hears_of_no_start_that_failed() {
    let harness = Harness::start().await;
    let (socket, mut settings) = service_manager(&harness);
    settings.url = "postgres://relayer@127.0.0.1:1/nothing".to_owned();
    settings.refuses_to_start(harness.folder.path(), NO_DATABASE, &[]).await;
    assert!(socket.try_recv(&mut [0; 64]).is_err(), "a relayer that did not start has reported");
}
