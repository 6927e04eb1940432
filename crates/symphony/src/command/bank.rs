//! `symphony bank`: runs the simulated bank.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::Serialize;

use symphony_bank::settings::Faults;
use symphony_bank::{Bank, CallbackSender, Error, Limits, ledger_file};

use super::with_examples;
use crate::{
    eprint_redacted,
    failure::{ExitStatus, Failure},
    output,
    shutdown_signals::ShutdownSignals,
};

/// Run a simulated bank with fault injection: payments over HTTP, and a ledger of executed payments
///
/// It prints {"listening":"http://…"} once it is ready. Ctrl-C or SIGTERM end it with 0 after the running requests.
/// It needs no database, authenticates no client, and moves no money: keep it on loopback.
///
/// Faults, as NAME=PROBABILITY from 0 to 1: timeout_before, timeout_after, cut_before, cut_after, half_answer,
/// error_500_before, error_500_after, refuse, busy, inquiry_down, and accept or accept_refuse: answered with 202 and executed or
/// refused later. "after" means after the payment was executed.
/// Other settings: latency=20ms, jitter=50ms, rate_limit=100 (payments per second), forget_after=30s or 100keys,
/// refuse_code=CODE, retry_after=2s, settle_after=500ms (or off: only PUT /v1/settlements settles what was accepted).
/// PUT /v1/faults changes them while it runs.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony bank\n  \
     symphony bank --listen 127.0.0.1:7400 --ledger bank.jsonl --faults some --seed 7\n  \
     symphony bank --fault cut_after=0.05 --fault latency=20ms --fault forget_after=100keys\n  \
     curl -X PUT http://127.0.0.1:7400/v1/faults -d '{\"for_key\":{\"PAY-1\":[\"timeout_after\",\"ok\"]}}'\n  \
     curl http://127.0.0.1:7400/v1/ledger",
))]
pub(crate) struct Arguments {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Keep the ledger in this file and continue an existing one; without it, the ledger is lost at exit
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Preset of faults
    #[arg(long, value_name = "PRESET", value_parser = ["none", "some", "many"], default_value = "none")]
    faults: String,
    /// Set a fault; may be repeated
    #[arg(long = "fault", value_name = "NAME=VALUE")]
    fault: Vec<String>,
    /// Report what became of an accepted payment by signed callbacks to this URL, such as http://127.0.0.1:9466/callbacks/sepa
    #[arg(long, value_name = "URL", requires = "callback_secret_env")]
    callback_url: Option<String>,
    /// Environment variable with the secret that signs callbacks
    #[arg(long, value_name = "NAME", requires = "callback_url")]
    callback_secret_env: Option<String>,
    /// Seed: the same seed gives the same faults to the same requests
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Maximum open connections; further ones wait
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_connections: u32,
    /// Close a connection whose request headers do not arrive within this time
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    head_timeout: u64,
}

/// The line that says that the bank is ready.
#[derive(Serialize)]
struct Ready {
    listening: String,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitStatus, Failure> {
        let faults = self.faults()?;
        let callbacks = self.callbacks()?;
        let mut signals = ShutdownSignals::listen()?;
        let bank = Bank::open(self.listen, self.ledger.as_deref(), faults, callbacks).await?;
        if bank.cut > 0 {
            eprint_redacted(&format!(
                "warning: the ledger ended in the middle of a line; removed {} bytes of an unconfirmed payment\n",
                bank.cut
            ));
        }
        if !bank.address.ip().is_loopback() {
            eprint_redacted("warning: this bank listens beyond loopback and authenticates no client\n");
        }
        let ready = Ready { listening: format!("http://{}", bank.address) };
        let ready = serde_json::to_string(&ready)
            .map_err(|error| Failure::because("cannot print the address as JSON", error))?;
        output::print_line(&ready)?;
        let limits = Limits {
            connections: usize::try_from(self.max_connections).unwrap_or(usize::MAX),
            head_timeout: Duration::from_secs(self.head_timeout),
        };
        let (asked, end) = tokio::sync::oneshot::channel();
        let serving = async {
            bank.serve(limits, async {
                // A dropped sender means shutdown as well.
                let _ = end.await;
            })
            .await
        };
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            served = &mut serving => served?,
            _ = signals.recv() => {
                let _ = asked.send(());
                // A second signal ends the bank at once.
                let served = signals.run(serving).await;
                let at_once = |failure: Failure| failure.with_message("interrupted; running requests were not finished");
                served.map_err(at_once)??;
            }
        }
        Ok(ExitStatus::Success)
    }

    fn callbacks(&self) -> Result<Option<CallbackSender>, Failure> {
        let (Some(url), Some(name)) = (&self.callback_url, &self.callback_secret_env) else { return Ok(None) };
        let secret = std::env::var(name).map_err(|_| {
            Failure::usage("--callback-secret-env names an environment variable that is not set")
                .hint("set it to a secret; create one with: echo \"whsec_$(openssl rand -base64 32)\"")
        })?;
        CallbackSender::new(url, &secret).map(Some).map_err(|error| Failure::usage(error.to_string()))
    }

    fn faults(&self) -> Result<Faults, Failure> {
        let wrong = |error: symphony_bank::settings::Error| Failure::usage(format!("--fault: {error}"));
        let mut changes = Vec::new();
        for fault in &self.fault {
            let change = fault.split_once('=').ok_or_else(|| {
                Failure::usage("--fault has no value").hint("write NAME=VALUE, such as --fault cut_after=0.05")
            })?;
            changes.push(change);
        }
        Faults::preset(&self.faults, self.seed).and_then(|faults| faults.changed(changes)).map_err(wrong)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Ledger(ledger_file::Error::Open { path, source }) => {
                Self::because(format!("cannot use {} as the bank's ledger", path.display()), source)
                    .hint("name a file in an existing folder that you may write to")
            }
            Error::Ledger(error @ ledger_file::Error::Busy { .. }) => {
                Self::new(error.to_string()).hint("stop the other bank, or name another file")
            }
            Error::Ledger(error @ (ledger_file::Error::Foreign { .. } | ledger_file::Error::Damaged { .. })) => {
                Self::new(error.to_string()).hint("the file was not changed; name another or a new file")
            }
            Error::Ledger(ledger_file::Error::Write(source)) => {
                Self::because("cannot write the bank's ledger", source)
                    .hint("free disk space and start the bank again: it continues from the file")
            }
            Error::Listen { address, source } => Self::because(format!("cannot listen on {address}"), source)
                .hint("give another address, or port 0 for a free port"),
        }
    }
}
