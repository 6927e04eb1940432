//! OAuth 2.0 client credentials (RFC 6749, section 4.4): one token per rail, cached and renewed ahead of its expiry.
//!
//! The client authenticates by a secret (basic or post), by a signed assertion (`private_key_jwt`, RFC 7523), or by its
//! TLS certificate alone. While a token is fetched nothing of the payment is sent, so a failure here leaves no unknown
//! outcome.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request};
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use url::form_urlencoded;

use super::client::{HttpClient, SendError};
use super::jws;
use super::reloadable::Reloadable;
use super::response::HttpResponse;
use super::signing_key::{Algorithm, SigningKey};
use super::target::Target;
use crate::config::{self, SettingError, duration};
use crate::secret::{self, Secret};

/// The lifetime of a token whose answer names none.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// The longest lifetime that is believed.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// A token is not used for its last seconds: the request needs time to arrive.
const EXPIRY_MARGIN: Duration = Duration::from_secs(5);
/// The pause after a renewal that failed.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);
/// How long a client assertion is valid.
const ASSERTION_SECONDS: u64 = 120;
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The settings of OAuth.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OauthSettings {
    pub(super) token_url: String,
    client_id: String,
    client_secret_env: Option<String>,
    client_secret_file: Option<PathBuf>,
    #[serde(default)]
    send_secret: SendSecret,
    key_file: Option<PathBuf>,
    key_id: Option<String>,
    algorithm: Option<Algorithm>,
    audience: Option<String>,
    scope: Option<String>,
    #[serde(default)]
    parameters: BTreeMap<String, String>,
    #[serde(default = "config::seconds::<60>", deserialize_with = "duration")]
    refresh_before: Duration,
    #[serde(default = "config::seconds::<10>", deserialize_with = "duration")]
    pub(super) timeout: Duration,
}

/// Where the client secret is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SendSecret {
    /// In `Authorization: Basic`.
    #[default]
    Basic,
    /// In the body.
    Post,
}

/// How the client authenticates.
enum ClientAuthentication {
    Secret(Secret),
    Key(Box<SigningKey>),
    /// By the certificate of the TLS connection.
    Certificate,
}

/// An access token.
pub(super) struct Token {
    /// `Bearer …`, which `Debug` does not show.
    pub(super) header: HeaderValue,
    fetched: Instant,
    lifetime: Duration,
}

impl Token {
    /// Stands for a token where nothing is sent.
    pub(super) fn placeholder() -> Self {
        let mut header = HeaderValue::from_static("Bearer");
        header.set_sensitive(true);
        Self { header, fetched: Instant::now(), lifetime: Duration::ZERO }
    }

    fn is_fresh(&self) -> bool {
        self.fetched.elapsed() + EXPIRY_MARGIN < self.lifetime
    }

    /// When it is renewed, by its age.
    fn renewal_age(&self, before: Duration) -> Duration {
        // A short-lived token is renewed at half its life, and none more often than every second.
        self.lifetime.saturating_sub(before).max(self.lifetime / 2).max(Duration::from_secs(1))
    }
}

/// The source of a rail's tokens.
pub(super) struct TokenSource(Arc<Inner>);

struct Inner {
    /// Whose tokens: `rail sepa`.
    owner: String,
    target: Target,
    client: HttpClient,
    settings: OauthSettings,
    authentication: Reloadable<ClientAuthentication>,
    random: SystemRandom,
    current: RwLock<Option<Arc<Token>>>,
    /// Held while a token is fetched, so that one request at a time is sent. Holds the last failure.
    fetching: Mutex<Option<(Instant, String)>>,
}

impl TokenSource {
    /// Reads the credentials. `client` sends to the token endpoint.
    pub(super) fn build(
        owner: &str,
        settings: OauthSettings,
        target: Target,
        client: HttpClient,
        has_certificate: bool,
    ) -> Result<Self, SettingError> {
        if settings.timeout.is_zero() || settings.timeout > Duration::from_secs(60) {
            return Err(SettingError::new("oauth.timeout", "must be above zero and at most \"60s\""));
        }
        let has_secret = settings.client_secret_env.is_some() || settings.client_secret_file.is_some();
        match (has_secret, settings.key_file.is_some()) {
            (true, true) => {
                return Err(SettingError::new("oauth.key_file", "and a client secret are both set: keep one"));
            }
            (false, false) if !has_certificate => {
                return Err(SettingError::new(
                    "oauth.client_secret_file",
                    "must be set, or client_secret_env, or key_file for private_key_jwt, or client_certificate_file of the rail",
                ));
            }
            _ => {}
        }
        for name in settings.parameters.keys() {
            if ["grant_type", "scope", "client_id", "client_secret", "client_assertion", "client_assertion_type"]
                .contains(&name.as_str())
            {
                let text = "is set by Symphony itself: leave it out";
                return Err(SettingError::new(format!("oauth.parameters.{name}"), text));
            }
        }
        let files = settings.client_secret_file.iter().chain(&settings.key_file).cloned().collect();
        let read = settings.clone();
        let authentication = Reloadable::new(owner, files, move || read_authentication(&read))?;
        Ok(Self(Arc::new(Inner {
            owner: owner.to_owned(),
            target,
            client,
            settings,
            authentication,
            random: SystemRandom::new(),
            current: RwLock::new(None),
            fetching: Mutex::new(None),
        })))
    }

    /// The limit for one request to the token endpoint.
    pub(super) fn timeout(&self) -> Duration {
        self.0.client.timeout()
    }

    /// A token that has not expired. The error says why the token endpoint gave none, without a secret.
    pub(super) async fn token(&self) -> Result<Arc<Token>, String> {
        self.unless(Token::is_fresh).await
    }

    /// A token for a second try, after the bank has refused this one. None if it was fetched since `began`, when the dispatch
    /// began, or no other can be had: then a second try would be refused too.
    pub(super) async fn token_instead_of(&self, refused: &Token, began: Instant) -> Option<Arc<Token>> {
        if refused.fetched >= began {
            return None;
        }
        self.unless(|token| token.fetched > refused.fetched && token.is_fresh()).await.ok()
    }

    /// The current token if it will do, else a new one.
    async fn unless(&self, will_do: impl Fn(&Token) -> bool) -> Result<Arc<Token>, String> {
        let inner = &self.0;
        let usable = || inner.current().filter(|token| will_do(token));
        if let Some(token) = usable() {
            return Ok(token);
        }
        let began = Instant::now();
        let mut failure = inner.fetching.lock().await;
        if let Some(token) = usable() {
            return Ok(token);
        }
        // Another dispatch has waited for the same answer in the meantime.
        if let Some((_, why)) = failure.as_ref().filter(|(at, _)| *at >= began) {
            return Err(why.clone());
        }
        let is_first = inner.current().is_none();
        match inner.fetch().await {
            Ok(token) => {
                *failure = None;
                drop(failure);
                if is_first {
                    tokio::spawn(renew(Arc::downgrade(inner)));
                }
                Ok(token)
            }
            Err(why) => {
                *failure = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }
}

impl Inner {
    fn current(&self) -> Option<Arc<Token>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches a token and keeps it.
    async fn fetch(&self) -> Result<Arc<Token>, String> {
        let request = self.request()?;
        let fetched = Instant::now();
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(SendError::NotSent(why) | SendError::MayHaveBeenSent(why)) => {
                return Err(format!("the token endpoint did not answer: {why}"));
            }
        };
        let token = Arc::new(read_token(&response, fetched)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&token));
        Ok(token)
    }

    fn request(&self) -> Result<Request, String> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if let Some(scope) = &self.settings.scope {
            form.append_pair("scope", scope);
        }
        let mut authorization = None;
        let id = &self.settings.client_id;
        match &*self.authentication.current() {
            ClientAuthentication::Secret(secret) if self.settings.send_secret == SendSecret::Basic => {
                let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encode(id), encode(secret.expose()));
                let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)))
                    .map_err(|_| "the client secret is no header value".to_owned())?;
                value.set_sensitive(true);
                authorization = Some(value);
            }
            ClientAuthentication::Secret(secret) => {
                form.append_pair("client_id", id).append_pair("client_secret", secret.expose());
            }
            ClientAuthentication::Key(key) => {
                form.append_pair("client_id", id)
                    .append_pair("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
                    .append_pair("client_assertion", &self.assertion(key)?);
            }
            ClientAuthentication::Certificate => {
                form.append_pair("client_id", id);
            }
        }
        form.extend_pairs(&self.settings.parameters);
        let mut request = Request::new(Method::POST, self.target.url());
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
        *request.body_mut() = Some(form.finish().into());
        Ok(request)
    }

    /// The assertion of private_key_jwt. Each has an id of its own, so that it can be used once.
    fn assertion(&self, key: &SigningKey) -> Result<String, String> {
        let no_random = || "the system has no random bytes".to_owned();
        let mut id = [0; 16];
        self.random.fill(&mut id).map_err(|_| no_random())?;
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let client = &self.settings.client_id;
        let audience = self.settings.audience.as_deref().unwrap_or(&self.settings.token_url);
        let claims = json!({
            "iss": client, "sub": client, "aud": audience, "jti": id, "iat": now, "exp": now + ASSERTION_SECONDS,
        });
        jws::jwt(key, self.settings.key_id.as_deref(), &claims).ok_or_else(no_random)
    }
}

/// Renews the token ahead of its expiry, until the rail is dropped. The only task of a token source.
async fn renew(source: Weak<Inner>) {
    let mut pause = None;
    loop {
        let Some(inner) = source.upgrade() else { return };
        let Some(token) = inner.current() else { return };
        let age = token.fetched.elapsed();
        let wait =
            pause.take().unwrap_or_else(|| token.renewal_age(inner.settings.refresh_before).saturating_sub(age));
        drop(inner);
        tokio::time::sleep(wait).await;
        let Some(inner) = source.upgrade() else { return };
        let mut failure = inner.fetching.lock().await;
        if inner.current().is_some_and(|current| !Arc::ptr_eq(&current, &token)) {
            continue;
        }
        if let Err(why) = inner.fetch().await {
            tracing::warn!(
                event = "TOKEN_NOT_RENEWED",
                owner = inner.owner,
                reason = why,
                "an access token could not be renewed"
            );
            *failure = Some((Instant::now(), why));
            pause = Some(RENEWAL_PAUSE);
        }
    }
}

fn read_authentication(settings: &OauthSettings) -> Result<ClientAuthentication, SettingError> {
    if let Some(path) = &settings.key_file {
        let key = SigningKey::read("oauth.key_file", path, settings.algorithm, Algorithm::Ps256)?;
        return Ok(ClientAuthentication::Key(Box::new(key)));
    }
    let secret = secret::from_env_or_file(
        "oauth.client_secret_env",
        &settings.client_secret_env,
        "oauth.client_secret_file",
        &settings.client_secret_file,
    )?;
    Ok(secret.map_or(ClientAuthentication::Certificate, ClientAuthentication::Secret))
}

/// The token of a response (RFC 6749, section 5.1), or the error code of one without (section 5.2).
fn read_token(response: &HttpResponse, fetched: Instant) -> Result<Token, String> {
    let status = response.status;
    let field = |name: &str| response.body.as_ref().and_then(|body| body.get(name));
    let text = |name: &str| field(name).and_then(Value::as_str);
    if status != 200 {
        let is_code =
            |code: &&str| code.len() <= 60 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let code = text("error").filter(is_code).map(|code| format!(" ({code})")).unwrap_or_default();
        return Err(format!("the token endpoint answered HTTP {status}{code}"));
    }
    let is_bearer = text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
    let token = text("access_token").filter(|token| {
        (1..=MAX_TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
    });
    let (true, Some(token)) = (is_bearer, token) else {
        return Err("the token endpoint answered HTTP 200 without an access_token of token_type Bearer".to_owned());
    };
    let lifetime = field("expires_in").and_then(|seconds| match seconds {
        Value::Number(seconds) => seconds.as_u64(),
        Value::String(seconds) => seconds.parse().ok(),
        _ => None,
    });
    let lifetime = lifetime.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME);
    let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| "the access token is no header value".to_owned())?;
    header.set_sensitive(true);
    Ok(Token { header, fetched, lifetime })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, body: Value) -> HttpResponse {
        HttpResponse { status, retry_after: None, body: Some(body), ambiguous: false, is_replay: false }
    }

    #[test]
    fn a_response_has_a_bearer_token_or_a_reason() {
        let read = |status, body| read_token(&response(status, body), Instant::now());
        let token =
            read(200, json!({ "access_token": "t0k", "token_type": "bearer", "expires_in": "90" })).unwrap();
        assert_eq!((token.header.to_str().unwrap(), token.lifetime), ("Bearer t0k", Duration::from_secs(90)));
        assert!(!format!("{:?}", token.header).contains("t0k"));
        let token = read(200, json!({ "access_token": "t", "token_type": "Bearer" })).unwrap();
        assert_eq!(token.lifetime, DEFAULT_LIFETIME);
        for (status, body, reason) in [
            (
                401,
                json!({ "error": "invalid_client", "error_description": "SECRET" }),
                "HTTP 401 (invalid_client)",
            ),
            (400, json!({ "error": "<b>SECRET" }), "HTTP 400"),
            (200, json!({ "access_token": "t", "token_type": "DPoP" }), "without an access_token"),
            (200, json!({ "access_token": "a b", "token_type": "Bearer" }), "without an access_token"),
            (200, json!({ "token_type": "Bearer" }), "without an access_token"),
            (302, json!({}), "HTTP 302"),
        ] {
            let error = read(status, body).err().unwrap();
            assert!(error.ends_with(reason) || error.contains("without"), "{error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn a_token_is_renewed_ahead_of_its_expiry_and_not_used_in_its_last_seconds() {
        let token = |seconds| {
            let body = json!({ "access_token": "t", "token_type": "Bearer", "expires_in": seconds });
            read_token(&response(200, body), Instant::now()).unwrap()
        };
        let minute = Duration::from_secs(60);
        assert_eq!(token(3600).renewal_age(minute), Duration::from_secs(3540));
        assert_eq!(token(60).renewal_age(minute), Duration::from_secs(30));
        assert!(token(60).is_fresh() && !token(5).is_fresh() && !token(0).is_fresh());
        assert_eq!(token(u64::MAX).lifetime, MAX_LIFETIME);
    }
}
