//! Producers that enqueue one instruction after the other and repeat an enqueue without a reply under the same key.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use symphony_client::payment::{Instruction, tokio_postgres as client_api};
use symphony_db::connect::Target;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// How many participants each producer enqueues for.
const PARTICIPANTS: usize = 5;

/// Between two enqueues, or two tries of one: leaves CPU time to the relayers.
const ENQUEUE_PAUSE: Duration = Duration::from_millis(10);

/// The nth instruction of a producer.
pub(crate) fn instruction(producer: &str, number: usize, rail: &str) -> Instruction {
    Instruction::new(
        format!("{producer}-{number}"),
        format!("{producer}-{}", number % PARTICIPANTS),
        format!("{producer}-{number}-key"),
        rail,
        json!({
            "amount": format!("{}.{:02}", 1 + number / 100, number % 100), "currency": "EUR",
            "destination": {"iban": "DE02120300000000202051"},
        }),
    )
}

/// The instructions whose enqueue the database has confirmed: none of them may get lost.
pub(crate) type Committed = Arc<Mutex<BTreeSet<String>>>;

/// A producer with one session, which it opens again when the connection is lost.
pub(crate) struct Producer {
    target: Target,
    client: Option<Client>,
    committed: Committed,
}

impl Producer {
    pub(crate) fn at(url: &str, committed: &Committed) -> Self {
        Self { target: Target::parse(url).unwrap(), client: None, committed: Arc::clone(committed) }
    }

    /// Enqueues until the database confirms it. Returns whether that was an idempotent replay.
    pub(crate) async fn enqueue(&mut self, instruction: &Instruction) -> bool {
        let enqueued = async {
            loop {
                match self.try_enqueue(instruction).await {
                    Some(replayed) => return replayed,
                    None => tokio::time::sleep(ENQUEUE_PAUSE).await,
                }
            }
        };
        let enqueued = tokio::time::timeout(DEFAULT_TIMEOUT, enqueued).await;
        let replayed = enqueued.unwrap_or_else(|_| panic!("{} could not be enqueued", instruction.instruction_id));
        self.committed.lock().unwrap().insert(instruction.instruction_id.clone());
        replayed
    }

    async fn try_enqueue(&mut self, instruction: &Instruction) -> Option<bool> {
        let client = match self.client.take() {
            Some(client) if !client.is_closed() => client,
            _ => self.target.connect().await.ok()?,
        };
        let enqueued = client_api::enqueue(&client, instruction).await;
        self.client = enqueued.is_ok().then_some(client);
        enqueued.ok().map(|enqueued| enqueued.replayed)
    }
}

/// Several producers that enqueue until they are stopped.
pub(crate) struct Producers {
    stop: watch::Sender<bool>,
    enqueued: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Producers {
    /// Starts this many producers, each with its own session. Each enqueues on these rails in turn.
    pub(crate) fn start(url: &str, producers: usize, rails: &[&str], committed: &Committed) -> Self {
        let (stop, stopped) = watch::channel(false);
        let enqueued = Arc::new(AtomicUsize::new(0));
        let rails: Vec<String> = rails.iter().map(|rail| (*rail).to_owned()).collect();
        let task = |index: usize| {
            let (mut producer, stopped, enqueued) =
                (Producer::at(url, committed), stopped.clone(), Arc::clone(&enqueued));
            let rails = rails.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    if *stopped.borrow() {
                        return;
                    }
                    let rail = &rails[number % rails.len()];
                    producer.enqueue(&instruction(&format!("producer{index}"), number, rail)).await;
                    enqueued.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(ENQUEUE_PAUSE).await;
                }
            })
        };
        let tasks = (0..producers).map(task).collect();
        Self { stop, enqueued, tasks }
    }

    /// How many instructions they have enqueued.
    fn count(&self) -> usize {
        self.enqueued.load(Ordering::SeqCst)
    }

    /// Waits until they have enqueued this many more.
    pub(crate) async fn wait_for_more(&self, more: usize) {
        let goal = self.count() + more;
        let condition = async || self.count() >= goal;
        until("the producers have enqueued more", DEFAULT_TIMEOUT, condition).await.unwrap();
    }

    /// Stops them after their current enqueue is confirmed.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}
