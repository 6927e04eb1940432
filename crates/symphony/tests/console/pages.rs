//! The dashboard without scripts: every page, its forms and their effects.

use crate::fixture::{Console, Fixture, RAIL, SECRET};
use crate::http::{self, Answer};

/// A client with a session cookie.
struct Browser<'a> {
    console: &'a Console,
    cookie: String,
}

impl<'a> Browser<'a> {
    /// Signs in with this token; stays signed out if the name is empty.
    async fn open(console: &'a Console, who: &str) -> Self {
        let mut browser = Self { console, cookie: String::new() };
        if !who.is_empty() {
            let form = format!("token={}&next=/search", console.token(who));
            let entered = browser.post("/login", &form).await.is(303);
            assert_eq!(entered.header("location"), "/search");
            let cookie = entered.header("set-cookie");
            assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
            browser.cookie = cookie.split(';').next().unwrap().to_owned();
        }
        browser
    }

    async fn get(&self, path: &str) -> Answer {
        http::ask(self.console.address, "GET", path, &[("cookie", &self.cookie)], "").await
    }

    async fn post(&self, path: &str, form: &str) -> Answer {
        let headers = [("cookie", self.cookie.as_str()), ("content-type", "application/x-www-form-urlencoded")];
        http::ask(self.console.address, "POST", path, &headers, form).await
    }

    /// The CSRF token of the forms on this page.
    async fn csrf_token(&self, path: &str) -> String {
        let page = self.get(path).await.is(200).body;
        let secret = page.split("name=\"csrf\" value=\"").nth(1).unwrap_or_else(|| panic!("no form on {path}"));
        secret.split('"').next().unwrap().to_owned()
    }
}

#[tokio::test]
async fn every_page_is_served_and_needs_a_sign_in() {
    let fixture = Fixture::new().await;
    let unknown = fixture.unknown(1).await;
    fixture.failed(2).await;
    fixture.enqueue(3).await;
    let publish = "select m10_recovery.publish_outbox('order', 'order-1', 'OrderPlaced', '{}')";
    fixture.owner.batch_execute(publish).await.unwrap();
    let dead = fixture.dead_metadata("c-1").await;
    let console = fixture.console(&[("reader", &["read"]), ("all", &["read", "operate", "audit"])]).await;
    let entry = format!("/metadata/{dead}");
    let (outsider, all) = (Browser::open(&console, "").await, Browser::open(&console, "all").await);
    let outbox = format!("/outboxes/{unknown}");
    for (path, words) in [
        ("/", "Unknown outcomes"),
        ("/rails", "Max attempts"),
        ("/search", "pay-3"),
        ("/search?q=pay-1", "pay-1"),
        ("/search?q=pay-2/key", "pay-2"),
        ("/search?state=DUE&rail_type=sepa", "pay-3"),
        (outbox.as_str(), "Unknown outcome: the payment may have been made."),
        ("/dead-letters", "pay-1/key"),
        ("/operations", "REGISTER_RAIL"),
        ("/participants", "shop-1"),
        ("/participants/shop-0", "pay-2"),
        ("/events", "OrderPlaced"),
        ("/events?aggregate_type=order&unprocessed=yes", "order-1"),
        ("/events/1", "Due: the next claim can take it."),
        ("/", "test-relayer"),
        ("/metadata", "customer c-1"),
        ("/metadata?status=DLQ&entity_type=customer&entity_id=c-1", "NO_SUCH_KEY"),
        (entry.as_str(), "Entries never leave the DLQ."),
    ] {
        let asked = outsider.get(path).await.is(303);
        assert!(asked.header("location").starts_with("/login?next="), "{path}");
        let page = all.get(path).await.is(200);
        assert!(page.header("content-type").starts_with("text/html"), "{path}");
        assert!(page.body.contains(words), "{path} has no {words:?}: {}", page.body);
        assert!(page.body.contains("<main id=\"main\"") && page.body.contains("class=\"skip\""), "{path}");
        // The content security policy allows no inline script and no inline style.
        assert!(
            !page.body.contains("<style") && !page.body.contains(" style=") && !page.body.contains(" onclick=")
        );
        assert_eq!(page.body.matches("<script").count(), 1, "{path}");
        assert!(page.header("content-security-policy").contains("script-src 'self'"), "{path}");
        assert!(!page.body.contains(SECRET), "{path}");
    }
    let found = all.get(&format!("/search?q={unknown}")).await.is(303);
    assert_eq!(found.header("location"), outbox);
    assert!(all.get(&format!("{outbox}/payload")).await.is(200).body.contains(SECRET));
    assert!(all.get(&format!("{entry}/payload")).await.is(200).body.contains(SECRET));
    let reader = Browser::open(&console, "reader").await;
    for path in [
        "/operations",
        "/operations/export?from=2020-01-01T00:00Z&to=2099-01-01T00:00Z",
        &format!("{outbox}/payload"),
        &format!("{outbox}/export"),
        &format!("{entry}/payload"),
    ] {
        assert!(reader.get(path).await.is(403).body.contains("no scope"), "{path}");
    }
    assert!(!reader.get(&outbox).await.is(200).body.contains("<form method=\"post\" action=\"/outboxes"));
    for path in ["/assets/console.css", "/assets/console.js"] {
        outsider.get(path).await.is(200);
    }
    outsider.post("/login", "token=sym_wrong").await.is(401);
    all.get("/outboxes/not-a-uuid").await.is(400);
    all.get("/search?from=yesterday").await.is(400);
    all.get("/metadata?from=yesterday").await.is(400);
    let kept = all.get("/operations/export?from=2020-01-01T00:00Z&to=2099-01-01T00:00Z&format=csv").await.is(200);
    assert!(
        kept.header("content-disposition").starts_with("attachment") && kept.body.contains("REGISTER_RAIL"),
        "{kept:?}"
    );
    let kept = all.get(&format!("{outbox}/export?format=ndjson")).await.is(200);
    assert!(kept.body.contains("OUTCOME_UNKNOWN") && !kept.body.contains(SECRET), "{kept:?}");
}

#[tokio::test]
async fn text_of_operators_is_escaped() {
    let fixture = Fixture::new().await;
    let failed = fixture.failed(1).await;
    let console = fixture.console(&[]).await;
    let browser = Browser::open(&console, "").await;
    let path = format!("/outboxes/{failed}");
    let csrf = browser.csrf_token(&path).await;
    let form = format!(
        "csrf={csrf}&resolution=SKIPPED&actor=%3Cscript%3Ex%3C/script%3E&reason=%22%3E%3Cb%3E&confirm={failed}"
    );
    browser.post(&format!("{path}/resolve"), &form).await.is(303);
    for page in [&path, "/operations"] {
        let page = browser.get(page).await.is(200).body;
        assert!(page.contains("&lt;script&gt;") || page.contains("&#60;script&#62;"), "{page}");
        assert!(!page.contains("<script>x"), "{page}");
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_resolved_then_redriven_and_each_step_is_confirmed_by_the_id() {
    let fixture = Fixture::new().await;
    let unknown = fixture.unknown(1).await;
    let console = fixture.console(&[("duty", &["operate"])]).await;
    let browser = Browser::open(&console, "duty").await;
    let path = format!("/outboxes/{unknown}");
    let page = browser.get(&path).await.is(200).body;
    assert!(page.contains("pay-1/key") && page.contains("/resolve\"") && !page.contains("/redrive\""), "{page}");
    let csrf = browser.csrf_token(&path).await;
    let resolve = format!("{path}/resolve");
    let form = |csrf: &str, confirm: &str| {
        format!("csrf={csrf}&resolution=NOT_PAID&actor=ana&reason=asked&confirm={confirm}")
    };
    // Without the CSRF token, with a wrong one, without the id.
    browser.post(&resolve, &form("", &unknown.to_string())).await.is(403);
    browser.post(&resolve, &form("another", &unknown.to_string())).await.is(403);
    browser.post(&resolve, &form(&csrf, "yes")).await.is(400);
    let headers = [
        ("cookie", browser.cookie.as_str()),
        ("content-type", "application/x-www-form-urlencoded"),
        ("origin", "http://evil.example"),
    ];
    let good = form(&csrf, &unknown.to_string());
    http::ask(console.address, "POST", &resolve, &headers, &good).await.is(403);
    assert_eq!(fixture.operations("RESOLVE").await, 0);
    assert_eq!(browser.post(&resolve, &good).await.is(303).header("location"), path);
    assert_eq!(fixture.operations("RESOLVE").await, 1);

    let page = browser.get(&path).await.is(200).body;
    assert!(page.contains("Resolved as NOT_PAID by an operator.") && page.contains("/redrive\""), "{page}");
    let form = format!("csrf={csrf}&actor=ana&reason=not+booked&confirm={unknown}");
    let redriven = browser.post(&format!("{path}/redrive"), &form).await.is(303);
    let new = redriven.header("location").to_owned();
    assert!(
        browser.get(&new).await.is(200).body.contains(&unknown.to_string()),
        "it names the outbox that it redrives"
    );
    assert!(browser.get(&path).await.is(200).body.contains("It failed and was redriven."));
    let actor = "select count(*) from symphony.payment_outbox_operations where actor = 'duty: ana'";
    assert_eq!(fixture.owner.query_one(actor, &[]).await.unwrap().get::<_, i64>(0), 2);

    browser.post("/logout", &format!("csrf={csrf}")).await.is(303);
    browser.get(&path).await.is(303);
}

#[tokio::test]
async fn a_payload_is_erased_by_a_form_that_the_id_confirms() {
    let fixture = Fixture::new().await;
    let dispatched = fixture.dispatched(1).await;
    let failed = fixture.failed(2).await;
    let console = fixture.console(&[("duty", &["operate", "audit"]), ("reader", &["read"])]).await;
    let browser = Browser::open(&console, "duty").await;
    let path = format!("/outboxes/{dispatched}");
    let page = browser.get(&path).await.is(200).body;
    assert!(page.contains("/erase\"") && !page.contains("Payload erased"), "{page}");
    let dead_letter = browser.get(&format!("/outboxes/{failed}")).await.is(200).body;
    assert!(!dead_letter.contains("/erase\""), "a dead letter may still need its payload");
    assert!(browser.get(&format!("{path}/payload")).await.is(200).body.contains(SECRET));

    let csrf = browser.csrf_token(&path).await;
    let form = |confirm: &str| format!("csrf={csrf}&actor=ana&reason=request+17&confirm={confirm}");
    browser.post(&format!("{path}/erase"), &form("yes")).await.is(400);
    assert_eq!(fixture.operations("ERASE").await, 0);
    let dead_letter = format!("/outboxes/{failed}/erase");
    browser.post(&dead_letter, &form(&failed.to_string())).await.is(409);
    browser.post(&format!("{path}/erase"), &form(&dispatched.to_string())).await.is(303);
    assert_eq!(fixture.operations("ERASE").await, 1);

    for shown in
        [browser.get(&path).await.is(200).body, browser.get(&format!("{path}/payload")).await.is(200).body]
    {
        assert!(shown.contains("Payload erased on 20") && shown.contains("by duty: ana: request 17"), "{shown}");
        assert!(!shown.contains(SECRET) && !shown.contains("/erase\""), "{shown}");
    }
    let reader = Browser::open(&console, "reader").await;
    let shown = reader.get(&path).await.is(200).body;
    assert!(shown.contains("Payload erased on 20") && !shown.contains("ana"), "{shown}");
}

#[tokio::test]
async fn rails_and_dead_letters_can_be_changed_by_forms() {
    let fixture = Fixture::new().await;
    for number in 1..=2 {
        fixture.failed(number).await;
    }
    let console = fixture.console(&[]).await;
    let browser = Browser::open(&console, "").await;
    let csrf = browser.csrf_token("/rails").await;
    let signed = format!("csrf={csrf}&actor=ana&reason=a+test");
    browser.post(&format!("/rails/{RAIL}/pause"), &signed).await.is(303);
    assert!(browser.get("/rails").await.body.contains("Resume sepa"));
    browser.post(&format!("/rails/{RAIL}/resume"), &signed).await.is(303);
    browser.post(&format!("/rails/{RAIL}/repair"), &signed).await.is(303);
    let policy = "max_attempts=5&backoff_base_seconds=2&backoff_cap_seconds=60&max_in_flight=&on_unknown=STOP";
    browser.post(&format!("/rails/{RAIL}/policy"), &format!("{signed}&{policy}&confirm=no")).await.is(400);
    browser.post(&format!("/rails/{RAIL}/policy"), &format!("{signed}&{policy}&confirm={RAIL}")).await.is(303);
    browser.post("/rails/register", &format!("{signed}&name=wire&confirm=wier")).await.is(400);
    browser.post("/rails/register", &format!("{signed}&name=wire&ordered=yes&confirm=wire")).await.is(303);
    browser.post("/rails/wire/retire", &signed).await.is(303);
    assert!(browser.get("/rails").await.is(200).body.contains("Retired: wire."));
    for (kind, count) in
        [("PAUSE_RAIL", 1), ("RESUME_RAIL", 1), ("REPAIR", 1), ("SET_RAIL", 1), ("RETIRE_RAIL", 1)]
    {
        assert_eq!(fixture.operations(kind).await, count, "{kind}");
    }
    browser.post(&format!("/rails/{RAIL}/pause"), &format!("csrf={csrf}&actor=ana&reason=")).await.is(400);

    let counted = browser.get(&format!("/dead-letters?count=yes&rail_type={RAIL}")).await.is(200).body;
    assert!(counted.contains("<strong>2 match"), "{counted}");
    let many = format!("{signed}&rail_type={RAIL}&expected=");
    browser.post("/dead-letters/redrive", &format!("{many}1")).await.is(409);
    browser.post("/dead-letters/redrive", &format!("{many}2")).await.is(303);
    assert_eq!(fixture.operations("REDRIVE").await, 2);
    let rebound = [("host", "rebound.example")];
    http::ask(console.address, "GET", "/", &rebound, "").await.is(421);
}

#[tokio::test]
async fn an_auditor_sees_the_request_that_the_rail_sends() {
    let fixture = Fixture::new().await;
    fixture
        .owner
        .batch_execute("select symphony.pause_payment_rail('served', 'fixture', 'a test')")
        .await
        .unwrap();
    let enqueue = async |rail: &str, amount: &str| {
        let query =
            "select outbox_id::text from symphony.enqueue_payment_outbox($1, 'shop-1', $1, $2, $3::text::jsonb)";
        let payload = format!(r#"{{"amount": "{amount}", "currency": "EUR", "note": "<b>"}}"#);
        let row = fixture.owner.query_one(query, &[&format!("{rail}/{amount}"), &rail, &payload]).await.unwrap();
        row.get::<_, String>(0)
    };
    let served = enqueue("served", "10.50").await;
    let invalid = enqueue("served", "10.505").await;
    let elsewhere = enqueue(RAIL, "10.50").await;
    let console = fixture.console(&[("auditor", &["audit"]), ("reader", &["read"])]).await;
    let auditor = Browser::open(&console, "auditor").await;
    let page = auditor.get(&format!("/outboxes/{served}/payload")).await.is(200).body;
    for words in ["Request to the rail", "POST https://bank.example/v1/payments", "idempotency-key: served/10.50"]
    {
        assert!(page.contains(words), "{words:?} is not in {page}");
    }
    assert!(!page.contains("<b>"), "{page}");
    let page = auditor.get(&format!("/outboxes/{invalid}/payload")).await.is(200).body;
    assert!(page.contains("This relayer would not send it: amount must have at most 2 decimal places"), "{page}");
    let page = auditor.get(&format!("/outboxes/{elsewhere}/payload")).await.is(200).body;
    assert!(page.contains("10.50") && !page.contains("Request to the rail"), "{page}");
    let reader = Browser::open(&console, "reader").await;
    reader.get(&format!("/outboxes/{served}/payload")).await.is(403);
}
