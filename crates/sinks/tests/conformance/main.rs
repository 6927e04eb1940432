//! What every sink for events must do, tried on every sink against a real server. What has arrived is read by another
//! client, or by no client at all. The same for stores of metadata is in `store`.
//!
//! A new sink is a `Place` in a file of its own and one line in the list below; `tls` where its server can do that here.

#![cfg(test)]

mod authority;
mod facts;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod manuals;
mod nats;
mod place;
mod rabbitmq;
mod redis;
mod settings;
mod store;

macro_rules! sinks {
    ($($(#[$attribute:meta])* $name:ident: $place:ty $(, $tls:ident)?;)*) => {$(
        $(#[$attribute])*
        mod $name {
            mod facts_about {
                #[tokio::test]
                async fn events_arrive_whole_once_and_in_order_or_are_refused() {
                    crate::facts::delivery::<$place>().await;
                }

                #[tokio::test]
                async fn an_outage_is_a_failure_in_time_and_passes() {
                    crate::facts::outage::<$place>().await;
                }

                $(
                    #[tokio::test]
                    async fn only_a_server_that_the_authority_vouches_for_is_sent_anything() {
                        crate::facts::$tls::<$place>().await;
                    }
                )?
            }
        }
    )*};
}

mod every {
    sinks! {
        nats: crate::nats::Nats, tls;
        redis: crate::redis::Redis, tls;
        rabbitmq: crate::rabbitmq::RabbitMq, tls;
        http: crate::http::Http, tls;
        #[cfg(feature = "kafka")]
        kafka: crate::kafka::Kafka;
    }
}
