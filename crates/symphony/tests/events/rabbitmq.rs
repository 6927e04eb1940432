//! RabbitMQ with a durable queue behind a durable exchange, and a consumer that reads the queue in order.

use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties, ExchangeKind};
use symphony_testkit::brokers::USER;
use symphony_testkit::reconciliation::events::Event;

use crate::broker::{DESTINATION, PASSWORD};

const QUEUE: &str = "events";

async fn connect(port: u16) -> Connection {
    let uri = format!("amqp://{USER}:{PASSWORD}@127.0.0.1:{port}/%2f");
    Connection::connect(&uri, ConnectionProperties::default()).await.unwrap()
}

pub(crate) async fn prepare(port: u16) {
    let connection = connect(port).await;
    let channel = connection.create_channel().await.unwrap();
    let none = FieldTable::default;
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    channel.exchange_declare("events".into(), ExchangeKind::Direct, durable, none()).await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(QUEUE.into(), durable, none()).await.unwrap();
    let bind = QueueBindOptions::default();
    channel.queue_bind(QUEUE.into(), "events".into(), DESTINATION.into(), bind, none()).await.unwrap();
    connection.close(200, "".into()).await.unwrap();
}

pub(crate) async fn read(port: u16) -> Vec<Event> {
    let connection = connect(port).await;
    let channel = connection.create_channel().await.unwrap();
    let mut all = Vec::new();
    while let Some(message) = channel.basic_get(QUEUE.into(), BasicGetOptions { no_ack: true }).await.unwrap() {
        let id = header(&message.properties, "id");
        all.push(Event { id: id.parse().unwrap(), key: header(&message.properties, "partitionkey") });
    }
    connection.close(200, "".into()).await.unwrap();
    all
}

fn header(properties: &BasicProperties, name: &str) -> String {
    let headers = properties.headers().as_ref().unwrap().inner();
    match headers.get(format!("cloudEvents:{name}").as_str()) {
        Some(AMQPValue::LongString(text)) => String::from_utf8(text.as_bytes().to_vec()).unwrap(),
        other => panic!("{name}: {other:?}"),
    }
}
