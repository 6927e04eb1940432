"""What a producer sends, and what it gets back."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from ._payload import Payload


# A payload may hold personal data, so no repr shows one.
@dataclass(frozen=True)
class Instruction:
    """One payment to enqueue. The fields are in the order of the SQL function ``symphony.enqueue_payment_outbox``."""

    instruction_id: str
    """The producer's own id of the payment."""
    participant_id: str
    """The merchant, customer or account whose payments are numbered in one sequence."""
    idempotency_key: str
    """The name under which the rail pays at most once. Use the same key on every repetition of this payment."""
    rail_type: str
    """The registered rail that dispatches it, such as ``sepa``."""
    payload: Payload = field(repr=False)
    """The JSON object that the rail receives."""
    not_before: datetime | None = None
    """Do not dispatch it before this time, which must have a time zone."""


@dataclass(frozen=True)
class Enqueued:
    """The outbox row of an instruction."""

    outbox_id: UUID
    sequence_id: int | None
    """Its position in the participant's sequence. ``None`` only in a replay, after the retention of its rows."""
    created_at: datetime
    """When it was enqueued, by the database's clock."""
    replayed: bool
    """Whether this was an idempotent replay: the key was known, and no row was added."""


@dataclass(frozen=True)
class Event:
    """A domain event of an aggregate. The fields are in the order of ``m10_recovery.publish_outbox``."""

    aggregate_type: str
    """The type of the aggregate, such as ``order``."""
    aggregate_id: str
    """The id of the aggregate within its type."""
    event_type: str
    """The type of the event, such as ``OrderPlaced``."""
    payload: Payload = field(repr=False)
    """The content of the event: any JSON."""


@dataclass(frozen=True)
class Entry:
    """One version of an entity's metadata, for a second store."""

    entity_type: str
    """The type of the entity, such as ``document``."""
    entity_id: str
    """The id of the entity within its type."""
    metadata: Payload = field(repr=False)
    """The metadata: any JSON."""
    max_retries: int | None = None
    """After how many failures the entry moves to the dead-letter queue, 1 to 100; ``None``: the database's default."""
