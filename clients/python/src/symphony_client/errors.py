"""Why a call failed, by what the caller can do next.

The SQLSTATE decides the class, whatever the driver. Each error keeps PostgreSQL's message, detail and hint, and the
driver's error as ``__cause__``. This package never retries: the caller decides. After an error the transaction has
failed, as after any PostgreSQL error. An error that has no class here is raised as the driver's own.
"""

from collections.abc import Iterator
from typing import Any, ClassVar


class SymphonyError(Exception):
    """The base of all errors of this package."""

    sqlstate: str | None
    """PostgreSQL's SQLSTATE; ``None`` if no statement was sent or the connection was lost."""
    message: str
    """What is wrong, in one sentence."""
    detail: str | None
    hint: str | None
    """What to do next, in PostgreSQL's words."""
    next_step: ClassVar[str] = ""
    """What to do next, if PostgreSQL sent no hint."""

    def __init__(
        self, message: str, *, sqlstate: str | None = None, detail: str | None = None, hint: str | None = None
    ) -> None:
        parts = [message, detail, hint or self.next_step]
        super().__init__(". ".join(part.rstrip(".") for part in parts if part))
        self.message = message
        self.sqlstate = sqlstate
        self.detail = detail
        self.hint = hint


class AlreadyTerminal(SymphonyError):
    """P7001: the row already has its terminal state."""

    next_step = "Drop the call: nothing more happens to this row"


class LeaseLost(SymphonyError):
    """P7002: the lease expired, was taken over, or belongs to another token or worker."""

    next_step = "Drop the result: another worker has the row, or will have it"


class InvalidState(SymphonyError):
    """P7003: the state of the row does not allow the call."""

    next_step = "Read the row and decide again"


class IdempotencyConflict(SymphonyError):
    """P7004: the idempotency key belongs to another participant, rail or payload."""

    next_step = "Send the first payload again, or use a new key for a new payment"


class InvalidArgument(SymphonyError):
    """P7005, or class 22: an argument is blank, too long, out of range or not JSON that PostgreSQL can store.

    This package raises it too, with ``sqlstate`` None, for what it cannot send, such as a float.
    """


class UnknownRail(SymphonyError):
    """P7006: the rail is not registered, or was retired."""

    next_step = "Check the spelling, or ask an operator to register the rail"


class IllegalTransition(SymphonyError):
    """P7007: a metadata entry may not change from its status to the requested one."""

    next_step = "Use the functions of the schema"


class RetryTransaction(SymphonyError):
    """40001 or 40P01: a serialization failure or a deadlock."""

    next_step = "Run the whole transaction again"


class LockHeld(SymphonyError):
    """55P03: another session held a lock for longer than this call waits."""

    next_step = "Run the whole transaction again when the other session has ended"


class MissingRole(SymphonyError):
    """42501: the login lacks the role for this call."""

    next_step = "Ask a DBA to run: grant symphony_ingest to the login that you connect as"


class NotInstalled(SymphonyError):
    """3F000, 42P01 or 42883: Symphony is not installed in this database, or in an older version."""

    next_step = "Check the address, then run: symphony install"


class ConnectionLost(SymphonyError):
    """The connection was lost, and with it the transaction. A lost COMMIT may have taken effect."""

    next_step = (
        "Run the whole transaction again, with the same idempotency keys: if it was committed, an enqueue is a replay;"
        " for events and metadata entries, check first whether your own rows are there"
    )


class NotInTransaction(SymphonyError):
    """The connection is in autocommit mode: the call would be committed without your rows. No statement was sent."""


_BY_SQLSTATE: dict[str, type[SymphonyError]] = {
    "P7001": AlreadyTerminal,
    "P7002": LeaseLost,
    "P7003": InvalidState,
    "P7004": IdempotencyConflict,
    "P7005": InvalidArgument,
    "P7006": UnknownRail,
    "P7007": IllegalTransition,
    "40001": RetryTransaction,
    "40P01": RetryTransaction,
    "55P03": LockHeld,
    "42501": MissingRole,
    "3F000": NotInstalled,
    "42P01": NotInstalled,
    "42883": NotInstalled,
}
# The server ended the session: a shutdown, or a timeout of the session.
_CONNECTION_ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")


def classify(error: BaseException, *, connection_lost: bool = False) -> SymphonyError | None:
    """Returns the error of this package for a driver's error, or ``None`` if it has no class here.

    The calls of this package do it for you. Use it around a COMMIT, or around another SQL function of Symphony::

        except psycopg.Error as error:
            raise classify(error) or error
    """
    sqlstate, message, detail, hint = _fields(error)
    if connection_lost or _is_connection_failure(sqlstate):
        return ConnectionLost(f"the connection was lost ({message})", sqlstate=sqlstate, detail=detail, hint=None)
    if sqlstate is None:
        return None
    found = InvalidArgument if sqlstate.startswith("22") else _BY_SQLSTATE.get(sqlstate)
    return None if found is None else found(message, sqlstate=sqlstate, detail=detail, hint=hint)


def _is_connection_failure(sqlstate: str | None) -> bool:
    return sqlstate is not None and (sqlstate.startswith("08") or sqlstate in _CONNECTION_ENDED)


def _fields(error: BaseException) -> tuple[str | None, str, str | None, str | None]:
    """SQLSTATE, message, detail and hint. SQLAlchemy and Django wrap the driver's error."""
    for wrapped in _wrapped(error):
        source: Any = wrapped
        if diag := getattr(source, "diag", None):  # psycopg 2 and 3
            if diag.sqlstate:
                return diag.sqlstate, diag.message_primary or "", diag.message_detail, diag.message_hint
        elif getattr(source, "sqlstate", None) and hasattr(source, "hint"):  # asyncpg
            return source.sqlstate, source.message, source.detail, source.hint
        elif source.args and isinstance(source.args[0], dict):  # pg8000
            fields = source.args[0]
            return fields.get("C"), fields.get("M", ""), fields.get("D"), fields.get("H")
    return None, str(error), None, None


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(8):
        if found is None:
            return
        yield found
        found = getattr(found, "orig", None) or found.__cause__
