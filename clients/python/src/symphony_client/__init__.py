"""Enqueue payments, publish events and create metadata entries in Symphony, in your own transaction.

Layout:

- this module: the types of the calls, and the errors
- one module per driver, each with the functions ``enqueue``, ``enqueue_batch``, ``set_traceparent``, ``publish`` and
  ``create_entry``: ``psycopg``, ``psycopg_async``, ``asyncpg``, ``sqlalchemy``, ``sqlalchemy_async``, ``django``
"""

from ._payload import JsonText, Payload
from ._types import Enqueued, Entry, Event, Instruction
from .errors import (
    AlreadyTerminal,
    ConnectionLost,
    IdempotencyConflict,
    IllegalTransition,
    InvalidArgument,
    InvalidState,
    LeaseLost,
    LockHeld,
    MissingRole,
    NotInstalled,
    NotInTransaction,
    RetryTransaction,
    SymphonyError,
    UnknownRail,
)

__all__ = [
    "AlreadyTerminal",
    "ConnectionLost",
    "Enqueued",
    "Entry",
    "Event",
    "IdempotencyConflict",
    "IllegalTransition",
    "Instruction",
    "InvalidArgument",
    "InvalidState",
    "JsonText",
    "LeaseLost",
    "LockHeld",
    "MissingRole",
    "NotInTransaction",
    "NotInstalled",
    "Payload",
    "RetryTransaction",
    "SymphonyError",
    "UnknownRail",
]
