//! The conformance suite of event sinks: every sink passes the same tests against a real server.
//!
//! The tests read what has arrived with another client, or over a socket without a client. The suite of metadata stores
//! is in `store`.
//!
//! To add a sink: implement `SinkFixture` in a file here, and add one line to the list below, with `tls` if the server
//! can be started with TLS in a test. Add its page to `documentation.rs` and its minimal settings to `settings.rs`.

#![cfg(test)]

mod certificate_authority;
mod documentation;
mod fixture;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod rabbitmq;
mod redis;
mod settings;
mod store;
mod suite;

macro_rules! sinks {
    ($($(#[$attribute:meta])* $name:ident: $fixture:ty $(, $tls:ident)?;)*) => {$(
        $(#[$attribute])*
        mod $name {
            #[tokio::test]
            async fn events_arrive_whole_once_and_in_order_or_are_refused() {
                crate::suite::delivery::<$fixture>().await;
            }

            #[tokio::test]
            async fn an_outage_is_a_failure_in_time_and_passes() {
                crate::suite::outage::<$fixture>().await;
            }

            $(
                #[tokio::test]
                async fn only_a_server_with_a_trusted_certificate_is_sent_anything() {
                    crate::suite::$tls::<$fixture>().await;
                }
            )?
        }
    )*};
}

mod sinks {
    sinks! {
        nats: crate::nats::Nats, tls;
        redis: crate::redis::Redis, tls;
        rabbitmq: crate::rabbitmq::RabbitMq, tls;
        http: crate::http::Http, tls;
        #[cfg(feature = "kafka")]
        kafka: crate::kafka::Kafka;
    }
}
