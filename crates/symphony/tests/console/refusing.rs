//! What keeps the console from starting, and whom it turns away.

use symphony_proof::kit::wait::BOUND;

use crate::http;
use crate::office::{Office, mint};

#[tokio::test]
async fn it_does_not_start_where_it_would_be_open_or_its_logins_hold_too_much() {
    let office = Office::open().await;
    let refuses = async |settings: String, code: i32, words: &str| {
        let program = office.launch(&settings).start().unwrap();
        assert_eq!(program.exit_code(BOUND).await.unwrap(), code, "{}", program.tail());
        assert!(program.tail().contains(words), "{}", program.tail());
    };
    let open = office.settings("0.0.0.0:0", &office.logins()).await;
    refuses(open, 2, "symphony token NAME").await;

    let (_, hash) = mint("ana");
    let token = format!("[[console.tokens]]\nname = 'ana'\nhash = '{hash}'\nscopes = ['read']\n");
    let greedy = office.database.url_as_login(&["symphony_readonly", "symphony_operator"]).await.unwrap();
    let settings = office.settings("127.0.0.1:0", &format!("read_url = '{greedy}'\n{token}")).await;
    refuses(settings, 1, "may do more than it must: symphony_operator").await;

    let poor = office.database.url_as_login(&["symphony_auditor"]).await.unwrap();
    let settings = office.settings("127.0.0.1:0", &format!("read_url = '{poor}'\n{token}")).await;
    refuses(settings, 1, "lacks the role symphony_readonly").await;

    let settings = office.settings("127.0.0.1:0", &format!("act_url = '{poor}'\n")).await;
    refuses(settings, 2, "console.read_url is not").await;
    let settings =
        office.settings("127.0.0.1:0", &format!("{}{}", office.logins(), token.replace("read'", "all'"))).await;
    refuses(settings, 2, "scopes").await;
}

#[tokio::test]
async fn without_tokens_it_answers_this_machine_and_no_page_of_another_site() {
    let office = Office::open().await;
    let console = office.console(&[]).await;
    let ask = async |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        http::ask(console.address, method, path, headers, body).await
    };
    ask("GET", "/api/v1/rails", &[], "").await.is(200);
    ask("GET", "/api/v1/rails", &[("host", "localhost:1234")], "").await.is(200);
    // A name of somebody else's that leads here.
    ask("GET", "/api/v1/rails", &[("host", "rebound.example")], "").await.refused(421);

    let body = r#"{"actor": "ana", "reason": "a test"}"#;
    let json = ("content-type", "application/json");
    let pause = "/api/v1/rails/sepa/pause";
    ask("POST", pause, &[json, ("origin", "http://evil.example")], body).await.refused(403);
    ask("POST", pause, &[json, ("sec-fetch-site", "cross-site")], body).await.refused(403);
    // What a form of another site can send without asking first.
    ask("POST", pause, &[("content-type", "text/plain")], body).await.refused(415);
    assert_eq!(office.operations("PAUSE_RAIL").await, 0);
    ask("POST", pause, &[json], body).await.is(200);
    assert_eq!(office.operations("PAUSE_RAIL").await, 1);
}

#[tokio::test]
async fn without_logins_there_is_no_console_and_the_root_says_so() {
    let office = Office::open().await;
    let settings = office.settings("127.0.0.1:0", "").await;
    let program = office.launch(&settings).start().unwrap();
    let line = program.wait_for_line(|line| line.starts_with("{\"endpoints\""), BOUND).await.unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = line["endpoints"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    let root = http::ask(address, "GET", "/", &[], "").await.is(200);
    assert!(root.body.contains("console.read_url"), "{root:?}");
    http::ask(address, "GET", "/api/v1/overview", &[], "").await.is(404);
    http::ask(address, "GET", "/healthz", &[], "").await.is(200);
}
