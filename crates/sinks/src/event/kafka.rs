//! Events to Kafka: an idempotent producer that waits for all in-sync replicas, with the aggregate as the key.
//!
//! The producer numbers what it sends, so that what it sends again by itself is stored once. What the engine publishes
//! again is another record with the same id, for consumers to drop. See `docs/sinks/kafka.md`.
//!
//! The client makes and keeps the connections to the brokers itself. It keeps a message no longer than `timeout`.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use serde::Deserialize;
use symphony_relay::sink::Message;

use super::cloudevent;
use crate::broker::{Common, Login};
use crate::config::Problem;
use crate::courier::{Courier, Limits, Protocol, Sent};

/// The largest data by default: what brokers take by default, with room for the rest of the record.
const LARGEST: usize = 1_000_000;
/// Room for the key and the headers.
const HEADROOM: usize = 64 * 1024;
/// How long a topic may be unknown before it is taken for one that does not exist.
const TOPIC_APPEARS_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    brokers: Vec<String>,
    #[serde(default)]
    sasl_mechanism: Mechanism,
}

/// How a password is shown to the brokers.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum Mechanism {
    #[default]
    #[serde(rename = "PLAIN")]
    Plain,
    #[serde(rename = "SCRAM-SHA-256")]
    Scram256,
    #[serde(rename = "SCRAM-SHA-512")]
    Scram512,
}

impl Mechanism {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram256 => "SCRAM-SHA-256",
            Self::Scram512 => "SCRAM-SHA-512",
        }
    }
}

/// Topics, as a courier needs them.
pub(crate) struct Kafka {
    config: ClientConfig,
    connect_timeout: Duration,
}

/// The client's own log lines name brokers and errors. They are ours to write or not, and what matters comes back as
/// the outcome of a publication.
pub(crate) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, _: &str) {}
}

impl Kafka {
    pub(crate) fn build(settings: toml::Table) -> Result<Courier<Self>, Problem> {
        let (common, own): (Common, Settings) = Common::read(settings)?;
        let limits = common.limits(LARGEST)?;
        for broker in &own.brokers {
            let fits = broker.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains([',', '/', '@', ' ']) && port.parse::<u16>().is_ok()
            });
            if !fits {
                return Err(Problem::new("brokers", "must be hosts with ports, such as [\"kafka.example:9093\"]"));
            }
        }
        if own.brokers.is_empty() {
            return Err(Problem::new("brokers", "must name at least one, such as [\"kafka.example:9093\"]"));
        }
        let mut config = ClientConfig::new();
        basics(&mut config, &own.brokers, limits);
        security(&mut config, &common, &own)?;
        Ok(Courier::new(Self { config, connect_timeout: limits.connect_timeout }, limits))
    }
}

fn basics(config: &mut ClientConfig, brokers: &[String], limits: Limits) {
    let milliseconds = |time: Duration| time.as_millis().to_string();
    config
        .set("bootstrap.servers", brokers.join(","))
        .set("client.id", "symphony")
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "1")
        // A little less than the courier waits: what comes too late is then the client's own word, and gone from it.
        .set("message.timeout.ms", milliseconds(limits.timeout * 8 / 10))
        .set("request.timeout.ms", milliseconds((limits.timeout * 8 / 10).max(Duration::from_millis(1))))
        .set(
            "socket.connection.setup.timeout.ms",
            milliseconds(limits.connect_timeout.max(Duration::from_secs(1))),
        )
        .set("topic.metadata.propagation.max.ms", milliseconds(TOPIC_APPEARS_WITHIN.min(limits.timeout / 2)))
        .set("reconnect.backoff.max.ms", "1000")
        .set("message.max.bytes", (limits.max_bytes + HEADROOM).to_string())
        .set("log_level", "0");
}

/// TLS by the client's own library, where it was built with one.
fn security(config: &mut ClientConfig, common: &Common, own: &Settings) -> Result<(), Problem> {
    let login = common.login(true)?;
    if !common.allow_plain && !cfg!(feature = "kafka-tls") {
        let text = "must be true: this build has no TLS for Kafka. Build with the feature kafka-tls to have it";
        return Err(Problem::new("allow_plain", text));
    }
    let tls = !common.allow_plain;
    let protocol = match (tls, login.is_some()) {
        (true, true) => "SASL_SSL",
        (true, false) => "SSL",
        (false, true) => "SASL_PLAINTEXT",
        (false, false) => "PLAINTEXT",
    };
    config.set("security.protocol", protocol);
    if let Some(Login { user, password }) = login {
        if !cfg!(feature = "kafka-tls") && !matches!(own.sasl_mechanism, Mechanism::Plain) {
            let text =
                "must be \"PLAIN\": this build has no other. Build with the feature kafka-tls to have SCRAM";
            return Err(Problem::new("sasl_mechanism", text));
        }
        config
            .set("sasl.mechanism", own.sasl_mechanism.name())
            .set("sasl.username", user.unwrap_or_default())
            .set("sasl.password", password.expose());
    }
    let files = [
        ("root_ca_file", "ssl.ca.location", &common.root_ca_file),
        ("client_certificate_file", "ssl.certificate.location", &common.client_certificate_file),
        ("client_key_file", "ssl.key.location", &common.client_key_file),
    ];
    for (setting, property, path) in files {
        let Some(path) = path else { continue };
        if !tls {
            return Err(Problem::new(setting, "means nothing with allow_plain = true: leave one of them out"));
        }
        let readable = std::fs::File::open(path);
        readable.map_err(|error| Problem::new(setting, "must name a PEM file that can be read").because(error))?;
        config.set(property, path.display().to_string());
    }
    Ok(())
}

impl Protocol for Kafka {
    type Load = Message;
    type Connection = FutureProducer<Quiet>;

    fn check(&self, message: &Message) -> Result<(), String> {
        let topic = &message.destination;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let fits = (1..=249).contains(&topic.len()) && topic.chars().all(allowed) && topic != "." && topic != "..";
        let text = "its destination must be a topic: letters, digits, dots, dashes and underscores";
        if fits { Ok(()) } else { Err(text.to_owned()) }
    }

    async fn connect(&self) -> Result<FutureProducer<Quiet>, String> {
        let config = self.config.clone();
        // Making a client reads files and starts threads.
        let made = tokio::task::spawn_blocking(move || config.create_with_context(Quiet)).await;
        match made {
            Ok(Ok(producer)) => Ok(producer),
            // What it says may quote the settings, and so a password.
            Ok(Err(KafkaError::ClientConfig(_, _, property, _))) => Err(format!("the client refuses {property}")),
            Ok(Err(_)) | Err(_) => Err("no client can be made from the settings".to_owned()),
        }
    }

    fn is_open(&self, producer: &FutureProducer<Quiet>) -> bool {
        producer.client().fatal_error().is_none()
    }

    async fn send(&self, producer: &FutureProducer<Quiet>, message: &Message) -> Sent {
        let key = message.ordering_key();
        let record =
            FutureRecord::to(&message.destination).key(&key).payload(&message.data).headers(headers(message));
        let Err((error, _)) = producer.send(record, self.connect_timeout).await else {
            return Sent::confirmed(false);
        };
        let Some(code) = error.rdkafka_error_code() else {
            return Sent::failed("the client could not send it");
        };
        meaning(code)
    }

    async fn close(&self, producer: Arc<FutureProducer<Quiet>>) {
        let limit = self.connect_timeout;
        let _ = tokio::task::spawn_blocking(move || producer.flush(limit)).await;
    }
}

/// What the code of an error means.
fn meaning(code: RDKafkaErrorCode) -> Sent {
    use RDKafkaErrorCode as Code;
    match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition => {
            Sent::refused("there is no such topic: create it, or change the route")
        }
        Code::MessageSizeTooLarge => {
            Sent::refused("it is larger than the topic takes: raise max.message.bytes of the topic")
        }
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            Sent::refused("the user may not write to the topic: grant WRITE and IDEMPOTENT_WRITE")
        }
        Code::InvalidTopic | Code::InvalidRecord | Code::PolicyViolation => {
            Sent::refused(format!("the broker refused it: {code}"))
        }
        Code::Authentication | Code::SaslAuthenticationFailed => {
            Sent::Broken("the brokers do not accept our credentials".to_owned())
        }
        // The numbers of this producer are of no use any more: the next one begins anew.
        Code::Fatal
        | Code::OutOfOrderSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::PurgeQueue
        | Code::PurgeInflight => Sent::Broken(format!("the producer must begin anew: {code}")),
        Code::MessageTimedOut => Sent::failed("the brokers did not confirm in time"),
        _ => Sent::failed(format!("the brokers could not take it: {code}")),
    }
}

/// The binary mode of CloudEvents.
fn headers(message: &Message) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new();
    for (name, value) in cloudevent::attributes(message) {
        headers = headers.insert(Header { key: &format!("ce_{name}"), value: Some(&value) });
    }
    if let Some((name, span)) = cloudevent::traceparent() {
        headers = headers.insert(Header { key: name, value: Some(&span) });
    }
    headers.insert(Header { key: "content-type", value: Some(cloudevent::CONTENT_TYPE) })
}
