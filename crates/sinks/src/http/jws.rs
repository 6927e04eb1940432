//! JSON Web Signatures: over the body of a request, detached, in a header (RFC 7515 and RFC 7797), and of client
//! assertions.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, json};

use super::signing_key::{Algorithm, SigningKey};
use crate::config::SettingError;

/// The settings of a detached signature over the body.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JwsSettings {
    pub(super) key_file: PathBuf,
    key_id: Option<String>,
    algorithm: Option<Algorithm>,
    #[serde(default = "default_header")]
    pub(super) header: String,
    #[serde(default)]
    encode_payload: bool,
}

fn default_header() -> String {
    "x-jws-signature".to_owned()
}

/// Signs bodies.
#[derive(Debug)]
pub(super) struct JwsSigner {
    key: SigningKey,
    /// The protected header, encoded.
    protected: String,
    encode_payload: bool,
}

impl JwsSigner {
    pub(super) fn read(settings: &JwsSettings) -> Result<Self, SettingError> {
        let key = SigningKey::read("jws.key_file", &settings.key_file, settings.algorithm, Algorithm::Ps256)?;
        let mut protected = json!({ "alg": key.algorithm().jose_name() });
        if let Some(id) = &settings.key_id {
            protected["kid"] = Value::from(id.as_str());
        }
        if !settings.encode_payload {
            // A verifier that does not know "b64" must refuse the signature, which "crit" says.
            protected["b64"] = Value::from(false);
            protected["crit"] = json!(["b64"]);
        }
        let protected = encode(protected.to_string().as_bytes());
        Ok(Self { key, protected, encode_payload: settings.encode_payload })
    }

    /// The signature of a body without the body itself: `header..signature`.
    pub(super) fn sign(&self, body: &[u8]) -> Option<HeaderValue> {
        let mut input = format!("{}.", self.protected).into_bytes();
        if self.encode_payload {
            input.extend(encode(body).into_bytes());
        } else {
            input.extend(body);
        }
        let signature = encode(&self.key.sign(&input)?);
        HeaderValue::from_str(&format!("{}..{signature}", self.protected)).ok()
    }
}

/// A signed JWT with these claims.
pub(super) fn jwt(key: &SigningKey, key_id: Option<&str>, claims: &Value) -> Option<String> {
    let mut header = json!({ "alg": key.algorithm().jose_name(), "typ": "JWT" });
    if let Some(id) = key_id {
        header["kid"] = Value::from(id);
    }
    let input = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
    let signature = encode(&key.sign(input.as_bytes())?);
    Some(format!("{input}.{signature}"))
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
