"""What a payload may be: no database is needed."""

import enum
import unittest
from decimal import Decimal
from typing import Any

from symphony_client import Entry, Event, Instruction, InvalidArgument, JsonText
from symphony_client._calls import create_entry, enqueue, publish
from symphony_client._payload import encode


class Currency(str, enum.Enum):
    EUR = "EUR"


class Number(enum.IntEnum):
    ONE = 1


class Payloads(unittest.TestCase):
    def refused(self, payload: Any) -> str:
        with self.assertRaises(InvalidArgument) as caught:
            encode("payload", payload)
        return caught.exception.message

    def test_a_decimal_is_a_string_without_an_exponent(self) -> None:
        for amount, text in (("10.50", '"10.50"'), ("1E+3", '"1000"'), ("-0.10", '"-0.10"'), ("1E-7", '"0.0000001"')):
            self.assertEqual(encode("payload", Decimal(amount)), text)
        for amount in ("NaN", "Infinity", "-Infinity"):
            self.assertIn("send a finite one", self.refused(Decimal(amount)))

    def test_a_float_is_refused_wherever_it_is(self) -> None:
        for payload, path in (
            (10.5, "payload"), ({"amount": 10.0}, "payload.amount"), ({"lines": [1, {"a": 1.5}]}, "payload.lines[1].a"),
            ({"amount": float("nan")}, "payload.amount"),
        ):
            self.assertTrue(self.refused(payload).startswith(f"{path} is a float, which cannot hold"), path)

    def test_a_float_is_refused_in_every_lane(self) -> None:
        payload: Any = {"total": 10.5}
        for call in (
            lambda: enqueue(Instruction("i", "p", "k", "sepa", payload)),
            lambda: publish(Event("order", "1", "OrderPlaced", payload)),
            lambda: create_entry(Entry("document", "1", payload)),
        ):
            with self.assertRaises(InvalidArgument):
                call()

    def test_what_json_does_not_have_is_refused_with_its_place(self) -> None:
        self.assertEqual(self.refused({"at": object()}), "payload.at is of type object, which JSON does not have: send a str")
        self.assertEqual(self.refused({"a": {1: 2}}), "payload.a has a key of type int: a JSON object has str keys only")
        self.assertIn("of type bytes", self.refused([b"x"]))
        self.assertIn("of type set", self.refused({1}))

    def test_a_payload_that_contains_itself_is_refused(self) -> None:
        loop: list[Any] = []
        loop.append(loop)
        self.assertEqual(self.refused(loop), "payload is nested too deeply, or contains itself")

    def test_subclasses_of_str_and_int_are_written_as_their_value(self) -> None:
        self.assertEqual(encode("payload", {Currency.EUR: Currency.EUR, "n": Number.ONE}), '{"EUR":"EUR","n":1}')

    def test_a_payload_is_not_printed(self) -> None:
        secret = "DE02"
        for shown in (
            Instruction("i", "p", "k", "sepa", {"iban": secret}), Event("order", "1", "OrderPlaced", {"iban": secret}),
            Entry("document", "1", {"iban": secret}), JsonText(f'{{"iban": "{secret}"}}'),
        ):
            self.assertNotIn(secret, repr(shown))

    def test_a_text_argument_must_be_a_str_that_postgresql_can_store(self) -> None:
        number: Any = 1
        for value, words in ((number, "must be a str"), ("a\0b", "NUL"), ("\ud800", "surrogate")):
            with self.assertRaises(InvalidArgument) as caught:
                enqueue(Instruction("i", value, "k", "sepa", {}))
            self.assertIn(words, caught.exception.message)
            self.assertTrue(caught.exception.message.startswith("participant_id "))


if __name__ == "__main__":
    unittest.main()
