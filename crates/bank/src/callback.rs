//! Reports what became of an accepted payment: a signed POST, by the Standard Webhooks scheme, again until it is answered with 2xx.
//!
//! A callback that is delivered again has the same id and a new timestamp.

use std::{sync::Arc, time::Duration};

use axum::http::{Request, Uri};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde::Serialize;
use sha2::Sha256;
use tokio::net::TcpStream;

use super::wire::Status;

/// How often a callback is delivered at most.
const MAX_DELIVERIES: u32 = 100;
/// The pause before the next delivery.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one delivery may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why callbacks cannot be sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// Name the address of a relayer.
    #[error("the URL of callbacks must be http://HOST:PORT/PATH: the bank speaks no TLS")]
    Url,
    /// Create a secret.
    #[error("the secret of callbacks must be whsec_ and the base64 of 24 to 64 bytes")]
    Secret,
}

/// Sends callbacks to one URL.
#[derive(Clone)]
pub struct CallbackSender {
    url: Uri,
    authority: String,
    key: Hmac<Sha256>,
}

/// The body of a callback.
#[derive(Serialize)]
struct CallbackBody<'a> {
    idempotency_key: &'a str,
    #[serde(flatten)]
    status: &'a Status,
}

impl CallbackSender {
    /// # Errors
    ///
    /// See [`CallbackError`].
    pub fn new(url: &str, secret: &str) -> Result<Self, CallbackError> {
        let url: Uri = url.parse().map_err(|_| CallbackError::Url)?;
        let authority = url.authority().filter(|authority| authority.port().is_some());
        let authority =
            authority.filter(|_| url.scheme_str() == Some("http")).ok_or(CallbackError::Url)?.to_string();
        let bytes = secret.trim().strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok());
        let bytes = bytes.filter(|bytes| (24..=64).contains(&bytes.len())).ok_or(CallbackError::Secret)?;
        let key = Hmac::new_from_slice(&bytes).map_err(|_| CallbackError::Secret)?;
        Ok(Self { url, authority, key })
    }

    /// Sends it from another task, until it is taken.
    pub(super) fn send(&self, key: &str, status: &Status) {
        // Texts alone: JSON can hold them.
        let Ok(body) = serde_json::to_vec(&CallbackBody { idempotency_key: key, status }) else { return };
        let (sender, body) = (self.clone(), Arc::<[u8]>::from(body));
        let id = format!("settlement-{key}");
        tokio::spawn(async move {
            for _ in 0..MAX_DELIVERIES {
                let delivery = tokio::time::timeout(DELIVERY_TIMEOUT, sender.deliver(&id, &body));
                if matches!(delivery.await, Ok(Some(true))) {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Whether it was answered with 2xx; none without an answer.
    async fn deliver(&self, id: &str, body: &Arc<[u8]>) -> Option<bool> {
        let timestamp = Timestamp::now().as_second().to_string();
        let mut mac = self.key.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        let request = Request::post(self.url.path_and_query().map_or("/", |path| path.as_str()))
            .header("host", &self.authority)
            .header("content-type", "application/json")
            .header("content-length", body.len())
            .header("connection", "close")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
            .body(axum::body::Body::from(body.to_vec()))
            .ok()?;
        let stream = TcpStream::connect(&self.authority).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        let (answer, _) = tokio::join!(sender.send_request(request), connection);
        Some(answer.ok()?.status().is_success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_or_a_secret_that_cannot_be_used_is_refused() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        assert!(CallbackSender::new("http://127.0.0.1:9/callbacks/sepa", secret).is_ok());
        for url in ["", "https://127.0.0.1:9/", "http://bank.example/", "127.0.0.1:9"] {
            assert_eq!(CallbackSender::new(url, secret).err(), Some(CallbackError::Url), "{url}");
        }
        for secret in ["", "secret", "whsec_", "whsec_c2hvcnQ="] {
            assert_eq!(CallbackSender::new("http://127.0.0.1:9/", secret).err(), Some(CallbackError::Secret));
        }
    }
}
