"""``symphony install --print --no-transaction`` in Alembic and Django, each with a migration of the program beside it."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import alembic.command
import alembic.config
import django.db
import drivers
from database import Database, create_template
from django.db.migrations import RunSQL
from django.db.migrations.state import ProjectState

ENV = """\
from alembic import context
from sqlalchemy import create_engine
with create_engine(context.config.get_main_option("sqlalchemy.url")).begin() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
MIGRATION = """\
from pathlib import Path
from alembic import op
revision, down_revision = "1", None

def upgrade():
    op.execute(Path(__file__).with_name("symphony.sql").read_text())
    op.execute("create table afterwards (id int)")
"""


class MigrationTools(unittest.TestCase):
    def setUp(self) -> None:
        create_template()  # for the roles of the server, which every database shares
        self.database = Database(template="template0")
        self.addCleanup(self.database.drop)
        install = [os.environ["SYMPHONY"], "install", "--print", "--no-transaction"]
        self.statement = subprocess.run(install, check=True, capture_output=True, text=True).stdout

    def assert_installed(self) -> None:
        self.assertEqual(self.database.value("select to_regclass('public.afterwards')::text"), "afterwards")
        environment = {**os.environ, "DATABASE_URL": self.database.url}
        verified = subprocess.run([os.environ["SYMPHONY"], "verify"], env=environment, capture_output=True, text=True)
        self.assertEqual(verified.returncode, 0, verified.stdout)

    def upgrade(self, dialect: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "versions").mkdir()
            Path(folder, "env.py").write_text(ENV)
            Path(folder, "versions", "symphony.sql").write_text(self.statement)
            Path(folder, "versions", "1_symphony.py").write_text(MIGRATION)
            config = alembic.config.Config()
            config.set_main_option("script_location", folder)
            config.set_main_option("sqlalchemy.url", self.database.url.replace("postgres", dialect, 1))
            alembic.command.upgrade(config, "head")

    def test_alembic_over_psycopg(self) -> None:
        self.upgrade("postgresql+psycopg")
        self.assert_installed()

    def test_alembic_over_psycopg2(self) -> None:
        self.upgrade("postgresql+psycopg2")
        self.assert_installed()

    def test_django(self) -> None:
        drivers.use_database(self.database.url)
        connection = django.db.connections["default"]
        with connection.schema_editor() as editor:
            for sql in (self.statement, "create table afterwards (id int)"):
                RunSQL(sql).database_forwards("shop", editor, ProjectState(), ProjectState())
        connection.close()
        self.assert_installed()


if __name__ == "__main__":
    unittest.main()
