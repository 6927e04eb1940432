//! What a fact needs of a store: that it comes, goes and stalls, and that one can look into it.

use std::path::Path;
use std::sync::Arc;

use symphony_relay::store::{Record, Store};
use uuid::Uuid;

use crate::authority::Authority;
use crate::place::{Files, PASSWORD};

/// The type of entity whose records the server refuses.
pub(crate) const UNWELCOME: &str = "unwelcome";

/// A record as somebody else finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) version: i64,
    pub(crate) entry_id: String,
    pub(crate) metadata: String,
}

/// A server for one kind of store.
pub(crate) trait Shelf: Sized {
    /// Whether an id that is `..` can be kept.
    const KEEPS_DOTS: bool;

    /// Starts the server; with TLS where an authority is given. None where it cannot do that here.
    async fn start(tls: Option<&Authority>) -> Option<Self>;

    /// The settings that lead to it, but for the password; the file names the authority to believe, with TLS.
    fn settings(&self, root: Option<&Path>) -> String;

    /// How the settings name the file with the password.
    const PASSWORD_SETTING: &'static str = "password_file";

    /// The password that it accepts, and one that it does not.
    const PASSWORDS: [&'static str; 2] = [PASSWORD, "wrong-and-secret"];

    /// What is kept of an entity.
    async fn read(&self, entity_type: &str, entity_id: &str) -> Option<Kept>;

    /// Of how many entities something is kept.
    async fn count(&self) -> usize;

    /// Ends it in the middle of whatever it does.
    async fn down(&mut self);

    /// Starts it again where it was.
    async fn up(&mut self);

    /// Lets it take connections and confirm nothing.
    async fn pause(&mut self);

    /// Lets it go on.
    async fn resume(&mut self);
}

/// A store on a shelf, with more settings and a password.
pub(crate) fn store_with<S: Shelf>(
    shelf: &S,
    files: &Files,
    root: Option<&Path>,
    more: &str,
    password: &str,
) -> Arc<dyn Store> {
    let path = files.write("password", password);
    let toml = format!("{}\n{more}\n{} = {path:?}\n", shelf.settings(root), S::PASSWORD_SETTING);
    symphony_sinks::store("copies", toml.parse().unwrap()).unwrap()
}

/// A store on a shelf without TLS.
pub(crate) fn store_on<S: Shelf>(shelf: &S, files: &Files, more: &str) -> Arc<dyn Store> {
    store_with(shelf, files, None, &format!("allow_plain = true\n{more}"), S::PASSWORDS[0])
}

/// A version of a customer.
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

/// A record as it should be found.
pub(crate) fn kept(record: &Record) -> Option<Kept> {
    let Record { version, entry_id, metadata, .. } = record.clone();
    Some(Kept { version, entry_id, metadata })
}
