/** `symphony install --print --no-transaction` in Knex, with a migration of the program beside it. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import Knex from "knex";
import { createTemplate, Database } from "./database.js";

const SYMPHONY = process.env["SYMPHONY"] as string;
const AFTERWARDS = "create table afterwards (id int)";

test("Knex", async () => {
  await createTemplate(); // for the roles of the server, which every database shares
  const statement = execFileSync(SYMPHONY, ["install", "--print", "--no-transaction"], { encoding: "utf8" });
  const database = await Database.create("template0");
  const knex = Knex({ client: "pg", connection: database.url });
  const migration = {
    up: async (trx: Knex.Knex) => {
      await trx.raw(statement);
      await trx.raw(AFTERWARDS);
    },
    down: async () => undefined,
  };
  const migrationSource = {
    getMigrations: async () => ["1_symphony"],
    getMigrationName: (name: string) => name,
    getMigration: async () => migration,
  };
  await knex.migrate.latest({ migrationSource });
  await knex.destroy();
  assert.equal(await database.value("select to_regclass('public.afterwards')::text"), "afterwards");
  execFileSync(SYMPHONY, ["verify"], { env: { ...process.env, DATABASE_URL: database.url } });
  await database.drop();
});
