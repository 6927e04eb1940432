//! Invalid settings are refused with the name of the setting and what to write, and without secrets.

use crate::fixture::Files;

/// The minimal settings of each kind without TLS, and the setting that is refused.
const PLAIN: [(&str, &str); 4] = [
    ("kind = 'nats'\nurl = 'nats://broker.example'", "url"),
    ("kind = 'redis'\nurl = 'redis://broker.example'", "url"),
    ("kind = 'rabbitmq'\nurl = 'amqp://broker.example'\nexchange = 'e'", "url"),
    ("kind = 'http'\nurl = 'http://broker.example/'", "url"),
];

fn refusal(toml: &str) -> String {
    match symphony_sinks::sink("orders", toml.parse().unwrap()) {
        Ok(_) => panic!("accepted: {toml}"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn without_tls_nothing_is_sent_unless_the_settings_say_so() {
    for (toml, setting) in PLAIN {
        let error = refusal(toml);
        assert!(error.starts_with(&format!("sink orders: {setting}: must ")), "{error}");
        assert!(error.contains("allow_plain = true"), "{error}");
        symphony_sinks::sink("orders", format!("{toml}\nallow_plain = true").parse().unwrap()).unwrap();
    }
    #[cfg(all(feature = "kafka", not(feature = "kafka-tls")))]
    assert!(refusal("kind = 'kafka'\nbrokers = ['b:9092']").starts_with("sink orders: allow_plain: must be true"));
}

#[test]
fn an_unknown_setting_is_refused() {
    for (toml, _) in PLAIN {
        let error = refusal(&format!("{toml}\nallow_plain = true\ntimeuot = '1s'"));
        assert!(error.starts_with("sink orders: timeuot: unknown field `timeuot`"), "{error}");
        assert!(error.contains("`timeout`") && error.contains("`max_bytes`"), "{error}");
    }
}

#[test]
fn a_user_needs_a_password_from_a_file_or_a_variable() {
    let nats = "kind = 'nats'\nurl = 'tls://broker.example'\n";
    assert!(refusal(&format!("{nats}user = 'u'")).starts_with("sink orders: password_env: must name "));
    assert!(refusal(&format!("{nats}user = 'u'\npassword = 'p'")).contains("unknown field `password`"));
    assert!(refusal(&format!("{nats}user = 'u'\npassword_env = 'A'\npassword_file = '/b'")).contains("keep one"));
    let error = refusal("kind = 'redis'\nurl = 'rediss://u:hidden@broker.example'");
    assert!(error.contains("must contain no user or password") && !error.contains("hidden"), "{error}");
}

#[test]
fn two_kinds_of_credentials_are_refused() {
    let files = Files::new();
    let (password, token) = (files.write("password", "hidden1"), files.write("token", "hidden2"));
    let error = refusal(&format!(
        "kind = 'nats'\nurl = 'tls://broker.example'\nuser = 'u'\npassword_file = {password:?}\ntoken_file = {token:?}"
    ));
    assert!(error.contains("keep one") && !error.contains("hidden"), "{error}");
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
        let error = refusal(&format!("{kind}\nroot_ca_file = {path:?}"));
        assert!(error.starts_with("sink orders: root_ca_file: ") && error.contains("PEM"), "{error}");
    }
}

#[test]
fn settings_of_one_kind_have_limits() {
    for (toml, setting) in [
        ("kind = 'redis'\nurl = 'rediss://b'\nrepeats_for = '0s'", "repeats_for"),
        ("kind = 'redis'\nurl = 'rediss://b'\nreplicas = 1000", "replicas"),
        ("kind = 'redis'\nurl = 'rediss://b'\nmax_length = 0", "max_length"),
        ("kind = 'redis'\nurl = 'rediss://b/x'", "url"),
        ("kind = 'nats'\nurl = []", "url"),
        ("kind = 'http'\nurl = 'https://b.example/'\nmode = 'batched'", "mode"),
        ("kind = 'http'\nurl = 'https://127.0.0.1/'", "url"),
    ] {
        let error = refusal(toml);
        assert!(error.starts_with(&format!("sink orders: {setting}: ")), "{error}");
    }
}

fn store_refusal(toml: &str) -> String {
    match symphony_sinks::store("copies", toml.parse().unwrap()) {
        Ok(_) => panic!("accepted: {toml}"),
        Err(error) => error.to_string(),
    }
}

/// The minimal settings of each kind of store without TLS.
const PLAIN_STORES: [&str; 3] = [
    "kind = 'postgres'\nurl = 'postgres://u@db.example/x'",
    "kind = 'redis'\nurl = 'redis://db.example'",
    "kind = 'http'\nurl = 'http://db.example/{entity_type}/{entity_id}'",
];

#[test]
fn a_store_is_reached_by_tls_and_its_settings_are_known_or_refused() {
    for toml in PLAIN_STORES {
        let error = store_refusal(toml);
        assert!(error.starts_with("store copies: url: must ") && error.contains("allow_plain = true"), "{error}");
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
            let error = store_refusal(&format!("{allowed}\n{more}"));
            assert!(error.starts_with(&format!("store copies: {setting}: ")), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
    let long = format!("kind = 'redis'\nurl = 'rediss://b'\nprefix = '{}'", "a".repeat(201));
    assert!(store_refusal(&long).starts_with("store copies: prefix: must "));
    let both = format!("{}\nallow_plain = true\npassword_env = 'A'\npassword_file = '/b'", PLAIN_STORES[0]);
    assert!(store_refusal(&both).contains("keep one"));
    let url = "kind = 'http'\nurl = 'https://127.0.0.1/{entity_type}/{entity_id}'";
    assert!(store_refusal(url).contains("allow_private"));
    let reserved = "kind = 'http'\nurl = 'https://a.example/{entity_type}/{entity_id}'\nheaders = { 'Symphony-Version' = '1' }";
    assert!(store_refusal(reserved).contains("set by Symphony itself"));
}
