//! Configuration files, arguments and environment variables of each broker.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::{BrokerAuth, Kind, USER, write};
use crate::account::Account;
use crate::port::{HOST, free_port};
use crate::process::{self, Launch, Program};

/// Everything that is needed to start a server, and to restart it.
pub(super) struct ServerConfig {
    program: PathBuf,
    arguments: Vec<PathBuf>,
    variables: Vec<(&'static str, String)>,
    folder: PathBuf,
    account: Account,
    /// The port of Erlang's name server, if the broker needs one.
    epmd_port: Option<u16>,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerConfig").field(&self.program).finish()
    }
}

impl ServerConfig {
    /// Writes the files of a server into its folder.
    pub(super) fn write(
        kind: Kind,
        program: &Path,
        folder: &Path,
        port: u16,
        auth: &BrokerAuth,
        account: Account,
    ) -> io::Result<Self> {
        let tls = match &auth.tls {
            Some((certificate, key)) => Some((
                write(folder, "server.pem", certificate, account)?,
                write(folder, "server.key", key, account)?,
            )),
            None => None,
        };
        let mut config = Self {
            program: program.to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
            folder: folder.to_owned(),
            account,
            epmd_port: None,
        };
        match kind {
            Kind::Nats => {
                let text = nats(folder, port, &auth.password, tls.as_ref());
                config.arguments = vec!["-c".into(), write(folder, "nats.conf", &text, account)?];
            }
            Kind::Redis => {
                let text = redis(folder, port, &auth.password, tls.as_ref());
                config.arguments = vec![write(folder, "redis.conf", &text, account)?];
            }
            Kind::RabbitMq => {
                let text = rabbitmq(port, &auth.password, tls.as_ref());
                write(folder, "rabbitmq.conf", &text, account)?;
                write(folder, "enabled_plugins", "[].\n", account)?;
                let epmd_port = free_port()?;
                config.variables = rabbitmq_variables(folder, port, free_port()?, epmd_port);
                config.epmd_port = Some(epmd_port);
            }
        }
        Ok(config)
    }

    pub(super) fn launch(&self) -> Launch {
        let launch = Launch::new(&self.program).args(&self.arguments);
        let launch = self.variables.iter().fold(launch, |launch, (name, value)| launch.env(name, value));
        launch.current_dir(&self.folder).account(self.account)
    }

    /// Starts Erlang's name server, if the broker needs it. Erlang would start it as a daemon that outlives the test.
    pub(super) fn start_epmd(&self) -> Result<Option<Program>, process::Error> {
        let Some(port) = self.epmd_port else { return Ok(None) };
        let epmd = epmd(&self.program);
        let launch = Launch::new(epmd).args([
            "-address".to_owned(),
            HOST.to_string(),
            "-port".to_owned(),
            port.to_string(),
        ]);
        let launch = self.variables.iter().fold(launch, |launch, (name, value)| launch.env(name, value));
        launch.current_dir(&self.folder).account(self.account).start().map(Some)
    }
}

/// Erlang's name server: the one that was unpacked with this RabbitMQ, or the system's.
fn epmd(rabbitmq: &Path) -> PathBuf {
    let own = rabbitmq.with_file_name("epmd");
    if own.is_file() { own } else { PathBuf::from("/usr/bin/epmd") }
}

fn nats(folder: &Path, port: u16, password: &str, tls: Option<&(PathBuf, PathBuf)>) -> String {
    let store = folder.join("jetstream");
    let tls = tls.map_or_else(String::new, |(certificate, key)| {
        format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n")
    });
    format!(
        "host: \"{HOST}\"\nport: {port}\n\
         jetstream {{ store_dir: {store:?}, sync_interval: always }}\n\
         authorization {{ user: {USER:?}, password: {password:?} }}\n{tls}"
    )
}

fn redis(folder: &Path, port: u16, password: &str, tls: Option<&(PathBuf, PathBuf)>) -> String {
    let listen = match tls {
        None => format!("port {port}\n"),
        Some((certificate, key)) => format!(
            "port 0\ntls-port {port}\ntls-cert-file {}\ntls-key-file {}\ntls-auth-clients no\ntls-ca-cert-file {}\n",
            certificate.display(),
            key.display(),
            certificate.display(),
        ),
    };
    // The default user is off but keeps its permissions: Redis 7.0 loads the append-only file with them.
    format!(
        "bind {HOST}\n{listen}dir {}\nappendonly yes\nappendfsync always\nsave \"\"\n\
         user default off ~* &* +@all\nuser {USER} on >{password} ~* &* +@all\n",
        folder.display()
    )
}

fn rabbitmq(port: u16, password: &str, tls: Option<&(PathBuf, PathBuf)>) -> String {
    let listen = match tls {
        None => format!("listeners.tcp.default = {HOST}:{port}\n"),
        Some((certificate, key)) => format!(
            "listeners.tcp = none\nlisteners.ssl.default = {HOST}:{port}\n\
             ssl_options.certfile = {}\nssl_options.keyfile = {}\nssl_options.verify = verify_none\n",
            certificate.display(),
            key.display(),
        ),
    };
    format!(
        "{listen}default_user = {USER}\ndefault_pass = {password}\nloopback_users = none\n\
         log.file = false\nlog.console = true\nlog.console.level = info\n"
    )
}

fn rabbitmq_variables(folder: &Path, port: u16, dist_port: u16, epmd_port: u16) -> Vec<(&'static str, String)> {
    let path = |name: &str| folder.join(name).display().to_string();
    vec![
        // Erlang keeps the cookie that authenticates nodes there.
        ("HOME", folder.display().to_string()),
        ("ERL_EPMD_PORT", epmd_port.to_string()),
        ("ERL_EPMD_ADDRESS", HOST.to_string()),
        ("RABBITMQ_NODENAME", format!("symphony-{port}@localhost")),
        ("RABBITMQ_NODE_PORT", port.to_string()),
        ("RABBITMQ_DIST_PORT", dist_port.to_string()),
        ("RABBITMQ_MNESIA_BASE", path("mnesia")),
        ("RABBITMQ_LOG_BASE", path("log")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", path("enabled_plugins")),
        ("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf")),
        ("RABBITMQ_ADVANCED_CONFIG_FILE", path("advanced.config")),
        ("RABBITMQ_CONF_ENV_FILE", "/dev/null".to_owned()),
        ("RABBITMQ_PID_FILE", path("pid")),
        ("RABBITMQ_GENERATED_CONFIG_DIR", path("generated")),
        ("RABBITMQ_FEATURE_FLAGS_FILE", path("feature_flags")),
        // The script then executes the server in place of itself, so that a kill reaches the server.
        ("RUNNING_UNDER_SYSTEMD", "true".to_owned()),
        // One scheduler without busy waiting: several servers run at once on few cores.
        (
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}".to_owned(),
        ),
    ]
}
