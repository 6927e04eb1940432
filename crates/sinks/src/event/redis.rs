//! Events to Redis Streams: one script per event adds it to the stream unless it was added before.
//!
//! A single server runs a script as a whole or not at all as far as others can see, so the entry and the memory of it
//! stand or fall together. Its replicas follow later; see `docs/sinks/redis.md` for what that means.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind};
use rustls::pki_types::ServerName;
use serde::Deserialize;
use symphony_relay::sink::Message;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::cloudevent;
use super::courier::{Courier, Protocol, Sent, told};
use super::settings::{Common, Endpoint, Login, Schemes};
use crate::config::{Problem, time};

const SCHEMES: Schemes = Schemes { tls: ("rediss", 6379), plain: ("redis", 6379) };
const LARGEST: usize = 1024 * 1024;
/// The longest that repeats may be remembered: each costs memory for that long.
const LONGEST_MEMORY: Duration = Duration::from_secs(30 * 24 * 3600);

/// Adds an entry and remembers that it did. A repeat writes as well, though nothing but the time until which it is
/// remembered: WAIT waits for the last write of its own connection, and the first may have come over another.
const ADD: &str = "
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('PEXPIRE', KEYS[2], ARGV[1])
  return 1
end
local add = {'XADD', KEYS[1]}
if ARGV[2] ~= '' then
  add[3], add[4], add[5] = 'MAXLEN', '~', ARGV[2]
end
add[#add + 1] = '*'
for i = 3, #ARGV do add[#add + 1] = ARGV[i] end
redis.call(unpack(add))
redis.call('SET', KEYS[2], '', 'PX', ARGV[1])
return 0
";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    #[serde(default = "twenty_minutes", deserialize_with = "time")]
    repeats_for: Duration,
    #[serde(default)]
    replicas: u32,
    max_length: Option<u64>,
}

fn twenty_minutes() -> Duration {
    Duration::from_secs(20 * 60)
}

/// Streams, as a courier needs them.
pub(crate) struct Redis {
    endpoint: Endpoint,
    /// The name in the server's certificate, with TLS.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    database: i64,
    login: Option<Login>,
    repeats_for: Duration,
    replicas: u32,
    max_length: Option<u64>,
    timeout: Duration,
}

impl Redis {
    pub(crate) fn build(settings: toml::Table) -> Result<Courier<Self>, Problem> {
        let (common, own): (Common, Settings) = Common::read(settings)?;
        let endpoint = Endpoint::parse(&own.url, &SCHEMES, common.allow_plain)?;
        let database = match endpoint.path.as_str() {
            "" => 0,
            path => path.parse::<u16>().map(i64::from).map_err(|error| {
                Problem::new("url", "must end with the number of a database, or with the port").because(error)
            })?,
        };
        if own.repeats_for < Duration::from_secs(1) || own.repeats_for > LONGEST_MEMORY {
            return Err(Problem::new("repeats_for", "must be from \"1s\" to \"720h\""));
        }
        if own.replicas > 100 {
            return Err(Problem::new("replicas", "must be from 0 to 100"));
        }
        if own.max_length == Some(0) {
            return Err(Problem::new("max_length", "must be above zero; leave it out to keep all entries"));
        }
        let config = common.tls(endpoint.tls)?;
        let tls = if endpoint.tls {
            let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| {
                Problem::new("url", "must name a host that a certificate can name").because(error)
            })?;
            Some((TlsConnector::from(Arc::new(config)), name))
        } else {
            None
        };
        let limits = common.limits(LARGEST)?;
        let redis = Self {
            endpoint,
            tls,
            database,
            login: common.login(false)?,
            repeats_for: own.repeats_for,
            replicas: own.replicas,
            max_length: own.max_length,
            timeout: limits.timeout,
        };
        Ok(Courier::new(redis, limits))
    }

    fn info(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_db(self.database).set_skip_set_lib_name();
        if let Some(Login { user, password }) = &self.login {
            info = info.set_password(password.expose());
            if let Some(user) = user {
                info = info.set_username(user);
            }
        }
        info
    }

    /// The script with its arguments, and what waits for replicas behind it.
    fn commands(&self, message: &Message) -> redis::Pipeline {
        // In one slot with the stream, should somebody put a cluster's proxy in between.
        let memory = format!("symphony:seen:{{{}}}:{}", message.destination, cloudevent::unique_id(message));
        let mut pipeline = redis::pipe();
        // The first error is the one that counts, and has a code of its own.
        pipeline.ignore_errors();
        pipeline.cmd("EVAL").arg(ADD).arg(2).arg(&message.destination).arg(memory);
        pipeline.arg(u64::try_from(self.repeats_for.as_millis()).unwrap_or(u64::MAX));
        pipeline.arg(self.max_length.map(|length| length.to_string()).unwrap_or_default());
        for (name, value) in cloudevent::attributes(message) {
            pipeline.arg(name).arg(value);
        }
        pipeline.arg("datacontenttype").arg(cloudevent::CONTENT_TYPE).arg("data").arg(&message.data);
        if self.replicas > 0 {
            // A little less than we wait ourselves: what comes too late is then the server's own word.
            let wait = self.timeout * 9 / 10;
            pipeline.cmd("WAIT").arg(self.replicas).arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        pipeline
    }
}

/// A connection, and the task that reads and writes for it.
pub(crate) struct Connection {
    commands: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Protocol for Redis {
    type Connection = Connection;

    fn check(&self, message: &Message) -> Result<(), String> {
        if message.destination.is_empty() {
            return Err("its destination must be the key of a stream, such as orders".to_owned());
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, String> {
        let Endpoint { host, port, .. } = &self.endpoint;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| told(&error))?;
        stream.set_nodelay(true).map_err(|error| told(&error))?;
        let info = self.info();
        // The courier keeps the time.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let made = match &self.tls {
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), stream).await.map_err(|error| told(&error))?;
                MultiplexedConnection::new_with_config(&info, stream, config)
                    .await
                    .map(|(commands, driver)| (commands, tokio::spawn(driver)))
            }
            None => MultiplexedConnection::new_with_config(&info, stream, config)
                .await
                .map(|(commands, driver)| (commands, tokio::spawn(driver))),
        };
        let (commands, driver) = made.map_err(|error| connecting(&error))?;
        Ok(Connection { commands, driver })
    }

    fn is_open(&self, connection: &Connection) -> bool {
        !connection.driver.is_finished()
    }

    async fn send(&self, connection: &Connection, message: &Message) -> Sent {
        let mut commands = connection.commands.clone();
        let answers: Result<Vec<RedisResult<u32>>, RedisError> =
            self.commands(message).query_async(&mut commands).await;
        let answers = answers.and_then(|answers| answers.into_iter().collect::<RedisResult<Vec<u32>>>());
        match answers.as_deref() {
            Ok([_, copies]) if *copies < self.replicas => {
                let wanted = self.replicas;
                Sent::failed(format!("{copies} of {wanted} replicas have confirmed it in time (replicas)"))
            }
            Ok([seen, ..]) => Sent::confirmed(*seen == 1),
            Ok([]) => Sent::Broken("the server answered nothing".to_owned()),
            Err(error) => meaning(error),
        }
    }

    async fn close(&self, _: Arc<Connection>) {}
}

fn connecting(error: &RedisError) -> String {
    let refused = matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    if refused || error.kind() == ErrorKind::AuthenticationFailed {
        "the server does not accept our credentials".to_owned()
    } else {
        told(error)
    }
}

/// What a server's error means, by its code.
fn meaning(error: &RedisError) -> Sent {
    match (error.kind(), error.code()) {
        (_, Some("WRONGTYPE")) => Sent::refused("its destination is the key of something that is no stream"),
        (_, Some("NOPERM")) => Sent::refused(
            "the user may not do it: allow EVAL, XADD, EXISTS, SET and PEXPIRE on the stream and on symphony:seen:*",
        ),
        (_, Some("NOAUTH")) => {
            Sent::Broken("the server asks for credentials: set password_env or password_file".to_owned())
        }
        // After a failover the old primary is still there and takes no writes: look again.
        (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => {
            Sent::Broken("the server is a replica by now".to_owned())
        }
        (ErrorKind::Server(_) | ErrorKind::Extension, code) => {
            Sent::failed(format!("the server could not take it: {}", code.unwrap_or("an error without a code")))
        }
        _ => Sent::Broken(told(error)),
    }
}
