//! Events to NATS JetStream: published with an id by which the server drops repeats, and confirmed by the stream.
//!
//! Streams are the operators': where none takes a subject, the event is refused and nothing is created. See
//! `docs/sinks/nats.md`.

use std::sync::Arc;

use async_nats::connection::State;
use async_nats::jetstream::context::{Context, ContextBuilder, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, HeaderMap, jetstream};
use serde::Deserialize;
use std::path::PathBuf;
use symphony_relay::sink::Message;

use super::cloudevent;
use crate::broker::{Common, Endpoint, Login, Schemes, either};
use crate::config::Problem;
use crate::courier::{Courier, Limits, Protocol, Sent, told};
use crate::secret::{OneOrMany, Secret, Source};

const SCHEMES: Schemes = Schemes { tls: ("tls", 4222), plain: ("nats", 4222) };
/// The largest data by default: what a server takes by default, headers included.
const LARGEST: usize = 1024 * 1024;
/// How many confirmations may be awaited at once. The engine's slots are the real bound.
const IN_FLIGHT: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: OneOrMany,
    #[serde(default)]
    tls_first: bool,
    token_env: Option<String>,
    token_file: Option<PathBuf>,
    credentials_file: Option<PathBuf>,
    nkey_file: Option<PathBuf>,
}

enum Credentials {
    None,
    Login(Login),
    Token(Secret),
    /// A JWT with the key to sign for it, as `nsc` writes them.
    Decorated(Secret),
    Nkey(Secret),
}

/// JetStream, as a courier needs it.
pub(crate) struct Nats {
    servers: Vec<async_nats::ServerAddr>,
    tls: Option<rustls::ClientConfig>,
    tls_first: bool,
    credentials: Credentials,
    limits: Limits,
}

impl Nats {
    pub(crate) fn build(settings: toml::Table) -> Result<Courier<Self>, Problem> {
        let (common, own): (Common, Settings) = Common::read(settings)?;
        let mut servers = Vec::new();
        let mut tls = false;
        for text in own.url.iter() {
            let endpoint = Endpoint::parse(text, &SCHEMES, common.allow_plain)?;
            if !endpoint.path.is_empty() {
                return Err(Problem::new("url", "must end with the port"));
            }
            tls |= endpoint.tls;
            servers.push(text.parse().map_err(|error| {
                Problem::new("url", "must be a URL, such as \"tls://nats.example:4222\"").because(error)
            })?);
        }
        if servers.is_empty() {
            return Err(Problem::new("url", "must name a server"));
        }
        let config = common.tls(tls)?;
        let limits = common.limits(LARGEST)?;
        let credentials = credentials(&common, &own)?;
        let tls = tls.then_some(config);
        Ok(Courier::new(Self { servers, tls, tls_first: own.tls_first, credentials, limits }, limits))
    }

    fn options(&self) -> Result<ConnectOptions, String> {
        let mut options = ConnectOptions::new()
            .name("symphony")
            .connection_timeout(self.limits.connect_timeout)
            .request_timeout(Some(self.limits.timeout))
            // Each server once, and not again after a loss: the courier makes new connections.
            .max_reconnects(self.servers.len())
            .require_tls(self.tls.is_some());
        if let Some(tls) = &self.tls {
            options = options.tls_client_config(tls.clone());
            if self.tls_first {
                options = options.tls_first();
            }
        }
        Ok(match &self.credentials {
            Credentials::None => options,
            Credentials::Login(Login { user, password }) => {
                options.user_and_password(user.clone().unwrap_or_default(), password.expose().to_owned())
            }
            Credentials::Token(token) => options.token(token.expose().to_owned()),
            Credentials::Decorated(text) => {
                options.credentials(text.expose()).map_err(|_| "credentials_file cannot be used".to_owned())?
            }
            Credentials::Nkey(seed) => options.nkey(seed.expose().to_owned()),
        })
    }
}

fn credentials(common: &Common, own: &Settings) -> Result<Credentials, Problem> {
    let login = common.login(true)?.map(Credentials::Login);
    let token = either("token_env", &own.token_env, "token_file", &own.token_file)?.map(Credentials::Token);
    let decorated = match &own.credentials_file {
        Some(path) => {
            let text = Source::File(path.clone()).read("credentials_file")?;
            ConnectOptions::new()
                .credentials(text.expose())
                .map_err(|_| Problem::new("credentials_file", "must hold a JWT and a seed, as nsc writes them"))?;
            Some(Credentials::Decorated(text))
        }
        None => None,
    };
    let nkey = match &own.nkey_file {
        Some(path) => Some(Credentials::Nkey(Source::File(path.clone()).read("nkey_file")?)),
        None => None,
    };
    let mut all = [login, token, decorated, nkey].into_iter().flatten();
    let first = all.next().unwrap_or(Credentials::None);
    match all.next() {
        None => Ok(first),
        Some(_) => {
            let text =
                "is set, and another of user, token_env, token_file, credentials_file and nkey_file: keep one";
            let setting = if own.nkey_file.is_some() {
                "nkey_file"
            } else if own.credentials_file.is_some() {
                "credentials_file"
            } else {
                "user"
            };
            Err(Problem::new(setting, text))
        }
    }
}

/// A client and what it publishes with.
pub(crate) struct Connection {
    client: Client,
    stream: Context,
}

impl Protocol for Nats {
    type Load = Message;
    type Connection = Connection;

    fn check(&self, message: &Message) -> Result<(), String> {
        let subject = &message.destination;
        let fits = !subject.is_empty()
            && subject.split('.').all(|token| !token.is_empty())
            && !subject.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*' || c == '>');
        let text = "its destination must be a subject without spaces and wildcards, such as orders.created";
        if fits { Ok(()) } else { Err(text.to_owned()) }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let client = self.options()?.connect(&self.servers[..]).await.map_err(|error| match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                "the server does not accept our credentials".to_owned()
            }
            _ => told(&error),
        })?;
        let stream = ContextBuilder::new()
            .timeout(self.limits.timeout)
            .ack_timeout(self.limits.timeout)
            .max_ack_inflight(IN_FLIGHT)
            .build(client.clone());
        Ok(Connection { client, stream })
    }

    fn is_open(&self, connection: &Connection) -> bool {
        connection.client.connection_state() == State::Connected
    }

    async fn send(&self, connection: &Connection, message: &Message) -> Sent {
        let publication = PublishMessage::build().payload(message.data.clone().into()).headers(headers(message));
        let sent = connection.stream.send_publish(message.destination.clone(), publication).await;
        let confirmed = match sent {
            Ok(confirmation) => confirmation.await,
            Err(error) => Err(error),
        };
        let error = match confirmed {
            Ok(confirmation) => return Sent::confirmed(confirmation.duplicate),
            Err(error) => error,
        };
        match error.kind() {
            PublishErrorKind::StreamNotFound => Sent::refused(
                "no stream takes its subject: create one that does (nats stream add), or change the route",
            ),
            PublishErrorKind::MaxPayloadExceeded => Sent::refused(
                "it is larger than the server takes with its headers: raise the server's max_payload",
            ),
            _ => match said_by_the_stream(&error) {
                Some(said) if said.kind() == jetstream::ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => {
                    Sent::refused("it is larger than the stream takes: raise the stream's max_msg_size")
                }
                Some(said) if (400..500).contains(&said.code()) => {
                    Sent::refused(format!("the stream refused it: {}", told(said)))
                }
                Some(said) => Sent::failed(format!("the stream could not take it: {}", told(said))),
                None => Sent::Broken(told(&error)),
            },
        }
    }

    async fn close(&self, connection: Arc<Connection>) {
        let _ = connection.client.drain().await;
    }
}

/// What the server answered, where it did.
fn said_by_the_stream<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a jetstream::Error> {
    let mut below = error.source();
    while let Some(source) = below {
        if let Some(said) = source.downcast_ref::<jetstream::Error>() {
            return Some(said);
        }
        below = source.source();
    }
    None
}

/// The binary mode of CloudEvents, and the id by which the server knows a repeat.
fn headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in cloudevent::attributes(message) {
        headers.insert(format!("ce-{name}"), cloudevent::header(&value));
    }
    if let Some((name, span)) = cloudevent::traceparent() {
        headers.insert(name, span);
    }
    headers.insert("content-type", cloudevent::CONTENT_TYPE);
    headers.insert("Nats-Msg-Id", cloudevent::header(&cloudevent::unique_id(message)));
    headers
}
