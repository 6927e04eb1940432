//! Denial of service by raw sockets: meanwhile every probe and an authenticated page must be answered in time.
//!
//! The attacker has the prober's own address, as behind one NAT or on one machine, unless a test says otherwise: a
//! limit per address alone would lock the prober out.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use symphony_testkit::wait::{self, DEFAULT_TIMEOUT};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::fixture::{Console, Fixture};
use crate::http;

/// More connections than the server keeps.
const ATTACKERS: usize = 300;
/// How long a probe may take under attack, on a busy machine: less than the timeouts that would free a connection by
/// themselves.
const PROBE_TIMEOUT: Duration = Duration::from_secs(8);
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn connect_from(source: IpAddr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(address).await
}

/// One request, as a prober sends it.
fn probe(address: SocketAddr, path: &str, bearer: &str) -> std::io::Result<String> {
    let mut stream = std::net::TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: {bearer}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Every probe, and a page of the API that needs a token.
async fn every_probe_is_answered(console: &Console, during: &str) {
    let bearer = format!("Bearer {}", console.token("reader"));
    for path in ["/healthz", "/readyz", "/metrics", "/api/v1/rails"] {
        let began = Instant::now();
        let (address, bearer) = (console.address, bearer.clone());
        // On its own thread: a real prober is another process, which the attackers cannot block.
        let asked = tokio::task::spawn_blocking(move || {
            loop {
                match probe(address, path, &bearer) {
                    // The server closed its connection for another: it connects again, as probers and scrapers do.
                    Err(error)
                        if error.kind() == ErrorKind::ConnectionReset && began.elapsed() < PROBE_TIMEOUT => {}
                    answer => return answer,
                }
            }
        });
        let answer = asked.await.unwrap().unwrap_or_else(|error| {
            panic!("{path} was not answered within {:?} during {during}: {error}", began.elapsed())
        });
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path} during {during}: {answer:?}");
        assert!(began.elapsed() < PROBE_TIMEOUT, "{path} took {:?} during {during}", began.elapsed());
    }
}

async fn ready_console(fixture: &Fixture) -> Console {
    let console = fixture.console(&[("reader", &["read"]), ("operator", &["operate"])]).await;
    let is_ready = async || http::ask(console.address, "GET", "/readyz", &[], "").await.status == 200;
    wait::until("the relayer is ready", DEFAULT_TIMEOUT, is_ready).await.unwrap();
    console
}

/// Opens connections that each send these bytes and then stay idle.
async fn hold(console: &Console, count: usize, bytes: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(console.address).await.unwrap();
        // The server may have closed it already.
        let _ = stream.write_all(bytes.as_bytes()).await;
        held.push(stream);
    }
    held
}

/// One attacking connection: sends requests for as long as the server takes them, and never reads.
async fn pipeline_and_never_read(source: IpAddr, address: SocketAddr, connected: Arc<AtomicUsize>) {
    let requests = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\n\r\n").repeat(200);
    let mut stream = loop {
        if let Ok(stream) = connect_from(source, address).await {
            break stream;
        }
    };
    connected.fetch_add(1, Ordering::SeqCst);
    while stream.write_all(requests.as_bytes()).await.is_ok() {}
    std::future::pending::<()>().await;
}

async fn flood(attack: &mut JoinSet<()>, source: IpAddr, console: &Console) {
    let connected = Arc::new(AtomicUsize::new(0));
    for _ in 0..ATTACKERS {
        attack.spawn(pipeline_and_never_read(source, console.address, Arc::clone(&connected)));
    }
    let all = async || connected.load(Ordering::SeqCst) >= ATTACKERS;
    wait::until("every attacker is connected", DEFAULT_TIMEOUT, all).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_while_hundreds_of_connections_pipeline_and_never_read() {
    let fixture = Fixture::new().await;
    let console = ready_console(&fixture).await;
    let mut attack = JoinSet::new();
    flood(&mut attack, LOCALHOST, &console).await;
    for _ in 0..10 {
        every_probe_is_answered(&console, "a flood of requests whose responses the client never reads").await;
    }
}

/// Sends nothing, and connects again as soon as it is closed.
async fn connect_and_send_nothing(address: SocketAddr, connected: Arc<AtomicUsize>) {
    loop {
        let Ok(mut stream) = connect_from(LOCALHOST, address).await else { continue };
        connected.fetch_add(1, Ordering::SeqCst);
        let _ = stream.read(&mut [0]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_while_silent_connections_reconnect() {
    let fixture = Fixture::new().await;
    let console = ready_console(&fixture).await;
    let (mut attack, connected) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..ATTACKERS {
        attack.spawn(connect_and_send_nothing(console.address, Arc::clone(&connected)));
    }
    let all = async || connected.load(Ordering::SeqCst) >= ATTACKERS;
    wait::until("every attacker is connected", DEFAULT_TIMEOUT, all).await.unwrap();
    for _ in 0..10 {
        every_probe_is_answered(&console, "a storm of silent connections").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_one_address_does_not_close_the_connection_of_another() {
    let fixture = Fixture::new().await;
    let console = ready_console(&fixture).await;
    let mut prober = connect_from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), console.address).await.unwrap();
    let mut attack = JoinSet::new();
    flood(&mut attack, LOCALHOST, &console).await;
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", console.address);
    for _ in 0..20 {
        prober.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok\n") {
            let read = tokio::time::timeout(PROBE_TIMEOUT, prober.read_buf(&mut answer)).await;
            assert_ne!(read.expect("an answer in time").unwrap(), 0, "the connection was closed");
        }
    }
}

#[tokio::test]
async fn probes_are_answered_while_hundreds_of_connections_send_half_a_request() {
    let fixture = Fixture::new().await;
    let console = ready_console(&fixture).await;
    let host = console.address;
    let bearer = console.token("operator");
    let body = format!(
        "POST /api/v1/rails/sepa/pause HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {bearer}\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"
    );
    for (during, bytes) in [
        ("connections that say nothing", String::new()),
        ("slow heads", format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\nx-slow: ")),
        ("slow bodies of an operator", body),
        (
            "slow bodies of an outsider",
            format!("POST /login HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1000\r\n\r\ntoken="),
        ),
        ("idle connections", format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n")),
    ] {
        let held = hold(&console, ATTACKERS, &bytes).await;
        every_probe_is_answered(&console, during).await;
        drop(held);
    }
    // Half-open: the client has closed its own direction and waits.
    let mut held = hold(&console, ATTACKERS, &format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n")).await;
    for stream in &mut held {
        let _ = stream.shutdown().await;
    }
    every_probe_is_answered(&console, "half-open connections").await;
}

#[tokio::test]
async fn a_connection_that_never_reads_is_closed_in_time() {
    let fixture = Fixture::new().await;
    let console = ready_console(&fixture).await;
    let mut stream = TcpStream::connect(console.address).await.unwrap();
    let requests = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\n\r\n", console.address).repeat(200);
    let closed = async { while stream.write_all(requests.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(DEFAULT_TIMEOUT, closed).await.expect("the server closes it");
}

#[tokio::test]
async fn a_connection_is_closed_after_its_limit_of_requests() {
    let fixture = Fixture::new().await;
    let console = ready_console(&fixture).await;
    let mut stream = TcpStream::connect(console.address).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let requests = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", console.address).repeat(3000);
    let mut text = Vec::new();
    let exchange = async {
        let (_, read) = tokio::join!(writer.write_all(requests.as_bytes()), reader.read_to_end(&mut text));
        let _ = read;
    };
    tokio::time::timeout(DEFAULT_TIMEOUT, exchange).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    let answers = text.matches("HTTP/1.1 200 OK").count();
    assert!((100..3000).contains(&answers), "{answers} requests were answered on one connection");
}

/// Sends these bytes on a connection, and returns all that the server sent until it closed.
async fn exchange(console: &Console, bytes: &str) -> String {
    let mut stream = TcpStream::connect(console.address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PROBE_TIMEOUT, stream.read_to_end(&mut answer)).await;
    // Bytes that the server did not read lead to a reset after the response.
    let _ =
        read.unwrap_or_else(|_| panic!("no end of the answer to {}", bytes.lines().next().unwrap_or_default()));
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_body_is_refused_by_its_length_before_it_arrives() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[("operator", &["operate"])]).await;
    let (host, bearer) = (console.address, console.token("operator"));
    let head = |path: &str, more: &str| format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{more}\r\n");
    let json = format!("authorization: Bearer {bearer}\r\ncontent-type: application/json\r\n");
    let pause = "/api/v1/rails/sepa/pause";
    for (bytes, status) in [
        // The sign-in form is limited to a token and a path.
        (head("/login", "content-length: 1900000\r\n"), 413),
        (head("/login", "content-length: 5000\r\n"), 413),
        (head(pause, "content-length: 1900000\r\n"), 413),
        (head(pause, "content-type: application/json\r\ncontent-length: 50\r\n"), 401),
        (head("/logout", "content-length: 50\r\n"), 303),
        (head(pause, &format!("{json}content-length: 70000\r\n")), 413),
        (head("/healthz", "content-length: 70000\r\n"), 413),
        // A body without a length is refused, and so is one with two lengths (request smuggling).
        (head("/login", "transfer-encoding: chunked\r\n") + "4\r\na=bc\r\n0\r\n\r\n", 411),
        (head(pause, &format!("{json}transfer-encoding: chunked\r\n")), 411),
        (head(pause, &format!("{json}content-length: 2\r\ntransfer-encoding: chunked\r\n")), 411),
        (head(pause, &format!("{json}transfer-encoding: chunked\r\ncontent-length: 2\r\n")), 411),
        (head(pause, &format!("{json}content-length: 2\r\ncontent-length: 3\r\n")), 400),
        (head(pause, &format!("{json}transfer-encoding: gzip\r\ncontent-length: 2\r\n")), 400),
    ] {
        let answer = exchange(&console, &bytes).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status} expected for {bytes}: {answer}");
    }
    assert_eq!(fixture.operations("PAUSE_RAIL").await, 0);
}

#[tokio::test]
async fn a_head_has_a_bound_on_its_bytes_and_its_headers() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[]).await;
    let host = console.address;
    let many: String = (0..100).map(|n| format!("x-{n}: 1\r\n")).collect();
    for head in [
        format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n{many}\r\n"),
        format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\nx-long: {}\r\n\r\n", "1".repeat(64 * 1024)),
        format!("GET /{} HTTP/1.1\r\nhost: {host}\r\n\r\n", "a".repeat(64 * 1024)),
        format!("GET /search?q={} HTTP/1.1\r\nhost: {host}\r\n\r\n", "a".repeat(64 * 1024)),
    ] {
        let mut stream = TcpStream::connect(host).await.unwrap();
        let _ = stream.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PROBE_TIMEOUT, stream.read_to_end(&mut answer)).await;
        let _ = read.expect("the connection ends");
        let answer = String::from_utf8(answer).unwrap();
        let refused = ["HTTP/1.1 431 ", "HTTP/1.1 414 "].iter().any(|status| answer.starts_with(status));
        assert!(answer.is_empty() || refused, "{answer}");
    }
}

#[tokio::test]
async fn slow_bodies_do_not_use_up_the_request_permits() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[("operator", &["operate"])]).await;
    let (host, bearer) = (console.address, console.token("operator"));
    let slow = format!(
        "POST /api/v1/rails/sepa/pause HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {bearer}\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\nexpect: 100-continue\r\n\r\n"
    );
    let mut held = hold(&console, 40, &slow).await;
    for stream in &mut held {
        // The server asks for the body.
        let mut output = [0; 12];
        tokio::time::timeout(PROBE_TIMEOUT, stream.read_exact(&mut output)).await.unwrap().unwrap();
        assert_eq!(&output, b"HTTP/1.1 100");
    }
    let answer = console.ask("operator", "GET", "/api/v1/rails", "").await.is(200);
    assert!(answer.body.contains("sepa"));
    // A body that does not arrive times out.
    for mut stream in held {
        let mut answer = String::new();
        tokio::time::timeout(DEFAULT_TIMEOUT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.contains("HTTP/1.1 408 "), "{answer}");
    }
    assert_eq!(fixture.operations("PAUSE_RAIL").await, 0);
}
