//! What the conformance suite needs of a server: start it, kill it, pause it, and read what has arrived.

use std::path::PathBuf;
use std::sync::Arc;

use symphony_relay::sink::{Message, Sink};
use symphony_testkit::brokers::{Broker, BrokerAuth, Kind};
use tempfile::TempDir;

use crate::certificate_authority::CertificateAuthority;

pub(crate) const PASSWORD: &str = "open-sesame-7";
/// A destination that the server accepts.
pub(crate) const DESTINATION: &str = "orders";

/// An event as another client reads it from the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReceivedEvent {
    pub(crate) id: String,
    pub(crate) source: String,
    pub(crate) event_type: String,
    pub(crate) subject: String,
    pub(crate) key: String,
    pub(crate) data: String,
    /// The header `traceparent` beside the event.
    pub(crate) traceparent: Option<String>,
}

/// A real server for one kind of sink.
pub(crate) trait SinkFixture: Sized {
    /// Whether the server deduplicates and reports it.
    const DEDUPLICATES: bool;
    /// A destination that the server refuses.
    const REFUSED_DESTINATION: &'static str;
    /// Whether a message has headers beside the event.
    const HAS_HEADERS: bool = true;

    /// Starts the server, with TLS if an authority is given. None if it cannot be started with TLS.
    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self>;

    /// The settings that connect to it, without password and TLS files.
    fn settings(&self) -> String;

    /// The setting for the file with the password. None if the server requires no password.
    fn password_setting(&self) -> Option<&'static str>;

    /// The password that it accepts, and one that it refuses.
    fn passwords(&self) -> [&'static str; 2] {
        [PASSWORD, "wrong-and-secret"]
    }

    /// All events at `DESTINATION`, in stored order.
    async fn read(&self) -> Vec<ReceivedEvent>;

    /// Kills the server with SIGKILL or the like.
    async fn kill(&mut self);

    /// Starts it again at the same address.
    async fn restart(&mut self);

    /// Lets it accept connections and answer nothing.
    fn pause(&mut self);

    /// Ends the pause.
    fn resume(&mut self);
}

/// Temporary files for settings that name a file.
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

/// A sink to a fixture, with more settings and this password.
pub(crate) fn sink_with<P: SinkFixture>(fixture: &P, files: &Files, more: &str, password: &str) -> Arc<dyn Sink> {
    let mut toml = format!("{}\n{more}\n", fixture.settings());
    if let Some(setting) = fixture.password_setting() {
        let path = files.write("password", password);
        toml.push_str(&format!("{setting} = {path:?}\n"));
    }
    symphony_sinks::sink("orders", toml.parse().unwrap()).unwrap()
}

/// A sink to a fixture without TLS.
pub(crate) fn sink_to<P: SinkFixture>(fixture: &P, files: &Files, more: &str) -> Arc<dyn Sink> {
    sink_with(fixture, files, &format!("allow_plain = true\n{more}"), fixture.passwords()[0])
}

/// An event of one aggregate.
pub(crate) fn event(id: &str, aggregate: &str) -> Message {
    Message {
        id: id.to_owned(),
        source: "/shop".to_owned(),
        event_type: "order.paid".to_owned(),
        aggregate_type: "order".to_owned(),
        aggregate_id: aggregate.to_owned(),
        destination: DESTINATION.to_owned(),
        data: format!("{{\"event\": {id:?}}}"),
    }
}

/// The event that another client should read.
pub(crate) fn received(message: &Message) -> ReceivedEvent {
    ReceivedEvent {
        id: message.id.clone(),
        source: message.source.clone(),
        event_type: message.event_type.clone(),
        subject: format!("{}/{}", message.aggregate_type, message.aggregate_id),
        key: format!("{}/{}", message.aggregate_type, message.aggregate_id),
        data: message.data.clone(),
        traceparent: None,
    }
}

/// A broker with the password of the tests.
pub(crate) async fn broker(kind: Kind, tls: Option<&CertificateAuthority>) -> Broker {
    let auth =
        BrokerAuth { password: PASSWORD.to_owned(), tls: tls.map(|authority| authority.issue("localhost")) };
    Broker::start(kind, &auth).await.unwrap()
}
