//! `symphony bank`: runs the simulated bank.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::Serialize;

use super::with_examples;
use crate::{
    bank::{Bank, Error, Limits, journal, settings::Faults},
    complain,
    failure::{Answer, Failure},
    interruption::Interruption,
    output,
};

/// Run a simulated bank: payments over HTTP, a ledger of what was executed, and faults to order
///
/// It prints {"listening":"http://…"} once it is ready and runs until Ctrl-C or SIGTERM, which end it with 0 once what
/// is under way is done. It needs no database, asks nobody who they are, and moves no money: keep it on loopback.
///
/// Faults, as NAME=PROBABILITY from 0 to 1: timeout_before, timeout_after, cut_before, cut_after, half_answer,
/// error_500_before, error_500_after, refuse, busy, inquiry_down. "after" means that the payment was executed all the
/// same. Further: latency=20ms, jitter=50ms, rate_limit=100 (payments per second), forget_after=30s or 100keys,
/// refuse_code=CODE, retry_after=2s. PUT /v1/faults changes them while it runs.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony bank\n  \
     symphony bank --listen 127.0.0.1:7400 --ledger bank.jsonl --faults some --seed 7\n  \
     symphony bank --fault cut_after=0.05 --fault latency=20ms --fault forget_after=100keys\n  \
     curl -X PUT http://127.0.0.1:7400/v1/faults -d '{\"for_key\":{\"PAY-1\":[\"timeout_after\",\"ok\"]}}'\n  \
     curl http://127.0.0.1:7400/v1/ledger",
))]
pub(crate) struct Arguments {
    /// Listen here; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Keep the ledger in this file, and go on where it ends; it vanishes with the bank unless given
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Start from this mixture of faults
    #[arg(long, value_name = "PRESET", value_parser = ["none", "some", "many"], default_value = "none")]
    faults: String,
    /// Order a fault; may be repeated
    #[arg(long = "fault", value_name = "NAME=VALUE")]
    fault: Vec<String>,
    /// The same seed gives the same faults to the same requests
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Let no more connections in at a time; others wait
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_connections: u32,
    /// Close a connection that has not sent the head of a request for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    head_timeout: u64,
}

/// What is said when it is ready.
#[derive(Serialize)]
struct Ready {
    listening: String,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<Answer, Failure> {
        let faults = self.faults()?;
        let mut interruption = Interruption::listen()?;
        let bank = Bank::open(self.listen, self.ledger.as_deref(), faults).await?;
        if bank.cut > 0 {
            complain(&format!(
                "the ledger ended in the middle of a line: {} bytes were cut off; nobody was told of it\n",
                bank.cut
            ));
        }
        if !bank.address.ip().is_loopback() {
            complain("others can reach this bank, and it asks nobody who they are\n");
        }
        let ready = Ready { listening: format!("http://{}", bank.address) };
        let ready = serde_json::to_string(&ready)
            .map_err(|error| Failure::because("the address cannot be printed as JSON", error))?;
        output::line(&ready)?;
        let limits = Limits {
            connections: usize::try_from(self.max_connections).unwrap_or(usize::MAX),
            head_time: Duration::from_secs(self.head_timeout),
        };
        let (asked, end) = tokio::sync::oneshot::channel();
        let serving = async {
            bank.serve(limits, async {
                // Whoever held the other end is gone only when this is dropped too.
                let _ = end.await;
            })
            .await
        };
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            served = &mut serving => served?,
            _ = interruption.caught() => {
                let _ = asked.send(());
                // Whoever asks twice does not want to wait.
                let served = interruption.or(serving).await;
                let hurried = |failure: Failure| failure.saying("interrupted; what was under way was not finished");
                served.map_err(hurried)??;
            }
        }
        Ok(Answer::Yes)
    }

    fn faults(&self) -> Result<Faults, Failure> {
        let wrong = |error: crate::bank::settings::Error| Failure::usage(format!("--fault: {error}"));
        let mut changes = Vec::new();
        for fault in &self.fault {
            let change = fault
                .split_once('=')
                .ok_or_else(|| Failure::usage("--fault wants NAME=VALUE, such as --fault cut_after=0.05"))?;
            changes.push(change);
        }
        Faults::preset(&self.faults, self.seed).and_then(|faults| faults.changed(changes)).map_err(wrong)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Ledger(journal::Error::Open { path, source }) => {
                Self::because(format!("cannot use {} as the bank's ledger", path.display()), source)
                    .hint("name a file in a folder that is there and that you may write in")
            }
            Error::Ledger(error @ journal::Error::Busy { .. }) => {
                Self::no(error.to_string()).hint("stop that bank, or name another file")
            }
            Error::Ledger(error @ (journal::Error::Foreign { .. } | journal::Error::Damaged { .. })) => {
                Self::no(error.to_string()).hint("it was left as it is; name another file, or one that is new")
            }
            Error::Ledger(journal::Error::Write(source)) => {
                Self::because("the bank's ledger cannot be written", source)
                    .hint("make room and start it again: what is in the file counts")
            }
            Error::Listen { address, source } => {
                Self::because(format!("cannot listen on {address}"), source).hint("port 0 takes one that is free")
            }
        }
    }
}
