//! The lane of metadata: with each order the profile of whom it is for changes, and second stores keep what it is now.
//!
//! Profiles of one kind go to a database of their own, those of the other to a Redis of their own where this machine has one, and to the
//! same database where it does not.

mod store;
mod verdict;

use std::path::PathBuf;

use symphony_outbox::Payload;
use symphony_outbox::metadata::{Entity, Entry};
use symphony_proof::shop::profiles::{self, Numbers};
use tokio_postgres::Client;

use super::{
    lane::{Lane, Look, Row},
    rate::Rate,
    stage::Stage,
    view::{grouped, span},
};
use crate::failure::Failure;
use store::Store;
pub(super) use verdict::Verdict;

/// Profiles of those who are paid in whatever order.
pub(super) const MERCHANT: &str = "merchant";
/// Of those who are paid in order.
pub(super) const PAYROLL: &str = "payroll";

/// A claim lasts 5 minutes, whatever the settings say; what is too old is looked for often.
const SETTINGS: &str = r#"
[metadata]
repair_every = "1s"

[metadata.breaker]
first_pause = "250ms"
longest_pause = "1s"
"#;

/// A store, and whose metadata it keeps.
struct Keeper {
    entity_types: Vec<&'static str>,
    store: Store,
}

/// The metadata of the demo.
pub(super) struct Metadata {
    owner: Client,
    keepers: Vec<Keeper>,
    /// Why there is no Redis, if there is none.
    without_redis: Option<String>,
    password_file: PathBuf,
    rate: Rate,
    /// Relayers that were killed, and how many of their claims were made older.
    dead: Vec<String>,
    freed: u64,
}

impl Metadata {
    pub(super) async fn open(stage: &Stage) -> Result<Self, Failure> {
        let copies = Store::postgres(stage).await?;
        let (keepers, without_redis) = match Store::redis(stage.password()).await {
            Ok(redis) => {
                let keeper = |entity_type, store| Keeper { entity_types: vec![entity_type], store };
                (vec![keeper(MERCHANT, copies), keeper(PAYROLL, redis)], None)
            }
            Err(why) => (vec![Keeper { entity_types: vec![MERCHANT, PAYROLL], store: copies }], Some(why)),
        };
        Ok(Self {
            owner: stage.owner().await?,
            keepers,
            without_redis,
            password_file: stage.password_file(),
            rate: Rate::new(),
            dead: Vec::new(),
            freed: 0,
        })
    }

    /// Where it goes, in words.
    pub(super) fn places(&self) -> String {
        let names: Vec<String> = self.keepers.iter().map(|keeper| keeper.store.name()).collect();
        names.join(" and to ")
    }

    /// The same as a sentence, with why it does not go elsewhere.
    pub(super) fn where_to(&self) -> String {
        let why = self.without_redis.as_ref().map(|why| format!("\n{why}")).unwrap_or_default();
        format!("metadata goes to {}, a later version over an earlier one{why}", self.places())
    }

    /// Makes the claims of the dead older. One that was under way when its relayer died is granted after that.
    async fn free(&mut self) -> Result<u64, Failure> {
        let freed = if self.dead.is_empty() { 0 } else { profiles::bury(&self.owner, &self.dead).await? };
        self.freed += freed;
        Ok(freed)
    }
}

/// The entry that says what a profile is now.
pub(super) fn entry(kind: &str, participant_id: &str, metadata: Payload) -> Result<Entry, Failure> {
    let entity = Entity::new(kind, participant_id)
        .map_err(|error| Failure::because("a profile has no name to be kept under", error))?;
    Ok(Entry { entity, metadata, max_retries: None })
}

impl Lane for Metadata {
    type Verdict = Verdict;

    fn settings(&self) -> String {
        let mut settings = SETTINGS.to_owned();
        for Keeper { entity_types, store } in &self.keepers {
            for entity_type in entity_types {
                settings.push_str(&format!(
                    "\n[[metadata.routes]]\nentity_type = \"{entity_type}\"\nstore = \"{}\"\n",
                    store.section_name()
                ));
            }
        }
        for Keeper { store, .. } in &self.keepers {
            let section = store.section(&self.password_file);
            settings.push_str(&format!("\n[stores.{}]\n{section}", store.section_name()));
        }
        settings
    }

    async fn look(&mut self) -> Result<Look, Failure> {
        self.free().await?;
        let numbers = profiles::numbers(&self.owner).await?;
        let rate = self.rate.of(numbers.committed - numbers.waiting - numbers.dead);
        Ok(look_of(&numbers, rate))
    }

    /// The contract lets a dead relayer's entries be repaired after 5 minutes. Nobody wants to watch that: its claims are made older, and
    /// whoever lives repairs them.
    async fn died(&mut self, worker: &str) -> Result<Option<String>, Failure> {
        self.dead.push(worker.to_owned());
        let freed = self.free().await?;
        Ok(Some(format!("{freed} entries freed")))
    }

    async fn audit(&mut self) -> Result<Verdict, Failure> {
        verdict::reach(&self.owner, &self.keepers, self.freed).await
    }
}

/// These numbers, with what was published in a second, as they are shown.
pub(super) fn look_of(numbers: &Numbers, rate: u64) -> Look {
    let Numbers { committed, waiting, dead, oldest_ms } = *numbers;
    let (published, oldest) = (committed - waiting - dead, span(oldest_ms));
    let rows = vec![
        Row::new("metadata", grouped(published), format!("{rate}/s published; {} dead", grouped(dead))),
        Row::new("", grouped(waiting), format!("wait; the oldest is {oldest} old")),
    ];
    let words = format!("metadata {published} ({rate}/s), waiting {waiting}, dead {dead}, oldest {oldest}");
    Look { open: waiting, rows, words }
}
