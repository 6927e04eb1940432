//! The dashboard of the demo. The demo serves it itself: whoever is killed, it is there, at one address from the first line to the last.

use symphony_proof::shop;
use tokio::net::TcpListener;

use super::stage::Stage;
use crate::{
    config,
    console::{Console, Logins},
    failure::Failure,
    relayer::endpoints,
    server::{self, Limits},
};

/// A free port that this machine alone reaches: nobody has to show a token there.
const PLACE: &str = "127.0.0.1:0";

/// An address that is taken, and not yet answered at: whoever asks early waits.
pub(super) struct Dashboard {
    listener: TcpListener,
    address: String,
}

impl Dashboard {
    pub(super) async fn reserve() -> Result<Self, Failure> {
        let cannot = |error| Failure::because("there is no port for the dashboard", error);
        let listener = server::listen(PLACE).await.map_err(cannot)?;
        let address = format!("http://{}/", listener.local_addr().map_err(cannot)?);
        Ok(Self { listener, address })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Shows this stage, until the process ends.
    pub(super) async fn open(self, stage: &Stage) -> Result<(), Failure> {
        let [read_url, act_url] = [shop::CONSOLE_READS, shop::CONSOLE_ACTS].map(|login| stage.url(login));
        let settings = config::Console { read_url, act_url, listen: String::new(), tokens: Vec::new() };
        let Some(logins) = Logins::parse(&settings.read_url, &settings.act_url)? else { return Ok(()) };
        logins.check().await?;
        let console = Console::build(&settings, &logins, endpoints::place(&self.listener), "the demo")?;
        tokio::spawn(server::serve(self.listener, console.router(), Limits::default()));
        Ok(())
    }
}
