/** What a producer may rely on, over every driver. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import * as client from "@symphony-outbox/client";
import { createEntry, enqueue, enqueueBatch, publish, setTraceparent, type Instruction } from "@symphony-outbox/client";
import { createTemplate, Database } from "./database.js";
import { DRIVERS, type Driver, type Transaction } from "./drivers.js";

type ErrorClass<T extends client.SymphonyError> = new (...fields: never[]) => T;

async function thrown<T extends client.SymphonyError>(expected: ErrorClass<T>, body: Promise<unknown>): Promise<T> {
  const error = await body.then(
    () => assert.fail("nothing was thrown"),
    (error: unknown) => error,
  );
  assert.equal((error as Error).constructor, expected, String(error));
  return error as T;
}

function scenarios(driver: Driver): void {
  let database: Database;
  before(async () => {
    database = await Database.create();
  });
  after(() => database.drop());

  const inTransaction = <T>(body: (transaction: Transaction) => Promise<T>): Promise<T> =>
    driver.transaction(database.login("ingest"), body);
  const payment = (column: string, participant: string): Promise<unknown> =>
    database.value(`select ${column} from symphony.payment_outbox_pending where participant_id = $1`, participant);
  // The rows of a test are those of its own order, participant, aggregate and entity.
  const instruction = (own: string, number: number, changes: Partial<Instruction> = {}): Instruction => ({
    instructionId: `${own}/${number}`,
    participantId: own,
    idempotencyKey: `key-${number}`,
    railType: "sepa",
    payload: { amount: "10.50", currency: "EUR", number },
    ...changes,
  });
  const event = (own: string, payload: client.Payload = { total: "10.50" }) => ({
    aggregateType: "order",
    aggregateId: own,
    eventType: "OrderPlaced",
    payload,
  });
  const entry = (own: string) => ({ entityType: "document", entityId: own, metadata: { title: "Contract" } });

  test("rows of all lanes are committed with the business row", async () => {
    const written = await inTransaction(async ({ queryable, execute }) => {
      await execute("insert into orders values ('commit', 10.50)");
      const enqueued = await enqueue(queryable, instruction("commit", 1));
      const event_id = await publish(queryable, event("commit"));
      const entry_id = await createEntry(queryable, entry("commit"));
      assert.deepEqual(await database.counts("commit"), [0, 0, 0, 0], "not visible before the commit");
      return { enqueued, event_id, entry_id };
    });
    assert.deepEqual(await database.counts("commit"), [1, 1, 1, 1]);
    assert.equal(written.enqueued.sequenceId, 1n);
    assert.equal(written.enqueued.replayed, false);
    assert.equal(written.enqueued.outboxId, await payment("outbox_id", "commit"));
    const created = await payment("date_trunc('milliseconds', created_at)", "commit");
    assert.deepEqual(written.enqueued.createdAt, created);
    const ids = "select (select id from m10_recovery.outbox where aggregate_id = $1) || ' ' || id from symphony.metadata_outbox where entity_id = $1";
    assert.equal(`${written.event_id} ${written.entry_id}`, await database.value(ids, "commit"));
  });

  test("rows of all lanes are rolled back with the business row", async () => {
    const rollback = new Error("roll back");
    const body = inTransaction(async ({ queryable, execute }) => {
      await execute("insert into orders values ('rollback', 10.50)");
      await enqueue(queryable, instruction("rollback", 1));
      await publish(queryable, event("rollback"));
      await createEntry(queryable, entry("rollback"));
      throw rollback;
    });
    await assert.rejects(body, (error) => error === rollback);
    assert.deepEqual(await database.counts("rollback"), [0, 0, 0, 0]);
    const again = await inTransaction(({ queryable }) => enqueue(queryable, instruction("rollback", 2)));
    assert.equal(again.sequenceId, 1n, "the number was given back");
  });

  test("the same key is answered with the same outbox", async () => {
    const first = await inTransaction(({ queryable }) => enqueue(queryable, instruction("replay", 1)));
    const again = await inTransaction(({ queryable }) => enqueue(queryable, instruction("replay", 1)));
    assert.deepEqual(again, { ...first, replayed: true });
  });

  test("a batch answers in order and replays what is known", async () => {
    const known = await inTransaction(({ queryable }) => enqueue(queryable, instruction("batch", 2)));
    const batch = [3, 2, 1, 3].map((number) => instruction("batch", number));
    const answers = await inTransaction(({ queryable }) => enqueueBatch(queryable, batch));
    assert.deepEqual(answers.map((answer) => answer.sequenceId), [2n, 1n, 3n, 2n]);
    assert.deepEqual(answers.map((answer) => answer.replayed), [false, true, false, true]);
    assert.deepEqual(answers[1], { ...known, replayed: true });
    assert.equal(answers[3]?.outboxId, answers[0]?.outboxId);
  });

  test("a batch with one bad instruction names its position and enqueues nothing", async () => {
    const refused = <T extends client.SymphonyError>(expected: ErrorClass<T>, batch: Instruction[]): Promise<T> =>
      thrown(expected, inTransaction(({ queryable }) => enqueueBatch(queryable, batch)));
    const good = instruction("bad", 1);
    const rail = await refused(client.UnknownRailError, [good, instruction("bad", 2, { railType: "spea" })]);
    assert.match(rail.message, /p_rail_type\[2\]/);
    const empty = await refused(client.InvalidArgumentError, []);
    assert.equal(empty.sqlstate, "P7005");
    const long = await refused(client.InvalidArgumentError, Array<Instruction>(501).fill(good));
    assert.equal(long.sqlstate, "P7005");
    const payload = { lines: [{ amount: 0.1 }] };
    const float = await refused(client.InvalidArgumentError, [good, instruction("bad", 2, { payload })]);
    assert.match(float.message, /^instructions\[1\]\.payload\.lines\[0\]\.amount is a number with a fraction/);
    assert.deepEqual(await database.counts("bad"), [0, 0, 0, 0]);
  });

  test("a refusal has its class and says what to do next", async () => {
    const refused = <T extends client.SymphonyError>(expected: ErrorClass<T>, changes: Partial<Instruction>): Promise<T> =>
      thrown(expected, inTransaction(({ queryable }) => enqueue(queryable, instruction("refusal", 1, changes))));
    await inTransaction(({ queryable }) => enqueue(queryable, instruction("refusal", 1)));
    const secret = "DE02120300000000202051";
    const conflict = await refused(client.IdempotencyConflictError, { payload: { iban: secret } });
    assert.equal(conflict.sqlstate, "P7004");
    assert.ok(!conflict.message.includes(secret), "no payload in an error");
    assert.match(conflict.message, /^the idempotency key of instruction/, "no statement in an error");
    const blank = await refused(client.InvalidArgumentError, { participantId: " " });
    assert.equal(blank.message, "p_participant_id must not be blank");
    assert.equal(blank.sqlstate, "P7005");
    const rail = await refused(client.UnknownRailError, { railType: "spea", idempotencyKey: "new" });
    assert.equal(rail.sqlstate, "P7006");
    for (const error of [conflict, rail]) {
      assert.ok(error.message.endsWith(error.hint?.replace(/\.$/, "") ?? "no hint"), error.message);
      assert.ok(error.cause instanceof Error && !(error.cause instanceof client.SymphonyError));
      assert.equal(error.name, error.constructor.name);
    }
    // PostgreSQL's own: jsonb cannot hold this character.
    const nul = inTransaction(({ queryable }) => publish(queryable, event("refusal", "\0")));
    assert.equal((await thrown(client.InvalidArgumentError, nul)).sqlstate, "22P05");
    const many = { ...entry("refusal"), maxRetries: 101 };
    const retries = inTransaction(({ queryable }) => createEntry(queryable, many));
    assert.match((await thrown(client.InvalidArgumentError, retries)).message, /p_max_retries must be from 1 to 100/);
    assert.deepEqual(await database.counts("refusal"), [0, 1, 0, 0]);
  });

  test("errors of other functions are classified", async () => {
    const classified = async <T extends client.SymphonyError>(expected: ErrorClass<T>, sqlstate: string, statement: string) => {
      const call = driver.transaction(database.url, ({ execute }) => execute(statement)).catch((error: unknown) => {
        throw client.classify(error) ?? error;
      });
      assert.equal((await thrown(expected, call)).sqlstate, sqlstate);
    };
    await inTransaction(async ({ queryable }) => {
      await enqueue(queryable, instruction("classified", 1));
      await createEntry(queryable, entry("classified"));
    });
    await classified(client.InvalidStateError, "P7003", "select symphony.retire_payment_rail('sepa', 'Ada', 'a test')");
    const claim = "select outbox_id || ''',''' || lease_token from symphony.claim_outbox_batch(1, 'worker', 60)";
    const lease = await database.value(claim);
    const complete = (worker: string) => `select symphony.complete_outbox_attempt('${lease}', '${worker}', 'DISPATCHED')`;
    await classified(client.LeaseLostError, "P7002", complete("another worker"));
    await database.value(complete("worker"));
    await classified(client.AlreadyTerminalError, "P7001", complete("worker"));
    await classified(client.IllegalTransitionError, "P7007", "update symphony.metadata_outbox set status = 'PUBLISHED'");
  });

  test("a payload comes out as it went in with every digit", async () => {
    const odd = "Zoë 😀 \\ \" ' % :x $1 ? {},NULL";
    const payload = { amount: "100000000000000000.010", whole: 2n ** 70n, note: odd, zero: -0, flags: [true, null], none: undefined };
    const fidelity = instruction("fidelity", 1, { payload, instructionId: odd, idempotencyKey: odd });
    await inTransaction(({ queryable }) => enqueue(queryable, fidelity));
    const stored = `{"note": ${JSON.stringify(odd)}, "zero": 0, "flags": [true, null], "whole": 1180591620717411303424, "amount": "100000000000000000.010"}`;
    assert.equal(await payment("payload::text", "fidelity"), stored);
    assert.equal(await payment("instruction_id", "fidelity"), odd);
    const [again] = await inTransaction(({ queryable }) => enqueueBatch(queryable, [fidelity]));
    assert.equal(again?.replayed, true, "a batch sends the same");
  });

  test("JSON text is sent as it is", async () => {
    const text = '{"amount": 100000000000000000.010}';
    const payload = new client.JsonText(text);
    await inTransaction(({ queryable }) => enqueue(queryable, instruction("json", 1, { payload })));
    assert.equal(await payment("payload::text", "json"), text);
    const [again] = await inTransaction(({ queryable }) => enqueueBatch(queryable, [instruction("json", 1, { payload })]));
    assert.equal(again?.replayed, true);
  });

  test("a scheduled payment keeps its time", async () => {
    const notBefore = new Date(Date.now() + 86_400_000);
    const scheduled = (number: number) => instruction("scheduled", number, { notBefore });
    await inTransaction(({ queryable }) => enqueue(queryable, scheduled(1)));
    await inTransaction(({ queryable }) => enqueueBatch(queryable, [instruction("scheduled", 2), scheduled(3)]));
    const due = await payment(`array_agg(next_attempt_at = '${notBefore.toISOString()}' order by sequence_id)`, "scheduled");
    assert.deepEqual(due, [true, false, true]);
    const invalid = instruction("scheduled", 4, { notBefore: new Date("no time") });
    const error = await thrown(client.InvalidArgumentError, inTransaction(({ queryable }) => enqueue(queryable, invalid)));
    assert.equal(error.message, "notBefore is an invalid Date");
  });

  test("a traceparent is kept beside what its transaction enqueues", async () => {
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    await inTransaction(async ({ queryable }) => {
      await setTraceparent(queryable, traceparent);
      await enqueue(queryable, instruction("trace", 1));
    });
    await inTransaction(({ queryable }) => enqueue(queryable, instruction("trace", 2)));
    const kept = await payment("array_agg(traceparent::text order by sequence_id)", "trace");
    assert.deepEqual(kept, [traceparent, null]);
  });

  test("what is no transaction is refused before anything is sent", async () => {
    const error = await thrown(client.NotInTransactionError, driver.autocommit(database.login("ingest")));
    assert.match(error.message, /Open a transaction around both: /);
  });

  test("a missing role is named", async () => {
    const call = driver.transaction(database.login("readonly"), ({ queryable }) => enqueue(queryable, instruction("role", 1)));
    const error = await thrown(client.MissingRoleError, call);
    assert.match(error.message, /grant symphony_ingest to the login/);
  });

  test("a database without Symphony is named", async () => {
    const empty = await Database.create("template0");
    const call = driver.transaction(empty.login("ingest"), ({ queryable }) => enqueue(queryable, instruction("empty", 1)));
    assert.match((await thrown(client.NotInstalledError, call)).message, /run: symphony install/);
    await empty.drop();
  });

  test("a serialization failure asks for the whole transaction", async () => {
    const call = inTransaction(async ({ queryable, execute }) => {
      await execute("set transaction isolation level repeatable read");
      await execute("select 1");
      await database.value("select symphony.enqueue_payment_outbox('i', 'serial', 'k', 'sepa', '{}')");
      await enqueue(queryable, instruction("serial", 1));
    });
    assert.equal((await thrown(client.RetryTransactionError, call)).sqlstate, "40001");
  });

  test("a lost connection says how to continue", async () => {
    // postgres.js ends the transaction first, and then its queries.
    let settle: (error: unknown) => void;
    const settled = new Promise<unknown>((resolve) => (settle = resolve));
    const call = inTransaction(async ({ queryable, execute }) => {
      await execute("select 1");
      await database.endSessions();
      await enqueue(queryable, instruction("lost", 1)).then(settle, settle);
      throw new Error("roll back");
    });
    await assert.rejects(call);
    const lost = await settled;
    assert.ok(lost instanceof client.ConnectionLostError, String(lost));
    assert.match(lost.message, /with the same idempotency keys/);
  });
}

await createTemplate();
for (const driver of DRIVERS) {
  describe(`over ${driver.name}`, () => scenarios(driver));
}
