//! What a fact needs of a server: that it comes, goes and stalls, and that one can look into it.

use std::path::PathBuf;
use std::sync::Arc;

use symphony_proof::kit::brokers::{Broker, Kind, Terms};
use symphony_relay::sink::{Message, Sink};
use tempfile::TempDir;

use crate::authority::Authority;

pub(crate) const PASSWORD: &str = "open-sesame-7";
/// Where events go that arrive.
pub(crate) const HERE: &str = "orders";

/// An event as somebody else finds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) source: String,
    pub(crate) event_type: String,
    pub(crate) subject: String,
    pub(crate) key: String,
    pub(crate) data: String,
    /// Whose span it was sent by, beside the event.
    pub(crate) traceparent: Option<String>,
}

/// A server for one kind of sink.
pub(crate) trait Place: Sized {
    /// Whether the server drops repeats and says so.
    const DROPS_REPEATS: bool;
    /// A destination that the server refuses.
    const NOWHERE: &'static str;
    /// Whether a message has headers beside the event.
    const HAS_HEADERS: bool = true;

    /// Starts the server; with TLS only where an authority is given. None where it has none.
    async fn start(tls: Option<&Authority>) -> Option<Self>;

    /// The settings that lead to it, but for the password and what concerns TLS.
    fn settings(&self) -> String;

    /// How the settings name the file with the password; none where the server asks for none.
    fn password_setting(&self) -> Option<&'static str>;

    /// The password that it accepts, and one that it does not.
    fn passwords(&self) -> [&'static str; 2] {
        [PASSWORD, "wrong-and-secret"]
    }

    /// All that has arrived at `HERE`, in the order in which it is stored.
    async fn read(&self) -> Vec<Seen>;

    /// Ends it in the middle of whatever it does.
    async fn down(&mut self);

    /// Starts it again where it was.
    async fn up(&mut self);

    /// Lets it take connections and answer nothing.
    fn pause(&mut self);

    /// Lets it go on.
    fn resume(&mut self);
}

/// Files that settings name.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// A sink to a place, with more settings and a password.
pub(crate) fn sink_with<P: Place>(place: &P, files: &Files, more: &str, password: &str) -> Arc<dyn Sink> {
    let mut toml = format!("{}\n{more}\n", place.settings());
    if let Some(setting) = place.password_setting() {
        let path = files.write("password", password);
        toml.push_str(&format!("{setting} = {path:?}\n"));
    }
    symphony_sinks::sink("orders", toml.parse().unwrap()).unwrap()
}

/// A sink to a place without TLS that gives up soon.
pub(crate) fn sink_to<P: Place>(place: &P, files: &Files, more: &str) -> Arc<dyn Sink> {
    sink_with(place, files, &format!("allow_plain = true\n{more}"), place.passwords()[0])
}

/// An event of one aggregate.
pub(crate) fn event(id: &str, aggregate: &str) -> Message {
    Message {
        id: id.to_owned(),
        source: "/shop".to_owned(),
        event_type: "order.paid".to_owned(),
        aggregate_type: "order".to_owned(),
        aggregate_id: aggregate.to_owned(),
        destination: HERE.to_owned(),
        data: format!("{{\"event\": {id:?}}}"),
    }
}

/// An event as it should be found.
pub(crate) fn seen(message: &Message) -> Seen {
    Seen {
        id: message.id.clone(),
        source: message.source.clone(),
        event_type: message.event_type.clone(),
        subject: format!("{}/{}", message.aggregate_type, message.aggregate_id),
        key: format!("{}/{}", message.aggregate_type, message.aggregate_id),
        data: message.data.clone(),
        traceparent: None,
    }
}

/// A broker of the kit, under the password that the sinks know.
pub(crate) async fn broker(kind: Kind, tls: Option<&Authority>) -> Broker {
    let terms = Terms { password: PASSWORD.to_owned(), tls: tls.map(|authority| authority.server("localhost")) };
    Broker::start(kind, &terms).await.unwrap()
}
