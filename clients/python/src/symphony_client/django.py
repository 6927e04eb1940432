"""The calls over a connection of Django, inside ``transaction.atomic()``: ``from django.db import connection``.

Of several databases, pass ``django.db.connections["name"]``. In an async view call them by ``sync_to_async``, together
with the rest of the transaction.
"""

import re
from collections.abc import Sequence
from typing import Any, Protocol

from ._calls import Argument, Row
from ._driver import SyncDriver


class Connection(Protocol):
    """What the calls need of Django's connection, with psycopg 2 or 3."""

    connection: Any
    in_atomic_block: bool

    def cursor(self) -> Any: ...
    def get_autocommit(self) -> bool: ...


class _Django(SyncDriver[Connection]):
    begin = "with transaction.atomic(): …"

    def _rows(self, connection: Connection, sql: str, arguments: tuple[Argument, ...]) -> Sequence[Row]:
        with connection.cursor() as cursor:
            cursor.execute(re.sub(r"\$\d", "%s", sql), arguments)
            rows: Sequence[Row] = cursor.fetchall()
            return rows

    def _autocommits(self, connection: Connection) -> bool:
        return not connection.in_atomic_block and connection.get_autocommit()

    def _lost(self, connection: Connection, error: Exception) -> bool:
        return connection.connection is not None and bool(connection.connection.closed)


_driver = _Django()
enqueue = _driver.enqueue
enqueue_batch = _driver.enqueue_batch
set_traceparent = _driver.set_traceparent
publish = _driver.publish
create_entry = _driver.create_entry
