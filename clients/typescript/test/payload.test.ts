/** What a payload may be: no database is needed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { enqueue, InvalidArgumentError, JsonText, publish, type Instruction, type Payload } from "@symphony-outbox/client";

/** The JSON that a call sends. */
async function sent(payload: unknown): Promise<string> {
  let json = "";
  const queryable = {
    query: async (_sql: string, values: readonly string[]) => {
      json = values.at(-1) ?? "";
      return [{ id: "1" }];
    },
  };
  const event = { aggregateType: "a", aggregateId: "1", eventType: "E", payload: payload as Payload };
  await publish(queryable, event);
  return json;
}

async function refused(payload: unknown, message: RegExp): Promise<void> {
  await assert.rejects(sent(payload), (error) => error instanceof InvalidArgumentError && message.test(error.message));
}

test("numbers that JavaScript rounds are refused wherever they are", async () => {
  await refused(10.5, /^payload is a number with a fraction, which cannot hold every amount exactly: send a string/);
  await refused({ amount: 1e-9 }, /^payload\.amount is a number with a fraction/);
  await refused({ lines: [1, { a: Number.NaN }] }, /^payload\.lines\[1\]\.a is a number with a fraction/);
  await refused([Number.MAX_SAFE_INTEGER + 1], /^payload\[0\] is a number beyond 2\^53/);
  assert.equal(await sent([Number.MAX_SAFE_INTEGER, -1, -0, 10n ** 30n]), `[9007199254740991,-1,0,1${"0".repeat(30)}]`);
});

test("what JSON does not have is refused with its place", async () => {
  await refused({ a: [undefined] }, /^payload\.a\[0\] is undefined/);
  await refused({ a: () => 1 }, /^payload\.a is a function/);
  await refused({ a: new Map() }, /^payload\.a is of type Map/);
  await refused(undefined, /^payload is undefined/);
  const loop: unknown[] = [];
  loop.push(loop);
  await refused(loop, /nested too deeply, or contains itself/);
});

test("a member without a value is left out, and toJSON decides", async () => {
  assert.equal(await sent({ a: undefined, b: new Date(0) }), '{"b":"1970-01-01T00:00:00.000Z"}');
  assert.equal(await sent({ amount: { toJSON: () => "10.50" } }), '{"amount":"10.50"}');
  await refused({ amount: { toJSON: () => 10.5 } }, /^payload\.amount is a number with a fraction/);
});

test("JSON text is not shown with the object that holds it", async () => {
  assert.ok(!JSON.stringify({ payload: new JsonText('"secret"') }).includes("secret"));
  assert.equal(await sent({ raw: new JsonText("1.50") }), '{"raw":1.50}');
});

test("a text argument must be a string that PostgreSQL can store", async () => {
  const instruction = { instructionId: "i", participantId: "p", idempotencyKey: "k", railType: "sepa", payload: {} };
  for (const [value, message] of [
    [1, /^participantId must be a string, not of type number/],
    [null, /^participantId must be a string, not null/],
    ["a\0b", /^participantId must not contain a NUL/],
    ["\ud800", /^participantId contains half of a surrogate pair/],
  ] as const) {
    const wrong = { ...instruction, participantId: value } as Instruction;
    const call = enqueue({ query: () => assert.fail("nothing may be sent") }, wrong);
    await assert.rejects(call, (error) => error instanceof InvalidArgumentError && message.test(error.message));
  }
});
