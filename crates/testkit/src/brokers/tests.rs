use tokio::net::TcpStream;

use super::*;
use crate::port::HOST;

fn terms() -> Terms {
    Terms { password: "open-sesame".to_owned(), tls: None }
}

async fn listens(broker: &Broker) -> bool {
    TcpStream::connect((HOST, broker.port())).await.is_ok()
}

async fn comes_and_goes(kind: Kind) {
    let mut broker = Broker::start(kind, &terms()).await.unwrap();
    assert!(listens(&broker).await);
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
async fn a_nats_comes_and_goes() {
    comes_and_goes(Kind::Nats).await;
}

#[tokio::test]
async fn a_redis_comes_and_goes() {
    comes_and_goes(Kind::Redis).await;
}

#[tokio::test]
async fn a_rabbitmq_comes_and_goes() {
    comes_and_goes(Kind::RabbitMq).await;
}
