//! Host names: a foreign page whose name resolves to this server (DNS rebinding) gets no data.

use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::fixture::{Fixture, generate_token};
use crate::http;

const PATHS: [&str; 6] = ["/healthz", "/readyz", "/metrics", "/login", "/assets/console.css", "/api/v1/overview"];

#[tokio::test]
async fn a_request_under_a_name_that_is_not_configured_is_refused_on_every_path() {
    let fixture = Fixture::new().await;
    let (_, hash) = generate_token("ana");
    let token = format!("[[console.tokens]]\nname = 'ana'\nhash = '{hash}'\nscopes = ['read']\n");
    let settings = fixture.settings("127.0.0.1:0", &format!("{}{token}", fixture.logins())).await;
    let program = fixture.launch(&settings).start().unwrap();
    let line = program.wait_for_line(|line| line.starts_with("{\"endpoints\""), DEFAULT_TIMEOUT).await.unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = line["endpoints"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    for path in PATHS {
        for rebound in ["rebound.example", "rebound.example:9464", "127.0.0.1.rebound.example", "localhost.x", ""]
        {
            http::ask(address, "GET", path, &[("host", rebound)], "").await.is(421);
        }
        for ours in ["localhost:9464", "LOCALHOST", "127.0.0.1", "10.1.2.3:9464", "[::1]:9464", "[fd00::7]"] {
            let answer = http::ask(address, "GET", path, &[("host", ours)], "").await;
            assert_ne!(answer.status, 421, "{path} as {ours}: {answer:?}");
        }
    }
    http::ask(address, "GET", "/metrics", &[("host", "127.0.0.1"), ("host", "rebound.example")], "").await.is(400);
    http::ask(address, "GET", "http://rebound.example/metrics", &[], "").await.is(421);
}

#[tokio::test]
async fn a_configured_name_is_answered() {
    let fixture = Fixture::new().await;
    let settings = fixture.settings("127.0.0.1:0", "").await;
    let settings = settings.replace("[payment]", "hosts = ['Symphony.example.', 'relay-1']\n[payment]");
    let program = fixture.launch(&settings).start().unwrap();
    let line = program.wait_for_line(|line| line.starts_with("{\"endpoints\""), DEFAULT_TIMEOUT).await.unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = line["endpoints"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    for (host, status) in [("symphony.example:80", 200), ("RELAY-1:9464", 200), ("other.example", 421)] {
        http::ask(address, "GET", "/healthz", &[("host", host)], "").await.is(status);
    }
    let refused = fixture.launch(&settings.replace("'relay-1'", "'relay-1:80'")).start().unwrap();
    assert_eq!(refused.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 2, "{}", refused.tail());
    assert!(refused.tail().contains("relayer.hosts"), "{}", refused.tail());
}
