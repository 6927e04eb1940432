//! Starts a bank for one test, and a raw HTTP client that shows every byte.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Longer than anything takes on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running bank. It is killed when the test ends.
pub(crate) struct Bank {
    child: Mutex<Child>,
    address: SocketAddr,
}

impl Bank {
    /// Starts a bank with these arguments and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(command(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// A bank that the test started itself.
    pub(crate) fn of(mut child: Child) -> Self {
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut output = String::new();
            child.stderr.take().unwrap().read_to_string(&mut output).unwrap();
            panic!("not ready: {line}{output}")
        });
        let address = ready["listening"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        Self { child: Mutex::new(child), address }
    }

    /// Starts a bank on a ledger file.
    pub(crate) fn on(ledger: &Path) -> Self {
        Self::start(&["--ledger", ledger.to_str().unwrap()])
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends SIGTERM. [`Bank::ended`] waits for the end.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child.lock().unwrap());
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// The exit code and stderr.
    pub(crate) fn ended(self) -> (Option<i32>, String) {
        let mut child = self.child.lock().unwrap();
        let mut output = String::new();
        child.stderr.take().unwrap().read_to_string(&mut output).unwrap();
        (child.wait().unwrap().code(), output)
    }

    /// Sends bytes on a new connection.
    pub(crate) fn send(&self, bytes: &[u8]) -> Wire {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // The bank may close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        Wire(stream)
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> Wire {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: bank\r\nConnection: close\r\n{headers}");
        self.send(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "", "").answer()
    }

    /// Sends a payment of this amount and does not wait.
    pub(crate) fn send_payment(&self, key: &str, amount: &str) -> Wire {
        let headers = format!("Idempotency-Key: {key}\r\n");
        self.request("POST", "/v1/payments", &headers, &payment(key, amount))
    }

    pub(crate) fn pay(&self, key: &str) -> Answer {
        self.send_payment(key, "12.50").answer()
    }

    /// Whether it accepts connections.
    pub(crate) fn listens(&self) -> bool {
        TcpStream::connect(self.address).is_ok()
    }

    /// Pays at a bank that may be ending: all that it sent, or None if it no longer listens.
    pub(crate) fn try_pay(&self, key: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let body = payment(key, "1");
        let head =
            format!("POST /v1/payments HTTP/1.1\r\nHost: bank\r\nConnection: close\r\nIdempotency-Key: {key}");
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }

    pub(crate) fn inquire(&self, key: &str) -> Answer {
        self.get(&format!("/v1/payments/{key}"))
    }

    /// Changes the faults.
    pub(crate) fn order(&self, faults: &Value) {
        let answer = self.request("PUT", "/v1/faults", "", &faults.to_string()).answer();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    pub(crate) fn ledger(&self) -> Vec<Value> {
        self.get("/v1/ledger").lines()
    }

    /// The keys of the ledger, in order.
    pub(crate) fn paid(&self) -> Vec<String> {
        self.ledger().iter().map(|line| line["key"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn requests(&self) -> Vec<Value> {
        self.get("/v1/requests").lines()
    }

    pub(crate) fn stats(&self) -> Value {
        self.get("/v1/stats").json()
    }

    /// Polls until the condition is true. The request itself is the pause.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !so(self) {
            assert!(start.elapsed() < TIMEOUT, "it never came to this: {what}");
        }
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The program with the arguments of a bank.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command.arg("bank").args(arguments).env_remove("DATABASE_URL").stderr(Stdio::piped());
    command
}

/// The exit code and stderr of a bank that must not start.
#[track_caller]
pub(crate) fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let mut child = command(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if !line.is_empty() {
        // It started, and would run for ever.
        child.kill().unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    assert_eq!(line, "", "{arguments:?} was not refused");
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

/// The body of a payment.
pub(crate) fn payment(key: &str, amount: &str) -> String {
    serde_json::json!({
        "instruction_id": format!("instruction of {key}"), "participant_id": "shop", "sequence_id": 7,
        "idempotency_key": key,
        "payload": {"amount": amount, "currency": "EUR", "destination": {"iban": "DE02120300000000202051"}},
    })
    .to_string()
}

/// A connection with a sent request.
pub(crate) struct Wire(pub(crate) TcpStream);

impl Wire {
    /// All bytes until the bank closes it.
    pub(crate) fn everything(mut self) -> String {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&bytes)),
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Whether the connection is open and no byte has arrived.
    pub(crate) fn is_silent(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let looked = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).unwrap();
        matches!(looked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// The response, which must be complete.
    #[track_caller]
    pub(crate) fn answer(self) -> Answer {
        let answer = Answer::read(&self.everything());
        let length = answer.headers.get("content-length").map(|length| length.parse().unwrap());
        assert!(length.is_none_or(|length: usize| length == answer.body.len()), "half an answer: {answer:?}");
        answer
    }
}

/// A response of the bank.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: BTreeMap<_, _> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let chunked = headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Self { status, headers, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The reference of the executed payment.
    #[track_caller]
    pub(crate) fn reference(&self) -> String {
        let json = self.json();
        assert_eq!(json["status"], "EXECUTED", "{self:?}");
        json["reference"].as_str().unwrap().to_owned()
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replay").is_some_and(|value| value == "true")
    }

    fn lines(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{self:?}");
        self.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Decodes a complete chunked body.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n").unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").unwrap();
    }
}
