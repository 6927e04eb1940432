//! Events to RabbitMQ: persistent, confirmed by the broker, and refused where no queue would take them.
//!
//! A broker confirms what it cannot route as readily as what it has stored, unless it is told that a route is
//! mandatory. It then gives the message back before it confirms it. The client hands what came back to whichever
//! confirmation is next on the channel, so each publication has a channel for itself until it is confirmed.
//!
//! RabbitMQ drops no repeats: consumers do, by the id of the message. See `docs/sinks/rabbitmq.md`.

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
use crate::broker::{Common, Endpoint, Login, Schemes};
use crate::config::Problem;
use crate::courier::{Courier, Protocol, Sent, told};
use crate::secret::Secret;

const SCHEMES: Schemes = Schemes { tls: ("amqps", 5671), plain: ("amqp", 5672) };
const LARGEST: usize = 1024 * 1024;
/// The longest name that the protocol has room for.
const LONGEST_NAME: usize = 255;
/// Two of these without a sign of life end a connection.
const HEARTBEAT_SECONDS: u16 = 30;
const PERSISTENT: u8 = 2;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    exchange: String,
}

/// An exchange, as a courier needs it.
pub(crate) struct RabbitMq {
    uri: AMQPUri,
    tls: Option<RustlsConnector>,
    /// Put into the URI for the time of a connection.
    login: Option<(String, Secret)>,
    exchange: ShortString,
    connect_timeout: Duration,
}

impl RabbitMq {
    pub(crate) fn build(settings: toml::Table) -> Result<Courier<Self>, Problem> {
        let (common, own): (Common, Settings) = Common::read(settings)?;
        let endpoint = Endpoint::parse(&own.url, &SCHEMES, common.allow_plain)?;
        let vhost = percent_decode_str(&endpoint.path).decode_utf8().map_err(|error| {
            Problem::new("url", "must end with the name of a virtual host, in UTF-8").because(error)
        })?;
        let vhost = if vhost.is_empty() { "/".to_owned() } else { vhost.into_owned() };
        if own.exchange.len() > LONGEST_NAME {
            return Err(Problem::new("exchange", "must have at most 255 bytes"));
        }
        let limits = common.limits(LARGEST)?;
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
        Ok(Courier::new(rabbitmq, limits))
    }

    async fn new_channel(&self, connection: &Connection) -> lapin::Result<Channel> {
        let channel = connection.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }
}

/// The socket below a connection, which is cut when it is let go: the client's own thread would go on waiting for a
/// broker that does not answer.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Option<std::net::TcpStream>>>);

impl Socket {
    fn set(&self, stream: std::net::TcpStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    fn cut(&self) {
        if let Some(stream) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Cuts the socket when it is dropped, unless the connection was made.
struct Attempt(Option<Socket>);

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            socket.cut();
        }
    }
}

/// A connection, and its channels that nobody uses at the moment.
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
        self.socket.cut();
    }
}

impl Protocol for RabbitMq {
    type Load = Message;
    type Connection = Connection;

    fn check(&self, message: &Message) -> Result<(), String> {
        if message.destination.len() > LONGEST_NAME || message.id.len() > LONGEST_NAME {
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
        let mut attempt = Attempt(Some(socket.clone()));
        let runtime = lapin::runtime::default_runtime().map_err(|error| told(&error))?;
        let (tls, limit, below) = (self.tls.clone(), self.connect_timeout, socket.clone());
        let dial = async move |uri: AMQPUri, runtime: async_rs::TokioRuntime| {
            let dialled = async {
                let address = (uri.authority.host.clone(), uri.authority.port);
                let addresses = tokio::net::lookup_host(address).await?.collect::<Vec<_>>();
                let stream = AsyncTcpStream::connect(&runtime, addresses).await?;
                if let AsyncTcpStream::Plain(plain) = &stream {
                    plain.get_ref().set_nodelay(true)?;
                    below.set(plain.get_ref().as_fd().try_clone_to_owned()?.into());
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
        let connection = lapin::Connection::connector(uri, runtime, dial, properties).await.map_err(connecting)?;
        attempt.0 = None;
        let connection = Connection { connection, idle: Mutex::default(), socket };
        let channel = self.new_channel(&connection).await.map_err(|error| told(&error))?;
        connection.idle().push(channel);
        Ok(connection)
    }

    fn is_open(&self, connection: &Connection) -> bool {
        connection.connection.status().connected()
    }

    async fn send(&self, connection: &Connection, message: &Message) -> Sent {
        let idle = connection.idle().pop();
        let channel = match idle {
            Some(channel) if channel.status().connected() => channel,
            _ => match self.new_channel(connection).await {
                Ok(channel) => channel,
                Err(error) => return Sent::Broken(told(&error)),
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
                    Confirmation::Ack(None) => Sent::confirmed(false),
                    Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) => Sent::refused(
                        "no queue takes its routing key: bind one to the exchange, or change the route",
                    ),
                    Confirmation::Nack(None) => {
                        Sent::failed("the broker could not take it: a queue may be full or in trouble")
                    }
                    Confirmation::NotRequested => Sent::Broken("the broker confirms nothing".to_owned()),
                }
            }
            Err(error) => meaning(&error),
        }
    }

    async fn close(&self, connection: Arc<Connection>) {
        let _ = connection.connection.close(200, "bye".into()).await;
    }
}

fn connecting(error: lapin::Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(said) if *said.kind() == AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
            "the broker does not accept our credentials".to_owned()
        }
        ErrorKind::ProtocolError(said) if *said.kind() == AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
            "the broker does not let us into the virtual host of url".to_owned()
        }
        _ => told(&error),
    }
}

/// What an error of the broker means. One that is about the channel leaves the connection as it was.
fn meaning(error: &lapin::Error) -> Sent {
    let ErrorKind::ProtocolError(said) = error.kind() else { return Sent::Broken(told(error)) };
    match said.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
            Sent::refused("there is no such exchange: declare it, or change the setting exchange")
        }
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
            Sent::refused("the user may not write to the exchange: grant it")
        }
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::CONTENTTOOLARGE) => {
            Sent::refused("it is larger than the broker takes: raise the broker's max_message_size")
        }
        AMQPErrorKind::Soft(_) => Sent::failed(told(error)),
        AMQPErrorKind::Hard(_) => Sent::Broken(told(error)),
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
        .with_delivery_mode(PERSISTENT)
        .with_message_id(ShortString::from(message.id.clone()))
        .with_content_type(ShortString::from(cloudevent::CONTENT_TYPE))
        .with_headers(headers)
}
