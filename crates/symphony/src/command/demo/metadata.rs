//! The demo's metadata lane: each order changes its participant's profile, and stores keep the latest version.
//!
//! Merchant profiles go to a second database, payroll profiles to a private Redis, or to the same database where Redis
//! is not installed.

mod audit;
mod store;

use std::path::PathBuf;

use symphony_db::Payload;
use symphony_db::metadata::{Entity, Entry};
use symphony_testkit::shop::metadata::{self as shop_metadata, Numbers};
use tokio_postgres::Client;

use super::{
    display::{grouped, span},
    environment::DemoEnvironment,
    lane::{Lane, LaneProgress, Row},
    rate::Rate,
};
use crate::failure::Failure;
pub(super) use audit::MetadataAudit;
use store::Store;

/// The entity type of participants on the plain rail.
pub(super) const MERCHANT: &str = "merchant";
/// The entity type of participants on the ordered rail.
pub(super) const PAYROLL: &str = "payroll";

/// Frequent repair passes, so that expired claims are requeued within a second. A claim's 5 minutes are fixed.
const SETTINGS: &str = r#"
[metadata]
repair_every = "1s"

[metadata.breaker]
open_for = "250ms"
max_open_for = "1s"
"#;

/// A store and the entity types that go to it.
struct StoreRoute {
    entity_types: Vec<&'static str>,
    store: Store,
}

/// The metadata of the demo.
pub(super) struct Metadata {
    owner: Client,
    stores: Vec<StoreRoute>,
    /// Why Redis is missing, if it is.
    without_redis: Option<String>,
    password_file: PathBuf,
    rate: Rate,
    /// Killed relayers, and how many of their claims the demo expired.
    dead: Vec<String>,
    freed: u64,
}

impl Metadata {
    pub(super) async fn open(environment: &DemoEnvironment) -> Result<Self, Failure> {
        let copies = Store::postgres(environment).await?;
        let (stores, without_redis) = match Store::redis(environment.password()).await {
            Ok(redis) => {
                let route = |entity_type, store| StoreRoute { entity_types: vec![entity_type], store };
                (vec![route(MERCHANT, copies), route(PAYROLL, redis)], None)
            }
            Err(why) => (vec![StoreRoute { entity_types: vec![MERCHANT, PAYROLL], store: copies }], Some(why)),
        };
        Ok(Self {
            owner: environment.owner().await?,
            stores,
            without_redis,
            password_file: environment.password_file(),
            rate: Rate::new(),
            dead: Vec::new(),
            freed: 0,
        })
    }

    /// The names of the stores.
    pub(super) fn store_names(&self) -> String {
        let names: Vec<String> = self.stores.iter().map(|route| route.store.name()).collect();
        names.join(" and to ")
    }

    /// Describes the stores, and why Redis is missing.
    pub(super) fn where_to(&self) -> String {
        let why = self.without_redis.as_ref().map(|why| format!("\n{why}")).unwrap_or_default();
        format!("metadata goes to {}, the latest version wins{why}", self.store_names())
    }

    /// Expires the claims of killed relayers. Repeated, because a claim may commit after its relayer was killed.
    async fn expire_claims(&mut self) -> Result<u64, Failure> {
        let freed =
            if self.dead.is_empty() { 0 } else { shop_metadata::expire_claims(&self.owner, &self.dead).await? };
        self.freed += freed;
        Ok(freed)
    }
}

/// The metadata entry with the current profile.
pub(super) fn entry(kind: &str, participant_id: &str, metadata: Payload) -> Result<Entry, Failure> {
    let entity = Entity::new(kind, participant_id)
        .map_err(|error| Failure::because("a profile has an invalid entity id", error))?;
    Ok(Entry::new(entity, metadata))
}

impl Lane for Metadata {
    type Audit = MetadataAudit;

    fn settings(&self) -> String {
        let mut settings = SETTINGS.to_owned();
        for StoreRoute { entity_types, store } in &self.stores {
            for entity_type in entity_types {
                settings.push_str(&format!(
                    "\n[[metadata.routes]]\nentity_type = \"{entity_type}\"\nstore = \"{}\"\n",
                    store.section_name()
                ));
            }
        }
        for StoreRoute { store, .. } in &self.stores {
            let section = store.section(&self.password_file);
            settings.push_str(&format!("\n[stores.{}]\n{section}", store.section_name()));
        }
        settings
    }

    async fn progress(&mut self) -> Result<LaneProgress, Failure> {
        self.expire_claims().await?;
        let numbers = shop_metadata::numbers(&self.owner).await?;
        let rate = self.rate.update(numbers.committed - numbers.waiting - numbers.dead);
        Ok(progress_of(&numbers, rate))
    }

    /// A claim expires after 5 minutes, which is too long for a demo: the demo expires it, and a relayer repairs it.
    async fn relayer_killed(&mut self, worker: &str) -> Result<Option<String>, Failure> {
        self.dead.push(worker.to_owned());
        let expired = self.expire_claims().await?;
        Ok(Some(format!("{expired} metadata claims expired")))
    }

    async fn audit(&mut self) -> Result<MetadataAudit, Failure> {
        audit::run(&self.owner, &self.stores, self.freed).await
    }
}

/// The lane's progress, from its numbers and the entries published per second.
pub(super) fn progress_of(numbers: &Numbers, rate: u64) -> LaneProgress {
    let Numbers { committed, waiting, dead, oldest_ms } = *numbers;
    let (published, oldest) = (committed - waiting - dead, span(oldest_ms));
    let rows = vec![
        Row::new("metadata", grouped(published), format!("{rate}/s published; {} dead letters", grouped(dead))),
        Row::new("", grouped(waiting), format!("pending; oldest {oldest}")),
    ];
    let line = format!("metadata {published} ({rate}/s), pending {waiting}, dead letters {dead}, oldest {oldest}");
    LaneProgress { open: waiting, rows, line }
}
