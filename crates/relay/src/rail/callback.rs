//! A callback: a request by which the bank reports the outcome of a payment by itself.

use symphony_db::payment::{RailAnswer, Reason};

/// A request as it arrived. Nothing of it is trusted.
#[derive(Clone, Copy, Debug)]
pub struct CallbackRequest<'a> {
    /// The headers with text values, their names in lower case, in order.
    pub headers: &'a [(String, String)],
    /// The body, byte for byte.
    pub body: &'a [u8],
    /// When it arrived, by the clock of this process.
    pub received_at_unix_seconds: u64,
}

impl CallbackRequest<'_> {
    /// The value of a header; none if it is missing or comes twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        values.next().filter(|_| values.next().is_none())
    }
}

/// What the bank reports, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// The id of the message: the same when the bank delivers it again.
    pub id: String,
    /// The key by which the bank names the payment.
    pub idempotency_key: String,
    /// What became of it.
    pub outcome: CallbackOutcome,
}

/// What became of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackOutcome {
    /// It was executed.
    Executed(RailAnswer),
    /// It was refused, and will not be paid.
    Refused {
        /// Why.
        reason: Reason,
        /// The rail's own reference and code.
        rail: RailAnswer,
    },
    /// The bank has not decided yet: there is nothing to record.
    Pending,
}

/// Why a callback is refused. No message quotes the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// The rail takes no callbacks.
    #[error("the rail takes no callbacks")]
    NotSupported,
    /// The signature is missing or is not the bank's.
    #[error("the request is not signed by the bank")]
    NotSigned,
    /// It was signed too long ago, or in the future.
    #[error("the request was signed {seconds_off} s away from now")]
    WrongTime {
        /// By how much.
        seconds_off: u64,
    },
    /// The bank signed it, and it cannot be read.
    #[error("{message}")]
    Malformed {
        /// What is wrong.
        message: String,
    },
}
