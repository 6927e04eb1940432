//! A demo that runs for as long as a test needs it.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use symphony_proof::kit::process::{Launch, Program};

use crate::http;

/// A demo drains for six minutes at most; this is for everything around it on a busy machine.
const BOUND: Duration = Duration::from_secs(480);

pub(crate) struct Stage {
    demo: Program,
    /// Where the dashboard is.
    pub(crate) dashboard: SocketAddr,
    bank: SocketAddr,
}

impl Stage {
    /// A demo that has paid something.
    pub(crate) async fn set() -> Self {
        let demo = Launch::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["demo", "--for", "1h", "--kill-every", "0s", "--payments-per-second", "10"])
            .args(["--participants", "10", "--faults", "some"])
            .start()
            .unwrap();
        let address = async |words: &str, end: char| {
            let line = demo.wait_for_line(|line| line.contains(words), BOUND).await.unwrap();
            line.split_once(words).unwrap().1.split(end).next().unwrap().parse().unwrap()
        };
        let dashboard = address("the dashboard is at http://", '/').await;
        let bank = address("the bank on ", ',').await;
        demo.wait_for_line(|line| line.contains(" dispatched ") && !line.contains(" dispatched 0 "), BOUND)
            .await
            .unwrap();
        Self { demo, dashboard, bank }
    }

    /// From now on the bank fails in these ways.
    pub(crate) async fn faults(&self, faults: &str) {
        http::ask(self.bank, "PUT", "/v1/faults", &[], faults).await.is(200);
    }

    /// Ends the demo, whose audit must hold whatever was done on its dashboard.
    pub(crate) async fn audit(self) {
        kill_process(Pid::from_raw(self.demo.id()).unwrap(), Signal::INT).unwrap();
        assert_eq!(self.demo.exit_code(BOUND).await.unwrap(), 0, "{}", self.demo.tail());
    }
}
