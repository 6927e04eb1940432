//! The environment variables of libpq (`PGHOST`, `PGUSER`, …), as defaults for what an address leaves out.

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslNegotiation, TargetSessionAttrs};

use super::Error;
use super::address::wrong;

/// The variables that tokio-postgres reads as settings of an address.
const CONNECTION: [(&str, &str); 12] = [
    ("PGHOST", "host"),
    ("PGHOSTADDR", "hostaddr"),
    ("PGPORT", "port"),
    ("PGUSER", "user"),
    ("PGPASSWORD", "password"),
    ("PGDATABASE", "dbname"),
    ("PGOPTIONS", "options"),
    ("PGAPPNAME", "application_name"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGSSLNEGOTIATION", "sslnegotiation"),
];
/// Those that this crate reads itself.
const OWN: [(&str, &str); 5] = [
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGPASSFILE", "passfile"),
];

/// Defaults for addresses.
#[derive(Clone, Default)]
pub struct Environment {
    pub(super) config: Config,
    /// The settings of this crate, by name.
    pub(super) own: Vec<(&'static str, String)>,
    /// The user's own password file, `~/.pgpass`. Unlike one that is named, it may be missing.
    pub(super) home_passfile: Option<std::path::PathBuf>,
}

impl Environment {
    /// The variables of this process. One that is set and empty counts as not set, as in libpq.
    ///
    /// # Errors
    /// If a variable has a value that cannot be used. The error names it.
    pub fn of_process() -> Result<Self, Error> {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut all = String::new();
        for (name, setting) in CONNECTION {
            let Some(value) = given(name) else { continue };
            let pair = format!("{setting}='{}' ", value.replace('\\', "\\\\").replace('\'', "\\'"));
            // The parser's error may quote the value.
            pair.parse::<Config>().map_err(|_| wrong(format!("{name} has a value that cannot be used")))?;
            all.push_str(&pair);
        }
        let config = all.parse().map_err(|_| wrong("the PG… variables contradict each other"))?;
        let own = OWN.iter().filter_map(|(name, setting)| Some((*setting, given(name)?))).collect();
        let home_passfile = given("HOME").map(|home| std::path::Path::new(&home).join(".pgpass"));
        Ok(Self { config, own, home_passfile })
    }

    /// Whether it names a server, so that no address is needed.
    #[must_use]
    pub fn names_a_server(&self) -> bool {
        !self.config.get_hosts().is_empty() || !self.config.get_hostaddrs().is_empty()
    }

    /// Sets what an address has left out.
    pub(super) fn fill(&self, config: &mut Config) {
        let from = &self.config;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            for host in from.get_hosts() {
                match host {
                    Host::Tcp(name) => config.host(name),
                    Host::Unix(folder) => config.host_path(folder),
                };
            }
            for address in from.get_hostaddrs() {
                config.hostaddr(*address);
            }
        }
        if config.get_ports().is_empty() {
            for port in from.get_ports() {
                config.port(*port);
            }
        }
        if let (None, Some(user)) = (config.get_user(), from.get_user()) {
            config.user(user);
        }
        if let (None, Some(password)) = (config.get_password(), from.get_password()) {
            config.password(password);
        }
        if let (None, Some(name)) = (config.get_dbname(), from.get_dbname()) {
            config.dbname(name);
        }
        if let (None, Some(options)) = (config.get_options(), from.get_options()) {
            config.options(options);
        }
        if let (None, Some(name)) = (config.get_application_name(), from.get_application_name()) {
            config.application_name(name);
        }
        if let (None, Some(limit)) = (config.get_connect_timeout(), from.get_connect_timeout()) {
            config.connect_timeout(*limit);
        }
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(from.get_target_session_attrs());
        }
        if config.get_channel_binding() == ChannelBinding::Prefer {
            config.channel_binding(from.get_channel_binding());
        }
        if config.get_ssl_negotiation() == SslNegotiation::Postgres {
            config.ssl_negotiation(from.get_ssl_negotiation());
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::connect) fn environment(variables: &[(&str, &str)]) -> Result<Environment, String> {
        let find =
            |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        Environment::of(find).map_err(|error| error.to_string())
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_named_and_not_shown() {
        let error = environment(&[("PGPORT", "s3cret")]).err().unwrap();
        assert!(error.contains("PGPORT") && !error.contains("s3cret"), "{error}");
        assert!(!environment(&[("PGHOST", "")]).unwrap().names_a_server());
        assert!(environment(&[("PGHOSTADDR", "10.0.0.1")]).unwrap().names_a_server());
    }
}
