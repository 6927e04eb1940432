//! Redis Streams, read over a socket by the protocol of Redis.

use std::collections::BTreeMap;

use symphony_proof::kit::brokers::USER;

use crate::bus::{Arrived, DESTINATION, PASSWORD};
use crate::resp::{Answer, ask, connect};

/// How many entries are asked for at once.
const PAGE: &str = "1000";

pub(crate) async fn read(port: u16) -> Vec<Arrived> {
    let mut socket = connect(port, USER, PASSWORD).await;
    let (mut all, mut from) = (Vec::new(), "-".to_owned());
    loop {
        let page = ask(&mut socket, &["XRANGE", DESTINATION, &from, "+", "COUNT", PAGE]).await.array();
        if page.is_empty() {
            return all;
        }
        for entry in page {
            let [number, fields] = entry.array().try_into().unwrap();
            // The next page begins behind the last entry of this one.
            from = format!("({}", number.text());
            let fields: Vec<String> = fields.array().into_iter().map(Answer::text).collect();
            let fields: BTreeMap<&str, &str> =
                fields.chunks(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
            all.push(Arrived { id: fields["id"].parse().unwrap(), key: fields["partitionkey"].to_owned() });
        }
    }
}
