//! The conformance suite of metadata stores: every store passes the same tests against a real server.
//!
//! The tests read what is stored with another client. To add a store: implement `StoreFixture` in a file here, and add
//! one line to the list below. Add its page to `documentation.rs` and its minimal settings to `settings.rs`.

mod fixture;
mod http;
mod postgres;
mod redis;
mod suite;

macro_rules! stores {
    ($($name:ident: $fixture:ty;)*) => {$(
        mod $name {
            #[tokio::test]
            async fn the_latest_version_of_each_entity_is_kept_or_the_record_is_refused() {
                crate::store::suite::versions::<$fixture>().await;
            }

            #[tokio::test]
            async fn an_outage_is_a_failure_in_time_and_what_was_stored_outlives_it() {
                crate::store::suite::outage::<$fixture>().await;
            }

            #[tokio::test]
            async fn only_a_server_with_a_trusted_certificate_is_sent_anything() {
                crate::store::suite::tls::<$fixture>().await;
            }
        }
    )*};
}

mod stores {
    stores! {
        postgres: crate::store::postgres::Postgres;
        redis: crate::store::redis::Redis;
        http: crate::store::http::Http;
    }
}
