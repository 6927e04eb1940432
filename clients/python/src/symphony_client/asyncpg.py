"""The calls over an asyncpg connection, or one from a pool, in its open transaction."""

from collections.abc import Sequence
from typing import Any, Protocol

from asyncpg import InterfaceError

from ._calls import Argument, Row
from ._driver import AsyncDriver


class Connection(Protocol):
    """What the calls need of ``asyncpg.Connection``. Connections of a pool have it too."""

    async def fetch(self, query: str, *args: Any) -> Any: ...
    def is_in_transaction(self) -> bool: ...
    def is_closed(self) -> bool: ...


class _Asyncpg(AsyncDriver[Connection]):
    begin = "async with connection.transaction(): …"

    async def _rows(self, connection: Connection, sql: str, arguments: tuple[Argument, ...]) -> Sequence[Row]:
        rows: Sequence[Row] = await connection.fetch(sql, *arguments)
        return rows

    async def _autocommits(self, connection: Connection) -> bool:
        return not connection.is_closed() and not connection.is_in_transaction()

    def _lost(self, connection: Connection, error: Exception) -> bool:
        try:
            return connection.is_closed()
        except InterfaceError:  # a pool has taken the closed connection back
            return True


_driver = _Asyncpg()
enqueue = _driver.enqueue
enqueue_batch = _driver.enqueue_batch
set_traceparent = _driver.set_traceparent
publish = _driver.publish
create_entry = _driver.create_entry
