/**
 * A test database with Symphony, a registered rail, a business table, and logins that hold one role each.
 *
 * Needs SYMPHONY_TEST_SERVER, the URL of a superuser on a private server, and SYMPHONY, the path of the program.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import pg from "pg";

const SERVER = new URL(process.env["SYMPHONY_TEST_SERVER"] as string);
// node --test runs each file in its own process.
const TEMPLATE = `symphony_typescript_${process.pid}`;
let created = 0;

function url(database: string, login: string = SERVER.username): string {
  return `postgres://${login}@${SERVER.host}/${database}`;
}

async function onServer(...statements: string[]): Promise<void> {
  const server = new pg.Client(SERVER.href);
  await server.connect();
  for (const statement of statements) await server.query(statement);
  await server.end();
}

/** Installs Symphony with its own program. Every test database is a copy. */
export async function createTemplate(): Promise<void> {
  await onServer(`create database ${TEMPLATE}`);
  const env = { ...process.env, DATABASE_URL: url(TEMPLATE) };
  execFileSync(process.env["SYMPHONY"] as string, ["install"], { env });
  const root = new pg.Client(url(TEMPLATE));
  await root.connect();
  for (const role of ["ingest", "readonly"]) {
    await root.query(`create role ${TEMPLATE}_${role} login in role symphony_${role}`);
  }
  await root.query("create table orders (id text primary key, total numeric not null); grant all on orders to public");
  await root.query("select symphony.register_payment_rail('sepa', '{}', 'Ada', 'a test')");
  await root.end();
}

export class Database {
  private constructor(
    readonly name: string,
    /** A superuser, for what no login of Symphony may do. */
    readonly root: pg.Client,
  ) {}

  static async create(template: string = TEMPLATE): Promise<Database> {
    created += 1;
    const name = `${TEMPLATE}_${created}`;
    await onServer(`create database ${name} template ${template} strategy file_copy`);
    const root = new pg.Client(url(name));
    await root.connect();
    return new Database(name, root);
  }

  async drop(): Promise<void> {
    await this.root.end();
    await onServer(`drop database ${this.name} with (force)`);
  }

  /** The URL of a login that holds this role and no other. */
  login(role: "ingest" | "readonly"): string {
    return url(this.name, `${TEMPLATE}_${role}`);
  }

  get url(): string {
    return url(this.name);
  }

  /** Ends the sessions of this database's logins. */
  async endSessions(): Promise<void> {
    const others = "datname = current_database() and pid <> pg_backend_pid()";
    assert.equal(await this.value(`select bool_and(pg_terminate_backend(pid, 5000)) from pg_stat_activity where ${others}`), true);
  }

  async value(query: string, ...values: string[]): Promise<unknown> {
    const result = await this.root.query({ text: query, values, rowMode: "array" });
    return result.rows[0]?.[0];
  }

  /** How many orders, payments, events and metadata entries a test has committed. */
  async counts(test: string): Promise<number[]> {
    const tables = {
      orders: "id",
      "symphony.payment_outbox_pending": "participant_id",
      "m10_recovery.outbox": "aggregate_id",
      "symphony.metadata_outbox": "entity_id",
    };
    const counts = [];
    for (const [table, key] of Object.entries(tables)) {
      counts.push(Number(await this.value(`select count(*) from ${table} where ${key} = $1`, test)));
    }
    return counts;
  }
}
