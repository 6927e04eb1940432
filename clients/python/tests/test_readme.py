"""The examples of README.md work, and so do the types of this package for a program that calls it."""

import tempfile
import unittest
from pathlib import Path
from typing import Any

import drivers
from database import Database, create_template
from mypy import api
from readme import README, examples
from symphony_client import errors

OVER: tuple[type[drivers.Driver], ...] = (
    drivers.Psycopg, drivers.Asyncpg, drivers.SqlalchemySession, drivers.SqlalchemyAsyncSession, drivers.Django,
)
SETTINGS = str(README.with_name("pyproject.toml"))


def setUpModule() -> None:
    create_template()


class Readme(unittest.TestCase):
    def test_every_example_commits_an_order_and_its_payment(self) -> None:
        for example, over in zip(examples(), OVER, strict=True):
            with self.subTest(over.__name__):
                database, driver, names = Database(), over(), dict[str, Any]()
                exec(example, names)  # noqa: S102
                driver.run(self.place_order(driver, database, names["place_order"]))
                query = "select count(*) from orders join symphony.payment_outbox_pending on instruction_id = id"
                self.assertEqual(database.value(query), 1)
                database.drop()

    async def place_order(self, driver: drivers.Driver, database: Database, place_order: Any) -> None:
        async with driver.connect(database.login("symphony_ingest")) as connection:
            placed = place_order() if isinstance(driver, drivers.Django) else place_order(connection)
            if placed is not None:
                await placed

    def test_the_table_of_errors_is_complete(self) -> None:
        text = README.read_text()
        for name, error in vars(errors).items():
            if isinstance(error, type) and issubclass(error, errors.SymphonyError):
                self.assertIn(f"`{name}`", text)
        for sqlstate, error in errors._BY_SQLSTATE.items():
            self.assertRegex(text, rf"\| `{error.__name__}` \|[^|]*\b{sqlstate}\b")


class Types(unittest.TestCase):
    def mypy(self, *files: Path) -> tuple[str, int]:
        with tempfile.TemporaryDirectory() as cache:
            settings = ["--config-file", SETTINGS, "--cache-dir", cache, "--no-warn-unused-configs"]
            report, complaint, status = api.run([*settings, *map(str, files)])
        return report + complaint, status

    def test_package_tests_and_examples_pass_mypy_strict(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for number, example in enumerate(examples()):
                files.append(Path(folder, f"example_{number}.py"))
                files[-1].write_text(example)
            files.append(Path(folder, "wrong.py"))
            files[-1].write_text("import symphony_client\nsymphony_client.Event('order', 'order-1', 'OrderPlaced', 1.5)\n")
            report, status = self.mypy(README.with_name("src"), README.with_name("tests"), *files)
        # A float is wrong for the type checker too, where it can see it.
        self.assertIn("wrong.py:2: error: Argument 4 to \"Event\" has incompatible type \"float\"", report)
        self.assertEqual((status, report.count(": error:")), (1, 1), report)


if __name__ == "__main__":
    unittest.main()
