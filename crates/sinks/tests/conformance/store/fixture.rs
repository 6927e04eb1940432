//! What the conformance suite needs of a store: start it, kill it, pause it, and read what is stored.

use std::path::Path;
use std::sync::Arc;

use symphony_relay::store::{Record, Store};
use uuid::Uuid;

use crate::certificate_authority::CertificateAuthority;
use crate::fixture::{Files, PASSWORD};

/// An entity type whose records the server refuses.
pub(crate) const REFUSED_TYPE: &str = "unwelcome";

/// A record as another client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRecord {
    pub(crate) version: i64,
    pub(crate) entry_id: String,
    pub(crate) metadata: String,
}

/// A real server for one kind of store.
pub(crate) trait StoreFixture: Sized {
    /// Whether an id such as `..` is accepted.
    const ACCEPTS_DOT_IDS: bool;

    /// Starts the server, with TLS if an authority is given. None if it cannot be started with TLS here.
    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self>;

    /// The settings that connect to it, without the password. `root` is the trusted authority, with TLS.
    fn settings(&self, root: Option<&Path>) -> String;

    /// The setting for the file with the password.
    const PASSWORD_SETTING: &'static str = "password_file";

    /// The password that it accepts, and one that it refuses.
    const PASSWORDS: [&'static str; 2] = [PASSWORD, "wrong-and-secret"];

    /// The stored record of an entity.
    async fn read(&self, entity_type: &str, entity_id: &str) -> Option<StoredRecord>;

    /// The number of stored records.
    async fn count(&self) -> usize;

    /// Kills the server with SIGKILL or the like.
    async fn kill(&mut self);

    /// Starts it again at the same address.
    async fn restart(&mut self);

    /// Lets it accept connections and confirm nothing.
    async fn pause(&mut self);

    /// Ends the pause.
    async fn resume(&mut self);
}

/// A store for a fixture, with more settings and this password.
pub(crate) fn store_with<S: StoreFixture>(
    fixture: &S,
    files: &Files,
    root: Option<&Path>,
    more: &str,
    password: &str,
) -> Arc<dyn Store> {
    let path = files.write("password", password);
    let toml = format!("{}\n{more}\n{} = {path:?}\n", fixture.settings(root), S::PASSWORD_SETTING);
    symphony_sinks::store("copies", toml.parse().unwrap()).unwrap()
}

/// A store for a fixture without TLS.
pub(crate) fn store_for<S: StoreFixture>(fixture: &S, files: &Files, more: &str) -> Arc<dyn Store> {
    store_with(fixture, files, None, &format!("allow_plain = true\n{more}"), S::PASSWORDS[0])
}

/// A version of an entity of type `customer`.
pub(crate) fn customer(entity_id: &str, version: i64) -> Record {
    record("customer", entity_id, version)
}

/// A version of an entity.
pub(crate) fn record(entity_type: &str, entity_id: &str, version: i64) -> Record {
    Record {
        entry_id: Uuid::new_v4().to_string(),
        entity_type: entity_type.to_owned(),
        entity_id: entity_id.to_owned(),
        version,
        metadata: format!("{{\"version\": {version}}}"),
    }
}

/// The record that another client should read.
pub(crate) fn stored_record(record: &Record) -> Option<StoredRecord> {
    let Record { version, entry_id, metadata, .. } = record.clone();
    Some(StoredRecord { version, entry_id, metadata })
}
