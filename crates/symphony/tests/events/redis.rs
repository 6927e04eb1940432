//! Redis Streams, read over a socket by the protocol of Redis.

use std::collections::BTreeMap;

use symphony_proof::kit::brokers::USER;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::bus::{Arrived, DESTINATION, PASSWORD};

/// How many entries are asked for at once.
const PAGE: &str = "1000";

type Socket = BufReader<TcpStream>;

#[derive(Debug)]
enum Answer {
    Text(String),
    Array(Vec<Answer>),
}

impl Answer {
    fn text(self) -> String {
        let Self::Text(text) = self else { panic!("no text: {self:?}") };
        text
    }

    fn array(self) -> Vec<Self> {
        let Self::Array(all) = self else { panic!("no array: {self:?}") };
        all
    }
}

pub(crate) async fn read(port: u16) -> Vec<Arrived> {
    let mut socket = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    ask(&mut socket, &["AUTH", USER, PASSWORD]).await;
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

async fn ask(socket: &mut Socket, words: &[&str]) -> Answer {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    socket.write_all(text.as_bytes()).await.unwrap();
    answer(socket).await
}

async fn answer(socket: &mut Socket) -> Answer {
    let mut line = String::new();
    socket.read_line(&mut line).await.unwrap();
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "$" => {
            let mut body = vec![0; rest.parse::<usize>().unwrap() + 2];
            socket.read_exact(&mut body).await.unwrap();
            body.truncate(body.len() - 2);
            Answer::Text(String::from_utf8(body).unwrap())
        }
        "*" => {
            let mut all = Vec::new();
            for _ in 0..rest.parse::<usize>().unwrap() {
                all.push(Box::pin(answer(socket)).await);
            }
            Answer::Array(all)
        }
        "+" | ":" => Answer::Text(rest.to_owned()),
        _ => panic!("refused: {line}"),
    }
}
