//! A minimal DevTools client for headless Chromium, over a pipe.
//!
//! Existing crates generate the whole protocol in tens of thousands of lines and need web sockets. Chromium ends with
//! its pipe, so it does not outlive the test.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use symphony_testkit::tool::{self, Tool};
use symphony_testkit::wait::DEFAULT_TIMEOUT;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// DevTools uses file descriptors 3 and 4: the shell redirects them to our pipes.
const ON_PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2"#;

/// A running browser.
pub(crate) struct Chromium {
    child: Child,
    connection: Arc<Connection>,
    profile: TempDir,
}

/// The messages to and from the browser.
struct Connection {
    to: Mutex<ChildStdin>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    received: Mutex<Vec<Value>>,
}

impl Chromium {
    pub(crate) fn start() -> Self {
        let program = tool::find(Tool::Chromium).unwrap();
        let profile = tempfile::tempdir().unwrap();
        let output = std::fs::File::create(profile.path().join("browser.log")).unwrap();
        let mut child = Command::new("/bin/sh")
            .args(["-c", ON_PIPES])
            .arg(program)
            .args(["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--hide-scrollbars"])
            // It opens only our own pages, and may run as root in containers that allow no sandbox.
            .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-extensions",
            ])
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(output)
            .spawn()
            .unwrap();
        let connection = Arc::new(Connection {
            to: Mutex::new(child.stdin.take().unwrap()),
            next: AtomicU64::new(1),
            waiting: Mutex::new(HashMap::new()),
            received: Mutex::new(Vec::new()),
        });
        let (from, listening) = (child.stdout.take().unwrap(), Arc::clone(&connection));
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                listening.take(serde_json::from_slice(&message).unwrap());
            }
            // Pending calls fail: the browser has ended.
            listening.waiting.lock().unwrap().clear();
        });
        Self { child, connection, profile }
    }

    /// Calls a method, in a session if one is given.
    pub(crate) async fn call(&self, session: &str, method: &str, parameters: Value) -> Result<Value, String> {
        let id = self.connection.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        let (sender, answer) = oneshot::channel();
        self.connection.waiting.lock().unwrap().insert(id, sender);
        let sent = self.connection.to.lock().unwrap().write_all(format!("{message}\0").as_bytes());
        let answer = match sent {
            Ok(()) => tokio::time::timeout(DEFAULT_TIMEOUT, answer).await.map(Result::ok),
            Err(_) => Ok(None),
        };
        let Ok(Some(mut answer)) = answer else {
            let output = std::fs::read_to_string(self.profile.path().join("browser.log")).unwrap_or_default();
            panic!("the browser does not answer {method}; its log:\n{output}");
        };
        match answer.get("error") {
            Some(error) => Err(error["message"].as_str().unwrap_or_default().to_owned()),
            None => Ok(answer["result"].take()),
        }
    }

    /// The events of a session.
    pub(crate) fn received(&self, session: &str) -> Vec<Value> {
        self.connection
            .received
            .lock()
            .unwrap()
            .iter()
            .filter(|event| event["sessionId"] == session)
            .cloned()
            .collect()
    }
}

impl Connection {
    fn take(&self, message: Value) {
        match message["id"].as_u64() {
            Some(id) => {
                if let Some(tell) = self.waiting.lock().unwrap().remove(&id) {
                    let _ = tell.send(message);
                }
            }
            None => self.received.lock().unwrap().push(message),
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
