//! The protocol of Redis over a socket: a command of words, and what is answered.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

pub(crate) type Socket = BufReader<TcpStream>;

#[derive(Debug)]
pub(crate) enum Answer {
    Text(String),
    Array(Vec<Answer>),
}

impl Answer {
    pub(crate) fn text(self) -> String {
        let Self::Text(text) = self else { panic!("no text: {self:?}") };
        text
    }

    pub(crate) fn array(self) -> Vec<Self> {
        let Self::Array(all) = self else { panic!("no array: {self:?}") };
        all
    }
}

/// A session of this user.
pub(crate) async fn connect(port: u16, user: &str, password: &str) -> Socket {
    let mut socket = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    ask(&mut socket, &["AUTH", user, password]).await;
    socket
}

pub(crate) async fn ask(socket: &mut Socket, words: &[&str]) -> Answer {
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
