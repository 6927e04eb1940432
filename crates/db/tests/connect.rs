//! Connections to a PostgreSQL that speaks TLS, and to one that does not.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::{
    error::Error as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use symphony_db::connect::{Error, Target};
use symphony_testkit::postgres::{Binaries, Cluster, Options};

/// An authority, and what it vouches for.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate for these names and its key.
    fn vouch_for(&self, names: &[&str], certificate: &Path, key: &Path) {
        let secret = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let signed = CertificateParams::new(names).unwrap().signed_by(&secret, &self.0).unwrap();
        std::fs::write(certificate, signed.pem()).unwrap();
        std::fs::write(key, secret.serialize_pem()).unwrap();
    }

    fn save(&self, path: &Path) {
        std::fs::write(path, self.0.pem()).unwrap();
    }
}

/// The server accepts a key file only if no other user can read it, and it runs as the owner of its data.
fn hand_to_server(data: &Path, name: &str) {
    let owner = std::fs::metadata(data).unwrap();
    let path = data.join(name);
    chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

async fn is_encrypted(url: &str) -> bool {
    let session = Target::parse(url).unwrap().connect_session().await.unwrap();
    assert!(session.caches_statements(), "encrypted or not, it is seen that no pooler stands between");
    let asked = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    session.client().query_one(asked, &[]).await.unwrap().get(0)
}

async fn refusal(url: &str) -> String {
    let error = Target::parse(url).unwrap().connect().await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

#[tokio::test]
async fn tls_protects_as_far_as_the_mode_asks() {
    let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let port = cluster.port();
    let url = |user: &str, settings: &str| format!("postgres://{user}@localhost:{port}/postgres?{settings}");

    // Before it speaks TLS: who must have it is refused, who would like it goes without.
    assert!(refusal(&url("postgres", "sslmode=require")).await.contains("does not support TLS"));
    assert!(!is_encrypted(&url("postgres", "sslmode=prefer")).await);

    let admin = Target::parse(&cluster.url("postgres")).unwrap().connect().await.unwrap();
    if admin.batch_execute("alter system set ssl = on").await.is_err() {
        eprintln!("this PostgreSQL was built without TLS: nothing more was tried");
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str| files.path().join(name).display().to_string();
    let (authority, outsider) = (Authority::new(), Authority::new());
    authority.save(&files.path().join("ours.pem"));
    outsider.save(&files.path().join("other.pem"));
    authority.vouch_for(&["client"], &files.path().join("client.crt"), &files.path().join("client.key"));
    speak_tls(&cluster, &admin, &authority).await;

    assert!(is_encrypted(&url("postgres", "")).await, "prefer is the default");
    assert!(is_encrypted(&url("postgres", "sslmode=require")).await);
    assert!(!is_encrypted(&url("postgres", "sslmode=disable")).await);
    assert!(!is_encrypted(&url("postgres", "sslmode=allow")).await);
    // Users who are let in one way only.
    assert!(is_encrypted(&url("tls", "sslmode=allow")).await);
    assert!(!is_encrypted(&url("plain", "sslmode=prefer")).await);
    assert!(refusal(&url("tls", "sslmode=disable")).await.contains("pg_hba.conf"));

    let ours = file("ours.pem");
    assert!(is_encrypted(&url("postgres", &format!("sslmode=verify-full&sslrootcert={ours}"))).await);
    for mode in ["require", "verify-ca", "verify-full"] {
        let settings = format!("sslmode={mode}&sslrootcert={}", file("other.pem"));
        let refused = refusal(&url("postgres", &settings)).await;
        assert!(refused.contains("invalid peer certificate"), "{mode}: {refused}");
    }
    // The certificate is for localhost, so another name is refused, unless the mode ignores names.
    let by_number =
        |mode: &str| format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode={mode}&sslrootcert={ours}");
    let refused = refusal(&by_number("verify-full")).await;
    assert!(refused.contains("not valid for name"), "{refused}");
    assert!(is_encrypted(&by_number("verify-ca")).await);

    let (certificate, key) = (file("client.crt"), file("client.key"));
    assert!(is_encrypted(&url("cert", &format!("sslmode=require&sslcert={certificate}&sslkey={key}"))).await);
    assert!(refusal(&url("cert", "sslmode=require")).await.contains("certificate"));
    let unusable = Target::parse(&url("cert", &format!("sslcert={certificate}&sslkey={ours}"))).err().unwrap();
    assert!(unusable.to_string().starts_with("sslkey="), "{unusable}");
}

/// Gives the server a certificate and users who are let in one way only, and waits until it uses them.
async fn speak_tls(cluster: &Cluster, admin: &tokio_postgres::Client, authority: &Authority) {
    let data = cluster.folder().join("data");
    authority.vouch_for(&["localhost"], &data.join("server.crt"), &data.join("server.key"));
    authority.save(&data.join("clients.crt"));
    for name in ["server.crt", "server.key", "clients.crt"] {
        hand_to_server(&data, name);
    }
    admin.batch_execute("alter system set ssl_ca_file = 'clients.crt'").await.unwrap();
    admin.batch_execute("create role tls login; create role plain login; create role cert login").await.unwrap();
    let entries = "host all postgres all trust\n\
                   hostssl all tls all trust\n\
                   hostnossl all plain all trust\n\
                   hostssl all cert all trust clientcert=verify-ca\n";
    std::fs::write(data.join("pg_hba.conf"), entries).unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    let url = format!("{}?sslmode=require", cluster.url("postgres"));
    while let Err(error) = Target::parse(&url).unwrap().connect().await {
        let log = std::fs::read_to_string(cluster.log()).unwrap();
        assert!(!log.contains("could not load") && !log.contains("not applied"), "{error}: {log}");
        tokio::task::yield_now().await;
    }
}
