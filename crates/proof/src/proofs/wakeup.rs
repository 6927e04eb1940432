//! What a commit tells, and a rollback does not: rows, numbers, and the waking of those who sleep.

use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

use super::crew::{Crew, Order, claim, count, enqueue, enqueue_batch, set_rail};
use super::evidence::{Evidence, Failure, Trial, require};
use super::signals::{pid, waits};
use crate::kit::scratch::{self, Database};

/// The lock that a relayer holds while it sleeps.
const SLEEP: &str = "select pg_advisory_lock(symphony.wakeup_lock('outbox_pending'))";
const WAKE: &str = "select pg_advisory_unlock(symphony.wakeup_lock('outbox_pending'))";

/// A session that hears what is said on the channel, in order.
pub(super) struct Listener {
    _client: Client,
    heard: mpsc::UnboundedReceiver<(String, String)>,
}

impl Listener {
    pub(super) async fn start(database: &Database, channel: &str) -> Result<Self, Failure> {
        let (says, heard) = mpsc::unbounded_channel();
        let hear = move |message| {
            if let AsyncMessage::Notification(said) = message {
                let _ = says.send((said.channel().to_owned(), said.payload().to_owned()));
            }
        };
        let client = database.target().connect_and_hear(hear).await.map_err(scratch::Error::from)?;
        client.batch_execute(&format!("listen {channel}; listen marker")).await?;
        Ok(Self { _client: client, heard })
    }

    /// How often the sleeper was called before this writer's marker, which is sent after all it committed.
    pub(super) async fn calls(&mut self, writer: &Client) -> Result<i64, Failure> {
        writer.batch_execute("notify marker").await?;
        let mut calls = 0;
        while let Some((channel, payload)) = self.heard.recv().await {
            if channel == "marker" {
                return Ok(calls);
            }
            require(|| "reading what a sleeper was told".into(), "new_work".to_owned(), payload)?;
            calls += 1;
        }
        Err(Failure {
            tried: "listening".into(),
            expected: "a marker".into(),
            happened: "the session ended".into(),
        })
    }
}

/// Proof 8.
pub(super) async fn follows_the_commit(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    let crew = Crew::hire(database).await?;
    set_rail(&crew.operator, "bank", "{}").await?;
    let mut listener = Listener::start(database, "outbox_pending").await?;
    let sleeper = database.connect_as("symphony_executor").await?;
    sleeper.batch_execute(SLEEP).await?;
    let order = |name: &str| Order::new(name, "alice", "bank");
    let batch = [order("b1"), order("b2"), order("b3")];

    crew.ingest.batch_execute("begin").await?;
    let gone = enqueue(&crew.ingest, &order("a")).await?;
    enqueue_batch(&crew.ingest, &batch).await?;
    let inside = count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    crew.ingest.batch_execute("rollback").await?;
    trial.same("looking from outside at 4 enqueues that are not committed", "rows", 0, inside)?;
    nothing_is_left(&crew, &mut trial, "rolling back 4 enqueues, one alone and three in a batch").await?;
    let calls = listener.calls(&crew.ingest).await?;
    trial.same("listening while a relayer sleeps and 4 enqueues are rolled back", "calls", 0, calls)?;

    crew.ingest.batch_execute("begin; savepoint before").await?;
    enqueue(&crew.ingest, &order("a")).await?;
    crew.ingest.batch_execute("rollback to before; commit").await?;
    nothing_is_left(&crew, &mut trial, "rolling back to a savepoint and committing the rest").await?;
    let calls = listener.calls(&crew.ingest).await?;
    trial.same("listening while a relayer sleeps and a savepoint is rolled back", "calls", 0, calls)?;

    crew.ingest.batch_execute("begin").await?;
    let kept = enqueue(&crew.ingest, &order("a")).await?;
    enqueue_batch(&crew.ingest, &batch).await?;
    crew.ingest.batch_execute("commit").await?;
    trial.holds(
        "committing the same 4 enqueues",
        "a new outbox with number 1",
        format!("number {}, new: {}", kept.sequence_id, !kept.replayed && kept.outbox_id != gone.outbox_id),
        kept.sequence_id == 1 && !kept.replayed && kept.outbox_id != gone.outbox_id,
    )?;
    let calls = listener.calls(&crew.ingest).await?;
    trial.same("listening while a relayer sleeps and they are committed", "calls", 1, calls)?;

    enqueue(&crew.ingest, &order("a")).await?;
    let calls = listener.calls(&crew.ingest).await?;
    trial.same("listening while a relayer sleeps and a replay makes nothing new", "calls", 0, calls)?;

    sleeper.batch_execute(WAKE).await?;
    enqueue(&crew.ingest, &order("c")).await?;
    enqueue_batch(&crew.ingest, &[order("d"), order("e")]).await?;
    let calls = listener.calls(&crew.ingest).await?;
    trial.same("listening while nobody sleeps and 3 enqueues are committed", "calls", 0, calls)?;

    a_last_look(database, &crew, &mut listener, &mut trial).await?;
    Ok(trial.evidence())
}

/// A relayer that falls asleep during somebody's transaction is asleep only when its last look sees the row.
async fn a_last_look(
    database: &Database,
    crew: &Crew,
    listener: &mut Listener,
    trial: &mut Trial,
) -> Result<(), Failure> {
    let drained = claim(&crew.executor, 100, "worker").await?.len();
    require(|| "claiming all that is there".into(), 7, drained)?;
    crew.ingest.batch_execute("begin").await?;
    enqueue(&crew.ingest, &Order::new("last", "bob", "bank")).await?;
    let sleeper = database.connect_as("symphony_executor").await?;
    let sleeper_pid = pid(&sleeper).await?;
    let falls = tokio::spawn(async move {
        sleeper.batch_execute(SLEEP).await?;
        let found = claim(&sleeper, 100, "sleeper").await?;
        Ok::<_, Failure>(found.len())
    });
    let waited = waits(&crew.owner, sleeper_pid, &falls).await?;
    crew.ingest.batch_execute("commit").await?;
    let found = falls.await??;
    let calls = listener.calls(&crew.ingest).await?;
    trial.holds(
        "falling asleep while a transaction that has enqueued is open, and looking once more",
        "the row is found, or the sleeper is called",
        format!("waited for the commit: {waited}; found {found}, called {calls} times"),
        found + usize::try_from(calls).unwrap_or_default() >= 1,
    )
}

async fn nothing_is_left(crew: &Crew, trial: &mut Trial, tried: &str) -> Result<(), Failure> {
    let rows = count(&crew.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    let numbers = count(&crew.owner, "select count(*) from symphony.participant_outbox_sequences", &[]).await?;
    trial.holds(
        tried,
        "0 rows, 0 numbers taken",
        format!("{rows} rows, {numbers} numbers taken"),
        rows == 0 && numbers == 0,
    )
}
