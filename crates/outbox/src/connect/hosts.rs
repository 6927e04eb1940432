//! Several hosts: each is tried for itself, in the order given, and none holds up the next.
//!
//! The driver tries one host after the other and gives each of them its whole time. After a failover the first one is often dead
//! without a word: whoever asks has given up before the second is tried, at every call again. So a host that has
//! not answered after a moment goes on being tried beside the next. What a session must be is not decided here.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts};
use uuid::Uuid;

/// How long a host may say nothing before the next is tried beside it.
const BESIDE: Duration = Duration::from_secs(1);

/// The same settings for each host alone, in the order in which they are tried.
pub(super) fn apart(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let fits =
        |count: usize, one_is_enough: bool| count == 0 || count == hosts.len() || one_is_enough && count == 1;
    if hosts.len() < 2 || !fits(addresses.len(), false) || !fits(ports.len(), true) {
        // One host, or lists that do not fit together: the driver says so.
        return vec![config.clone()];
    }
    let alone = |(i, host): (usize, &Host)| {
        let mut one = without_hosts(config);
        match host {
            Host::Tcp(name) => one.host(name),
            Host::Unix(folder) => one.host_path(folder),
        };
        if let Some(address) = addresses.get(i) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(i).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    let mut apart: Vec<_> = hosts.iter().enumerate().map(alone).collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        let chance = usize::from(Uuid::new_v4().as_bytes()[0]);
        let first = chance % apart.len();
        apart.rotate_left(first);
    }
    apart
}

/// What is left of the settings without hosts, addresses and ports, which cannot be taken back.
fn without_hosts(config: &Config) -> Config {
    let mut rest = Config::new();
    config.get_user().map(|user| rest.user(user));
    config.get_password().map(|password| rest.password(password));
    config.get_dbname().map(|name| rest.dbname(name));
    config.get_options().map(|options| rest.options(options));
    config.get_application_name().map(|name| rest.application_name(name));
    config.get_connect_timeout().map(|limit| rest.connect_timeout(*limit));
    config.get_tcp_user_timeout().map(|limit| rest.tcp_user_timeout(*limit));
    config.get_keepalives_interval().map(|interval| rest.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| rest.keepalives_retries(retries));
    rest.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding());
    rest
}

/// The first try that succeeds; the others are given up. Where none does, the refusal that came last; nothing, where there was
/// nothing to try.
pub(super) async fn first<T, E, F>(tries: impl ExactSizeIterator<Item = F>) -> Option<Result<T, E>>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    let mut waiting = tries;
    let mut running = JoinSet::new();
    let mut refusal = None;
    loop {
        if let Some(next) = waiting.next() {
            running.spawn(next);
        }
        let ended = if waiting.len() == 0 {
            running.join_next().await
        } else {
            match tokio::time::timeout(BESIDE, running.join_next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            }
        };
        match ended {
            Some(Ok(Ok(done))) => return Some(Ok(done)),
            Some(Ok(Err(error))) => refusal = Some(Err(error)),
            // A try neither panics nor is cancelled while it is waited for.
            Some(Err(_)) => {}
            None => return refusal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        text.parse().unwrap()
    }

    #[test]
    fn each_host_keeps_its_address_its_port_and_every_setting() {
        let all = config(
            "host=a,b hostaddr=10.0.0.1,10.0.0.2 port=5433,5434 user=me password=word dbname=shop options='-c x=1' \
             application_name=app connect_timeout=7 tcp_user_timeout=8 keepalives=0 keepalives_idle=9 \
             keepalives_interval=10 keepalives_retries=11 target_session_attrs=read-write channel_binding=require \
             sslmode=require sslnegotiation=direct",
        );
        let rest = "user=me password=word dbname=shop options='-c x=1' application_name=app connect_timeout=7 \
                    tcp_user_timeout=8 keepalives=0 keepalives_idle=9 keepalives_interval=10 keepalives_retries=11 \
                    target_session_attrs=read-write channel_binding=require sslmode=require sslnegotiation=direct";
        let expected = [
            config(&format!("host=a hostaddr=10.0.0.1 port=5433 {rest}")),
            config(&format!("host=b hostaddr=10.0.0.2 port=5434 {rest}")),
        ];
        assert_eq!(apart(&all), expected);
        assert_eq!(
            apart(&config("host=a,b,c port=1")),
            ["a", "b", "c"].map(|h| config(&format!("host={h} port=1")))
        );
        assert_eq!(apart(&config("host=a")), [config("host=a")]);
    }

    #[test]
    fn hosts_that_share_the_load_are_all_tried() {
        let mut hosts: Vec<_> = apart(&config("host=a,b,c load_balance_hosts=random"))
            .iter()
            .map(|one| one.get_hosts().to_vec())
            .collect();
        hosts.sort_by_key(|host| format!("{host:?}"));
        assert_eq!(hosts, ["a", "b", "c"].map(|name| vec![Host::Tcp(name.to_owned())]));
    }

    type Outcome = Option<Result<&'static str, &'static str>>;

    #[tokio::test]
    async fn the_first_in_the_order_that_succeeds_is_taken() {
        let tries = [Err("down"), Ok("second"), Ok("third")];
        let done: Outcome = first(tries.into_iter().map(std::future::ready)).await;
        assert_eq!(done, Some(Ok("second")));
    }

    #[tokio::test]
    async fn where_none_succeeds_the_last_refusal_is_told() {
        let done: Outcome = first([Err("one"), Err("two")].into_iter().map(std::future::ready)).await;
        assert_eq!(done, Some(Err("two")));
        let done: Outcome =
            first(std::iter::empty::<std::future::Ready<_>>().collect::<Vec<_>>().into_iter()).await;
        assert_eq!(done, None);
    }
}
