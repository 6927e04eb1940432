"""What a producer may rely on, over every driver."""

import functools
import unittest
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import drivers
from database import Database, create_template
from symphony_client import (
    AlreadyTerminal,
    ConnectionLost,
    Entry,
    Event,
    IdempotencyConflict,
    IllegalTransition,
    Instruction,
    InvalidArgument,
    InvalidState,
    JsonText,
    LeaseLost,
    MissingRole,
    NotInstalled,
    NotInTransaction,
    RetryTransaction,
    SymphonyError,
    UnknownRail,
)
from symphony_client.errors import classify

def setUpModule() -> None:
    create_template()


Scenario = Callable[["Calls"], Coroutine[Any, Any, None]]


def over_the_driver(scenario: Scenario) -> Callable[["Calls"], None]:
    @functools.wraps(scenario)
    def test(self: "Calls") -> None:
        self.driver.run(scenario(self))

    return test


class Calls(unittest.TestCase):
    """The scenarios. Each driver has a subclass, below, with one database: to copy one takes longer than a test.

    The rows of a test are those of its own order, participant, aggregate and entity.
    """

    driver: drivers.Driver
    database: Database

    @classmethod
    def setUpClass(cls) -> None:
        cls.database = Database()
        cls.addClassCleanup(cls.database.drop)

    def setUp(self) -> None:
        self.own = self.id().rpartition(".test_")[2]
        self.order = f"insert into orders values ('{self.own}', 10.50)"
        self.ingest = self.database.login("symphony_ingest")

    def instruction(self, number: int) -> Instruction:
        payload = {"amount": "10.50", "currency": "EUR", "number": number}
        return Instruction(f"{self.own}/{number}", self.own, f"key-{number}", "sepa", payload)

    def event(self) -> Event:
        return Event("order", self.own, "OrderPlaced", {"total": "10.50"})

    def entry(self) -> Entry:
        return Entry("document", self.own, {"title": "Contract"})

    async def do(self, url: str, name: str, *arguments: Any) -> Any:
        """One call in its own transaction."""
        async with self.driver.connect(url) as connection, self.driver.transaction(connection):
            return await self.driver.call(name, connection, *arguments)

    async def refused(self, error: type[SymphonyError], name: str, *arguments: Any) -> SymphonyError:
        with self.assertRaises(error) as caught:
            await self.do(self.ingest, name, *arguments)
        return caught.exception

    @over_the_driver
    async def test_rows_of_all_lanes_are_committed_with_the_business_row(self) -> None:
        async with self.driver.connect(self.ingest) as connection:
            async with self.driver.transaction(connection):
                await self.driver.execute(connection, self.order)
                enqueued = await self.driver.call("enqueue", connection, self.instruction(1))
                number = await self.driver.call("publish", connection, self.event())
                entry_id = await self.driver.call("create_entry", connection, self.entry())
                self.assertEqual(self.database.counts(self.own), (0, 0, 0, 0), "not visible before the commit")
        self.assertEqual(self.database.counts(self.own), (1, 1, 1, 1))
        self.assertEqual((enqueued.sequence_id, enqueued.replayed), (1, False))
        self.assertIsNotNone(enqueued.created_at.tzinfo)
        self.assertEqual(self.database.payment("outbox_id", self.own), enqueued.outbox_id)
        published = self.database.value("select id from m10_recovery.outbox where aggregate_id = %s", self.own)
        self.assertEqual(published, number)
        created = "select max_retries from symphony.metadata_outbox where id = %s"
        self.assertEqual(self.database.value(created, str(entry_id)), 20)

    @over_the_driver
    async def test_rows_of_all_lanes_are_rolled_back_with_the_business_row(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            async with self.driver.connect(self.ingest) as connection, self.driver.transaction(connection):
                await self.driver.execute(connection, self.order)
                await self.driver.call("enqueue", connection, self.instruction(1))
                await self.driver.call("publish", connection, self.event())
                await self.driver.call("create_entry", connection, self.entry())
                raise ZeroDivisionError
        self.assertEqual(self.database.counts(self.own), (0, 0, 0, 0))
        again = await self.do(self.ingest, "enqueue", self.instruction(2))
        self.assertEqual(again.sequence_id, 1, "the number was given back")

    @over_the_driver
    async def test_the_same_key_is_answered_with_the_same_outbox(self) -> None:
        first = await self.do(self.ingest, "enqueue", self.instruction(1))
        again = await self.do(self.ingest, "enqueue", self.instruction(1))
        self.assertEqual(again, replace(first, replayed=True))
        self.assertEqual(self.database.counts(self.own), (0, 1, 0, 0))

    @over_the_driver
    async def test_a_batch_answers_in_order_and_replays_what_is_known(self) -> None:
        known = await self.do(self.ingest, "enqueue", self.instruction(2))
        batch = [self.instruction(3), self.instruction(2), self.instruction(1), self.instruction(3)]
        answers = await self.do(self.ingest, "enqueue_batch", batch)
        self.assertEqual([answer.sequence_id for answer in answers], [2, 1, 3, 2])
        self.assertEqual([answer.replayed for answer in answers], [False, True, False, True])
        self.assertEqual(answers[1], replace(known, replayed=True))
        self.assertEqual(answers[3].outbox_id, answers[0].outbox_id)

    @over_the_driver
    async def test_a_batch_with_one_bad_instruction_names_its_position_and_enqueues_nothing(self) -> None:
        batch = [self.instruction(1), replace(self.instruction(2), rail_type="spea")]
        error = await self.refused(UnknownRail, "enqueue_batch", batch)
        self.assertIn("p_rail_type[2]", error.message)
        error = await self.refused(InvalidArgument, "enqueue_batch", [])
        self.assertEqual(error.sqlstate, "P7005")
        error = await self.refused(InvalidArgument, "enqueue_batch", [self.instruction(1)] * 501)
        self.assertEqual(error.sqlstate, "P7005")
        batch[1] = replace(self.instruction(2), payload={"lines": [{"amount": 0.1}]})
        error = await self.refused(InvalidArgument, "enqueue_batch", batch)
        self.assertTrue(error.message.startswith("instructions[1].payload.lines[0].amount is a float"), error)
        self.assertEqual(self.database.counts(self.own), (0, 0, 0, 0))

    @over_the_driver
    async def test_a_refusal_has_its_class_and_says_what_to_do_next(self) -> None:
        await self.do(self.ingest, "enqueue", self.instruction(1))
        another = replace(self.instruction(1), payload={"amount": "99.00"})
        conflict = await self.refused(IdempotencyConflict, "enqueue", another)
        self.assertEqual(conflict.sqlstate, "P7004")
        blank = await self.refused(InvalidArgument, "enqueue", replace(self.instruction(2), participant_id=" "))
        self.assertEqual((blank.sqlstate, str(blank)), ("P7005", "p_participant_id must not be blank"))
        rail = await self.refused(UnknownRail, "enqueue", replace(self.instruction(2), rail_type="spea"))
        self.assertEqual(rail.sqlstate, "P7006")
        for error in (conflict, rail):
            assert error.hint is not None
            self.assertIn(error.hint.rstrip("."), str(error))
            self.assertIsNotNone(error.__cause__, "the driver's error")
            self.assertNotIsInstance(error.__cause__, SymphonyError)
        # PostgreSQL's own: jsonb cannot hold this character.
        nul = await self.refused(InvalidArgument, "publish", replace(self.event(), payload="\0"))
        self.assertEqual(nul.sqlstate, "22P05")
        retries = await self.refused(InvalidArgument, "create_entry", replace(self.entry(), max_retries=101))
        self.assertIn("p_max_retries must be from 1 to 100", retries.message)
        huge = await self.refused(InvalidArgument, "create_entry", replace(self.entry(), max_retries=2**40))
        self.assertEqual(huge.sqlstate, "22003")
        self.assertEqual(self.database.counts(self.own), (0, 1, 0, 0))

    @over_the_driver
    async def test_errors_of_other_functions_are_classified(self) -> None:
        await self.do(self.ingest, "enqueue", self.instruction(1))
        await self.do(self.ingest, "create_entry", self.entry())
        await self.classified(InvalidState, "P7003", "select symphony.retire_payment_rail('sepa', 'Ada', 'a test')")
        claim = "select array[outbox_id, lease_token]::text[] from symphony.claim_outbox_batch(1, 'worker', 60)"
        outbox, token = self.database.value(claim)
        complete = f"select symphony.complete_outbox_attempt('{outbox}', '{token}', '%s', 'DISPATCHED')"
        await self.classified(LeaseLost, "P7002", complete % "another worker")
        self.database.value(complete % "worker")
        await self.classified(AlreadyTerminal, "P7001", complete % "worker")
        move = "update symphony.metadata_outbox set status = 'PUBLISHED'"
        await self.classified(IllegalTransition, "P7007", move)

    async def classified(self, error: type[SymphonyError], sqlstate: str, query: str) -> None:
        with self.assertRaises(Exception) as caught:
            async with self.driver.connect(self.database.url) as root, self.driver.transaction(root):
                await self.driver.execute(root, query)
        found = classify(caught.exception)
        assert type(found) is error, (found, caught.exception)
        self.assertEqual(found.sqlstate, sqlstate)

    @over_the_driver
    async def test_a_payload_comes_out_as_it_went_in_with_every_digit(self) -> None:
        payload = {
            "amount": Decimal("100000000000000000.010"), "small": Decimal("1E-7"), "note": "Zoë 😀 \\ \" ' % :x $1",
            "whole": 2**70, "flags": [True, False, None], "nested": {"a": ({"b": ""},)},
        }
        await self.do(self.ingest, "enqueue", replace(self.instruction(1), payload=payload))
        self.assertEqual(self.database.payment("payload", self.own), {
            **payload, "amount": "100000000000000000.010", "small": "0.0000001", "nested": {"a": [{"b": ""}]},
        })

    @over_the_driver
    async def test_json_text_is_sent_as_it_is(self) -> None:
        text = '{"amount": 100000000000000000.010}'
        await self.do(self.ingest, "enqueue", replace(self.instruction(1), payload=JsonText(text)))
        self.assertEqual(self.database.payment("payload::text", self.own), text)
        error = await self.refused(InvalidArgument, "enqueue", replace(self.instruction(2), payload=JsonText("{")))
        self.assertEqual(error.sqlstate, "22P02")

    @over_the_driver
    async def test_texts_of_all_kinds_arrive_unchanged(self) -> None:
        text = f"Zoë 😀 \\ \" ' % :x $1 {{}},NULL {self.own}"
        odd = replace(self.instruction(1), instruction_id=text, participant_id=text, idempotency_key=text)
        await self.do(self.ingest, "enqueue_batch", [odd])
        again = await self.do(self.ingest, "enqueue", odd)
        self.assertTrue(again.replayed)
        for column in ("instruction_id", "participant_id", "idempotency_key"):
            self.assertEqual(self.database.payment(column, text), text)

    @over_the_driver
    async def test_a_scheduled_payment_keeps_its_time(self) -> None:
        time = datetime.now(timezone(timedelta(hours=2))) + timedelta(days=1)
        scheduled = replace(self.instruction(1), not_before=time)
        await self.do(self.ingest, "enqueue", scheduled)
        await self.do(self.ingest, "enqueue_batch", [self.instruction(2), replace(self.instruction(3), not_before=time)])
        due = self.database.payment("array_agg(next_attempt_at = %s order by sequence_id)", self.own, str(time))
        self.assertEqual(due, [True, False, True])
        naive = replace(scheduled, not_before=time.replace(tzinfo=None))
        error = await self.refused(InvalidArgument, "enqueue", naive)
        self.assertEqual(error.message, "not_before must have a time zone, such as datetime.timezone.utc")

    @over_the_driver
    async def test_a_traceparent_is_kept_beside_what_its_transaction_enqueues(self) -> None:
        traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        async with self.driver.connect(self.ingest) as connection:
            async with self.driver.transaction(connection):
                await self.driver.call("set_traceparent", connection, traceparent)
                await self.driver.call("enqueue", connection, self.instruction(1))
            async with self.driver.transaction(connection):
                await self.driver.call("enqueue", connection, self.instruction(2))
        kept = self.database.payment("array_agg(traceparent::text order by sequence_id)", self.own)
        self.assertEqual(kept, [traceparent, None])

    @over_the_driver
    async def test_autocommit_is_refused_before_anything_is_sent(self) -> None:
        async with self.driver.connect(self.ingest, autocommit=True) as connection:
            for name, argument in (("enqueue", self.instruction(1)), ("publish", self.event()), ("create_entry", self.entry())):
                with self.assertRaises(NotInTransaction) as caught:
                    await self.driver.call(name, connection, argument)
                self.assertIn("Open a transaction around both: ", str(caught.exception))
        self.assertEqual(self.database.counts(self.own), (0, 0, 0, 0))

    @over_the_driver
    async def test_a_missing_role_is_named(self) -> None:
        with self.assertRaises(MissingRole) as caught:
            await self.do(self.database.login("symphony_readonly"), "enqueue", self.instruction(1))
        self.assertIn("grant symphony_ingest to the login", str(caught.exception))

    @over_the_driver
    async def test_a_database_without_symphony_is_named(self) -> None:
        empty = Database(template="template0")
        self.addCleanup(empty.drop)
        with self.assertRaises(NotInstalled) as caught:
            await self.do(empty.login("symphony_readonly"), "enqueue", self.instruction(1))
        self.assertIn("run: symphony install", str(caught.exception))

    @over_the_driver
    async def test_a_serialization_failure_asks_for_the_whole_transaction(self) -> None:
        another = f"select symphony.enqueue_payment_outbox('i', '{self.own}', '{self.own}', 'sepa', '{{}}')"
        with self.assertRaises(RetryTransaction) as caught:
            async with self.driver.connect(self.ingest) as connection, self.driver.transaction(connection):
                await self.driver.execute(connection, "set transaction isolation level repeatable read")
                await self.driver.execute(connection, "select 1")
                self.database.root.execute(another.encode())
                await self.driver.call("enqueue", connection, self.instruction(1))
        self.assertEqual(caught.exception.sqlstate, "40001")
        self.assertIn("Run the whole transaction again", str(caught.exception))

    @over_the_driver
    async def test_a_lost_connection_says_how_to_continue(self) -> None:
        end = "select bool_and(pg_terminate_backend(pid, 5000)) from pg_stat_activity where usename = 'only_symphony_ingest'"
        lost = None
        try:
            async with self.driver.connect(self.ingest) as connection, self.driver.transaction(connection):
                await self.driver.execute(connection, "select 1")
                self.assertTrue(self.database.value(end))
                try:
                    await self.driver.call("enqueue", connection, self.instruction(1))
                except SymphonyError as error:
                    lost = error
        except Exception:
            pass  # the driver's, about the rollback or the commit
        self.assertIs(type(lost), ConnectionLost)
        self.assertIn("with the same idempotency keys", str(lost))


def load_tests(loader: unittest.TestLoader, _tests: object, _pattern: object) -> unittest.TestSuite:
    suites = []
    for driver in drivers.ALL:
        tests = type(f"Over{driver.__name__}", (Calls,), {"driver": driver()})
        suites.append(loader.loadTestsFromTestCase(tests))
    return unittest.TestSuite(suites)


if __name__ == "__main__":
    unittest.main()
