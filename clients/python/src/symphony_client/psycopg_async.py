"""The calls over a ``psycopg.AsyncConnection``, in its open transaction."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ._calls import Argument, Row
from ._driver import AsyncDriver


class _PsycopgAsync(AsyncDriver[AsyncConnection[Any]]):
    begin = "async with connection.transaction(): …"

    async def _rows(
        self, connection: AsyncConnection[Any], sql: str, arguments: tuple[Argument, ...]
    ) -> Sequence[Row]:
        async with AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql.encode(), arguments)
            return await cursor.fetchall()

    async def _autocommits(self, connection: AsyncConnection[Any]) -> bool:
        return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE

    def _lost(self, connection: AsyncConnection[Any], error: Exception) -> bool:
        return connection.closed


_driver = _PsycopgAsync()
enqueue = _driver.enqueue
enqueue_batch = _driver.enqueue_batch
set_traceparent = _driver.set_traceparent
publish = _driver.publish
create_entry = _driver.create_entry
