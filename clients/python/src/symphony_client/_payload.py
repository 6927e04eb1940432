"""Payloads as JSON text that keeps every digit of an amount."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

from .errors import InvalidArgument


class JsonText:
    """A payload that is JSON text already. It is sent as it is, so that you decide how each number is written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"JsonText({len(self.text)} characters)"


Payload: TypeAlias = Mapping[str, object] | Sequence[object] | str | int | Decimal | None | JsonText
"""What JSON can hold, without ``float``. A ``Decimal`` becomes a JSON string, as rails require of an amount."""


def encode(name: str, payload: Payload) -> str:
    """Returns the JSON text of a payload. Refuses what JSON does not have, and every float."""
    if isinstance(payload, JsonText):
        return payload.text
    try:
        return _encode(name, payload)
    except RecursionError:
        raise InvalidArgument(f"{name} is nested too deeply, or contains itself") from None


def _encode(path: str, value: object) -> str:
    if isinstance(value, str):
        # Escapes all but ASCII, so that PostgreSQL, not the driver, refuses a surrogate or a NUL.
        return json.dumps(str.__str__(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise InvalidArgument(f"{path} is the Decimal {value}: send a finite one")
        return f'"{value:f}"'
    if isinstance(value, Mapping):
        return "{" + ",".join(_member(path, key, item) for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_encode(f"{path}[{place}]", item) for place, item in enumerate(value)) + "]"
    if isinstance(value, float):
        raise InvalidArgument(
            f"{path} is a float, which cannot hold every amount exactly: send a str or a Decimal;"
            " or, if the number is no amount, write the JSON yourself and send it as JsonText"
        )
    raise InvalidArgument(f"{path} is of type {type(value).__name__}, which JSON does not have: send a str")


def _member(path: str, key: object, value: object) -> str:
    if not isinstance(key, str):
        raise InvalidArgument(f"{path} has a key of type {type(key).__name__}: a JSON object has str keys only")
    return f"{json.dumps(str.__str__(key))}:{_encode(f'{path}.{key}', value)}"
