use tokio::net::TcpStream;

use super::*;
use crate::port::HOST;

fn auth() -> BrokerAuth {
    BrokerAuth { password: "open-sesame".to_owned(), tls: None }
}

async fn listens(broker: &Broker) -> bool {
    TcpStream::connect((HOST, broker.port())).await.is_ok()
}

async fn stops_and_restarts(kind: Kind) {
    let mut broker = Broker::start(kind, &auth()).await.unwrap();
    assert!(listens(&broker).await);
    broker.prepare("events").await.unwrap();
    assert_eq!(broker.count("events").await.unwrap(), 0);
    broker.stop().await.unwrap();
    assert!(!listens(&broker).await);
    broker.restart().await.unwrap();
    assert!(listens(&broker).await);
    broker.kill9().await.unwrap();
    assert!(!listens(&broker).await);
    broker.restart().await.unwrap();
    assert!(listens(&broker).await);
}

#[tokio::test]
async fn nats_stops_and_restarts() {
    stops_and_restarts(Kind::Nats).await;
}

#[tokio::test]
async fn redis_stops_and_restarts() {
    stops_and_restarts(Kind::Redis).await;
}

#[tokio::test]
async fn rabbitmq_stops_and_restarts() {
    stops_and_restarts(Kind::RabbitMq).await;
}
