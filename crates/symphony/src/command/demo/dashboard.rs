//! The demo's dashboard. The demo process serves it, so that it keeps its address when relayers are killed.

use symphony_console::server::{self, Limits};
use symphony_console::{Console, Logins};
use symphony_testkit::shop;
use tokio::net::TcpListener;

use super::environment::DemoEnvironment;
use crate::{failure::Failure, relayer::endpoints};

/// A free loopback port, where the console asks for no token.
const LISTEN: &str = "127.0.0.1:0";

/// A bound address. Requests wait until [`Dashboard::serve`].
pub(super) struct Dashboard {
    listener: TcpListener,
    address: String,
}

impl Dashboard {
    pub(super) async fn reserve() -> Result<Self, Failure> {
        let cannot = |error| Failure::because("cannot listen on a port for the dashboard", error);
        let listener = server::listen(LISTEN).await.map_err(cannot)?;
        let address = format!("http://{}/", listener.local_addr().map_err(cannot)?);
        Ok(Self { listener, address })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Serves the console of this environment until the process ends.
    pub(super) async fn serve(self, environment: &DemoEnvironment) -> Result<(), Failure> {
        let [read_url, act_url] = [shop::CONSOLE_READS, shop::CONSOLE_ACTS].map(|login| environment.url(login));
        let Some(logins) = Logins::parse(&read_url, &act_url)? else { return Ok(()) };
        logins.check().await?;
        let console = Console::build(
            &[],
            &logins,
            endpoints::local_address(&self.listener),
            "the demo",
            Box::new(|_, _| None),
        )?;
        tokio::spawn(server::serve(self.listener, console.router(), Limits::default()));
        Ok(())
    }
}
