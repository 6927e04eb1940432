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

#[tokio::test]
async fn an_adapter_knows_its_keys_after_a_restart() {
    for language in [Language::Python, Language::TypeScript] {
        let adapter = Adapter::start(language).await;
        let first = adapter.pay("key-1").await;
        let adapter = adapter.restart().await;
        assert_eq!(adapter.pay("key-1").await, first, "{language:?}");
    }
}
