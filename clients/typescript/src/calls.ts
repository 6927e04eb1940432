/**
 * The calls: each runs one SQL function in the open transaction of a connection.
 *
 * Every parameter is a text that the statement casts, and every number and time comes back as a text. So no type parser
 * or column name transform that the program has set for its driver changes a value.
 */

import { classify, InvalidArgumentError } from "./errors.js";
import { encode, type Payload } from "./payload.js";
import type { Queryable, Row } from "./queryable.js";

/** One payment to enqueue. */
export interface Instruction {
  /** The producer's own id of the payment. */
  instructionId: string;
  /** The merchant, customer or account whose payments are numbered in one sequence. */
  participantId: string;
  /** The name under which the rail pays at most once. Use the same key on every repetition of this payment. */
  idempotencyKey: string;
  /** The registered rail that dispatches it, such as `sepa`. */
  railType: string;
  /** The JSON object that the rail receives. */
  payload: Payload;
  /** Do not dispatch it before this time. */
  notBefore?: Date | undefined;
}

/** The outbox row of an instruction. */
export interface Enqueued {
  /** A UUID. */
  outboxId: string;
  /** Its position in the participant's sequence. Null only in a replay, after the retention of its rows. */
  sequenceId: bigint | null;
  /** When it was enqueued, by the database's clock, to the millisecond. */
  createdAt: Date;
  /** Whether this was an idempotent replay: the key was known, and no row was added. */
  replayed: boolean;
}

/** A domain event of an aggregate. */
export interface OutboxEvent {
  /** The type of the aggregate, such as `order`. */
  aggregateType: string;
  /** The id of the aggregate within its type. */
  aggregateId: string;
  /** The type of the event, such as `OrderPlaced`. */
  eventType: string;
  /** The content of the event: any JSON. */
  payload: Payload;
}

/** One version of an entity's metadata, for a second store. */
export interface Entry {
  /** The type of the entity, such as `document`. */
  entityType: string;
  /** The id of the entity within its type. */
  entityId: string;
  /** The metadata: any JSON. */
  metadata: Payload;
  /** After how many failures the entry moves to the dead-letter queue, 1 to 100; the database has a default. */
  maxRetries?: number | undefined;
}

const COLUMNS = `outbox_id::text as outbox, sequence_id::text as sequence, replayed,
  to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as created`;

const ENQUEUE = `select ${COLUMNS}
from symphony.enqueue_payment_outbox(
  p_instruction_id => $1::text, p_participant_id => $2::text, p_idempotency_key => $3::text,
  p_rail_type => $4::text, p_payload => $5::text::jsonb, p_not_before => nullif($6::text, '')::timestamptz)`;

// One parameter, because drivers write arrays differently: a JSON array with an array of six for each instruction.
const ENQUEUE_BATCH = `select ${COLUMNS}
from (
  select array_agg(i.line ->> 0 order by i.place) as instruction_ids,
         array_agg(i.line ->> 1 order by i.place) as participant_ids,
         array_agg(i.line ->> 2 order by i.place) as idempotency_keys,
         array_agg(i.line ->> 3 order by i.place) as rail_types,
         array_agg(i.line -> 4 order by i.place) as payloads,
         array_agg(nullif(i.line ->> 5, '')::timestamptz order by i.place) as not_befores
  from jsonb_array_elements($1::text::jsonb) with ordinality as i (line, place)
) a
cross join lateral symphony.enqueue_payment_outbox_batch(
  p_instruction_ids => a.instruction_ids, p_participant_ids => a.participant_ids,
  p_idempotency_keys => a.idempotency_keys, p_rail_types => a.rail_types, p_payloads => a.payloads,
  p_not_befores => a.not_befores)
order by "position"`;

const SET_TRACEPARENT = "select set_config('symphony.traceparent', $1::text, true)";

const PUBLISH = `select m10_recovery.publish_outbox(
  p_aggregate_type => $1::text, p_aggregate_id => $2::text, p_event_type => $3::text,
  p_payload => $4::text::jsonb)::text as id`;

const CREATE_ENTRY = `select symphony.create_metadata_entry(
  p_entity_type => $1::text, p_entity_id => $2::text, p_metadata => $3::text::jsonb)::text as id`;

const CREATE_ENTRY_WITH_MAX_RETRIES = `select symphony.create_metadata_entry(
  p_entity_type => $1::text, p_entity_id => $2::text, p_metadata => $3::text::jsonb,
  p_max_retries => $4::text::int)::text as id`;

/**
 * Enqueues one instruction, or returns the outbox row that its idempotency key already has.
 *
 * The transaction locks the participant's sequence until it ends: other producers of that participant wait. Enqueue
 * last, then commit.
 */
export async function enqueue(connection: Queryable, instruction: Instruction): Promise<Enqueued> {
  const rows = await run(connection, ENQUEUE, [
    ...namesOf("", instruction),
    encode("payload", instruction.payload),
    time("notBefore", instruction.notBefore),
  ]);
  return enqueued(rows[0] as Row);
}

/**
 * Enqueues 1 to 500 instructions in one statement: all of them, or none and an error.
 *
 * The results are in the order of the instructions. A repeated instruction with the same key is a replay of the first.
 */
export async function enqueueBatch(connection: Queryable, instructions: readonly Instruction[]): Promise<Enqueued[]> {
  const lines = instructions.map((instruction, place) => {
    const where = `instructions[${place}].`;
    const names = namesOf(where, instruction).map((name) => JSON.stringify(name));
    const notBefore = JSON.stringify(time(`${where}notBefore`, instruction.notBefore));
    return `[${names.join()},${encode(`${where}payload`, instruction.payload)},${notBefore}]`;
  });
  const rows = await run(connection, ENQUEUE_BATCH, [`[${lines.join()}]`]);
  return rows.map(enqueued);
}

/**
 * Sets the W3C `traceparent` of what this transaction enqueues from now on.
 *
 * The dispatch then joins the trace of the request that caused it. The enqueue ignores a text that is no `traceparent`.
 */
export async function setTraceparent(connection: Queryable, traceparent: string): Promise<void> {
  await run(connection, SET_TRACEPARENT, [text("traceparent", traceparent)]);
}

/**
 * Publishes one event and returns its number, which is its deduplication key at a broker.
 *
 * There is no idempotency key: running a transaction again after its commit publishes the event again.
 */
export async function publish(connection: Queryable, event: OutboxEvent): Promise<bigint> {
  const rows = await run(connection, PUBLISH, [
    text("aggregateType", event.aggregateType),
    text("aggregateId", event.aggregateId),
    text("eventType", event.eventType),
    encode("payload", event.payload),
  ]);
  return BigInt(rows[0]?.["id"] as string);
}

/**
 * Creates one metadata entry and returns its id, a UUID.
 *
 * Until the transaction ends, other producers of the same entity wait, so the later commit has the higher version.
 * There is no idempotency key: running a transaction again after its commit creates another entry.
 */
export async function createEntry(connection: Queryable, entry: Entry): Promise<string> {
  const values = [
    text("entityType", entry.entityType),
    text("entityId", entry.entityId),
    encode("metadata", entry.metadata),
  ];
  const rows =
    entry.maxRetries === undefined
      ? await run(connection, CREATE_ENTRY, values)
      : await run(connection, CREATE_ENTRY_WITH_MAX_RETRIES, [...values, `${entry.maxRetries}`]);
  return rows[0]?.["id"] as string;
}

async function run(connection: Queryable, sql: string, values: readonly string[]): Promise<readonly Row[]> {
  try {
    return await connection.query(sql, values);
  } catch (error) {
    throw classify(error) ?? error;
  }
}

function enqueued(row: Row): Enqueued {
  const sequence = row["sequence"] as string | null;
  return {
    outboxId: row["outbox"] as string,
    sequenceId: sequence === null ? null : BigInt(sequence),
    createdAt: new Date(row["created"] as string),
    replayed: row["replayed"] as boolean,
  };
}

function namesOf(where: string, instruction: Instruction): string[] {
  const names = ["instructionId", "participantId", "idempotencyKey", "railType"] as const;
  return names.map((name) => text(where + name, instruction[name]));
}

/** The time as a text; empty if there is none. */
function time(name: string, value: Date | undefined): string {
  if (value === undefined) return "";
  if (Number.isNaN(value.getTime())) throw new InvalidArgumentError({ message: `${name} is an invalid Date` });
  return value.toISOString();
}

/** Refuses what drivers treat differently. PostgreSQL checks the rest. */
function text(name: string, value: unknown): string {
  const wrong =
    typeof value !== "string" ? `must be a string, not ${value === null ? "null" : `of type ${typeof value}`}`
    : value.includes("\0") ? "must not contain a NUL character, which PostgreSQL cannot store"
    : /\p{Surrogate}/u.test(value) ? "contains half of a surrogate pair, which UTF-8 does not have"
    : undefined;
  if (wrong !== undefined) throw new InvalidArgumentError({ message: `${name} ${wrong}` });
  return value as string;
}
