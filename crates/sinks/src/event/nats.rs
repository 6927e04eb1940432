//! Publishes events to NATS JetStream, and waits for the stream's acknowledgement.
//!
//! The server deduplicates by `Nats-Msg-Id`. Operators create the streams: if none takes a subject, the event is
//! refused and nothing is created. See `docs/sinks/nats.md`.

use std::sync::Arc;

use async_nats::connection::State;
use async_nats::jetstream::context::{Context, ContextBuilder, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, HeaderMap, jetstream};
use serde::Deserialize;
use std::path::PathBuf;
use symphony_relay::sink::Message;

use super::cloudevent;
use crate::broker::{BrokerSettings, Endpoint, Login, Schemes};
use crate::config::SettingError;
use crate::connection_manager::{ConnectionManager, Limits, SendResult, WireProtocol};
use crate::encoding;
use crate::error_text::error_chain;
use crate::secret::{self, OneOrMany, Secret, SecretSource};

const SCHEMES: Schemes = Schemes { tls: ("tls", 4222), plain: ("nats", 4222) };
/// The server's own default, which includes the headers.
const DEFAULT_MAX_BYTES: usize = 1024 * 1024;
/// How many acknowledgements may be outstanding. The relayer's slots are the effective limit.
const MAX_ACKS_IN_FLIGHT: usize = 10_000;

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
    /// A JWT and its signing key, as `nsc` writes them to a `.creds` file.
    JwtAndSeed(Secret),
    Nkey(Secret),
}

/// The wire protocol of JetStream.
pub(crate) struct Nats {
    servers: Vec<async_nats::ServerAddr>,
    tls: Option<rustls::ClientConfig>,
    tls_first: bool,
    credentials: Credentials,
    limits: Limits,
}

impl Nats {
    pub(crate) fn build(settings: toml::Table) -> Result<ConnectionManager<Self>, SettingError> {
        let (common, own): (BrokerSettings, Settings) = BrokerSettings::read(settings)?;
        let mut servers = Vec::new();
        let mut tls = false;
        for text in own.url.iter() {
            let endpoint = Endpoint::parse(text, &SCHEMES, common.allow_plain)?;
            if !endpoint.path.is_empty() {
                return Err(SettingError::new("url", "must end with the port"));
            }
            tls |= endpoint.tls;
            servers.push(text.parse().map_err(|error| {
                SettingError::new("url", "must be a URL, such as \"tls://nats.example:4222\"").with_source(error)
            })?);
        }
        if servers.is_empty() {
            return Err(SettingError::new("url", "must name a server"));
        }
        let config = common.tls(tls)?;
        let limits = common.limits(DEFAULT_MAX_BYTES)?;
        let credentials = credentials(&common, &own)?;
        let tls = tls.then_some(config);
        Ok(ConnectionManager::new(Self { servers, tls, tls_first: own.tls_first, credentials, limits }, limits))
    }

    fn options(&self) -> Result<ConnectOptions, String> {
        let mut options = ConnectOptions::new()
            .name("symphony")
            .connection_timeout(self.limits.connect_timeout)
            .request_timeout(Some(self.limits.timeout))
            // Try each server once and never reconnect: the connection manager makes new connections.
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
            Credentials::JwtAndSeed(text) => {
                options.credentials(text.expose()).map_err(|_| "credentials_file cannot be used".to_owned())?
            }
            Credentials::Nkey(seed) => options.nkey(seed.expose().to_owned()),
        })
    }
}

fn credentials(common: &BrokerSettings, own: &Settings) -> Result<Credentials, SettingError> {
    let login = common.login(true)?.map(Credentials::Login);
    let token = secret::from_env_or_file("token_env", &own.token_env, "token_file", &own.token_file)?
        .map(Credentials::Token);
    let jwt = match &own.credentials_file {
        Some(path) => {
            let text = SecretSource::File(path.clone()).read("credentials_file")?;
            ConnectOptions::new().credentials(text.expose()).map_err(|_| {
                SettingError::new("credentials_file", "must contain a JWT and a seed, as nsc writes them")
            })?;
            Some(Credentials::JwtAndSeed(text))
        }
        None => None,
    };
    let nkey = match &own.nkey_file {
        Some(path) => Some(Credentials::Nkey(SecretSource::File(path.clone()).read("nkey_file")?)),
        None => None,
    };
    let mut all = [login, token, jwt, nkey].into_iter().flatten();
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
            Err(SettingError::new(setting, text))
        }
    }
}

/// A client and its JetStream context.
pub(crate) struct Connection {
    client: Client,
    stream: Context,
}

impl WireProtocol for Nats {
    type Delivery = Message;
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
                "the server refuses the credentials: check the settings for user, password or token".to_owned()
            }
            _ => error_chain(&error),
        })?;
        let stream = ContextBuilder::new()
            .timeout(self.limits.timeout)
            .ack_timeout(self.limits.timeout)
            .max_ack_inflight(MAX_ACKS_IN_FLIGHT)
            .build(client.clone());
        Ok(Connection { client, stream })
    }

    fn is_open(&self, connection: &Connection) -> bool {
        connection.client.connection_state() == State::Connected
    }

    async fn send(&self, connection: &Connection, message: &Message) -> SendResult {
        let publication = PublishMessage::build().payload(message.data.clone().into()).headers(headers(message));
        let sent = connection.stream.send_publish(message.destination.clone(), publication).await;
        let confirmed = match sent {
            Ok(confirmation) => confirmation.await,
            Err(error) => Err(error),
        };
        let error = match confirmed {
            Ok(confirmation) => return SendResult::confirmed(confirmation.duplicate),
            Err(error) => error,
        };
        match error.kind() {
            PublishErrorKind::StreamNotFound => {
                SendResult::refused("no stream has its subject: create one (nats stream add), or change the route")
            }
            PublishErrorKind::MaxPayloadExceeded => {
                SendResult::refused("with its headers it exceeds the server's max_payload: raise max_payload")
            }
            _ => match stream_error(&error) {
                Some(error) if error.kind() == jetstream::ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => {
                    SendResult::refused("it exceeds the stream's max_msg_size: raise max_msg_size")
                }
                Some(error) if (400..500).contains(&error.code()) => {
                    SendResult::refused(format!("the stream refused it: {}", error_chain(error)))
                }
                Some(error) => {
                    SendResult::failed(format!("the stream could not store it: {}", error_chain(error)))
                }
                None => SendResult::ConnectionLost(error_chain(&error)),
            },
        }
    }

    async fn close(&self, connection: Arc<Connection>) {
        let _ = connection.client.drain().await;
    }
}

/// The error that the stream answered with, if the stream answered.
fn stream_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a jetstream::Error> {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(error) = source.downcast_ref::<jetstream::Error>() {
            return Some(error);
        }
        next = source.source();
    }
    None
}

/// The headers of the CloudEvents binary mode, and the id by which the server deduplicates.
fn headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in cloudevent::attributes(message) {
        headers.insert(format!("ce-{name}"), encoding::header_value(&value));
    }
    if let Some((name, span)) = cloudevent::traceparent() {
        headers.insert(name, span);
    }
    headers.insert("content-type", cloudevent::CONTENT_TYPE);
    headers.insert("Nats-Msg-Id", encoding::header_value(&cloudevent::unique_id(message)));
    headers
}
