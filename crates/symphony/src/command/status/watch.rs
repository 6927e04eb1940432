//! `symphony status --watch`: the same, over and over. It goes on when the database comes and goes, and ends when it is told to
//! or nobody reads any more.

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
    complain,
    database::Database,
    failure::{Answer, Failure},
    interruption::Interruption,
    output::{self, Form},
};

/// How long a look may take before it is said that the database does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was seen, and when by the clock of this machine.
#[derive(Serialize)]
struct Seen<'a> {
    at: Timestamp,
    #[serde(flatten)]
    lanes: &'a Lanes,
}

/// Looks so often. What is wrong at the first look ends it; later, it is said, and looked again.
pub(super) async fn run(database: &Database, form: Form, every: Duration) -> Result<Answer, Failure> {
    let mut interruption = Interruption::listen()?;
    let redraws = !form.json && io::stdout().is_terminal();
    let watching = async {
        let mut session = None;
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut looked = look(&mut session, database).await?;
        loop {
            let seen = Seen { at: Timestamp::now(), lanes: &looked };
            if !output::line_is_read(&shown(&seen, form, redraws, every)?)? {
                return Ok(Answer::Yes);
            }
            looked = loop {
                ticks.tick().await;
                match look(&mut session, database).await {
                    Ok(lanes) => break lanes,
                    Err(failure) => complain(&failure.in_full()),
                }
            };
        }
    };
    // Whoever watches ends it so: that is no failure.
    interruption.or(watching).await.unwrap_or(Ok(Answer::Yes))
}

/// One look, in a session that is kept while it works.
async fn look(session: &mut Option<Client>, database: &Database) -> Result<Lanes, Failure> {
    let kept = session.take().filter(|client| !client.is_closed());
    let asked = async {
        let client = match kept {
            Some(client) => client,
            None => database.connect().await?,
        };
        let lanes = Lanes::look(&client).await?;
        Ok::<_, Failure>((client, lanes))
    };
    let silent = |_| Failure::no(format!("the database did not answer within {} s", PATIENCE.as_secs()));
    let (client, lanes) = timeout(PATIENCE, asked).await.map_err(silent)??;
    *session = Some(client);
    Ok(lanes)
}

fn shown(seen: &Seen<'_>, form: Form, redraws: bool, every: Duration) -> Result<String, Failure> {
    if form.json {
        return serde_json::to_string(seen)
            .map(|json| output::json_for_terminal(&json))
            .map_err(|error| Failure::no(format!("the result cannot be printed as JSON: {error}")));
    }
    let heading = format!("{}, every {} s", seen.at.strftime("%Y-%m-%d %H:%M:%SZ"), every.as_secs());
    // Home, and over what was there.
    let clear = if redraws { "\u{1b}[H\u{1b}[J" } else { "" };
    let end = if redraws { "; Ctrl-C ends it" } else { "" };
    Ok(format!("{clear}{heading}{end}\n\n{}\n", seen.lanes.text()))
}
