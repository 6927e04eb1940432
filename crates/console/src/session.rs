//! Sessions of the dashboard, kept in memory. They end when the visitor signs out, after eight hours, or with the
//! process.
//!
//! The cookie holds a random session id and nothing else; the session remembers which token signed in.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::access::Caller;
use super::problem::Problem;

const COOKIE: &str = "symphony_session";
/// How long a session lasts: one shift of an on-call engineer.
const SESSION_LIFETIME: Duration = Duration::from_hours(8);
/// Sessions per token. One more ends the oldest session of the same token.
const MAX_SESSIONS_PER_TOKEN: usize = 32;

/// The user of one request to the dashboard.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) caller: Caller,
    /// The CSRF token, which a form of another site cannot know.
    pub(crate) csrf: String,
}

/// All sessions, by id.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, (Instant, Visitor)>>);

impl Sessions {
    /// Creates a session and returns its Set-Cookie header.
    pub(crate) fn sign_in(&self, caller: Caller, headers: &HeaderMap) -> Result<String, Problem> {
        let no_random_bytes = |_| Problem::unavailable("the operating system provided no random bytes: try again");
        let (id, csrf) = (random().map_err(no_random_bytes)?, random().map_err(no_random_bytes)?);
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, (since, _)| since.elapsed() < SESSION_LIFETIME);
        let of_token = sessions.iter().filter(|(_, (_, visitor))| visitor.caller.name == caller.name);
        if of_token.clone().count() >= MAX_SESSIONS_PER_TOKEN
            && let Some(oldest) = of_token.min_by_key(|(_, (since, _))| *since).map(|(id, _)| id.clone())
        {
            sessions.remove(&oldest);
        }
        sessions.insert(id.clone(), (Instant::now(), Visitor { caller, csrf }));
        Ok(cookie(&id, SESSION_LIFETIME, headers))
    }

    /// The visitor whose session cookie the request carries.
    pub(crate) fn visitor(&self, headers: &HeaderMap) -> Option<Visitor> {
        let id = id(headers)?;
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions
            .get(id)
            .filter(|(since, _)| since.elapsed() < SESSION_LIFETIME)
            .map(|(_, visitor)| visitor.clone())
    }

    /// Ends the session of the request and returns a Set-Cookie header that deletes the cookie.
    pub(crate) fn sign_out(&self, headers: &HeaderMap) -> String {
        if let Some(id) = id(headers) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
        cookie("", Duration::ZERO, headers)
    }
}

fn id(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE && !value.is_empty()).then_some(value)
    })
}

fn cookie(id: &str, age: Duration, headers: &HeaderMap) -> String {
    // A proxy in front says whether the browser used TLS.
    let secure = headers.get("x-forwarded-proto").is_some_and(|by| by == "https");
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE}={id}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", age.as_secs())
}

/// 32 random bytes as text.
pub(crate) fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::access::caller_with_token;
    use super::*;

    fn sent(cookie: &str) -> HeaderMap {
        let cookie = cookie.split(';').next().unwrap();
        [(header::COOKIE, format!("theme=dark; {cookie}").parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_session_lasts_until_sign_out_and_its_cookie_is_http_only() {
        let sessions = Sessions::default();
        let cookie = sessions.sign_in(caller_with_token("ana"), &HeaderMap::new()).unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains("Secure"));
        assert_eq!(sessions.visitor(&sent(&cookie)).unwrap().caller.name.as_deref(), Some("ana"));
        assert!(sessions.visitor(&sent("symphony_session=another")).is_none());
        assert!(sessions.visitor(&HeaderMap::new()).is_none());
        sessions.sign_out(&sent(&cookie));
        assert!(sessions.visitor(&sent(&cookie)).is_none());
        let by_tls = [("x-forwarded-proto".parse().unwrap(), "https".parse().unwrap())].into_iter().collect();
        assert!(sessions.sign_in(caller_with_token("ana"), &by_tls).unwrap().ends_with("; Secure"));
    }

    #[test]
    fn a_token_has_a_limited_number_of_sessions_and_ends_none_of_another_token() {
        let sessions = Sessions::default();
        let (ana, bo) = (caller_with_token("ana"), caller_with_token("bo"));
        let of_bo = sessions.sign_in(bo, &HeaderMap::new()).unwrap();
        let first = sessions.sign_in(ana.clone(), &HeaderMap::new()).unwrap();
        for _ in 0..1000 {
            sessions.sign_in(ana.clone(), &HeaderMap::new()).unwrap();
        }
        assert_eq!(sessions.0.lock().unwrap().len(), MAX_SESSIONS_PER_TOKEN + 1);
        assert!(sessions.visitor(&sent(&first)).is_none(), "the oldest of the token went");
        assert!(sessions.visitor(&sent(&of_bo)).is_some(), "the session of another token stays");
    }
}
