//! Everything at a glance. docs/console.md says how each number is got.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use symphony_outbox::payment::reading::{self, Backlog, DeadLetterCount, Pulse};

use crate::console::access::Scope;
use crate::console::endpoint::{Endpoint, Nothing};
use crate::console::problem::Problem;
use crate::console::{Console, Desk};

/// What there is to see.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Overview {
    /// The relayer that answers.
    pub(crate) worker: String,
    /// What is pending.
    pub(crate) backlog: Backlog,
    /// What was done lately.
    pub(crate) pulse: Pulse,
    /// What waits for a person.
    pub(crate) dead_letters: DeadLetterCount,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![Endpoint::get::<Nothing, Overview, _>("/overview", Scope::Read, "Everything at a glance.", answer)]
}

async fn answer(State(desk): State<Desk>) -> Result<Json<Overview>, Problem> {
    Ok(Json(overview(&desk).await?))
}

/// Read now.
pub(crate) async fn overview(desk: &Console) -> Result<Overview, Problem> {
    desk.database
        .read(async |client| {
            Ok(Overview {
                worker: desk.worker.clone(),
                backlog: reading::backlog(client).await?,
                pulse: reading::pulse(client).await?,
                dead_letters: reading::count_dead_letters(client, None, None).await?,
            })
        })
        .await
}
