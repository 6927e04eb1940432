//! A commit makes rows and sequence numbers visible and notifies an idle relayer; a rollback does not.

use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

use super::evidence::{Evidence, Failure, Recorder, require};
use super::server_state::{pid, waits_for_lock};
use super::sessions::{Payment, Sessions, claim, count, enqueue, enqueue_batch, set_rail};
use symphony_testkit::test_database::{self, Database};

/// The wake-up lock, which an idle relayer holds.
const HOLD_WAKEUP_LOCK: &str = "select pg_advisory_lock(symphony.wakeup_lock_key('outbox_pending'))";
const RELEASE_WAKEUP_LOCK: &str = "select pg_advisory_unlock(symphony.wakeup_lock_key('outbox_pending'))";

/// A session that receives the notifications of a channel, in order.
pub(super) struct Listener {
    _client: Client,
    received: mpsc::UnboundedReceiver<(String, String)>,
}

impl Listener {
    pub(super) async fn start(database: &Database, channel: &str) -> Result<Self, Failure> {
        let (sender, received) = mpsc::unbounded_channel();
        let on_message = move |message| {
            if let AsyncMessage::Notification(notification) = message {
                let _ = sender.send((notification.channel().to_owned(), notification.payload().to_owned()));
            }
        };
        let client =
            database.target().connect_with_messages(on_message).await.map_err(test_database::Error::from)?;
        client.batch_execute(&format!("listen {channel}; listen marker")).await?;
        Ok(Self { _client: client, received })
    }

    /// The number of notifications before a marker that this writer sends after its commits.
    pub(super) async fn notifications(&mut self, writer: &Client) -> Result<i64, Failure> {
        writer.batch_execute("notify marker").await?;
        let mut notifications = 0;
        while let Some((channel, payload)) = self.received.recv().await {
            if channel == "marker" {
                return Ok(notifications);
            }
            require(|| "reading the payload of a notification".into(), "new_work".to_owned(), payload)?;
            notifications += 1;
        }
        Err(Failure {
            tried: "listening".into(),
            expected: "a marker".into(),
            happened: "the session ended".into(),
        })
    }
}

/// Proof 8: `an_enqueue_that_is_rolled_back_leaves_nothing_and_sends_no_notification`.
pub(super) async fn follows_the_commit(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    set_rail(&sessions.operator, "bank", "{}").await?;
    let mut listener = Listener::start(database, "outbox_pending").await?;
    let relayer = database.connect_as("symphony_executor").await?;
    relayer.batch_execute(HOLD_WAKEUP_LOCK).await?;
    let payment = |name: &str| Payment::new(name, "alice", "bank");
    let batch = [payment("b1"), payment("b2"), payment("b3")];

    sessions.ingest.batch_execute("begin").await?;
    let gone = enqueue(&sessions.ingest, &payment("a")).await?;
    enqueue_batch(&sessions.ingest, &batch).await?;
    let inside = count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    sessions.ingest.batch_execute("rollback").await?;
    recorder.check_equal("reading 4 uncommitted enqueues from another session", "rows", 0, inside)?;
    nothing_was_written(&sessions, &mut recorder, "rolling back 4 enqueues, one alone and three in a batch")
        .await?;
    let notifications = listener.notifications(&sessions.ingest).await?;
    recorder.check_equal(
        "listening while a relayer is idle and 4 enqueues are rolled back",
        "notifications",
        0,
        notifications,
    )?;

    sessions.ingest.batch_execute("begin; savepoint before").await?;
    enqueue(&sessions.ingest, &payment("a")).await?;
    sessions.ingest.batch_execute("rollback to before; commit").await?;
    nothing_was_written(&sessions, &mut recorder, "rolling back to a savepoint and committing the rest").await?;
    let notifications = listener.notifications(&sessions.ingest).await?;
    recorder.check_equal(
        "listening while a relayer is idle and a savepoint is rolled back",
        "notifications",
        0,
        notifications,
    )?;

    sessions.ingest.batch_execute("begin").await?;
    let kept = enqueue(&sessions.ingest, &payment("a")).await?;
    enqueue_batch(&sessions.ingest, &batch).await?;
    sessions.ingest.batch_execute("commit").await?;
    recorder.check(
        "committing the same 4 enqueues",
        "a new outbox with number 1",
        format!("number {}, new: {}", kept.sequence_id, !kept.replayed && kept.outbox_id != gone.outbox_id),
        kept.sequence_id == 1 && !kept.replayed && kept.outbox_id != gone.outbox_id,
    )?;
    let notifications = listener.notifications(&sessions.ingest).await?;
    recorder.check_equal(
        "listening while a relayer is idle and they are committed",
        "notifications",
        1,
        notifications,
    )?;

    enqueue(&sessions.ingest, &payment("a")).await?;
    let notifications = listener.notifications(&sessions.ingest).await?;
    recorder.check_equal(
        "listening while a relayer is idle and a replay makes nothing new",
        "notifications",
        0,
        notifications,
    )?;

    relayer.batch_execute(RELEASE_WAKEUP_LOCK).await?;
    enqueue(&sessions.ingest, &payment("c")).await?;
    enqueue_batch(&sessions.ingest, &[payment("d"), payment("e")]).await?;
    let notifications = listener.notifications(&sessions.ingest).await?;
    recorder.check_equal(
        "listening while no relayer is idle and 3 enqueues are committed",
        "notifications",
        0,
        notifications,
    )?;

    claim_before_idling(database, &sessions, &mut listener, &mut recorder).await?;
    Ok(recorder.finish())
}

/// A relayer that becomes idle while a producer's transaction is open finds the row or is notified.
async fn claim_before_idling(
    database: &Database,
    sessions: &Sessions,
    listener: &mut Listener,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let drained = claim(&sessions.executor, 100, "worker").await?.len();
    require(|| "claiming all due rows".into(), 7, drained)?;
    sessions.ingest.batch_execute("begin").await?;
    enqueue(&sessions.ingest, &Payment::new("last", "bob", "bank")).await?;
    let relayer = database.connect_as("symphony_executor").await?;
    let relayer_pid = pid(&relayer).await?;
    let becomes_idle = tokio::spawn(async move {
        relayer.batch_execute(HOLD_WAKEUP_LOCK).await?;
        let found = claim(&relayer, 100, "relayer").await?;
        Ok::<_, Failure>(found.len())
    });
    let waited = waits_for_lock(&sessions.owner, relayer_pid, &becomes_idle).await?;
    sessions.ingest.batch_execute("commit").await?;
    let found = becomes_idle.await??;
    let notifications = listener.notifications(&sessions.ingest).await?;
    recorder.check(
        "taking the wake-up lock while an enqueue is uncommitted, and claiming once more",
        "the row is claimed, or the relayer is notified",
        format!("waited for the commit: {waited}; claimed {found}, notified {notifications} times"),
        found + usize::try_from(notifications).unwrap_or_default() >= 1,
    )
}

async fn nothing_was_written(sessions: &Sessions, recorder: &mut Recorder, tried: &str) -> Result<(), Failure> {
    let rows = count(&sessions.owner, "select count(*) from symphony.payment_outbox_pending", &[]).await?;
    let numbers =
        count(&sessions.owner, "select count(*) from symphony.participant_outbox_sequences", &[]).await?;
    recorder.check(
        tried,
        "0 rows, 0 numbers taken",
        format!("{rows} rows, {numbers} numbers taken"),
        rows == 0 && numbers == 0,
    )
}
