//! A running `symphony demo`.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use symphony_testkit::process::{Launch, Program};

use crate::http;

/// A demo drains for at most six minutes; the rest is for a busy machine.
const DEMO_TIMEOUT: Duration = Duration::from_secs(480);

pub(crate) struct Demo {
    program: Program,
    /// The address of the dashboard.
    pub(crate) dashboard: SocketAddr,
    bank: SocketAddr,
}

impl Demo {
    /// Starts a demo and waits for its first dispatched payment.
    pub(crate) async fn start() -> Self {
        let program = Launch::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["demo", "--for", "1h", "--kill-every", "0s", "--payments-per-second", "10"])
            .args(["--participants", "10", "--faults", "some"])
            .start()
            .unwrap();
        let address = async |words: &str, end: char| {
            let line = program.wait_for_line(|line| line.contains(words), DEMO_TIMEOUT).await.unwrap();
            line.split_once(words).unwrap().1.split(end).next().unwrap().parse().unwrap()
        };
        let dashboard = address("the dashboard is at http://", '/').await;
        let bank = address("the bank on ", ',').await;
        program
            .wait_for_line(|line| line.contains(" dispatched ") && !line.contains(" dispatched 0 "), DEMO_TIMEOUT)
            .await
            .unwrap();
        Self { program, dashboard, bank }
    }

    /// Sets the faults of the bank.
    pub(crate) async fn faults(&self, faults: &str) {
        http::ask(self.bank, "PUT", "/v1/faults", &[], faults).await.is(200);
    }

    /// Ends the demo and requires that its audit passes.
    pub(crate) async fn audit(self) {
        kill_process(Pid::from_raw(self.program.id()).unwrap(), Signal::INT).unwrap();
        assert_eq!(self.program.exit_code(DEMO_TIMEOUT).await.unwrap(), 0, "{}", self.program.tail());
    }
}
