/** The example and the table of errors of README.md. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as client from "@symphony-outbox/client";
import pg from "pg";
import { createTemplate, Database } from "./database.js";
import { placeOrder } from "./readme_example.js";

const README = readFileSync(process.env["SYMPHONY_CLIENT_README"] as string, "utf8");

test("the example commits an order and its payment", async () => {
  await createTemplate();
  const database = await Database.create();
  const connection = new pg.Client(database.login("ingest"));
  await connection.connect();
  await placeOrder(connection);
  await connection.end();
  const query = "select count(*) from orders join symphony.payment_outbox_pending on instruction_id = id";
  assert.equal(await database.value(query), "1");
  await database.drop();
});

test("the table of errors and the table of drivers are complete", () => {
  for (const [name, value] of Object.entries(client)) {
    const isError = Object.prototype.isPrototypeOf.call(client.SymphonyError, value);
    if (isError || name.startsWith("from")) assert.match(README, new RegExp(`^\\|.*\`${name}[\`(]`, "m"));
  }
});
