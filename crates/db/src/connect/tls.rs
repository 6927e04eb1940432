//! The rustls configuration of a connection: which server certificates to trust, and the client certificate.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

use super::{
    Error,
    address::{Identity, Mode, Root},
};

/// The rustls configuration for this sslmode, root and client certificate.
pub(super) fn client(mode: Mode, root: Option<Root>, identity: Option<Identity>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let trust = match (mode, root) {
        (Mode::VerifyCa, Some(root)) => Trust::Authority(roots(root)?),
        (Mode::VerifyFull, Some(root)) => Trust::AuthorityAndName(roots(root)?),
        _ => Trust::Any,
    };
    let verifier = Verifier { provider: Arc::clone(&provider), trust };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Address { reason: error.to_string() })?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut client = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = certificates("sslcert", &certificate)?;
            let secret = PrivateKeyDer::from_pem_file(&key).map_err(unusable("sslkey", &key))?;
            builder.with_client_auth_cert(chain, secret).map_err(unusable("sslkey", &key))?
        }
    };
    // PostgreSQL 17 and later require it for sslnegotiation=direct.
    client.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(client)
}

fn roots(root: Root) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    match root {
        Root::File(path) => {
            for certificate in certificates("sslrootcert", &path)? {
                store.add(certificate).map_err(unusable("sslrootcert", &path))?;
            }
        }
        Root::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                let reason =
                    "sslrootcert=system, but this system has no root certificates; name a file".to_owned();
                return Err(Error::Address { reason });
            }
        }
    }
    Ok(store)
}

fn certificates(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(unusable(setting, path))?.collect();
    let all = all.map_err(unusable(setting, path))?;
    if all.is_empty() {
        return Err(unusable(setting, path)("the file contains no certificate"));
    }
    Ok(all)
}

fn unusable<E>(setting: &'static str, path: &Path) -> impl FnOnce(E) -> Error
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| Error::File { setting, path: path.to_owned(), source: source.into() }
}

/// Which server certificates to accept.
#[derive(Debug)]
enum Trust {
    /// Any certificate: encrypted, but the server is not authenticated.
    Any,
    /// A certificate that one of these authorities signed.
    Authority(RootCertStore),
    /// The same, and issued for the name of the host.
    AuthorityAndName(RootCertStore),
}

/// Verifies the server's certificate as far as sslmode requires, and the handshake signatures always.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    trust: Trust,
}

impl Verifier {
    fn verify_authority(
        &self,
        roots: &RootCertStore,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(certificate)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.trust {
            Trust::Any => {}
            Trust::Authority(roots) => self.verify_authority(roots, end_entity, intermediates, now)?,
            Trust::AuthorityAndName(roots) => {
                self.verify_authority(roots, end_entity, intermediates, now)?;
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
