//! What is wrong with settings is said so that somebody can mend it, and without what is secret.

use crate::place::Files;

/// The least that each kind needs, without TLS, and what it then says.
const PLAIN: [(&str, &str); 4] = [
    ("kind = 'nats'\nurl = 'nats://broker.example'", "url"),
    ("kind = 'redis'\nurl = 'redis://broker.example'", "url"),
    ("kind = 'rabbitmq'\nurl = 'amqp://broker.example'\nexchange = 'e'", "url"),
    ("kind = 'http'\nurl = 'http://broker.example/'", "url"),
];

fn refusal(toml: &str) -> String {
    match symphony_sinks::sink("orders", toml.parse().unwrap()) {
        Ok(_) => panic!("taken: {toml}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn without_tls_nothing_is_sent_unless_the_settings_say_so() {
    for (toml, setting) in PLAIN {
        let said = refusal(toml);
        assert!(said.starts_with(&format!("sink orders: {setting}: must ")), "{said}");
        assert!(said.contains("allow_plain = true"), "{said}");
        symphony_sinks::sink("orders", format!("{toml}\nallow_plain = true").parse().unwrap()).unwrap();
    }
    #[cfg(all(feature = "kafka", not(feature = "kafka-tls")))]
    assert!(refusal("kind = 'kafka'\nbrokers = ['b:9092']").starts_with("sink orders: allow_plain: must be true"));
}

#[test]
fn a_setting_that_nobody_knows_is_refused() {
    for (toml, _) in PLAIN {
        let said = refusal(&format!("{toml}\nallow_plain = true\ntimeuot = '1s'"));
        assert!(said.starts_with("sink orders: timeuot: unknown field `timeuot`"), "{said}");
        assert!(said.contains("`timeout`") && said.contains("`max_bytes`"), "{said}");
    }
}

#[test]
fn a_user_needs_a_password_from_elsewhere() {
    let nats = "kind = 'nats'\nurl = 'tls://broker.example'\n";
    assert!(refusal(&format!("{nats}user = 'u'")).starts_with("sink orders: password_env: must name "));
    assert!(refusal(&format!("{nats}user = 'u'\npassword = 'p'")).contains("unknown field `password`"));
    assert!(refusal(&format!("{nats}user = 'u'\npassword_env = 'A'\npassword_file = '/b'")).contains("keep one"));
    let said = refusal("kind = 'redis'\nurl = 'rediss://u:hidden@broker.example'");
    assert!(said.contains("must hold no user or password") && !said.contains("hidden"), "{said}");
}

#[test]
fn one_way_of_saying_who_we_are_is_enough() {
    let files = Files::new();
    let (password, token) = (files.write("password", "hidden1"), files.write("token", "hidden2"));
    let said = refusal(&format!(
        "kind = 'nats'\nurl = 'tls://broker.example'\nuser = 'u'\npassword_file = {password:?}\ntoken_file = {token:?}"
    ));
    assert!(said.contains("keep one") && !said.contains("hidden"), "{said}");
}

#[test]
fn a_file_that_is_no_certificate_is_refused() {
    let files = Files::new();
    let path = files.write("ca.pem", "nothing");
    for kind in [
        "kind = 'nats'\nurl = 'tls://b'",
        "kind = 'redis'\nurl = 'rediss://b'",
        "kind = 'http'\nurl = 'https://b.example/'",
    ] {
        let said = refusal(&format!("{kind}\nroot_ca_file = {path:?}"));
        assert!(said.starts_with("sink orders: root_ca_file: ") && said.contains("PEM"), "{said}");
    }
}

#[test]
fn limits_of_a_kind_are_limited() {
    for (toml, setting) in [
        ("kind = 'redis'\nurl = 'rediss://b'\nrepeats_for = '0s'", "repeats_for"),
        ("kind = 'redis'\nurl = 'rediss://b'\nreplicas = 1000", "replicas"),
        ("kind = 'redis'\nurl = 'rediss://b'\nmax_length = 0", "max_length"),
        ("kind = 'redis'\nurl = 'rediss://b/x'", "url"),
        ("kind = 'nats'\nurl = []", "url"),
        ("kind = 'http'\nurl = 'https://b.example/'\nmode = 'batched'", "mode"),
        ("kind = 'http'\nurl = 'https://127.0.0.1/'", "url"),
    ] {
        let said = refusal(toml);
        assert!(said.starts_with(&format!("sink orders: {setting}: ")), "{said}");
    }
}

fn store_refusal(toml: &str) -> String {
    match symphony_sinks::store("copies", toml.parse().unwrap()) {
        Ok(_) => panic!("taken: {toml}"),
        Err(error) => error.to_string(),
    }
}

/// The least that each kind of store needs, without TLS.
const PLAIN_STORES: [&str; 3] = [
    "kind = 'postgres'\nurl = 'postgres://u@db.example/x'",
    "kind = 'redis'\nurl = 'redis://db.example'",
    "kind = 'http'\nurl = 'http://db.example/{entity_type}/{entity_id}'",
];

#[test]
fn a_store_is_reached_by_tls_and_its_settings_are_known_or_refused() {
    for toml in PLAIN_STORES {
        let said = store_refusal(toml);
        assert!(said.starts_with("store copies: url: must ") && said.contains("allow_plain = true"), "{said}");
        let allowed = format!("{toml}\nallow_plain = true");
        symphony_sinks::store("copies", allowed.parse().unwrap()).unwrap();
        for (more, setting) in [
            ("timeuot = '1s'", "timeuot"),
            ("timeout = '0s'", "timeout"),
            ("timeout = '11m'", "timeout"),
            ("connect_timeout = '10s'", "connect_timeout"),
            ("max_bytes = 0", "max_bytes"),
            ("max_bytes = 67108865", "max_bytes"),
            ("password = 'hidden'", "password"),
        ] {
            let said = store_refusal(&format!("{allowed}\n{more}"));
            assert!(said.starts_with(&format!("store copies: {setting}: ")), "{said}");
            assert!(!said.contains("hidden"), "{said}");
        }
    }
    let long = format!("kind = 'redis'\nurl = 'rediss://b'\nprefix = '{}'", "a".repeat(201));
    assert!(store_refusal(&long).starts_with("store copies: prefix: must "));
    let both = format!("{}\nallow_plain = true\npassword_env = 'A'\npassword_file = '/b'", PLAIN_STORES[0]);
    assert!(store_refusal(&both).contains("keep one"));
    let url = "kind = 'http'\nurl = 'https://127.0.0.1/{entity_type}/{entity_id}'";
    assert!(store_refusal(url).contains("allow_private"));
    let taken = "kind = 'http'\nurl = 'https://a.example/{entity_type}/{entity_id}'\nheaders = { 'Symphony-Version' = '1' }";
    assert!(store_refusal(taken).contains("set by Symphony itself"));
}
