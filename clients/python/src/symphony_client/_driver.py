"""The functions of a driver's module, over the three things that drivers do differently."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NoReturn, TypeVar
from uuid import UUID

from . import _calls
from ._calls import Argument, Call, Row
from ._types import Enqueued, Entry, Event, Instruction
from .errors import NotInTransaction, classify

C = TypeVar("C")
T = TypeVar("T")


def _refuse_autocommit(begin: str) -> NoReturn:
    raise NotInTransaction(
        "the connection is in autocommit mode: this row would be committed without yours."
        f" Open a transaction around both: {begin}"
    )


class SyncDriver(ABC, Generic[C]):
    """The calls over a driver that blocks."""

    begin: str
    """How a program opens a transaction, for an error text."""

    @abstractmethod
    def _rows(self, connection: C, sql: str, arguments: tuple[Argument, ...]) -> Sequence[Row]: ...

    @abstractmethod
    def _autocommits(self, connection: C) -> bool: ...

    @abstractmethod
    def _lost(self, connection: C, error: Exception) -> bool: ...

    def _run(self, connection: C, call: Call[T]) -> T:
        try:
            if self._autocommits(connection):
                _refuse_autocommit(self.begin)
            return call.result(self._rows(connection, call.sql, call.arguments))
        except Exception as error:
            refused = classify(error, connection_lost=self._lost(connection, error))
            if refused is None:
                raise
            raise refused from error

    def enqueue(self, connection: C, instruction: Instruction) -> Enqueued:
        """Enqueues one instruction, or returns the outbox row that its idempotency key already has.

        The transaction locks the participant's sequence until it ends: other producers of that participant wait.
        Enqueue last, then commit.
        """
        return self._run(connection, _calls.enqueue(instruction))

    def enqueue_batch(self, connection: C, instructions: Sequence[Instruction]) -> list[Enqueued]:
        """Enqueues 1 to 500 instructions in one statement: all of them, or none and an error.

        The results are in the order of the instructions. A repeated instruction with the same key is a replay of the
        first.
        """
        return self._run(connection, _calls.enqueue_batch(instructions))

    def set_traceparent(self, connection: C, traceparent: str) -> None:
        """Sets the W3C ``traceparent`` of what this transaction enqueues from now on.

        The dispatch then joins the trace of the request that caused it. The enqueue ignores a text that is no
        ``traceparent``.
        """
        return self._run(connection, _calls.set_traceparent(traceparent))

    def publish(self, connection: C, event: Event) -> int:
        """Publishes one event and returns its number, which is its deduplication key at a broker.

        There is no idempotency key: running a transaction again after its commit publishes the event again.
        """
        return self._run(connection, _calls.publish(event))

    def create_entry(self, connection: C, entry: Entry) -> UUID:
        """Creates one metadata entry and returns its id.

        Until the transaction ends, other producers of the same entity wait, so the later commit has the higher
        version. There is no idempotency key: running a transaction again after its commit creates another entry.
        """
        return self._run(connection, _calls.create_entry(entry))


class AsyncDriver(ABC, Generic[C]):
    """The same calls over a driver of asyncio."""

    begin: str

    @abstractmethod
    async def _rows(self, connection: C, sql: str, arguments: tuple[Argument, ...]) -> Sequence[Row]: ...

    @abstractmethod
    async def _autocommits(self, connection: C) -> bool: ...

    @abstractmethod
    def _lost(self, connection: C, error: Exception) -> bool: ...

    async def _run(self, connection: C, call: Call[T]) -> T:
        try:
            if await self._autocommits(connection):
                _refuse_autocommit(self.begin)
            return call.result(await self._rows(connection, call.sql, call.arguments))
        except Exception as error:
            refused = classify(error, connection_lost=self._lost(connection, error))
            if refused is None:
                raise
            raise refused from error

    async def enqueue(self, connection: C, instruction: Instruction) -> Enqueued:
        """Enqueues one instruction, or returns the outbox row that its idempotency key already has.

        The transaction locks the participant's sequence until it ends: other producers of that participant wait.
        Enqueue last, then commit.
        """
        return await self._run(connection, _calls.enqueue(instruction))

    async def enqueue_batch(self, connection: C, instructions: Sequence[Instruction]) -> list[Enqueued]:
        """Enqueues 1 to 500 instructions in one statement: all of them, or none and an error.

        The results are in the order of the instructions. A repeated instruction with the same key is a replay of the
        first.
        """
        return await self._run(connection, _calls.enqueue_batch(instructions))

    async def set_traceparent(self, connection: C, traceparent: str) -> None:
        """Sets the W3C ``traceparent`` of what this transaction enqueues from now on.

        The dispatch then joins the trace of the request that caused it. The enqueue ignores a text that is no
        ``traceparent``.
        """
        return await self._run(connection, _calls.set_traceparent(traceparent))

    async def publish(self, connection: C, event: Event) -> int:
        """Publishes one event and returns its number, which is its deduplication key at a broker.

        There is no idempotency key: running a transaction again after its commit publishes the event again.
        """
        return await self._run(connection, _calls.publish(event))

    async def create_entry(self, connection: C, entry: Entry) -> UUID:
        """Creates one metadata entry and returns its id.

        Until the transaction ends, other producers of the same entity wait, so the later commit has the higher
        version. There is no idempotency key: running a transaction again after its commit creates another entry.
        """
        return await self._run(connection, _calls.create_entry(entry))
