"""The calls over an SQLAlchemy ``AsyncConnection`` or ``AsyncSession``, in its open transaction."""

from collections.abc import Sequence

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from ._calls import Argument, Row
from ._driver import AsyncDriver
from .sqlalchemy import statement

AnyConnection = AsyncConnection | AsyncSession


class _SqlalchemyAsync(AsyncDriver[AnyConnection]):
    begin = "async with connection.begin(): …, without isolation_level=\"AUTOCOMMIT\""

    async def _rows(self, connection: AnyConnection, sql: str, arguments: tuple[Argument, ...]) -> Sequence[Row]:
        return (await connection.execute(statement(sql, arguments))).all()

    async def _autocommits(self, connection: AnyConnection) -> bool:
        core = connection if isinstance(connection, AsyncConnection) else await connection.connection()
        raw = await core.get_raw_connection()
        return bool(getattr(raw.dbapi_connection, "autocommit", False))

    def _lost(self, connection: AnyConnection, error: Exception) -> bool:
        return isinstance(error, DBAPIError) and error.connection_invalidated


_driver = _SqlalchemyAsync()
enqueue = _driver.enqueue
enqueue_batch = _driver.enqueue_batch
set_traceparent = _driver.set_traceparent
publish = _driver.publish
create_entry = _driver.create_entry
