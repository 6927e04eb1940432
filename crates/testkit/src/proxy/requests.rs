//! The requests of one client that the server has not answered yet.
//!
//! The server replies in order and sends one ReadyForQuery per request: for each simple query, and for each sequence of
//! extended-query messages that ends with Sync. So a queue is enough to match replies to requests.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::fault::Injection;
use super::wire::{ClientMessage, Message};

/// The requests of one connection.
#[derive(Default)]
pub(super) struct Requests {
    statements: HashMap<Vec<u8>, Arc<str>>,
    portals: HashMap<Vec<u8>, Arc<str>>,
    unanswered: VecDeque<Request>,
}

#[derive(Default)]
struct Request {
    /// Whether more messages of it may follow.
    unfinished: bool,
    /// The fault to inject into it.
    injection: Option<Injection>,
}

impl Requests {
    /// Records the startup message, which is answered like a request.
    pub(super) fn opened(&mut self) {
        self.unanswered.push_back(Request::default());
    }

    /// Records a message of the client before it is forwarded. Returns the SQL that it executes, if any.
    pub(super) fn parse(&mut self, message: &Message) -> Option<Arc<str>> {
        match message.parse() {
            ClientMessage::Query { sql } => {
                self.part().unfinished = false;
                Some(text(sql))
            }
            ClientMessage::Parse { statement, sql } => {
                self.part();
                self.statements.insert(statement.to_vec(), text(sql));
                None
            }
            ClientMessage::Bind { portal, statement } => {
                self.part();
                let sql = self.statements.get(statement).cloned()?;
                self.portals.insert(portal.to_vec(), sql);
                None
            }
            ClientMessage::Execute { portal } => {
                self.part();
                self.portals.get(portal).cloned()
            }
            ClientMessage::Part => {
                self.part();
                None
            }
            ClientMessage::Sync | ClientMessage::Call => {
                self.part().unfinished = false;
                None
            }
            ClientMessage::Other => None,
        }
    }

    /// Attaches a fault to the last request.
    pub(super) fn mark(&mut self, injection: Injection) {
        if let Some(request) = self.unanswered.back_mut() {
            request.injection.get_or_insert(injection);
        }
    }

    /// Whether the request that the server answers now has a fault.
    pub(super) fn is_marked(&self) -> bool {
        self.unanswered.front().is_some_and(|request| request.injection.is_some())
    }

    /// Records that the server has answered a request. Returns its fault, if any.
    pub(super) fn answered(&mut self) -> Option<Injection> {
        self.unanswered.pop_front().and_then(|request| request.injection)
    }

    /// The current request; a new one if the last is complete.
    fn part(&mut self) -> &mut Request {
        if self.unanswered.back().is_none_or(|request| !request.unfinished) {
            self.unanswered.push_back(Request { unfinished: true, injection: None });
        }
        let last = self.unanswered.len() - 1;
        &mut self.unanswered[last]
    }
}

fn text(sql: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(sql).to_lowercase().into()
}
