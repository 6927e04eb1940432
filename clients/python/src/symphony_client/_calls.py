"""The SQL of each call, its arguments and its result, the same for every driver.

Each argument is sent as text and cast in the statement. So a codec that the program has set for ``jsonb`` does not
encode the payload a second time. Arguments have the names of the SQL functions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from ._payload import encode
from ._types import Enqueued, Entry, Event, Instruction
from .errors import InvalidArgument

Argument = str | list[str | None] | None
Row = Sequence[Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One statement with the parameters $1 to $n, each used once and in this order."""

    sql: str
    arguments: tuple[Argument, ...]
    result: Callable[[Sequence[Row]], T]


_ENQUEUE = """\
select outbox_id, sequence_id, created_at, replayed
from symphony.enqueue_payment_outbox(
  p_instruction_id => $1::text, p_participant_id => $2::text, p_idempotency_key => $3::text,
  p_rail_type => $4::text, p_payload => $5::text::jsonb, p_not_before => $6::text::timestamptz)"""

_ENQUEUE_BATCH = """\
select outbox_id, sequence_id, created_at, replayed
from symphony.enqueue_payment_outbox_batch(
  p_instruction_ids => $1::text[], p_participant_ids => $2::text[], p_idempotency_keys => $3::text[],
  p_rail_types => $4::text[], p_payloads => $5::text[]::jsonb[], p_not_befores => $6::text[]::timestamptz[])
order by "position\""""

_SET_TRACEPARENT = "select set_config('symphony.traceparent', $1::text, true)"

_PUBLISH = """\
select m10_recovery.publish_outbox(
  p_aggregate_type => $1::text, p_aggregate_id => $2::text, p_event_type => $3::text, p_payload => $4::text::jsonb)"""

_CREATE_ENTRY = """\
select symphony.create_metadata_entry(
  p_entity_type => $1::text, p_entity_id => $2::text, p_metadata => $3::text::jsonb)"""

_CREATE_ENTRY_WITH_MAX_RETRIES = """\
select symphony.create_metadata_entry(
  p_entity_type => $1::text, p_entity_id => $2::text, p_metadata => $3::text::jsonb, p_max_retries => $4::text::int)"""


def enqueue(instruction: Instruction) -> Call[Enqueued]:
    return Call(_ENQUEUE, _instruction("", instruction), lambda rows: Enqueued(*rows[0]))


def enqueue_batch(instructions: Sequence[Instruction]) -> Call[list[Enqueued]]:
    lines = [_instruction(f"instructions[{place}].", instruction) for place, instruction in enumerate(instructions)]
    columns = tuple([line[place] for line in lines] for place in range(6))
    return Call(_ENQUEUE_BATCH, columns, lambda rows: [Enqueued(*row) for row in rows])


def set_traceparent(traceparent: str) -> Call[None]:
    return Call(_SET_TRACEPARENT, (_text("traceparent", traceparent),), lambda rows: None)


def publish(event: Event) -> Call[int]:
    texts = _texts("", event, ("aggregate_type", "aggregate_id", "event_type"))
    return Call(_PUBLISH, (*texts, encode("payload", event.payload)), _first)


def create_entry(entry: Entry) -> Call[UUID]:
    arguments = (*_texts("", entry, ("entity_type", "entity_id")), encode("metadata", entry.metadata))
    if entry.max_retries is None:
        return Call(_CREATE_ENTRY, arguments, _first)
    return Call(_CREATE_ENTRY_WITH_MAX_RETRIES, (*arguments, str(entry.max_retries)), _first)


def _first(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def _instruction(where: str, instruction: Instruction) -> tuple[str | None, ...]:
    names = ("instruction_id", "participant_id", "idempotency_key", "rail_type")
    payload = encode(f"{where}payload", instruction.payload)
    return (*_texts(where, instruction, names), payload, _time(f"{where}not_before", instruction.not_before))


def _time(name: str, value: datetime | None) -> str | None:
    if value is not None and value.utcoffset() is None:
        raise InvalidArgument(f"{name} must have a time zone, such as datetime.timezone.utc")
    return None if value is None else value.isoformat()


def _texts(where: str, source: object, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_text(where + name, getattr(source, name)) for name in names)


def _text(name: str, value: object) -> str:
    """Refuses what drivers treat differently. PostgreSQL checks the rest."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a str, not of type {type(value).__name__}")
    if "\0" in value:
        raise InvalidArgument(f"{name} must not contain a NUL character, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} contains half of a surrogate pair, which UTF-8 does not have") from None
    return value
