//! Publishes persistent messages to RabbitMQ with publisher confirms, and refuses events that no queue receives.
//!
//! A broker also confirms messages that it cannot route, unless they are published as `mandatory`. It then returns an
//! unroutable message before it confirms it. lapin attaches a returned message to the next confirm on the channel, so
//! each message has a channel for itself until it is confirmed.
//!
//! RabbitMQ does not deduplicate: consumers do, by message id. See `docs/sinks/rabbitmq.md`.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::tcp::{AsyncTcpStream, RustlsConnector};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::uri::{AMQPAuthority, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{BasicProperties, Channel, Confirmation, ConnectionProperties, ErrorKind};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use symphony_relay::sink::Message;

use super::cloudevent;
use crate::broker::{BrokerSettings, Endpoint, Login, Schemes};
use crate::config::SettingError;
use crate::connection_manager::{ConnectionManager, SendResult, WireProtocol};
use crate::error_text::error_chain;
use crate::secret::Secret;

const SCHEMES: Schemes = Schemes { tls: ("amqps", 5671), plain: ("amqp", 5672) };
const DEFAULT_MAX_BYTES: usize = 1024 * 1024;
/// The length of a short string in AMQP 0-9-1.
const MAX_NAME_BYTES: usize = 255;
/// The client closes a connection after two missed heartbeats.
const HEARTBEAT_SECONDS: u16 = 30;
const DELIVERY_MODE_PERSISTENT: u8 = 2;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    exchange: String,
}

/// The wire protocol of RabbitMQ: AMQP 0-9-1, to one exchange.
pub(crate) struct RabbitMq {
    uri: AMQPUri,
    tls: Option<RustlsConnector>,
    /// Added to the URI only while a connection is made.
    login: Option<(String, Secret)>,
    exchange: ShortString,
    connect_timeout: Duration,
}

impl RabbitMq {
    pub(crate) fn build(settings: toml::Table) -> Result<ConnectionManager<Self>, SettingError> {
        let (common, own): (BrokerSettings, Settings) = BrokerSettings::read(settings)?;
        let endpoint = Endpoint::parse(&own.url, &SCHEMES, common.allow_plain)?;
        let vhost = percent_decode_str(&endpoint.path).decode_utf8().map_err(|error| {
            SettingError::new("url", "must end with the name of a virtual host, in UTF-8").with_source(error)
        })?;
        let vhost = if vhost.is_empty() { "/".to_owned() } else { vhost.into_owned() };
        if own.exchange.len() > MAX_NAME_BYTES {
            return Err(SettingError::new("exchange", "must have at most 255 bytes"));
        }
        let limits = common.limits(DEFAULT_MAX_BYTES)?;
        let config = common.tls(endpoint.tls)?;
        let mut uri = AMQPUri {
            scheme: if endpoint.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo::default(),
                host: endpoint.host,
                port: endpoint.port,
            },
            vhost,
            ..AMQPUri::default()
        };
        uri.query.heartbeat = Some(HEARTBEAT_SECONDS);
        let login = common.login(true)?.map(|Login { user, password }| (user.unwrap_or_default(), password));
        let rabbitmq = Self {
            uri,
            tls: endpoint.tls.then(|| RustlsConnector::from(config)),
            login,
            exchange: ShortString::from(own.exchange),
            connect_timeout: limits.connect_timeout,
        };
        Ok(ConnectionManager::new(rabbitmq, limits))
    }

    async fn new_channel(&self, connection: &Connection) -> lapin::Result<Channel> {
        let channel = connection.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }
}

/// The TCP socket of a connection, shut down when the connection is dropped: otherwise lapin's own thread keeps waiting
/// for a broker that does not answer.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Option<std::net::TcpStream>>>);

impl Socket {
    fn set(&self, stream: std::net::TcpStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    fn shut_down(&self) {
        if let Some(stream) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Shuts the socket down when it is dropped, unless the connection was made.
struct ConnectGuard(Option<Socket>);

impl Drop for ConnectGuard {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            socket.shut_down();
        }
    }
}

/// A connection and its idle channels.
pub(crate) struct Connection {
    connection: lapin::Connection,
    idle: Mutex<Vec<Channel>>,
    socket: Socket,
}

impl Connection {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.socket.shut_down();
    }
}

impl WireProtocol for RabbitMq {
    type Delivery = Message;
    type Connection = Connection;

    fn check(&self, message: &Message) -> Result<(), String> {
        if message.destination.len() > MAX_NAME_BYTES || message.id.len() > MAX_NAME_BYTES {
            return Err("its destination and its id must have at most 255 bytes each".to_owned());
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, String> {
        let mut uri = self.uri.clone();
        if let Some((user, password)) = &self.login {
            uri.authority.userinfo =
                AMQPUserInfo { username: user.clone(), password: password.expose().to_owned() };
        }
        let socket = Socket::default();
        let mut guard = ConnectGuard(Some(socket.clone()));
        let runtime = lapin::runtime::default_runtime().map_err(|error| error_chain(&error))?;
        let (tls, limit, tcp) = (self.tls.clone(), self.connect_timeout, socket.clone());
        let dial = async move |uri: AMQPUri, runtime: async_rs::TokioRuntime| {
            let dialled = async {
                let address = (uri.authority.host.clone(), uri.authority.port);
                let addresses = tokio::net::lookup_host(address).await?.collect::<Vec<_>>();
                let stream = AsyncTcpStream::connect(&runtime, addresses).await?;
                if let AsyncTcpStream::Plain(plain) = &stream {
                    plain.get_ref().set_nodelay(true)?;
                    tcp.set(plain.get_ref().as_fd().try_clone_to_owned()?.into());
                }
                match &tls {
                    Some(tls) => stream.into_rustls(tls, &uri.authority.host).await,
                    None => Ok(stream),
                }
            };
            let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
            tokio::time::timeout(limit, dialled).await.map_err(late).flatten().map_err(lapin::Error::from)
        };
        let properties = ConnectionProperties::default().with_connection_name("symphony".into());
        let connection =
            lapin::Connection::connector(uri, runtime, dial, properties).await.map_err(connect_error)?;
        guard.0 = None;
        let connection = Connection { connection, idle: Mutex::default(), socket };
        let channel = self.new_channel(&connection).await.map_err(|error| error_chain(&error))?;
        connection.idle().push(channel);
        Ok(connection)
    }

    fn is_open(&self, connection: &Connection) -> bool {
        connection.connection.status().connected()
    }

    async fn send(&self, connection: &Connection, message: &Message) -> SendResult {
        let idle = connection.idle().pop();
        let channel = match idle {
            Some(channel) if channel.status().connected() => channel,
            _ => match self.new_channel(connection).await {
                Ok(channel) => channel,
                Err(error) => return SendResult::ConnectionLost(error_chain(&error)),
            },
        };
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let published = channel
            .basic_publish(
                self.exchange.clone(),
                ShortString::from(message.destination.clone()),
                options,
                message.data.as_bytes(),
                properties(message),
            )
            .await;
        let confirmed = match published {
            Ok(confirmation) => confirmation.await,
            Err(error) => Err(error),
        };
        match confirmed {
            Ok(confirmation) => {
                connection.idle().push(channel);
                match confirmation {
                    Confirmation::Ack(None) => SendResult::confirmed(false),
                    Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) => SendResult::refused(
                        "no queue is bound for its routing key: bind one to the exchange, or change the route",
                    ),
                    Confirmation::Nack(None) => {
                        SendResult::failed("the broker rejected it (nack): a queue may be full or unavailable")
                    }
                    Confirmation::NotRequested => {
                        SendResult::ConnectionLost("the broker has no publisher confirms".to_owned())
                    }
                }
            }
            Err(error) => classify(&error),
        }
    }

    async fn close(&self, connection: Arc<Connection>) {
        let _ = connection.connection.close(200, "closed by symphony".into()).await;
    }
}

fn connect_error(error: lapin::Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(error) if *error.kind() == AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
            "the broker refuses the credentials: check user and password".to_owned()
        }
        ErrorKind::ProtocolError(error) if *error.kind() == AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
            "the broker refuses access to the virtual host of url: grant it, or change url".to_owned()
        }
        _ => error_chain(&error),
    }
}

/// Maps a broker error to the result of the send. A channel error (soft) leaves the connection open.
fn classify(error: &lapin::Error) -> SendResult {
    let ErrorKind::ProtocolError(protocol_error) = error.kind() else {
        return SendResult::ConnectionLost(error_chain(error));
    };
    match protocol_error.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
            SendResult::refused("the exchange does not exist: declare it, or change the setting exchange")
        }
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
            SendResult::refused("the user may not write to the exchange: grant the write permission")
        }
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::CONTENTTOOLARGE) => {
            SendResult::refused("it exceeds the broker's max_message_size: raise max_message_size")
        }
        AMQPErrorKind::Soft(_) => SendResult::failed(error_chain(error)),
        AMQPErrorKind::Hard(_) => SendResult::ConnectionLost(error_chain(error)),
    }
}

fn properties(message: &Message) -> BasicProperties {
    let mut headers = FieldTable::default();
    for (name, value) in cloudevent::attributes(message) {
        let value = AMQPValue::LongString(LongString::from(value));
        headers.insert(ShortString::from(format!("cloudEvents:{name}")), value);
    }
    if let Some((name, span)) = cloudevent::traceparent() {
        headers.insert(ShortString::from(name), AMQPValue::LongString(LongString::from(span)));
    }
    BasicProperties::default()
        .with_delivery_mode(DELIVERY_MODE_PERSISTENT)
        .with_message_id(ShortString::from(message.id.clone()))
        .with_content_type(ShortString::from(cloudevent::CONTENT_TYPE))
        .with_headers(headers)
}
