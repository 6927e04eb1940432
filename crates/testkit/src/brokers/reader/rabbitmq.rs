//! RabbitMQ: a durable queue, and how many messages it has. The few frames of AMQP 0-9-1 that this takes.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{MAX_REPLY_BYTES, ReadError};
use crate::brokers::USER;
use crate::port::HOST;

/// The type of a frame that holds a method, and the octet that ends every frame.
const METHOD: u8 = 1;
const FRAME_END: u8 = 0xCE;
/// The channel that the queue is declared on.
const CHANNEL: u16 = 1;
/// Methods, as class and number.
const START: [u16; 2] = [10, 10];
const START_OK: [u16; 2] = [10, 11];
const TUNE: [u16; 2] = [10, 30];
const TUNE_OK: [u16; 2] = [10, 31];
const OPEN: [u16; 2] = [10, 40];
const OPEN_OK: [u16; 2] = [10, 41];
const CHANNEL_OPEN: [u16; 2] = [20, 10];
const CHANNEL_OPEN_OK: [u16; 2] = [20, 11];
const QUEUE_DECLARE: [u16; 2] = [50, 10];
const QUEUE_DECLARE_OK: [u16; 2] = [50, 11];
/// Of the bits of a declaration, the one that makes the queue durable.
const DURABLE: u8 = 0b10;

/// Declares a durable queue, unless it exists, and returns how many messages are ready in it.
pub(super) async fn declare(port: u16, password: &str, queue: &str) -> Result<u64, ReadError> {
    let mut socket = TcpStream::connect((HOST, port)).await?;
    socket.write_all(b"AMQP\x00\x00\x09\x01").await?;
    receive(&mut socket, START).await?;
    let login = format!("\0{USER}\0{password}");
    let start_ok = [table(), short("PLAIN")?, long(login.as_bytes())?, short("en_US")?].concat();
    send(&mut socket, 0, START_OK, &start_ok).await?;
    // The limits that the server proposes, without heartbeats: this is over long before one is due.
    let tune = receive(&mut socket, TUNE).await?;
    let limits = tune.get(..6).ok_or_else(|| ReadError::Reply("a short tune".into()))?;
    send(&mut socket, 0, TUNE_OK, &[limits, &[0, 0]].concat()).await?;
    send(&mut socket, 0, OPEN, &[short("/")?, short("")?, vec![0]].concat()).await?;
    receive(&mut socket, OPEN_OK).await?;
    send(&mut socket, CHANNEL, CHANNEL_OPEN, &short("")?).await?;
    receive(&mut socket, CHANNEL_OPEN_OK).await?;
    let declaration = [vec![0, 0], short(queue)?, vec![DURABLE], table()].concat();
    send(&mut socket, CHANNEL, QUEUE_DECLARE, &declaration).await?;
    let declared = receive(&mut socket, QUEUE_DECLARE_OK).await?;
    let name = declared.first().map_or(0, |length| usize::from(*length));
    let messages = declared.get(1 + name..5 + name).and_then(|bytes| bytes.try_into().ok());
    let messages = messages.ok_or_else(|| ReadError::Reply("a short answer to a declaration".into()))?;
    Ok(u32::from_be_bytes(messages).into())
}

async fn send(socket: &mut TcpStream, channel: u16, method: [u16; 2], arguments: &[u8]) -> Result<(), ReadError> {
    let payload = [&number(method)[..], arguments].concat();
    let mut frame = vec![METHOD];
    frame.extend(channel.to_be_bytes());
    frame.extend(long(&payload)?);
    frame.push(FRAME_END);
    Ok(socket.write_all(&frame).await?)
}

/// The arguments of the next method, which must be this one.
async fn receive(socket: &mut TcpStream, method: [u16; 2]) -> Result<Vec<u8>, ReadError> {
    let kind = socket.read_u8().await?;
    let _channel = socket.read_u16().await?;
    let length = usize::try_from(socket.read_u32().await?).unwrap_or(usize::MAX);
    if kind != METHOD || length > MAX_REPLY_BYTES {
        return Err(ReadError::Reply(format!("a frame of type {kind} with {length} bytes")));
    }
    let mut payload = vec![0; length + 1];
    socket.read_exact(&mut payload).await?;
    payload.truncate(length);
    match payload.strip_prefix(&number(method)[..]) {
        Some(arguments) => Ok(arguments.to_vec()),
        // A refusal has its reason in it, as text between numbers.
        None => Err(ReadError::Reply(String::from_utf8_lossy(&payload).into_owned())),
    }
}

fn number([class, method]: [u16; 2]) -> [u8; 4] {
    let ([a, b], [c, d]) = (class.to_be_bytes(), method.to_be_bytes());
    [a, b, c, d]
}

/// An empty table.
fn table() -> Vec<u8> {
    vec![0; 4]
}

fn short(text: &str) -> Result<Vec<u8>, ReadError> {
    let length = u8::try_from(text.len()).map_err(|_| ReadError::Reply(format!("{text:?} is too long")))?;
    Ok([&[length], text.as_bytes()].concat())
}

fn long(bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    let length = u32::try_from(bytes.len()).map_err(|_| ReadError::Reply("too many bytes".into()))?;
    Ok([&length.to_be_bytes(), bytes].concat())
}
