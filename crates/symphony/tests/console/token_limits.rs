//! Limits per token, and a console at its own address.

use symphony_testkit::wait::DEFAULT_TIMEOUT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::{Console, Fixture, generate_token};
use crate::http;

async fn log_in(console: &Console, who: &str) -> String {
    let form = format!("token={}", console.token(who));
    let answer = http::ask(console.address, "POST", "/login", &[], &form).await.is(303);
    answer.header("set-cookie").split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn six_hundred_logins_with_one_token_end_no_session_of_another() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[("ana", &["read"]), ("bo", &["read"])]).await;
    let of_bo = log_in(&console, "bo").await;
    let mut last = String::new();
    for _ in 0..600 {
        last = log_in(&console, "ana").await;
    }
    for cookie in [of_bo, last] {
        http::ask(console.address, "GET", "/rails", &[("cookie", &cookie)], "").await.is(200);
    }
}

#[tokio::test]
async fn one_token_cannot_use_up_the_live_streams() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[("ana", &["read"]), ("bo", &["read"])]).await;
    let (ana, bo) = (log_in(&console, "ana").await, log_in(&console, "bo").await);
    let watch = async |cookie: &str| {
        let mut stream = TcpStream::connect(console.address).await.unwrap();
        let head = format!("GET /live HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\n\r\n", console.address);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        tokio::time::timeout(DEFAULT_TIMEOUT, stream.read_exact(&mut status)).await.unwrap().unwrap();
        (stream, String::from_utf8(status.to_vec()).unwrap())
    };
    let mut held = Vec::new();
    for _ in 0..32 {
        held.push(watch(&ana).await);
    }
    assert!(held.iter().any(|(_, status)| status.ends_with("503")));
    let (_stream, status) = watch(&bo).await;
    assert_eq!(status, "HTTP/1.1 200");
}

#[tokio::test]
async fn a_console_at_its_own_address_does_not_serve_the_probes() {
    let fixture = Fixture::new().await;
    let (_, hash) = generate_token("ana");
    let token = format!("[[console.tokens]]\nname = 'ana'\nhash = '{hash}'\nscopes = ['read']\n");
    let console = format!("{}listen = '127.0.0.1:0'\n{token}", fixture.logins());
    let settings = fixture.settings("127.0.0.1:0", &console).await;
    let program = fixture.launch(&settings).start().unwrap();
    let line = program.wait_for_line(|line| line.contains("\"endpoints\""), DEFAULT_TIMEOUT).await.unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = |name: &str| line[name].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    let (probes, console) = (address("endpoints"), address("console"));
    for (at, path, status) in [
        (probes, "/healthz", 200),
        (probes, "/metrics", 200),
        (probes, "/login", 404),
        (probes, "/api/v1/rails", 404),
        (console, "/login", 200),
        (console, "/api/v1/rails", 401),
        (console, "/healthz", 404),
        (console, "/metrics", 404),
    ] {
        http::ask(at, "GET", path, &[], "").await.is(status);
    }
    // Without tokens it is the console's own address that must be on loopback.
    let open = fixture.settings("127.0.0.1:0", &format!("{}listen = '0.0.0.0:0'\n", fixture.logins())).await;
    let program = fixture.launch(&open).start().unwrap();
    assert_eq!(program.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 2, "{}", program.tail());
}
