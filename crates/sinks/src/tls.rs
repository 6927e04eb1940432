//! Builds the TLS client configuration: trusted certificate authorities and the client certificate.
//!
//! rustls with ring, TLS 1.2 and 1.3, no early data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::SettingError;

/// The settings for certificates and keys. Every destination has them under these names.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    pub(crate) root_ca_file: Option<PathBuf>,
    pub(crate) system_roots: bool,
    pub(crate) client_certificate_file: Option<PathBuf>,
    pub(crate) client_key_file: Option<PathBuf>,
}

impl TlsFiles {
    /// The files that are set.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let all = [&self.root_ca_file, &self.client_certificate_file, &self.client_key_file];
        all.into_iter().flatten().cloned().collect()
    }
}

/// Builds the configuration. `needed` says whether any connection will use TLS: without it, system roots are not read.
pub(crate) fn client_config(files: &TlsFiles, needed: bool) -> Result<ClientConfig, SettingError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &files.root_ca_file {
        for certificate in certificates("root_ca_file", path)? {
            roots.add(certificate).map_err(|error| unusable("root_ca_file").with_source(error))?;
        }
    }
    if files.system_roots && needed {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let no_roots = roots.is_empty();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingError::new("url", "TLS cannot be used").with_source(error))?
        .with_root_certificates(roots);
    let client = match (&files.client_certificate_file, &files.client_key_file) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain = certificates("client_certificate_file", certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| unusable("client_key_file").with_source(error))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| {
                SettingError::new("client_key_file", "must fit client_certificate_file").with_source(error)
            })?
        }
        (Some(_), None) => {
            return Err(SettingError::new("client_key_file", "must be set with client_certificate_file"));
        }
        (None, Some(_)) => {
            return Err(SettingError::new("client_certificate_file", "must be set with client_key_file"));
        }
    };
    if needed && no_roots {
        return Err(SettingError::new(
            "root_ca_file",
            "must name a file: no other certificate authority is trusted",
        ));
    }
    Ok(client)
}

fn certificates(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, SettingError> {
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| unusable(setting).with_source(error))?.collect();
    let all = all.map_err(|error| unusable(setting).with_source(error))?;
    if all.is_empty() { Err(unusable(setting)) } else { Ok(all) }
}

fn unusable(setting: &'static str) -> SettingError {
    SettingError::new(setting, "must name a PEM file that can be read and used")
}
