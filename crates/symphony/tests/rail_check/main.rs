//! `symphony rail check`: the reference adapters pass, and each planted defect is found.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod adapter;
mod defects;
#[path = "../program/mod.rs"]
mod program;
mod usage;

use adapter::{Adapter, Language, check};

#[tokio::test]
async fn the_reference_adapters_pass_every_check() {
    for language in [Language::Python, Language::TypeScript] {
        let adapter = Adapter::start(language).await;
        let ran = check(&adapter, &[]).exits(0);
        let report = ran.json();
        let state = |state: &str| report[state].as_u64().unwrap();
        assert_eq!((state("failed"), state("warned"), state("skipped")), (0, 0, 0), "{}", ran.all());
        assert!(state("passed") > 30, "{}", ran.all());
    }
}

/// What the reference adapter does with a new key.
const DECIDES_AT_ONCE: &str = r#"        status, detail = make_payment(key, payment)
        store().execute("update payments set status = ?, detail = ? where key = ?", (status, detail, key))
        self.outcome(201, status, detail, replay="false")
"#;
const ACCEPTS: &str = r#"        def decide():
            status, detail = make_payment(key, payment)
            store().execute("update payments set status = ?, detail = ? where key = ?", (status, detail, key))
        __import__("threading").Timer(0.3, decide).start()
        self.answer(202, {"status": "PENDING"})
"#;

#[tokio::test]
async fn an_adapter_that_accepts_payments_and_decides_later_passes() {
    let source = Language::Python.source();
    assert!(source.contains(DECIDES_AT_ONCE), "the source has changed");
    let adapter = Adapter::start_source(Language::Python, &source.replace(DECIDES_AT_ONCE, ACCEPTS)).await;
    let ran = check(&adapter, &[]).exits(0);
    let first = ran.json()["checks"][0]["got"].as_str().unwrap().to_owned();
    assert!(first.starts_with("HTTP 202, executed, reference REF-"), "{first}");
    assert_eq!(ran.json()["failed"], 0, "{}", ran.all());
}

#[tokio::test]
async fn an_adapter_that_accepts_payments_and_never_decides_fails() {
    let source = Language::Python
        .source()
        .replace(DECIDES_AT_ONCE, ACCEPTS)
        .replace(".start()\n        self.answer(202", "\n        self.answer(202");
    let adapter = Adapter::start_source(Language::Python, &source).await;
    let ran = check(&adapter, &["--confirm-within", "500ms"]).exits(1);
    let first = ran.json()["checks"][0].clone();
    assert_eq!(first["state"], "failed", "{}", ran.all());
    assert!(first["got"].as_str().unwrap().contains("that says: pending"), "{first}");
}

#[tokio::test]
async fn an_adapter_knows_its_keys_after_a_restart() {
    for language in [Language::Python, Language::TypeScript] {
        let adapter = Adapter::start(language).await;
        let first = adapter.pay("key-1").await;
        let adapter = adapter.restart().await;
        assert_eq!(adapter.pay("key-1").await, first, "{language:?}");
    }
}
