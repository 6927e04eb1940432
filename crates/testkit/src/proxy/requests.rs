//! What one client has asked and not yet been answered.
//!
//! The server answers in the order in which it was asked and says "ready for query" once for every request: for each
//! simple query, and for each row of parts that a sync ends. So a queue is enough to know what an answer belongs to.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::fault::Ticket;
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
    /// Whether more parts of it may come.
    unfinished: bool,
    /// What is to happen to it.
    ticket: Option<Ticket>,
}

impl Requests {
    /// Takes note of the opening, which is answered like a request.
    pub(super) fn opened(&mut self) {
        self.unanswered.push_back(Request::default());
    }

    /// Takes note of what the client says, before it is passed on, and returns the text that it is about to execute.
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
            ClientMessage::Aside => None,
        }
    }

    /// Attaches a fault to the last request that was sent.
    pub(super) fn mark(&mut self, ticket: Ticket) {
        if let Some(request) = self.unanswered.back_mut() {
            request.ticket.get_or_insert(ticket);
        }
    }

    /// Whether something is to happen to the request that the server answers now.
    pub(super) fn is_marked(&self) -> bool {
        self.unanswered.front().is_some_and(|request| request.ticket.is_some())
    }

    /// Takes note that the server has answered, and returns what is to happen.
    pub(super) fn answered(&mut self) -> Option<Ticket> {
        self.unanswered.pop_front().and_then(|request| request.ticket)
    }

    /// The request that this is a part of; a new one if the last is complete.
    fn part(&mut self) -> &mut Request {
        if self.unanswered.back().is_none_or(|request| !request.unfinished) {
            self.unanswered.push_back(Request { unfinished: true, ticket: None });
        }
        let last = self.unanswered.len() - 1;
        &mut self.unanswered[last]
    }
}

fn text(sql: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(sql).to_lowercase().into()
}
