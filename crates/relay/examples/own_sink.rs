//! A relayer with an event sink of its own, which prints one line per event.

use std::error::Error;
use std::io::Write as _;

use symphony_relay::Relayer;
use symphony_relay::event::routing::Route;
use symphony_relay::rail::BoxFuture;
use symphony_relay::sink::{Message, Published, Sink};

/// Writes events to stdout.
struct Printer;

impl Sink for Printer {
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
        Box::pin(async move {
            // Consumers deduplicate by the id: an event may come twice.
            let line = format!("{} {} {}", message.destination, message.id, message.data);
            match writeln!(std::io::stdout(), "{line}") {
                Ok(()) => Published::Confirmed { repeat: false },
                Err(error) => Published::Failed(error.to_string()),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

pub(crate) async fn start(database: &str) -> Result<Relayer, Box<dyn Error>> {
    Ok(Relayer::builder(database)
        .event_source("//orders.example")
        .sink("printer", Printer)
        .event_route(Route::new("order", "*", "printer", "orders.{event_type}")?)
        .start()
        .await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    start(&std::env::var("DATABASE_URL")?).await?.until_signal().await?;
    Ok(())
}
