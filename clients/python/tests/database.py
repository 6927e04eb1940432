"""A test database with Symphony, a registered rail, a business table, and logins that hold one role each.

Needs SYMPHONY_TEST_SERVER, the URL of a superuser on a private server, and SYMPHONY, the path of the program.
"""

import atexit
import os
import subprocess
from functools import cache
from itertools import count
from typing import Any

import psycopg
from psycopg import sql

SERVER = os.environ["SYMPHONY_TEST_SERVER"]
TEMPLATE = "symphony_python_template"
ROLES = ("symphony_ingest", "symphony_readonly")
_numbers = count(1)


def _url(database: str, login: str | None = None) -> str:
    before, _, _ = SERVER.rpartition("/")
    if login is not None:
        before = f"postgres://{login}@{before.rpartition('@')[2]}"
    return f"{before}/{database}"


@cache
def _server() -> psycopg.Connection[Any]:
    server = psycopg.connect(SERVER, autocommit=True)
    atexit.register(server.close)
    return server


@cache
def create_template() -> None:
    """Installs Symphony with its own program. Every test database is a copy."""
    _server().execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
    install = [os.environ["SYMPHONY"], "install"]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "DATABASE_URL": _url(TEMPLATE)})
    with psycopg.connect(_url(TEMPLATE)) as root:
        for role in ROLES:
            name = sql.Identifier(f"only_{role}")
            root.execute(sql.SQL("create role {} login").format(name))
            root.execute(sql.SQL("grant {} to {}").format(sql.Identifier(role), name))
        root.execute("create table orders (id text primary key, total numeric not null)")
        root.execute("grant all on orders to public")
        root.execute("select symphony.register_payment_rail('sepa', '{}', 'Ada', 'a test')")


class Database:
    """A copy of a database. ``root`` is a superuser, for what no login of Symphony may do."""

    def __init__(self, template: str = TEMPLATE) -> None:
        self.name = f"symphony_python_{next(_numbers)}"
        copy = sql.SQL("create database {} template {} strategy file_copy")
        _server().execute(copy.format(sql.Identifier(self.name), sql.Identifier(template)))
        self.url = _url(self.name)
        self.root = psycopg.connect(self.url, autocommit=True)

    def drop(self) -> None:
        self.root.close()
        _server().execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(self.name)))

    def login(self, role: str) -> str:
        """The URL of a login that holds this role of ROLES and no other."""
        return _url(self.name, f"only_{role}")

    def value(self, query: str, *arguments: str) -> Any:
        row = self.root.execute(query.encode(), arguments).fetchone()
        assert row is not None
        return row[0]

    def payment(self, column: str, participant: str, *arguments: str) -> Any:
        """A column of the only payment of a participant. The arguments are those of the column."""
        query = f"select {column} from symphony.payment_outbox_pending where participant_id = %s"
        return self.value(query, *arguments, participant)

    def counts(self, test: str) -> tuple[int, int, int, int]:
        """How many orders, payments, events and metadata entries a test has committed."""
        keys = {
            "orders": "id", "symphony.payment_outbox_pending": "participant_id", "m10_recovery.outbox": "aggregate_id",
            "symphony.metadata_outbox": "entity_id",
        }
        counted = [self.value(f"select count(*) from {table} where {key} = %s", test) for table, key in keys.items()]
        return counted[0], counted[1], counted[2], counted[3]
