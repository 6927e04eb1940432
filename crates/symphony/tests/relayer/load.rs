//! Producers: they enqueue one instruction after the other, and repeat what was not answered under the same key.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use symphony_outbox::connect::Target;
use symphony_outbox::payment::{Instruction, producer};
use symphony_proof::kit::wait::{BOUND, until};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// How many participants the instructions of a producer are spread over.
const PARTICIPANTS: usize = 5;

/// Between two enqueues, or two tries of one: leaves the processors to those who carry it.
const PAUSE: Duration = Duration::from_millis(10);

/// The nth instruction of a producer.
pub(crate) fn instruction(producer: &str, number: usize, rail: &str) -> Instruction {
    Instruction {
        instruction_id: format!("{producer}-{number}"),
        participant_id: format!("{producer}-{}", number % PARTICIPANTS),
        idempotency_key: format!("{producer}-{number}-key"),
        rail_type: rail.to_owned(),
        payload: json!({
            "amount": format!("{}.{:02}", 1 + number / 100, number % 100), "currency": "EUR",
            "destination": {"iban": "DE02120300000000202051"},
        })
        .into(),
    }
}

/// The instructions that the database has said are enqueued: none of them may get lost.
pub(crate) type Committed = Arc<Mutex<BTreeSet<String>>>;

/// One session that enqueues, made again when it is lost.
pub(crate) struct Till {
    target: Target,
    client: Option<Client>,
    committed: Committed,
}

impl Till {
    pub(crate) fn at(url: &str, committed: &Committed) -> Self {
        Self { target: Target::parse(url).unwrap(), client: None, committed: Arc::clone(committed) }
    }

    /// Enqueues until the database has said that it is done. Whether it was a repetition.
    pub(crate) async fn enqueue(&mut self, instruction: &Instruction) -> bool {
        let enqueued = async {
            loop {
                match self.try_enqueue(instruction).await {
                    Some(replayed) => return replayed,
                    None => tokio::time::sleep(PAUSE).await,
                }
            }
        };
        let enqueued = tokio::time::timeout(BOUND, enqueued).await;
        let replayed = enqueued.unwrap_or_else(|_| panic!("{} could not be enqueued", instruction.instruction_id));
        self.committed.lock().unwrap().insert(instruction.instruction_id.clone());
        replayed
    }

    async fn try_enqueue(&mut self, instruction: &Instruction) -> Option<bool> {
        let client = match self.client.take() {
            Some(client) if !client.is_closed() => client,
            _ => self.target.connect().await.ok()?,
        };
        let enqueued = producer::enqueue(&client, instruction).await;
        self.client = enqueued.is_ok().then_some(client);
        enqueued.ok().map(|enqueued| enqueued.replayed)
    }
}

/// Producers that go on until they are told to stop.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    enqueued: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// So many producers on these rails in turn, each in a session of its own.
    pub(crate) fn begin(url: &str, producers: usize, rails: &[&str], committed: &Committed) -> Self {
        let (stop, stopped) = watch::channel(false);
        let enqueued = Arc::new(AtomicUsize::new(0));
        let rails: Vec<String> = rails.iter().map(|rail| (*rail).to_owned()).collect();
        let task = |producer: usize| {
            let (mut till, stopped, enqueued) = (Till::at(url, committed), stopped.clone(), Arc::clone(&enqueued));
            let rails = rails.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    if *stopped.borrow() {
                        return;
                    }
                    let rail = &rails[number % rails.len()];
                    till.enqueue(&instruction(&format!("producer{producer}"), number, rail)).await;
                    enqueued.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(PAUSE).await;
                }
            })
        };
        let tasks = (0..producers).map(task).collect();
        Self { stop, enqueued, tasks }
    }

    /// How many were enqueued so far.
    pub(crate) fn count(&self) -> usize {
        self.enqueued.load(Ordering::SeqCst)
    }

    /// Waits until so many more are enqueued: something happens meanwhile.
    pub(crate) async fn goes_on(&self, more: usize) {
        let goal = self.count() + more;
        let so = async || self.count() >= goal;
        until("the producers go on", BOUND, so).await.unwrap();
    }

    /// Stops them when they have been answered.
    pub(crate) async fn end(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}
