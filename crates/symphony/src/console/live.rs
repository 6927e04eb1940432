//! Says to open pages that something changed, as server-sent events; what changed, they read themselves.
//!
//! However many look, the database is asked once in two seconds, and only while somebody looks.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::Mutex;

use super::problem::Problem;
use super::quota::{Place, Quota};
use super::session::Visitor;
use super::{Console, Desk, api};

/// Pages that may be kept live at the same time, in all and for one token.
const WATCHERS: usize = 32;
const WATCHERS_PER_TOKEN: usize = 12;
/// How often the database is asked, at most.
const PACE: Duration = Duration::from_secs(2);
/// After so long a page connects again, so that those who went away unheard do not keep their place.
const LONGEST: Duration = Duration::from_mins(10);

/// What is known to the pages that are open.
pub(crate) struct Live {
    seen: Mutex<Option<(Instant, u64)>>,
    watchers: Arc<Quota>,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self { seen: Mutex::new(None), watchers: Quota::new(WATCHERS, WATCHERS_PER_TOKEN) }
    }
}

/// Another number whenever something that a page shows has changed; none where the database does not say.
async fn fingerprint(desk: &Console) -> Option<u64> {
    let mut seen = desk.live.seen.lock().await;
    if let Some((at, print)) = *seen
        && at.elapsed() < PACE
    {
        return Some(print);
    }
    let overview = api::overview(desk).await.ok()?;
    let mut hasher = DefaultHasher::new();
    if let Some(api::Payments { backlog, dead_letters, .. }) = &overview.payments {
        backlog.total.hash(&mut hasher);
        for rail in &backlog.rails {
            (rail.due, rail.leased, rail.expired, rail.scheduled, rail.parked, rail.paused).hash(&mut hasher);
        }
        (dead_letters.known, dead_letters.unknown).hash(&mut hasher);
    }
    if let Some(events) = &overview.events {
        let backlog = &events.backlog;
        (backlog.due, backlog.claimed, backlog.stuck, backlog.scheduled, events.pulse.done).hash(&mut hasher);
    }
    if let Some(metadata) = &overview.metadata {
        let backlog = &metadata.backlog;
        (backlog.due, backlog.processing, backlog.stuck, backlog.scheduled, backlog.dlq, metadata.pulse.done)
            .hash(&mut hasher);
    }
    for relayer in &overview.relayers {
        (&relayer.worker_id, relayer.sessions > 0, relayer.last_completed_at).hash(&mut hasher);
    }
    let print = hasher.finish();
    *seen = Some((Instant::now(), print));
    Some(print)
}

struct Watch {
    desk: Desk,
    began: Instant,
    print: Option<u64>,
    _place: Place,
}

/// The stream of one page.
pub(crate) async fn watch(State(desk): State<Desk>, visitor: Visitor) -> Response {
    let Some(place) = desk.live.watchers.take(&visitor.caller) else {
        return Problem::busy("too many pages are kept live already").into_response();
    };
    let print = fingerprint(&desk).await;
    let watch = Watch { desk, began: Instant::now(), print, _place: place };
    let events = stream::unfold(watch, async |mut watch| {
        loop {
            tokio::time::sleep(PACE).await;
            if watch.began.elapsed() > LONGEST {
                return None;
            }
            let print = fingerprint(&watch.desk).await;
            if print.is_some() && print != watch.print {
                watch.print = print;
                return Some((Ok::<_, Infallible>(Event::default().event("changed").data("now")), watch));
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
