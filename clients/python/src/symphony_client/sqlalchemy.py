"""The calls over an SQLAlchemy ``Connection`` or ``Session``, in its open transaction, with any of its drivers.

The module ``sqlalchemy_async`` has the same for ``AsyncConnection`` and ``AsyncSession``.
"""

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ARRAY, Connection, Text, TextClause, bindparam, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, scoped_session

from ._calls import Argument, Row
from ._driver import SyncDriver

AnyConnection = Connection | Session | scoped_session[Any]


def statement(sql: str, arguments: tuple[Argument, ...]) -> TextClause:
    """The statement with its arguments bound. SQLAlchemy writes them in the style of the driver."""
    binds = [
        bindparam(f"p{place}", argument, type_=ARRAY(Text) if isinstance(argument, list) else Text())
        for place, argument in enumerate(arguments, 1)
    ]
    casts = re.sub(r"\$(\d)::(text(?:\[\])?)", r"cast(:p\1 as \2)", sql)
    return text(casts).bindparams(*binds)


class _Sqlalchemy(SyncDriver[AnyConnection]):
    begin = "with connection.begin(): …, without isolation_level=\"AUTOCOMMIT\""

    def _rows(self, connection: AnyConnection, sql: str, arguments: tuple[Argument, ...]) -> Sequence[Row]:
        return connection.execute(statement(sql, arguments)).all()

    def _autocommits(self, connection: AnyConnection) -> bool:
        core = connection if isinstance(connection, Connection) else connection.connection()
        return bool(getattr(core.connection.dbapi_connection, "autocommit", False))

    def _lost(self, connection: AnyConnection, error: Exception) -> bool:
        return isinstance(error, DBAPIError) and error.connection_invalidated


_driver = _Sqlalchemy()
enqueue = _driver.enqueue
enqueue_batch = _driver.enqueue_batch
set_traceparent = _driver.set_traceparent
publish = _driver.publish
create_entry = _driver.create_entry
