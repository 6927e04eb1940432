//! Messages of PostgreSQL's wire protocol, version 3: their boundaries, and the few fields that the proxy needs.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Longer messages are refused: no test sends them, so the length was misread.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// The first message of a client, which has no type byte.
pub(super) enum Opening {
    /// StartupMessage: starts a session.
    Session(Vec<u8>),
    /// CancelRequest: cancels the request of another session, and gets no reply.
    Cancel(Vec<u8>),
    /// SSLRequest or GSSENCRequest. After a refusal the client sends another opening.
    Encryption,
}

/// One message as bytes: type, length, body.
pub(super) struct Message(Vec<u8>);

/// A message of a client, as far as the proxy needs it.
pub(super) enum ClientMessage<'a> {
    /// Executes this SQL. A complete request.
    Query { sql: &'a [u8] },
    /// Prepares this SQL under a name.
    Parse { statement: &'a [u8], sql: &'a [u8] },
    /// Creates a portal for a prepared statement.
    Bind { portal: &'a [u8], statement: &'a [u8] },
    /// Executes a portal.
    Execute { portal: &'a [u8] },
    /// Another part of a request that a [`ClientMessage::Sync`] will end.
    Part,
    /// Ends a request of the extended query protocol.
    Sync,
    /// FunctionCall: a complete request without SQL.
    Call,
    /// Not part of a request: a password, COPY data, Terminate.
    Other,
}

impl Message {
    pub(super) fn kind(&self) -> u8 {
        self.0.first().copied().unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Parses a message of a client.
    pub(super) fn parse(&self) -> ClientMessage<'_> {
        let body = self.0.get(5..).unwrap_or_default();
        let mut words = body.split(|byte| *byte == 0);
        let mut word = || words.next().unwrap_or_default();
        match self.kind() {
            b'Q' => ClientMessage::Query { sql: word() },
            b'P' => ClientMessage::Parse { statement: word(), sql: word() },
            b'B' => ClientMessage::Bind { portal: word(), statement: word() },
            b'E' => ClientMessage::Execute { portal: word() },
            b'C' | b'D' | b'H' => ClientMessage::Part,
            b'S' => ClientMessage::Sync,
            b'F' => ClientMessage::Call,
            _ => ClientMessage::Other,
        }
    }
}

/// The next message; `None` when the other side has closed the connection.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Message>> {
    let Some(kind) = first(stream).await? else { return Ok(None) };
    Ok(Some(Message(rest(stream, vec![kind]).await?)))
}

/// The first message of a client; `None` when it has closed the connection without one.
pub(super) async fn read_opening(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Opening>> {
    let mut length = [0; 4];
    let Some(byte) = first(stream).await? else { return Ok(None) };
    length[0] = byte;
    stream.read_exact(&mut length[1..]).await?;
    let bytes = body(stream, length.to_vec(), length).await?;
    let code = bytes.get(4..8).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes);
    Ok(Some(match code {
        Some(SSL | GSS) => Opening::Encryption,
        Some(CANCEL) => Opening::Cancel(bytes),
        _ => Opening::Session(bytes),
    }))
}

async fn first(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<u8>> {
    let mut byte = [0; 1];
    Ok((stream.read(&mut byte).await? > 0).then_some(byte[0]))
}

async fn rest(stream: &mut (impl AsyncRead + Unpin), mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    bytes.extend(length);
    body(stream, bytes, length).await
}

/// Appends the body. The length includes itself.
async fn body(stream: &mut (impl AsyncRead + Unpin), mut bytes: Vec<u8>, length: [u8; 4]) -> io::Result<Vec<u8>> {
    let length = usize::try_from(u32::from_be_bytes(length)).ok().and_then(|length| length.checked_sub(4));
    let Some(length) = length.filter(|length| *length <= MAX_MESSAGE_BYTES) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message with an invalid length"));
    };
    let begin = bytes.len();
    bytes.resize(begin + length, 0);
    stream.read_exact(&mut bytes[begin..]).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_parsed_and_the_end_of_the_stream_is_seen() {
        let mut stream: &[u8] = b"Q\0\0\0\x0dselect 1\0S\0\0\0\x04";
        let query = read(&mut stream).await.unwrap().unwrap();
        assert!(matches!(query.parse(), ClientMessage::Query { sql: b"select 1" }));
        assert!(matches!(read(&mut stream).await.unwrap().unwrap().parse(), ClientMessage::Sync));
        assert!(read(&mut stream).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_truncated_or_invalid_message_is_an_error() {
        for mut stream in [&b"Q\0\0\0\x0dsel"[..], b"Q\0\0", b"Q\0\0\0\x03", b"Q\xff\xff\xff\xff"] {
            assert!(read(&mut stream).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_request_for_encryption_is_not_a_session() {
        let mut stream: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f\0\0\0\x09\0\x03\0\0\0";
        assert!(matches!(read_opening(&mut stream).await.unwrap(), Some(Opening::Encryption)));
        assert!(
            matches!(read_opening(&mut stream).await.unwrap(), Some(Opening::Session(bytes)) if bytes.len() == 9)
        );
        assert!(read_opening(&mut stream).await.unwrap().is_none());
    }
}
