//! Redis: a stream, read page by page, or all hashes.

use std::collections::BTreeSet;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{ReadError, event, length};
use crate::kit::audit::events::Event;
use crate::kit::audit::metadata::Record;
use crate::kit::brokers::USER;
use crate::kit::port::HOST;

/// How many entries are asked for at once.
const PAGE: &str = "1000";

type Socket = BufReader<TcpStream>;

#[derive(Debug)]
enum Answer {
    Text(String),
    Array(Vec<Answer>),
}

impl Answer {
    fn text(self) -> Result<String, ReadError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Array(all) => Err(ReadError::Answer(format!("{} parts instead of a text", all.len()))),
        }
    }

    fn array(self) -> Result<Vec<Self>, ReadError> {
        match self {
            Self::Array(all) => Ok(all),
            Self::Text(text) => Err(ReadError::Answer(text)),
        }
    }
}

/// All that the stream has, by its entries' own order.
pub(super) async fn read(port: u16, password: &str, stream: &str) -> Result<Vec<Event>, ReadError> {
    let mut socket = enter(port, password).await?;
    let (mut all, mut from) = (Vec::new(), "-".to_owned());
    loop {
        let page = ask(&mut socket, &["XRANGE", stream, &from, "+", "COUNT", PAGE]).await?.array()?;
        if page.is_empty() {
            return Ok(all);
        }
        for entry in page {
            let [number, fields] = pair(entry)?;
            // The next page begins behind the last entry of this one.
            from = format!("({}", number.text()?);
            let fields = Fields::of(fields)?;
            all.push(event(fields.get("id")?, fields.get("partitionkey")?)?);
        }
    }
}

/// All that is under any key.
pub(super) async fn read_records(port: u16, password: &str, prefix: &str) -> Result<Vec<Record>, ReadError> {
    let mut socket = enter(port, password).await?;
    // A key may come more than once while the server looks through them.
    let (mut keys, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let [next, page] = pair(ask(&mut socket, &["SCAN", &cursor, "COUNT", PAGE]).await?)?;
        for key in page.array()? {
            keys.insert(key.text()?);
        }
        cursor = next.text()?;
        if cursor == "0" {
            break;
        }
    }
    let mut records = Vec::with_capacity(keys.len());
    for key in keys {
        let fields = Fields::of(ask(&mut socket, &["HGETALL", &key]).await?)?;
        let version = fields.get("version")?;
        records.push(Record {
            version: version.parse().map_err(|_| ReadError::Answer(format!("the version {version:?}")))?,
            entry_id: fields.get("entry_id")?.to_owned(),
            metadata: fields.get("metadata")?.to_owned(),
            entity: key.strip_prefix(prefix).map_or_else(|| key.clone(), |entity| entity.replacen(':', "/", 1)),
        });
    }
    Ok(records)
}

/// Names and values, one after the other, as the server has them.
struct Fields(Vec<String>);

impl Fields {
    fn of(answer: Answer) -> Result<Self, ReadError> {
        answer.array()?.into_iter().map(Answer::text).collect::<Result<_, _>>().map(Self)
    }

    fn get(&self, name: &str) -> Result<&str, ReadError> {
        let value = self.0.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str());
        value.ok_or_else(|| ReadError::Answer(format!("an entry without {name}")))
    }
}

fn pair(answer: Answer) -> Result<[Answer; 2], ReadError> {
    <[Answer; 2]>::try_from(answer.array()?)
        .map_err(|parts| ReadError::Answer(format!("{} parts instead of two", parts.len())))
}

async fn enter(port: u16, password: &str) -> Result<Socket, ReadError> {
    let mut socket = BufReader::new(TcpStream::connect((HOST, port)).await?);
    ask(&mut socket, &["AUTH", USER, password]).await?;
    Ok(socket)
}

async fn ask(socket: &mut Socket, words: &[&str]) -> Result<Answer, ReadError> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    socket.write_all(text.as_bytes()).await?;
    answer(socket).await
}

async fn answer(socket: &mut Socket) -> Result<Answer, ReadError> {
    let mut line = String::new();
    socket.read_line(&mut line).await?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("$", rest)) => {
            let mut body = vec![0; length(rest)? + 2];
            socket.read_exact(&mut body).await?;
            body.truncate(body.len() - 2);
            let text = String::from_utf8(body).map_err(|_| ReadError::Answer("bytes that are no text".into()))?;
            Ok(Answer::Text(text))
        }
        Some(("*", rest)) => {
            let mut all = Vec::new();
            for _ in 0..length(rest)? {
                all.push(Box::pin(answer(socket)).await?);
            }
            Ok(Answer::Array(all))
        }
        Some(("+" | ":", rest)) => Ok(Answer::Text(rest.to_owned())),
        _ => Err(ReadError::Answer(line.to_owned())),
    }
}
