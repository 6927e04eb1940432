//! Server-sent events that tell open pages to refresh. A page then reads the changes itself.
//!
//! However many pages are open, the console reads the database at most once in two seconds, and not at all without open
//! pages.

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
use super::quota::{Permit, Quota};
use super::session::Visitor;
use super::{Console, ConsoleState, api};

/// Open streams of all callers, and of one token.
const MAX_STREAMS: usize = 32;
const MAX_STREAMS_PER_TOKEN: usize = 12;
/// The shortest time between two reads of the database.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// After this time the stream ends and the page connects again, so that a lost client does not keep its permit.
const MAX_STREAM_LIFETIME: Duration = Duration::from_mins(10);

/// What the open streams share.
pub(crate) struct Live {
    last_fingerprint: Mutex<Option<(Instant, u64)>>,
    streams: Arc<Quota>,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self { last_fingerprint: Mutex::new(None), streams: Quota::new(MAX_STREAMS, MAX_STREAMS_PER_TOKEN) }
    }
}

/// A hash of what the pages show, which changes with it; none if the database cannot be read.
async fn fingerprint(console: &Console) -> Option<u64> {
    let mut last = console.live.last_fingerprint.lock().await;
    if let Some((at, print)) = *last
        && at.elapsed() < POLL_INTERVAL
    {
        return Some(print);
    }
    let overview = api::overview(console).await.ok()?;
    let mut hasher = DefaultHasher::new();
    if let Some(api::Payments { backlog, dead_letters, .. }) = &overview.payments {
        (backlog.total, backlog.estimate).hash(&mut hasher);
        for rail in &backlog.rails {
            (rail.due, rail.leased, rail.expired, rail.scheduled, rail.parked, rail.paused, rail.held_since_epoch)
                .hash(&mut hasher);
        }
        (dead_letters.known, dead_letters.unknown).hash(&mut hasher);
    }
    if let Some(events) = &overview.events {
        let backlog = &events.backlog;
        (backlog.due, backlog.claimed, backlog.stuck, backlog.scheduled, events.recent.done).hash(&mut hasher);
    }
    if let Some(metadata) = &overview.metadata {
        let backlog = &metadata.backlog;
        (backlog.due, backlog.processing, backlog.stuck, backlog.scheduled, backlog.dlq, metadata.recent.done)
            .hash(&mut hasher);
    }
    for relayer in &overview.relayers {
        (&relayer.worker_id, relayer.sessions > 0, relayer.last_completed_at).hash(&mut hasher);
    }
    let print = hasher.finish();
    *last = Some((Instant::now(), print));
    Some(print)
}

struct Watch {
    console: ConsoleState,
    began: Instant,
    print: Option<u64>,
    _permit: Permit,
}

/// Serves the event stream of one page.
pub(crate) async fn watch(State(console): State<ConsoleState>, visitor: Visitor) -> Response {
    let Some(permit) = console.live.streams.try_acquire(&visitor.caller) else {
        return Problem::unavailable("too many open pages refresh themselves: close some and reload")
            .into_response();
    };
    let print = fingerprint(&console).await;
    let watch = Watch { console, began: Instant::now(), print, _permit: permit };
    let events = stream::unfold(watch, async |mut watch| {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if watch.began.elapsed() > MAX_STREAM_LIFETIME {
                return None;
            }
            let print = fingerprint(&watch.console).await;
            if print.is_some() && print != watch.print {
                watch.print = print;
                return Some((Ok::<_, Infallible>(Event::default().event("changed").data("now")), watch));
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
