//! `symphony status --watch`: repeats the status at an interval, until a signal or until the reader closes the pipe.
//!
//! An error at the first read ends it. Later errors are printed, and the next read reconnects.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_postgres::Client;

use super::Lanes;
use crate::{
    database::Database,
    eprint_redacted,
    failure::{ExitStatus, Failure},
    output::{self, OutputFormat},
    shutdown_signals::ShutdownSignals,
};

/// How long a read may take.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// A status, with the time of this machine's clock.
#[derive(Serialize)]
struct Snapshot<'a> {
    at: Timestamp,
    #[serde(flatten)]
    lanes: &'a Lanes,
}

/// Prints the status every `every`.
pub(super) async fn run(
    database: &Database,
    format: OutputFormat,
    every: Duration,
) -> Result<ExitStatus, Failure> {
    let mut signals = ShutdownSignals::listen()?;
    let redraws = !format.json && io::stdout().is_terminal();
    let watching = async {
        let mut session = None;
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut lanes = read_status(&mut session, database).await?;
        loop {
            let snapshot = Snapshot { at: Timestamp::now(), lanes: &lanes };
            if !output::try_print_line(&render(&snapshot, format, redraws, every)?)? {
                return Ok(ExitStatus::Success);
            }
            lanes = loop {
                ticks.tick().await;
                match read_status(&mut session, database).await {
                    Ok(lanes) => break lanes,
                    Err(failure) => eprint_redacted(&failure.render()),
                }
            };
        }
    };
    // Ctrl-C is how a user ends a watch, so it is a success.
    signals.run(watching).await.unwrap_or(Ok(ExitStatus::Success))
}

/// Reads the status in a session that is reused while it works.
async fn read_status(session: &mut Option<Client>, database: &Database) -> Result<Lanes, Failure> {
    let kept = session.take().filter(|client| !client.is_closed());
    let asked = async {
        let client = match kept {
            Some(client) => client,
            None => database.connect().await?,
        };
        let lanes = Lanes::read(&client, false).await?;
        Ok::<_, Failure>((client, lanes))
    };
    let silent = |_| Failure::new(format!("the database did not answer within {} s", QUERY_TIMEOUT.as_secs()));
    let (client, lanes) = timeout(QUERY_TIMEOUT, asked).await.map_err(silent)??;
    *session = Some(client);
    Ok(lanes)
}

fn render(
    snapshot: &Snapshot<'_>,
    format: OutputFormat,
    redraws: bool,
    every: Duration,
) -> Result<String, Failure> {
    if format.json {
        return serde_json::to_string(snapshot)
            .map(|json| symphony_console::sanitize::json_for_terminal(&json))
            .map_err(|error| Failure::new(format!("the result cannot be printed as JSON: {error}")));
    }
    let heading = format!("{}, every {} s", snapshot.at.strftime("%Y-%m-%d %H:%M:%SZ"), every.as_secs());
    // Cursor home, and clear the screen.
    let clear = if redraws { "\u{1b}[H\u{1b}[J" } else { "" };
    let end = if redraws { "; Ctrl-C ends it" } else { "" };
    Ok(format!("{clear}{heading}{end}\n\n{}\n", snapshot.lanes.text()))
}
