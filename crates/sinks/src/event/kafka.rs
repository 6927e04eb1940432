//! Publishes events to Kafka with an idempotent producer that waits for all in-sync replicas (`acks=all`).
//!
//! The aggregate is the key of the record. The brokers deduplicate what the producer retries by itself. A retry by the
//! relayer is a new record with the same event id, which consumers drop. See `docs/sinks/kafka.md`.
//!
//! librdkafka manages the connections to the brokers. It queues a message no longer than `timeout`.

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
use crate::broker::{BrokerSettings, Login};
use crate::config::SettingError;
use crate::connection_manager::{ConnectionManager, Limits, SendResult, WireProtocol};

/// The brokers' own default, less some space for the rest of the record.
const DEFAULT_MAX_BYTES: usize = 1_000_000;
/// Space for the key and the headers of a record.
const RECORD_OVERHEAD_BYTES: usize = 64 * 1024;
/// How long the client waits for a topic's metadata before it reports an unknown topic.
const TOPIC_METADATA_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    brokers: Vec<String>,
    #[serde(default)]
    sasl_mechanism: Mechanism,
}

/// The SASL mechanism.
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

/// The wire protocol of Kafka.
pub(crate) struct Kafka {
    config: ClientConfig,
    connect_timeout: Duration,
}

/// Discards librdkafka's own log lines: an error that matters comes back as the result of a send.
pub(crate) struct SilentContext;

impl ClientContext for SilentContext {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, _: &str) {}
}

impl Kafka {
    pub(crate) fn build(settings: toml::Table) -> Result<ConnectionManager<Self>, SettingError> {
        let (common, own): (BrokerSettings, Settings) = BrokerSettings::read(settings)?;
        let limits = common.limits(DEFAULT_MAX_BYTES)?;
        for broker in &own.brokers {
            let fits = broker.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains([',', '/', '@', ' ']) && port.parse::<u16>().is_ok()
            });
            if !fits {
                return Err(SettingError::new(
                    "brokers",
                    "must be hosts with ports, such as [\"kafka.example:9093\"]",
                ));
            }
        }
        if own.brokers.is_empty() {
            return Err(SettingError::new("brokers", "must name at least one, such as [\"kafka.example:9093\"]"));
        }
        let mut config = ClientConfig::new();
        producer_options(&mut config, &own.brokers, limits);
        security_options(&mut config, &common, &own)?;
        Ok(ConnectionManager::new(Self { config, connect_timeout: limits.connect_timeout }, limits))
    }
}

fn producer_options(config: &mut ClientConfig, brokers: &[String], limits: Limits) {
    let milliseconds = |time: Duration| time.as_millis().to_string();
    config
        .set("bootstrap.servers", brokers.join(","))
        .set("client.id", "symphony")
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "1")
        // Shorter than `timeout`: the client then reports the timeout itself and no longer queues the message.
        .set("message.timeout.ms", milliseconds(limits.timeout * 8 / 10))
        .set("request.timeout.ms", milliseconds((limits.timeout * 8 / 10).max(Duration::from_millis(1))))
        .set(
            "socket.connection.setup.timeout.ms",
            milliseconds(limits.connect_timeout.max(Duration::from_secs(1))),
        )
        .set("topic.metadata.propagation.max.ms", milliseconds(TOPIC_METADATA_TIMEOUT.min(limits.timeout / 2)))
        .set("reconnect.backoff.max.ms", "1000")
        .set("message.max.bytes", (limits.max_bytes + RECORD_OVERHEAD_BYTES).to_string())
        .set("log_level", "0");
}

/// TLS and SASL. librdkafka brings its own TLS, if it was built with it.
fn security_options(
    config: &mut ClientConfig,
    common: &BrokerSettings,
    own: &Settings,
) -> Result<(), SettingError> {
    let login = common.login(true)?;
    if !common.allow_plain && !cfg!(feature = "kafka-tls") {
        let text = "must be true: this build has no TLS for Kafka. Build with the feature kafka-tls to have it";
        return Err(SettingError::new("allow_plain", text));
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
            return Err(SettingError::new("sasl_mechanism", text));
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
            return Err(SettingError::new(
                setting,
                "means nothing with allow_plain = true: leave one of them out",
            ));
        }
        let readable = std::fs::File::open(path);
        readable.map_err(|error| {
            SettingError::new(setting, "must name a PEM file that can be read").with_source(error)
        })?;
        config.set(property, path.display().to_string());
    }
    Ok(())
}

impl WireProtocol for Kafka {
    type Delivery = Message;
    type Connection = FutureProducer<SilentContext>;

    fn check(&self, message: &Message) -> Result<(), String> {
        let topic = &message.destination;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let fits = (1..=249).contains(&topic.len()) && topic.chars().all(allowed) && topic != "." && topic != "..";
        let text = "its destination must be a topic: letters, digits, dots, dashes and underscores";
        if fits { Ok(()) } else { Err(text.to_owned()) }
    }

    async fn connect(&self) -> Result<FutureProducer<SilentContext>, String> {
        let config = self.config.clone();
        // Creating a client reads files and starts threads.
        let made = tokio::task::spawn_blocking(move || config.create_with_context(SilentContext)).await;
        match made {
            Ok(Ok(producer)) => Ok(producer),
            // The message may quote the settings, and so a password.
            Ok(Err(KafkaError::ClientConfig(_, _, property, _))) => {
                Err(format!("librdkafka refuses the property {property}"))
            }
            Ok(Err(_)) | Err(_) => Err("librdkafka cannot create a producer from the settings".to_owned()),
        }
    }

    fn is_open(&self, producer: &FutureProducer<SilentContext>) -> bool {
        producer.client().fatal_error().is_none()
    }

    async fn send(&self, producer: &FutureProducer<SilentContext>, message: &Message) -> SendResult {
        let key = message.ordering_key();
        let record =
            FutureRecord::to(&message.destination).key(&key).payload(&message.data).headers(headers(message));
        let Err((error, _)) = producer.send(record, self.connect_timeout).await else {
            return SendResult::confirmed(false);
        };
        let Some(code) = error.rdkafka_error_code() else {
            return SendResult::failed("librdkafka could not send it");
        };
        classify(code)
    }

    async fn close(&self, producer: Arc<FutureProducer<SilentContext>>) {
        let limit = self.connect_timeout;
        let _ = tokio::task::spawn_blocking(move || producer.flush(limit)).await;
    }
}

/// Maps an error code to the result of the send.
fn classify(code: RDKafkaErrorCode) -> SendResult {
    use RDKafkaErrorCode as Code;
    match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition => {
            SendResult::refused("the topic does not exist: create it, or change the route")
        }
        Code::MessageSizeTooLarge => {
            SendResult::refused("it exceeds max.message.bytes of the topic: raise max.message.bytes")
        }
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            SendResult::refused("the user may not write to the topic: grant WRITE and IDEMPOTENT_WRITE")
        }
        Code::InvalidTopic | Code::InvalidRecord | Code::PolicyViolation => {
            SendResult::refused(format!("the broker refused it: {code}"))
        }
        Code::Authentication | Code::SaslAuthenticationFailed => {
            SendResult::ConnectionLost("the brokers refuse the credentials: check user and password".to_owned())
        }
        // The sequence numbers of this producer are lost: the next delivery creates a new producer.
        Code::Fatal
        | Code::OutOfOrderSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::PurgeQueue
        | Code::PurgeInflight => SendResult::ConnectionLost(format!("the producer must be created again: {code}")),
        Code::MessageTimedOut => SendResult::failed("the brokers did not confirm in time"),
        _ => SendResult::failed(format!("the brokers could not store it: {code}")),
    }
}

/// The headers of the CloudEvents binary mode.
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
