//! Redis: reads a stream page by page, and hashes.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{Hashes, ReadError, event, length};
use crate::brokers::USER;
use crate::port::HOST;
use crate::reconciliation::events::Event;

/// How many entries one request returns.
const PAGE: &str = "1000";

type Socket = BufReader<TcpStream>;

#[derive(Debug)]
enum Reply {
    Text(String),
    Array(Vec<Reply>),
}

impl Reply {
    fn text(self) -> Result<String, ReadError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Array(all) => {
                Err(ReadError::Reply(format!("an array of {} elements instead of a string", all.len())))
            }
        }
    }

    fn array(self) -> Result<Vec<Self>, ReadError> {
        match self {
            Self::Array(all) => Ok(all),
            Self::Text(text) => Err(ReadError::Reply(text)),
        }
    }
}

/// All events of the stream, in its order.
pub(super) async fn read(port: u16, password: &str, stream: &str) -> Result<Vec<Event>, ReadError> {
    let mut socket = BufReader::new(TcpStream::connect((HOST, port)).await?);
    request(&mut socket, &["AUTH", USER, password]).await?;
    let (mut all, mut from) = (Vec::new(), "-".to_owned());
    loop {
        let page = request(&mut socket, &["XRANGE", stream, &from, "+", "COUNT", PAGE]).await?.array()?;
        if page.is_empty() {
            return Ok(all);
        }
        for entry in page {
            let [number, fields] = <[Reply; 2]>::try_from(entry.array()?)
                .map_err(|parts| ReadError::Reply(format!("an entry of {} elements", parts.len())))?;
            // The next page begins after the last entry of this one.
            from = format!("({}", number.text()?);
            let fields: Vec<String> = fields.array()?.into_iter().map(Reply::text).collect::<Result<_, _>>()?;
            let field = |name: &str| {
                let value = fields.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str());
                value.ok_or_else(|| ReadError::Reply(format!("an entry without {name}")))
            };
            all.push(event(field("id")?, field("partitionkey")?)?);
        }
    }
}

/// How many entries the stream has.
pub(super) async fn count(port: u16, password: &str, stream: &str) -> Result<u64, ReadError> {
    let mut socket = BufReader::new(TcpStream::connect((HOST, port)).await?);
    request(&mut socket, &["AUTH", USER, password]).await?;
    let length = request(&mut socket, &["XLEN", stream]).await?.text()?;
    length.parse().map_err(|_| ReadError::Reply(length))
}

/// All hashes whose keys have this prefix. KEYS blocks the server: for tests and audits only.
pub(super) async fn hashes(port: u16, password: &str, prefix: &str) -> Result<Hashes, ReadError> {
    let mut socket = BufReader::new(TcpStream::connect((HOST, port)).await?);
    request(&mut socket, &["AUTH", USER, password]).await?;
    let mut all = Hashes::new();
    for key in request(&mut socket, &["KEYS", &format!("{prefix}*")]).await?.array()? {
        let key = key.text()?;
        let fields = request(&mut socket, &["HGETALL", &key]).await?.array()?;
        let fields: Vec<String> = fields.into_iter().map(Reply::text).collect::<Result<_, _>>()?;
        all.insert(key, fields.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect());
    }
    Ok(all)
}

async fn request(socket: &mut Socket, words: &[&str]) -> Result<Reply, ReadError> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    socket.write_all(text.as_bytes()).await?;
    read_reply(socket).await
}

async fn read_reply(socket: &mut Socket) -> Result<Reply, ReadError> {
    let mut line = String::new();
    socket.read_line(&mut line).await?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("$", rest)) => {
            let mut body = vec![0; length(rest)? + 2];
            socket.read_exact(&mut body).await?;
            body.truncate(body.len() - 2);
            let text = String::from_utf8(body).map_err(|_| ReadError::Reply("bytes that are not UTF-8".into()))?;
            Ok(Reply::Text(text))
        }
        Some(("*", rest)) => {
            let mut all = Vec::new();
            for _ in 0..length(rest)? {
                all.push(Box::pin(read_reply(socket)).await?);
            }
            Ok(Reply::Array(all))
        }
        Some(("+" | ":", rest)) => Ok(Reply::Text(rest.to_owned())),
        _ => Err(ReadError::Reply(line.to_owned())),
    }
}
