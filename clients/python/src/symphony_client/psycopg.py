"""The calls over a psycopg 3 connection, in its open transaction.

The module ``psycopg_async`` has the same for ``psycopg.AsyncConnection``.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection, RawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ._calls import Argument, Row
from ._driver import SyncDriver


class _Psycopg(SyncDriver[Connection[Any]]):
    begin = "with connection.transaction(): …"

    def _rows(self, connection: Connection[Any], sql: str, arguments: tuple[Argument, ...]) -> Sequence[Row]:
        with RawCursor(connection, row_factory=tuple_row) as cursor:
            return cursor.execute(sql.encode(), arguments).fetchall()

    def _autocommits(self, connection: Connection[Any]) -> bool:
        return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE

    def _lost(self, connection: Connection[Any], error: Exception) -> bool:
        return connection.closed


_driver = _Psycopg()
enqueue = _driver.enqueue
enqueue_batch = _driver.enqueue_batch
set_traceparent = _driver.set_traceparent
publish = _driver.publish
create_entry = _driver.create_entry
