//! A bank that records the requests of a rail.

use std::sync::Arc;

use symphony_relay::rail::{Payment, Rail};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::harness::{assert_accepted, http, in_time, listen, rail_to, read_request};

/// A bank that accepts everything, a rail to it, and the requests that it has read.
pub(crate) struct Recorder {
    pub(crate) rail: Arc<dyn Rail>,
    pub(crate) requests: mpsc::UnboundedReceiver<(String, String)>,
}

impl Recorder {
    pub(crate) async fn new(settings: &str) -> Self {
        let (seen, requests) = mpsc::unbounded_channel();
        let (address, _) = listen(move |mut stream| {
            let seen = seen.clone();
            async move {
                let Some(request) = read_request(&mut stream).await else { return };
                let _ = stream.write_all(http(200, "", r#"{"status": "EXECUTED"}"#).as_bytes()).await;
                seen.send(request).unwrap();
            }
        })
        .await;
        Self { rail: rail_to(address, settings), requests }
    }

    /// The head and the body of the request for a payment.
    pub(crate) async fn sent(&mut self, payment: &Payment) -> (String, String) {
        assert_accepted(&self.rail.dispatch(payment).await);
        in_time(self.requests.recv()).await.unwrap()
    }
}

/// The value of a header.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .find(|(own, _)| own.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}
