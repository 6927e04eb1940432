//! Who is signed in to the dashboard: sessions in memory, which end with the process, with the hours, or by hand.
//!
//! A session holds what a browser cannot be asked to keep: whose token was shown. The cookie is a random name for it and nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::access::Caller;
use super::problem::Problem;

const COOKIE: &str = "symphony_session";
/// How long somebody stays signed in: a shift.
const SHIFT: Duration = Duration::from_hours(8);
/// Sessions of one token. One more ends the oldest of the same token, and none of another.
const MAX_SESSIONS_PER_TOKEN: usize = 32;

/// Somebody who looks at the dashboard.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) caller: Caller,
    /// What a form of ours holds, and one of another site cannot know.
    pub(crate) csrf: String,
}

/// Those who are signed in.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, (Instant, Visitor)>>);

impl Sessions {
    /// Signs somebody in, and says what to set as the cookie.
    pub(crate) fn begin(&self, caller: Caller, headers: &HeaderMap) -> Result<String, Problem> {
        let (id, csrf) = (random()?, random()?);
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, (since, _)| since.elapsed() < SHIFT);
        let of_token = sessions.iter().filter(|(_, (_, visitor))| visitor.caller.name == caller.name);
        if of_token.clone().count() >= MAX_SESSIONS_PER_TOKEN
            && let Some(oldest) = of_token.min_by_key(|(_, (since, _))| *since).map(|(id, _)| id.clone())
        {
            sessions.remove(&oldest);
        }
        sessions.insert(id.clone(), (Instant::now(), Visitor { caller, csrf }));
        Ok(cookie(&id, SHIFT, headers))
    }

    /// Who sent this request.
    pub(crate) fn visitor(&self, headers: &HeaderMap) -> Option<Visitor> {
        let id = id(headers)?;
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(id).filter(|(since, _)| since.elapsed() < SHIFT).map(|(_, visitor)| visitor.clone())
    }

    /// Signs whoever sent this request out, and says what to set as the cookie.
    pub(crate) fn end(&self, headers: &HeaderMap) -> String {
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
    // Whoever stands in front says whether the browser came by TLS.
    let secure = headers.get("x-forwarded-proto").is_some_and(|by| by == "https");
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE}={id}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", age.as_secs())
}

/// A name that nobody can guess.
pub(crate) fn random() -> Result<String, Problem> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|_| Problem::busy("this machine has no randomness to give"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::access::holder_of_a_new_token;
    use super::*;

    fn sent(cookie: &str) -> HeaderMap {
        let cookie = cookie.split(';').next().unwrap();
        [(header::COOKIE, format!("theme=dark; {cookie}").parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_session_lasts_until_it_is_ended_and_its_cookie_is_for_the_server_alone() {
        let sessions = Sessions::default();
        let cookie = sessions.begin(holder_of_a_new_token("ana"), &HeaderMap::new()).unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains("Secure"));
        assert_eq!(sessions.visitor(&sent(&cookie)).unwrap().caller.name.as_deref(), Some("ana"));
        assert!(sessions.visitor(&sent("symphony_session=another")).is_none());
        assert!(sessions.visitor(&HeaderMap::new()).is_none());
        sessions.end(&sent(&cookie));
        assert!(sessions.visitor(&sent(&cookie)).is_none());
        let by_tls = [("x-forwarded-proto".parse().unwrap(), "https".parse().unwrap())].into_iter().collect();
        assert!(sessions.begin(holder_of_a_new_token("ana"), &by_tls).unwrap().ends_with("; Secure"));
    }

    #[test]
    fn a_token_has_so_many_sessions_and_ends_none_of_another() {
        let sessions = Sessions::default();
        let (ana, bo) = (holder_of_a_new_token("ana"), holder_of_a_new_token("bo"));
        let of_bo = sessions.begin(bo, &HeaderMap::new()).unwrap();
        let first = sessions.begin(ana.clone(), &HeaderMap::new()).unwrap();
        for _ in 0..1000 {
            sessions.begin(ana.clone(), &HeaderMap::new()).unwrap();
        }
        assert_eq!(sessions.0.lock().unwrap().len(), MAX_SESSIONS_PER_TOKEN + 1);
        assert!(sessions.visitor(&sent(&first)).is_none(), "the oldest of the token went");
        assert!(sessions.visitor(&sent(&of_bo)).is_some(), "the session of another token stays");
    }
}
