//! Private keys that sign requests and client assertions: RSA, ECDSA and Ed25519, from PEM files.
//!
//! Signing is ring's. Here is only which algorithm goes with which key, and its names in JOSE and in RFC 9421.

use std::fmt;
use std::path::Path;

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RSA_PSS_SHA256, RSA_PSS_SHA512, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;

use crate::config::SettingError;
use crate::secret::SecretSource;

/// A signature algorithm, by its name in JOSE (RFC 7518, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Algorithm {
    /// RSA with PKCS #1 v1.5 and SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSA-PSS with SHA-256.
    #[serde(rename = "PS256")]
    Ps256,
    /// RSA-PSS with SHA-512.
    #[serde(rename = "PS512")]
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA on P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Algorithm {
    /// The name in the header of a JWS.
    pub(super) fn jose_name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The name in the registry of HTTP message signatures, which has no RSA-PSS with SHA-256.
    pub(super) fn http_name(self) -> Option<&'static str> {
        match self {
            Self::Rs256 => Some("rsa-v1_5-sha256"),
            Self::Ps256 => None,
            Self::Ps512 => Some("rsa-pss-sha512"),
            Self::Es256 => Some("ecdsa-p256-sha256"),
            Self::Es384 => Some("ecdsa-p384-sha384"),
            Self::EdDsa => Some("ed25519"),
        }
    }
}

enum KeyPair {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A private key with its algorithm.
pub(super) struct SigningKey {
    algorithm: Algorithm,
    pair: KeyPair,
    random: SystemRandom,
}

impl SigningKey {
    /// Reads a key from a PEM file. `rsa` is the algorithm of an RSA key if the settings name none.
    pub(super) fn read(
        setting: &str,
        path: &Path,
        algorithm: Option<Algorithm>,
        rsa: Algorithm,
    ) -> Result<Self, SettingError> {
        let pem = SecretSource::File(path.to_owned()).read(setting)?;
        let wrong = |text: &str| SettingError::new(setting.to_owned(), text);
        let pair = key_pair(pem.expose().as_bytes()).ok_or_else(|| {
            wrong(
                "must hold a private key in PEM: RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384, or Ed25519, in PKCS #8 \
                 (openssl pkcs8 -topk8 -nocrypt converts others)",
            )
        })?;
        let default = match pair {
            KeyPair::Rsa(_) => rsa,
            KeyPair::P256(_) => Algorithm::Es256,
            KeyPair::P384(_) => Algorithm::Es384,
            KeyPair::Ed25519(_) => Algorithm::EdDsa,
        };
        let algorithm = algorithm.unwrap_or(default);
        let fits = match pair {
            KeyPair::Rsa(_) => matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256 | Algorithm::Ps512),
            KeyPair::P256(_) | KeyPair::P384(_) | KeyPair::Ed25519(_) => algorithm == default,
        };
        if !fits {
            return Err(wrong("holds a key of another kind than algorithm needs"));
        }
        Ok(Self { algorithm, pair, random: SystemRandom::new() })
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The signature of a message. None if the system has no random bytes.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match &self.pair {
            KeyPair::Rsa(pair) => {
                let padding: &dyn ring::signature::RsaEncoding = match self.algorithm {
                    Algorithm::Ps256 => &RSA_PSS_SHA256,
                    Algorithm::Ps512 => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &self.random, message, &mut signature).ok()?;
                Some(signature)
            }
            KeyPair::P256(pair) | KeyPair::P384(pair) => {
                Some(pair.sign(&self.random, message).ok()?.as_ref().to_vec())
            }
            KeyPair::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

fn key_pair(pem: &[u8]) -> Option<KeyPair> {
    match PrivateKeyDer::from_pem_slice(pem).ok()? {
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok().map(KeyPair::Rsa),
        PrivateKeyDer::Pkcs8(der) => {
            let der = der.secret_pkcs8_der();
            let random = SystemRandom::new();
            let ecdsa = |curve| EcdsaKeyPair::from_pkcs8(curve, der, &random).ok();
            RsaKeyPair::from_pkcs8(der)
                .ok()
                .map(KeyPair::Rsa)
                .or_else(|| ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING).map(KeyPair::P256))
                .or_else(|| ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING).map(KeyPair::P384))
                .or_else(|| Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(KeyPair::Ed25519))
        }
        _ => None,
    }
}
