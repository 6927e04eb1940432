//! What keeps the console from starting, and the requests that it refuses.

use symphony_db::connect::Target;
use symphony_db::roles;
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::fixture::{Fixture, generate_token};
use crate::http;

#[tokio::test]
async fn it_does_not_start_if_it_would_be_open_or_a_login_has_too_many_rights() {
    let fixture = Fixture::new().await;
    let refuses = async |settings: String, code: i32, words: &str| {
        for arguments in [&[][..], &["--check"]] {
            let program = fixture.launch(&settings).args(arguments).start().unwrap();
            assert_eq!(program.exit_code(DEFAULT_TIMEOUT).await.unwrap(), code, "{}", program.tail());
            assert!(program.tail().contains(words), "{}", program.tail());
        }
    };
    let open = fixture.settings("0.0.0.0:0", &fixture.logins()).await;
    refuses(open, 2, "symphony token NAME").await;

    let (_, hash) = generate_token("ana");
    let token = format!("[[console.tokens]]\nname = 'ana'\nhash = '{hash}'\nscopes = ['read']\n");
    let too_many_roles = fixture.database.url_as_login(&["symphony_readonly", "symphony_operator"]).await.unwrap();
    let settings = fixture.settings("127.0.0.1:0", &format!("read_url = '{too_many_roles}'\n{token}")).await;
    refuses(settings, 1, "may do more than it must: it is a member of symphony_operator").await;

    // Every right to write, also through other roles, and roles that need SET ROLE first.
    let member = fixture.database.connect_as_login(&["symphony_readonly"]).await.unwrap();
    let name: String = member.query_one("select session_user::text", &[]).await.unwrap().get(0);
    let place = fixture.database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let other: String = Target::parse(&place)
        .unwrap()
        .connect()
        .await
        .unwrap()
        .query_one("select session_user::text", &[])
        .await
        .unwrap()
        .get(0);
    let url = place.replace(&other, &name);
    let group = format!("{name}_group");
    for (grant, revoke, words) in [
        (
            format!("create role {group} noinherit in role pg_write_all_data; grant {group} to {name}"),
            format!("drop role {group}"),
            "it is a member of pg_write_all_data".to_owned(),
        ),
        (
            format!("alter role {name} createrole"),
            format!("alter role {name} nocreaterole"),
            "it has CREATEROLE".to_owned(),
        ),
        (
            format!("alter role {name} superuser"),
            format!("alter role {name} nosuperuser"),
            "it is a superuser".to_owned(),
        ),
        (
            format!("grant update (paused) on symphony.payment_rails to {name}"),
            format!("revoke update (paused) on symphony.payment_rails from {name}"),
            format!("{name} may write to symphony.payment_rails"),
        ),
        (
            format!("grant execute on function symphony.pause_payment_rail to {name}"),
            format!("revoke execute on function symphony.pause_payment_rail from {name}"),
            format!("{name} may call symphony.pause_payment_rail"),
        ),
    ] {
        fixture.owner.batch_execute(&grant).await.unwrap();
        let settings = fixture.settings("127.0.0.1:0", &format!("read_url = '{url}'\n{token}")).await;
        // The relayer itself refuses a changed schema, so this checks the login alone.
        let excess = roles::excess_privileges(
            &Target::parse(&url).unwrap().connect().await.unwrap(),
            &["symphony_readonly"],
        )
        .await
        .unwrap();
        assert_eq!(excess, std::slice::from_ref(&words));
        if !grant.contains(" on ") {
            refuses(settings, 1, &words).await;
        }
        fixture.owner.batch_execute(&revoke).await.unwrap();
    }
    let excess =
        roles::excess_privileges(&Target::parse(&url).unwrap().connect().await.unwrap(), &["symphony_readonly"])
            .await
            .unwrap();
    assert_eq!(excess, [""; 0]);

    let too_few_roles = fixture.database.url_as_login(&["symphony_auditor"]).await.unwrap();
    let settings = fixture.settings("127.0.0.1:0", &format!("read_url = '{too_few_roles}'\n{token}")).await;
    refuses(settings, 1, "lacks the role symphony_readonly").await;

    let act = format!(
        "{}act_url = '{}'\n",
        fixture.logins().lines().next().unwrap().to_owned() + "\n",
        fixture.database.url()
    );
    let settings = fixture.settings("127.0.0.1:0", &format!("{act}{token}")).await;
    refuses(settings, 1, "console.act_url: the login may do more than it must: it is a superuser").await;

    let settings = fixture.settings("127.0.0.1:0", &format!("act_url = '{too_few_roles}'\n")).await;
    refuses(settings, 2, "console.read_url is not").await;
    let settings =
        fixture.settings("127.0.0.1:0", &format!("{}{}", fixture.logins(), token.replace("read'", "all'"))).await;
    refuses(settings, 2, "scopes").await;
}

#[tokio::test]
async fn without_tokens_it_answers_only_loopback_hosts_and_no_page_of_another_site() {
    let fixture = Fixture::new().await;
    let console = fixture.console(&[]).await;
    let ask = async |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        http::ask(console.address, method, path, headers, body).await
    };
    ask("GET", "/api/v1/rails", &[], "").await.is(200);
    ask("GET", "/api/v1/rails", &[("host", "localhost:1234")], "").await.is(200);
    // A foreign host name that resolves to this machine.
    ask("GET", "/api/v1/rails", &[("host", "rebound.example")], "").await.refused(421);

    let body = r#"{"actor": "ana", "reason": "a test"}"#;
    let json = ("content-type", "application/json");
    let pause = "/api/v1/rails/sepa/pause";
    ask("POST", pause, &[json, ("origin", "http://evil.example")], body).await.refused(403);
    ask("POST", pause, &[json, ("sec-fetch-site", "cross-site")], body).await.refused(403);
    // What a form of another site can send without asking first.
    ask("POST", pause, &[("content-type", "text/plain")], body).await.refused(415);
    assert_eq!(fixture.operations("PAUSE_RAIL").await, 0);
    ask("POST", pause, &[json], body).await.is(200);
    assert_eq!(fixture.operations("PAUSE_RAIL").await, 1);
}

#[tokio::test]
async fn without_logins_there_is_no_console_and_the_root_says_so() {
    let fixture = Fixture::new().await;
    let settings = fixture.settings("127.0.0.1:0", "").await;
    let program = fixture.launch(&settings).start().unwrap();
    let line = program.wait_for_line(|line| line.starts_with("{\"endpoints\""), DEFAULT_TIMEOUT).await.unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = line["endpoints"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    let root = http::ask(address, "GET", "/", &[], "").await.is(200);
    assert!(root.body.contains("console.read_url"), "{root:?}");
    http::ask(address, "GET", "/api/v1/overview", &[], "").await.is(404);
    http::ask(address, "GET", "/healthz", &[], "").await.is(200);
}
