"""Every supported driver behind one interface, so that the scenarios are written once."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any

import asyncpg
import django
import django.conf
import django.db
import psycopg
import sqlalchemy
import symphony_client.asyncpg
import symphony_client.django
import symphony_client.psycopg
import symphony_client.psycopg_async
import symphony_client.sqlalchemy
import symphony_client.sqlalchemy_async
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

django.conf.settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, USE_TZ=True)
django.setup()


class Driver(ABC):
    calls: ModuleType

    @abstractmethod
    def connect(self, url: str, autocommit: bool = False) -> AbstractAsyncContextManager[Any]: ...

    @abstractmethod
    def transaction(self, connection: Any) -> AbstractAsyncContextManager[Any]: ...

    @abstractmethod
    async def execute(self, connection: Any, query: str) -> None: ...

    async def call(self, name: str, connection: Any, *arguments: Any) -> Any:
        result = getattr(self.calls, name)(connection, *arguments)
        return await result if asyncio.iscoroutine(result) else result

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        """Runs a scenario that never waits: Django refuses a thread that runs an event loop."""
        try:
            scenario.send(None)
        except StopIteration:
            return
        raise AssertionError("a blocking driver has waited")


class AsyncDriver(Driver):
    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        asyncio.run(scenario)


class Psycopg(Driver):
    calls = symphony_client.psycopg

    @asynccontextmanager
    async def connect(self, url: str, autocommit: bool = False) -> AsyncIterator[Any]:
        with psycopg.connect(url, autocommit=autocommit, row_factory=psycopg.rows.dict_row) as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self, connection: Any) -> AsyncIterator[Any]:
        with connection.transaction():
            yield connection

    async def execute(self, connection: Any, query: str) -> None:
        connection.execute(query)


class PsycopgAsync(AsyncDriver):
    calls = symphony_client.psycopg_async

    @asynccontextmanager
    async def connect(self, url: str, autocommit: bool = False) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(url, autocommit=autocommit) as connection:
            yield connection

    def transaction(self, connection: Any) -> Any:
        return connection.transaction()

    async def execute(self, connection: Any, query: str) -> None:
        await connection.execute(query)


class Asyncpg(AsyncDriver):
    calls = symphony_client.asyncpg

    @asynccontextmanager
    async def connect(self, url: str, autocommit: bool = False) -> AsyncIterator[Any]:
        # A pool, and a codec that many programs set: the calls must not encode a payload twice.
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
            await connection.set_type_codec("jsonb", encoder=repr, decoder=repr, schema="pg_catalog")
            yield connection

    def transaction(self, connection: Any) -> Any:
        return connection.transaction()

    async def execute(self, connection: Any, query: str) -> None:
        await connection.execute(query)


class SqlalchemyCore(Driver):
    calls = symphony_client.sqlalchemy
    dialect = "postgresql+psycopg"

    @asynccontextmanager
    async def connect(self, url: str, autocommit: bool = False) -> AsyncIterator[Any]:
        isolation: Any = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        engine = sqlalchemy.create_engine(url.replace("postgres", self.dialect, 1), **isolation)
        try:
            with self.open(engine) as connection:
                yield connection
        finally:
            engine.dispose()

    def open(self, engine: sqlalchemy.Engine) -> sqlalchemy.Connection | Session:
        return engine.connect()

    @asynccontextmanager
    async def transaction(self, connection: Any) -> AsyncIterator[Any]:
        with connection.begin():
            yield connection

    async def execute(self, connection: Any, query: str) -> None:
        connection.execute(sqlalchemy.text(query))


class SqlalchemySession(SqlalchemyCore):
    """The ORM, over psycopg 2."""

    dialect = "postgresql+psycopg2"

    def open(self, engine: sqlalchemy.Engine) -> Session:
        return Session(engine)


class SqlalchemyAsyncCore(AsyncDriver):
    calls = symphony_client.sqlalchemy_async
    dialect = "postgresql+asyncpg"

    @asynccontextmanager
    async def connect(self, url: str, autocommit: bool = False) -> AsyncIterator[Any]:
        isolation: Any = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        engine = create_async_engine(url.replace("postgres", self.dialect, 1), **isolation)
        try:
            async with self.open(engine) as connection:
                yield connection
        finally:
            await engine.dispose()

    def open(self, engine: Any) -> Any:
        return engine.connect()

    def transaction(self, connection: Any) -> Any:
        return connection.begin()

    async def execute(self, connection: Any, query: str) -> None:
        await connection.execute(sqlalchemy.text(query))


class SqlalchemyAsyncSession(SqlalchemyAsyncCore):
    """The ORM, over psycopg 3."""

    dialect = "postgresql+psycopg_async"

    def open(self, engine: Any) -> AsyncSession:
        return AsyncSession(engine)


def use_database(url: str) -> None:
    """Points Django to a database, for its next connection."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user"}
    django.db.connections["default"].settings_dict |= {name: parts[part] for name, part in names.items()}


class Django(Driver):
    calls = symphony_client.django

    @asynccontextmanager
    async def connect(self, url: str, autocommit: bool = False) -> AsyncIterator[Any]:
        del autocommit  # Django's default: only atomic() makes a transaction
        use_database(url)
        connection = django.db.connections["default"]
        try:
            yield connection
        finally:
            connection.close()

    @asynccontextmanager
    async def transaction(self, connection: Any) -> AsyncIterator[Any]:
        with django.db.transaction.atomic():
            yield connection

    async def execute(self, connection: Any, query: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(query)


ALL: tuple[type[Driver], ...] = (
    Psycopg, PsycopgAsync, Asyncpg, SqlalchemyCore, SqlalchemySession, SqlalchemyAsyncCore, SqlalchemyAsyncSession,
    Django,
)
