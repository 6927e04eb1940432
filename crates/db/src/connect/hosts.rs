//! Connects to one of several hosts, so that a dead host does not delay the next.
//!
//! The driver tries one host after the other, each with the full connect timeout. After a failover the first host often
//! drops packets silently, and the caller's own timeout ends before the driver tries the second. So the attempt for the
//! next host starts beside one that has not answered after a second. `target_session_attrs` is the driver's concern.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts};
use uuid::Uuid;

/// How long to wait for a host before the next attempt starts beside it.
const ATTEMPT_DELAY: Duration = Duration::from_secs(1);

/// One configuration per host, in the order of attempts.
pub(super) fn per_host(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let fits =
        |count: usize, one_is_enough: bool| count == 0 || count == hosts.len() || one_is_enough && count == 1;
    if hosts.len() < 2 || !fits(addresses.len(), false) || !fits(ports.len(), true) {
        // One host, or lists of different lengths, which the driver reports.
        return vec![config.clone()];
    }
    let single = |(i, host): (usize, &Host)| {
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
    let mut configs: Vec<_> = hosts.iter().enumerate().map(single).collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        let chance = usize::from(Uuid::new_v4().as_bytes()[0]);
        let first = chance % configs.len();
        configs.rotate_left(first);
    }
    configs
}

/// The configuration without hosts, addresses and ports, which `Config` cannot remove.
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

/// The first attempt that succeeds; the others are cancelled. If all fail, the error that came last; none if there are
/// no attempts.
pub(super) async fn first_connected<T, E, F>(attempts: impl ExactSizeIterator<Item = F>) -> Option<Result<T, E>>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    let mut waiting = attempts;
    let mut running = JoinSet::new();
    let mut last_error = None;
    loop {
        if let Some(next) = waiting.next() {
            running.spawn(next);
        }
        let ended = if waiting.len() == 0 {
            running.join_next().await
        } else {
            match tokio::time::timeout(ATTEMPT_DELAY, running.join_next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            }
        };
        match ended {
            Some(Ok(Ok(done))) => return Some(Ok(done)),
            Some(Ok(Err(error))) => last_error = Some(Err(error)),
            // An attempt neither panics nor is cancelled while this waits for it.
            Some(Err(_)) => {}
            None => return last_error,
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
        assert_eq!(per_host(&all), expected);
        assert_eq!(
            per_host(&config("host=a,b,c port=1")),
            ["a", "b", "c"].map(|h| config(&format!("host={h} port=1")))
        );
        assert_eq!(per_host(&config("host=a")), [config("host=a")]);
    }

    #[test]
    fn hosts_that_share_the_load_are_all_tried() {
        let mut hosts: Vec<_> = per_host(&config("host=a,b,c load_balance_hosts=random"))
            .iter()
            .map(|one| one.get_hosts().to_vec())
            .collect();
        hosts.sort_by_key(|host| format!("{host:?}"));
        assert_eq!(hosts, ["a", "b", "c"].map(|name| vec![Host::Tcp(name.to_owned())]));
    }

    type Outcome = Option<Result<&'static str, &'static str>>;

    #[tokio::test]
    async fn the_first_in_the_order_that_succeeds_is_taken() {
        let attempts = [Err("down"), Ok("second"), Ok("third")];
        let done: Outcome = first_connected(attempts.into_iter().map(std::future::ready)).await;
        assert_eq!(done, Some(Ok("second")));
    }

    #[tokio::test]
    async fn where_none_succeeds_the_last_refusal_is_told() {
        let done: Outcome = first_connected([Err("one"), Err("two")].into_iter().map(std::future::ready)).await;
        assert_eq!(done, Some(Err("two")));
        let done: Outcome =
            first_connected(std::iter::empty::<std::future::Ready<_>>().collect::<Vec<_>>().into_iter()).await;
        assert_eq!(done, None);
    }
}
