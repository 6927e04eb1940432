//! What the command refuses before it sends anything, and what it prints.

use std::net::TcpListener;

use crate::adapter::{Adapter, Language};
use crate::program::symphony;

const NO_DATABASE: &str = "postgres://nobody@127.0.0.1:1/none";

#[test]
fn nothing_is_sent_without_yes() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let url = format!("http://{}/payments", server.local_addr().unwrap());
    let refused = symphony(NO_DATABASE, &["rail", "check", &url]).exits(2);
    assert!(refused.stderr.contains(&url) && refused.stderr.contains("add --yes"), "{}", refused.all());
    assert!(server.accept().is_err(), "the check has connected");
}

#[test]
fn wrong_arguments_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let url = "https://bank.example/pay";
    let cases = [
        (vec!["bank.example"], "must be a URL".to_owned()),
        (vec![url, "--secret-file", "/nowhere"], "must name a file".to_owned()),
        (vec![url, "--parallel", "1"], "1 is not in 2..=256".to_owned()),
        (vec![url, "--timeout", "soon"], "must be a duration".to_owned()),
        (vec![url, "--inquiry-url", url], "must contain {idempotency_key} once".to_owned()),
    ];
    let list = file("list.json", "[]");
    let float = file("float.json", r#"{"amount": 1.5, "currency": "EUR"}"#);
    let config = file("symphony.toml", "[rails.sepa]\nkind = 'http'\nurl = 'https://bank.example'\n");
    let of_files = [
        (vec![url, "--payload-file", &list], "must hold a JSON object"),
        (vec![url, "--payload-file", &float], "the rail would not send it"),
        (vec![url, "--config", &config, "--rail", "sepia"], "has no section [rails.sepia]"),
        // Its credentials would be sent in the clear.
        (vec!["http://127.0.0.1:1/pay", "--config", &config, "--rail", "sepa"], "must be https://"),
    ];
    let of_files = of_files.into_iter().map(|(arguments, says)| (arguments, says.to_owned()));
    for (arguments, says) in cases.into_iter().chain(of_files) {
        let refused = symphony(NO_DATABASE, &[&["rail", "check", "--yes"], &arguments[..]].concat()).exits(2);
        assert!(refused.stderr.contains(&says), "{arguments:?} does not say {says:?}: {}", refused.all());
    }
}

#[test]
fn an_adapter_that_is_not_there_fails_the_first_check() {
    let ran = symphony(NO_DATABASE, &["rail", "check", "http://127.0.0.1:1/pay", "--yes"]).exits(1);
    assert!(ran.stdout.contains("nothing was sent: Connection refused"), "{}", ran.all());
    assert!(ran.stdout.contains("0 passed, 1 failed; the other checks need"), "{}", ran.all());
}

#[tokio::test]
async fn without_a_secret_an_adapter_that_wants_one_fails_and_the_report_says_what_to_do() {
    let adapter = Adapter::start(Language::Python).await;
    let ran = symphony(NO_DATABASE, &["rail", "check", &adapter.url, "--yes"]).exits(1);
    for part in
        ["FAIL  a payment is executed", "got       HTTP 401", "expected  HTTP 200 or 201", "to do     answer 201"]
    {
        assert!(ran.stdout.contains(part), "no {part:?}: {}", ran.all());
    }
}

#[tokio::test]
async fn the_section_of_a_rail_gives_credentials_and_limits() {
    let adapter = Adapter::start(Language::Python).await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("symphony.toml");
    let section = format!(
        "[rails.sepa]\nkind = 'http'\nurl = 'https://production.example/pay'\nallow_http = true\nslots = 4\nmax_bytes = 2000\nsecret_file = '{}'\n",
        adapter.file("secret")
    );
    std::fs::write(&config, section).unwrap();
    let config = config.to_str().unwrap();
    let arguments = ["rail", "check", &adapter.url, "--config", config, "--rail", "sepa", "--yes"];
    let ran = symphony(NO_DATABASE, &arguments).exits(0);
    assert!(ran.stdout.contains(&format!("checks of {}", adapter.url)), "{}", ran.all());
    assert!(!ran.stdout.contains("production.example"), "{}", ran.all());
    assert!(ran.stdout.contains("0 failed, 1 skipped"), "{}", ran.all());
}

/// Makes the reference adapter give out access tokens, and refuse requests without one.
fn wants_tokens(source: &str) -> String {
    let refuses = "        if self.headers.get(\"authorization\") != \"Bearer token-1\":\n            \
                   return self.answer(401, {\"code\": \"NO_TOKEN\"})\n";
    let grants = "        if self.path == \"/token\":\n            \
                  self.rfile.read(int(self.headers[\"content-length\"]))\n            \
                  return self.answer(200, {\"access_token\": \"token-1\", \"token_type\": \"Bearer\"})\n";
    source
        .replace("def do_POST(self):\n", &format!("def do_POST(self):\n{grants}{refuses}"))
        .replace("def do_GET(self):\n", &format!("def do_GET(self):\n{refuses}"))
}

#[tokio::test]
async fn requests_carry_the_access_token_of_the_section() {
    let adapter = Adapter::start_source(Language::Python, &wants_tokens(&Language::Python.source())).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let section = format!(
        "[rails.sepa]\nkind = 'http'\nurl = 'https://production.example/pay'\nallow_http = true\nsecret_file = '{}'\n",
        adapter.file("secret")
    );
    let oauth = format!(
        "oauth = {{ token_url = '{}', client_id = 'symphony', client_secret_file = '{}' }}\n",
        adapter.url.replace("/payments", "/token"),
        file("client-secret", "hidden")
    );
    let run = |config: &str| {
        symphony(NO_DATABASE, &["rail", "check", &adapter.url, "--config", config, "--rail", "sepa", "--yes"])
    };
    let with_token = run(&file("with.toml", &format!("{section}{oauth}"))).exits(0);
    assert!(with_token.stdout.contains("0 failed, 1 skipped"), "{}", with_token.all());
    let without = run(&file("without.toml", &section)).exits(1);
    assert!(without.stdout.contains("HTTP 401"), "{}", without.all());
}
