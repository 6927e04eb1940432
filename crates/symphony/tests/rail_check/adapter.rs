//! A reference adapter as a process, with or without a planted defect.

use std::path::Path;

use symphony_relay::rail::{Answer, Payment};
use symphony_testkit::process::{Launch, Program};
use symphony_testkit::tool::{self, Tool};
use symphony_testkit::wait::DEFAULT_TIMEOUT;
use tempfile::TempDir;
use uuid::Uuid;

use crate::program::{Ran, symphony};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What a reference adapter is written in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
    TypeScript,
}

impl Language {
    pub(crate) fn source(self) -> String {
        std::fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/adapters").join(self.file()),
        )
        .unwrap()
    }

    fn file(self) -> &'static str {
        match self {
            Self::Python => "adapter.py",
            Self::TypeScript => "adapter.ts",
        }
    }

    fn interpreter(self) -> Tool {
        match self {
            Self::Python => Tool::Python,
            Self::TypeScript => Tool::Node,
        }
    }
}

/// A running adapter. It is killed when the test ends.
pub(crate) struct Adapter {
    pub(crate) url: String,
    language: Language,
    /// Its source, its store and its secret.
    folder: TempDir,
    process: Program,
}

impl Adapter {
    pub(crate) async fn start(language: Language) -> Self {
        Self::start_source(language, &language.source()).await
    }

    /// Starts an adapter of this source.
    pub(crate) async fn start_source(language: Language, source: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(language.file()), source).unwrap();
        std::fs::write(folder.path().join("secret"), SECRET).unwrap();
        // The adapters refuse every currency but one.
        let refused =
            r#"{"amount": "1.00", "currency": "USD", "destination": {"iban": "DE89370400440532013000"}}"#;
        std::fs::write(folder.path().join("refused.json"), refused).unwrap();
        Self::run(language, folder).await
    }

    /// Kills it, and starts it again on the same store.
    pub(crate) async fn restart(self) -> Self {
        self.process.kill9().await.unwrap();
        Self::run(self.language, self.folder).await
    }

    async fn run(language: Language, folder: TempDir) -> Self {
        let process = Launch::new(tool::find(language.interpreter()).unwrap())
            .args([language.file(), "0", "store"])
            .env("ADAPTER_SECRET", SECRET)
            .current_dir(folder.path())
            .start()
            .unwrap();
        let url = process.wait_for_line(|line| line.starts_with("http://"), DEFAULT_TIMEOUT).await.unwrap();
        Self { url, language, folder, process }
    }

    /// Pays under this key as a relayer does, and returns the reference.
    pub(crate) async fn pay(&self, key: &str) -> String {
        let settings = format!(
            "kind = 'http'\nurl = '{}'\nallow_http = true\nallow_private = ['127.0.0.1']\nsecret_file = '{}'",
            self.url,
            self.file("secret")
        );
        let rail = symphony_sinks::rail("sepa", settings.parse().unwrap()).unwrap();
        let payload = serde_json::json!({ "amount": "10.00", "currency": "EUR" });
        let payment = Payment {
            outbox_id: Uuid::nil().into(),
            instruction_id: "instruction-1".to_owned(),
            participant_id: "participant-1".to_owned(),
            sequence_id: 1,
            idempotency_key: key.to_owned(),
            rail_type: "sepa".to_owned(),
            payload: payload.into(),
            attempt_count: 0,
        };
        match rail.dispatch(&payment).await {
            Answer::Executed(rail) | Answer::ExecutedBefore(rail) => rail.reference.unwrap(),
            other => panic!("not executed: {other:?}"),
        }
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

/// Runs `symphony rail check` against an adapter, with its secret and a payload that it refuses.
pub(crate) fn check(adapter: &Adapter, more: &[&str]) -> Ran {
    let (secret, refused) = (adapter.file("secret"), adapter.file("refused.json"));
    let arguments = [
        &[
            "rail",
            "check",
            &adapter.url,
            "--yes",
            "--json",
            "--secret-file",
            &secret,
            "--refused-payload-file",
            &refused,
        ],
        more,
    ]
    .concat();
    symphony("postgres://nobody@127.0.0.1:1/none", &arguments)
}
