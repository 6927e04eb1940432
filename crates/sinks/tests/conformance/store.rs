//! What every store for metadata must do, tried on every store against a real server. What is kept is read by another client.
//!
//! A new store is a `Shelf` in a file of its own and one line in the list below.

mod facts;
mod http;
mod postgres;
mod redis;
mod shelf;

macro_rules! stores {
    ($($name:ident: $shelf:ty;)*) => {$(
        mod $name {
            mod facts_about {
                #[tokio::test]
                async fn the_latest_version_of_each_entity_is_kept_or_the_record_is_refused() {
                    crate::store::facts::keeping::<$shelf>().await;
                }

                #[tokio::test]
                async fn an_outage_is_a_failure_in_time_and_what_was_stored_outlives_it() {
                    crate::store::facts::outage::<$shelf>().await;
                }

                #[tokio::test]
                async fn only_a_server_that_the_authority_vouches_for_is_sent_anything() {
                    crate::store::facts::tls::<$shelf>().await;
                }
            }
        }
    )*};
}

mod every {
    stores! {
        postgres: crate::store::postgres::Postgres;
        redis: crate::store::redis::Redis;
        http: crate::store::http::Http;
    }
}
