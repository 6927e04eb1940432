//! TLS of the HTTP rail: trusted and untrusted servers, client certificates, and failed handshakes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use symphony_relay::rail::Rail;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::harness::{
    assert_accepted, assert_not_sent, assert_unknown, http, in_time, listen, payment, rail, read_request,
    respond_with,
};

/// A certificate authority, and the files that it signed.
pub(crate) struct CertificateAuthority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl CertificateAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A certificate for a name, as `<file>.pem` and `<file>.key`.
    pub(crate) fn sign(&self, file: &str, name: &str) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.file(&format!("{file}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.file(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    pub(crate) fn server(&self, file: &str, clients: Option<&Path>) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(path).unwrap()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = vec![CertificateDer::from_pem_file(self.file(&format!("{file}.pem"))).unwrap()];
        builder
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(self.file(&format!("{file}.key"))).unwrap())
            .unwrap()
    }
}

/// A TLS server, and the number of requests that it has read.
pub(crate) async fn tls_server(config: ServerConfig) -> (SocketAddr, Arc<AtomicUsize>) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let (address, _) = listen(move |stream| {
        let (acceptor, counter) = (acceptor.clone(), Arc::clone(&counter));
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            if read_request(&mut stream).await.is_some() {
                counter.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(http(201, "", "{}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    })
    .await;
    (address, requests)
}

pub(crate) fn https(address: SocketAddr, more: &str) -> Arc<dyn Rail> {
    let port = address.port();
    rail(&format!("kind = 'http'\nurl = 'https://localhost:{port}/'\nallow_private = ['localhost']\n{more}"))
}

pub(crate) fn setting(name: &str, path: &Path) -> String {
    format!("{name} = '{}'\n", path.display())
}

#[tokio::test]
async fn a_server_with_a_certificate_of_root_ca_file_is_trusted() {
    let authority = CertificateAuthority::new();
    authority.sign("server", "localhost");
    let (address, requests) = tls_server(authority.server("server", None)).await;
    let root = setting("root_ca_file", &authority.file("ca.pem"));
    assert_accepted(&https(address, &root).dispatch(&payment()).await);
    assert_accepted(&https(address, &format!("{root}system_roots = false")).dispatch(&payment()).await);
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_server_with_an_untrusted_certificate_is_sent_nothing() {
    let (authority, other) = (CertificateAuthority::new(), CertificateAuthority::new());
    authority.sign("server", "localhost");
    authority.sign("elsewhere", "bank.example");
    let other = setting("root_ca_file", &other.file("ca.pem"));
    let (address, requests) = tls_server(authority.server("server", None)).await;
    assert_not_sent(&https(address, &other).dispatch(&payment()).await);
    let root = setting("root_ca_file", &authority.file("ca.pem"));
    let (elsewhere, more_requests) = tls_server(authority.server("elsewhere", None)).await;
    assert_not_sent(&https(elsewhere, &root).dispatch(&payment()).await);
    assert_eq!((requests.load(Ordering::SeqCst), more_requests.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn the_client_certificate_is_sent_to_a_bank_that_requests_one() {
    let authority = CertificateAuthority::new();
    authority.sign("server", "localhost");
    authority.sign("client", "symphony");
    let (address, requests) = tls_server(authority.server("server", Some(&authority.file("ca.pem")))).await;
    let root = setting("root_ca_file", &authority.file("ca.pem"));
    let certificate = setting("client_certificate_file", &authority.file("client.pem"));
    let key = setting("client_key_file", &authority.file("client.key"));
    assert_accepted(&https(address, &format!("{root}{certificate}{key}")).dispatch(&payment()).await);

    // In TLS 1.3 a client learns that its certificate is missing only after it has sent the request: unknown.
    assert_unknown(&https(address, &root).dispatch(&payment()).await);
    assert_eq!(requests.load(Ordering::SeqCst), 1);

    let other_key = setting("client_key_file", &authority.file("server.key"));
    let toml = format!("kind = 'http'\nurl = 'https://bank.example/'\n{root}{certificate}{other_key}");
    assert!(
        crate::harness::refusal(&toml).starts_with("rail sepa: client_key_file: must fit client_certificate_file")
    );
}

#[tokio::test]
async fn tls_to_a_port_without_tls_sends_nothing() {
    let authority = CertificateAuthority::new();
    let root = setting("root_ca_file", &authority.file("ca.pem"));
    // A plain HTTP server and one that closes: both receive only the start of a handshake.
    let (seen, mut first_bytes) = mpsc::unbounded_channel();
    let (address, _) = listen(move |mut stream| {
        let seen = seen.clone();
        async move {
            seen.send(stream.read_u8().await.unwrap()).unwrap();
            let _ = stream.write_all(http(400, "", "{}").as_bytes()).await;
        }
    })
    .await;
    assert_not_sent(&https(address, &root).dispatch(&payment()).await);
    assert_eq!(in_time(first_bytes.recv()).await, Some(0x16));
    let (address, _) = listen(|stream| async move { drop(stream) }).await;
    assert_not_sent(&https(address, &root).dispatch(&payment()).await);
}

#[tokio::test]
async fn a_handshake_that_never_ends_has_sent_nothing() {
    let authority = CertificateAuthority::new();
    let root = setting("root_ca_file", &authority.file("ca.pem"));
    let (address, _) = listen(|mut stream| async move {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
    })
    .await;
    let rail = https(address, &format!("{root}connect_timeout = '500ms'"));
    assert_not_sent(&rail.dispatch(&payment()).await);
}

#[tokio::test]
async fn plain_http_to_a_tls_port_may_have_sent() {
    let authority = CertificateAuthority::new();
    authority.sign("server", "localhost");
    let (address, _) = tls_server(authority.server("server", None)).await;
    assert_unknown(&crate::harness::rail_to(address, "").dispatch(&payment()).await);
    // The control: without TLS on either side the request arrives.
    let (address, _) = respond_with(http(201, "", "{}")).await;
    assert_accepted(&crate::harness::rail_to(address, "").dispatch(&payment()).await);
}
