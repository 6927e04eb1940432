//! Signs requests as HTTP messages (RFC 9421), with a digest of the body (RFC 9530).
//!
//! The components that the settings name are signed, each as RFC 9421, section 2 defines it. `content-type` and
//! `content-digest` are left out of a request without a body.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::signing_key::{Algorithm, SigningKey};
use crate::config::{self, SettingError};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const SIGNATURE: HeaderName = HeaderName::from_static("signature");
const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");

/// The headers that a signature sets.
pub(super) const HEADERS: [&str; 3] = ["content-digest", "signature", "signature-input"];

/// The settings of HTTP message signatures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpSignatureSettings {
    pub(super) key_file: PathBuf,
    key_id: String,
    algorithm: Option<Algorithm>,
    #[serde(default = "default_components")]
    components: Vec<String>,
    #[serde(default = "default_label")]
    label: String,
    #[serde(default = "config::enabled")]
    send_algorithm: bool,
}

fn default_components() -> Vec<String> {
    ["@method", "@target-uri", "content-type", "content-digest"].map(str::to_owned).to_vec()
}

fn default_label() -> String {
    "sig1".to_owned()
}

/// Signs requests.
#[derive(Debug)]
pub(super) struct HttpSigner {
    key: SigningKey,
    /// The parameter `alg`, if it is sent.
    algorithm: Option<&'static str>,
    key_id: String,
    components: Vec<Component>,
    label: String,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Component {
    Method,
    TargetUri,
    Authority,
    Scheme,
    Path,
    Query,
    Header(HeaderName),
}

impl Component {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "@method" => Self::Method,
            "@target-uri" => Self::TargetUri,
            "@authority" => Self::Authority,
            "@scheme" => Self::Scheme,
            "@path" => Self::Path,
            "@query" => Self::Query,
            name => Self::Header(HeaderName::from_bytes(name.as_bytes()).ok()?),
        })
    }

    fn name(&self) -> &str {
        match self {
            Self::Method => "@method",
            Self::TargetUri => "@target-uri",
            Self::Authority => "@authority",
            Self::Scheme => "@scheme",
            Self::Path => "@path",
            Self::Query => "@query",
            Self::Header(name) => name.as_str(),
        }
    }

    /// The value that is signed. None if the request does not have it.
    fn value(&self, method: &Method, url: &Url, headers: &HeaderMap) -> Option<String> {
        Some(match self {
            Self::Method => method.as_str().to_owned(),
            Self::TargetUri => url.as_str().to_owned(),
            Self::Authority => {
                // The URL parser lowers the host and drops the scheme's own port, as the RFC wants.
                let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                format!("{}{port}", url.host_str()?)
            }
            Self::Scheme => url.scheme().to_owned(),
            Self::Path => url.path().to_owned(),
            Self::Query => format!("?{}", url.query().unwrap_or_default()),
            Self::Header(name) => {
                let values: Option<Vec<&str>> =
                    headers.get_all(name).iter().map(|value| value.to_str().ok().map(str::trim)).collect();
                values.filter(|values| !values.is_empty())?.join(", ")
            }
        })
    }
}

impl HttpSigner {
    pub(super) fn read(settings: &HttpSignatureSettings) -> Result<Self, SettingError> {
        let wrong = |setting: &'static str, text: &str| SettingError::new(setting, text);
        let setting = "http_signature.key_file";
        let key = SigningKey::read(setting, &settings.key_file, settings.algorithm, Algorithm::Ps512)?;
        let algorithm = key.algorithm().http_name().ok_or_else(|| {
            wrong(
                "http_signature.algorithm",
                "must be \"PS512\" or \"RS256\" with an RSA key: RFC 9421 has no PS256",
            )
        })?;
        let mut components = Vec::new();
        for name in &settings.components {
            match Component::parse(name) {
                Some(component) if *name == name.to_lowercase() && !components.contains(&component) => {
                    components.push(component);
                }
                _ => {
                    return Err(wrong(
                        "http_signature.components",
                        "must list, once each, @method, @target-uri, @authority, @scheme, @path, @query or headers in small letters",
                    ));
                }
            }
        }
        let is_token = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_lowercase())
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte))
        };
        if !is_token(&settings.label) {
            return Err(wrong(
                "http_signature.label",
                "must be small letters, digits, _, - and ., with a letter first",
            ));
        }
        if !settings
            .key_id
            .bytes()
            .all(|byte| (byte.is_ascii_graphic() || byte == b' ') && !b"\"\\".contains(&byte))
        {
            return Err(wrong("http_signature.key_id", "must be printable ASCII without quotes and backslashes"));
        }
        let algorithm = Some(algorithm).filter(|_| settings.send_algorithm);
        Ok(Self { key, algorithm, key_id: settings.key_id.clone(), components, label: settings.label.clone() })
    }

    /// Adds the digest of the body and the signature. The error names the component that the request does not have.
    pub(super) fn sign(&self, request: &mut Request) -> Result<(), String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let body = request.body().and_then(|body| body.as_bytes()).map(<[u8]>::to_vec);
        if let Some(body) = &body {
            let digest = format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body)));
            request.headers_mut().insert(CONTENT_DIGEST, header(&digest)?);
        }
        let (input, base) =
            self.signature_base(request.method(), request.url(), request.headers(), body.is_some(), now)?;
        let signature = self.key.sign(base.as_bytes()).ok_or("the system has no random bytes")?;
        let signature = format!("{}=:{}:", self.label, STANDARD.encode(signature));
        request.headers_mut().insert(SIGNATURE_INPUT, header(&format!("{}={input}", self.label))?);
        let mut signature = header(&signature)?;
        signature.set_sensitive(true);
        request.headers_mut().insert(SIGNATURE, signature);
        Ok(())
    }

    /// The parameters of the signature, and the text that is signed.
    fn signature_base(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        has_body: bool,
        created: u64,
    ) -> Result<(String, String), String> {
        let mut names = Vec::new();
        let mut base = String::new();
        for component in &self.components {
            let name = component.name();
            if !has_body && matches!(name, "content-type" | "content-digest") {
                continue;
            }
            let value = component
                .value(method, url, headers)
                .ok_or_else(|| format!("the request has no {name}, which http_signature.components names"))?;
            base.push_str(&format!("\"{name}\": {value}\n"));
            names.push(format!("\"{name}\""));
        }
        let algorithm = self.algorithm.map(|name| format!(";alg=\"{name}\"")).unwrap_or_default();
        let input = format!("({});created={created};keyid=\"{}\"{algorithm}", names.join(" "), self.key_id);
        base.push_str(&format!("\"@signature-params\": {input}"));
        Ok((input, base))
    }
}

fn header(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| "a signature is no header value".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request and the key of RFC 9421, appendix B.2 and B.1.4.
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n";

    fn signer(more: &str) -> Result<HttpSigner, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        std::fs::write(&path, KEY).unwrap();
        let toml = format!("key_file = {path:?}\nkey_id = 'test-key-ed25519'\n{more}");
        let settings = crate::config::read(toml.parse().unwrap()).unwrap();
        HttpSigner::read(&settings).map_err(|error| error.for_rail("sepa").to_string())
    }

    fn request() -> Request {
        let url = Url::parse("https://example.com/foo?param=Value&Pet=dog").unwrap();
        let mut request = Request::new(Method::POST, url);
        for (name, value) in [
            ("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
            ("content-type", "application/json"),
            ("content-length", "18"),
        ] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        *request.body_mut() = Some("{\"hello\": \"world\"}".into());
        request
    }

    #[test]
    fn the_example_of_the_rfc_has_its_signature() {
        let signer = signer(
            "components = ['date', '@method', '@path', '@authority', 'content-type', 'content-length']\n\
             send_algorithm = false",
        )
        .unwrap();
        let request = request();
        let (input, base) = signer
            .signature_base(request.method(), request.url(), request.headers(), true, 1_618_884_473)
            .unwrap();
        assert_eq!(
            input,
            r#"("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#
        );
        assert_eq!(
            STANDARD.encode(signer.key.sign(base.as_bytes()).unwrap()),
            "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
        );
    }

    #[test]
    fn derived_components_have_the_values_of_the_rfc() {
        let request = request();
        for (name, value) in [
            ("@method", "POST"),
            ("@target-uri", "https://example.com/foo?param=Value&Pet=dog"),
            ("@authority", "example.com"),
            ("@scheme", "https"),
            ("@path", "/foo"),
            ("@query", "?param=Value&Pet=dog"),
            ("content-length", "18"),
        ] {
            let component = Component::parse(name).unwrap();
            let found = component.value(request.method(), request.url(), request.headers());
            assert_eq!(found.as_deref(), Some(value), "{name}");
        }
        let url = Url::parse("HTTPS://EXAMPLE.com:8443").unwrap();
        let value = |component: Component| component.value(&Method::GET, &url, &HeaderMap::new());
        assert_eq!(value(Component::Authority).as_deref(), Some("example.com:8443"));
        assert_eq!(
            (value(Component::Path).as_deref(), value(Component::Query).as_deref()),
            (Some("/"), Some("?"))
        );
        assert_eq!(value(Component::parse("x-other").unwrap()), None);
    }

    #[test]
    fn a_request_without_a_body_has_no_digest_and_a_missing_header_is_named() {
        let mut request = Request::new(Method::GET, Url::parse("https://example.com/").unwrap());
        signer("").unwrap().sign(&mut request).unwrap();
        assert!(!request.headers().contains_key(CONTENT_DIGEST));
        let input = request.headers()[SIGNATURE_INPUT].to_str().unwrap().to_owned();
        assert!(input.starts_with("sig1=(\"@method\" \"@target-uri\");created="), "{input}");
        assert!(input.ends_with(";keyid=\"test-key-ed25519\";alg=\"ed25519\""), "{input}");
        let missing = signer("components = ['x-account']").unwrap().sign(&mut request).unwrap_err();
        assert!(missing.contains("x-account"), "{missing}");
    }

    #[test]
    fn settings_that_cannot_be_signed_with_are_refused() {
        for (toml, setting) in [
            ("components = ['@status']", "http_signature.components"),
            ("components = ['Date']", "http_signature.components"),
            ("components = ['date', 'date']", "http_signature.components"),
            ("label = 'Sig 1'", "http_signature.label"),
            ("algorithm = 'PS512'", "http_signature.key_file"),
        ] {
            let error = signer(toml).unwrap_err();
            assert!(error.starts_with(&format!("rail sepa: {setting}: ")), "{error}");
        }
    }
}
