/** Every supported driver behind one interface, so that the scenarios are written once. */

import { fromDrizzle, fromKnex, fromPg, fromPostgres, type Queryable } from "@symphony-outbox/client";
import { sql as drizzleSql } from "drizzle-orm";
import { drizzle as drizzlePg } from "drizzle-orm/node-postgres";
import { drizzle as drizzlePostgres } from "drizzle-orm/postgres-js";
import Knex from "knex";
import pg from "pg";
import postgres from "postgres";

export interface Transaction {
  queryable: Queryable;
  execute(statement: string): Promise<unknown>;
}

export interface Driver {
  name: string;
  /** Connects, runs the function in a transaction, and disconnects. */
  transaction<T>(url: string, body: (transaction: Transaction) => Promise<T>): Promise<T>;
  /** Adapts what is no transaction, and runs one statement over it. */
  autocommit(url: string): Promise<unknown>;
}

const select = (queryable: Queryable) => queryable.query("select 1", []);

const overPg: Driver = {
  name: "pg",
  async transaction(url, body) {
    // Such a parser of bigint, which many programs set, must change nothing.
    const getTypeParser = (oid: number) => (oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid));
    const client = new pg.Client({ connectionString: url, types: { getTypeParser } as never });
    // Without a listener a lost connection ends the process.
    client.on("error", () => undefined);
    await client.connect();
    try {
      await client.query("begin");
      const result = await body({ queryable: fromPg(client), execute: (sql) => client.query(sql) });
      await client.query("commit");
      return result;
    } finally {
      await client.end();
    }
  },
  async autocommit(url) {
    const client = new pg.Client(url);
    await client.connect();
    return select(fromPg(client)).finally(() => client.end());
  },
};

const overPool: Driver = {
  name: "Pool of pg",
  async transaction(url, body) {
    const pool = new pg.Pool({ connectionString: url });
    pool.on("error", () => undefined);
    const client = await pool.connect();
    client.on("error", () => undefined);
    try {
      await client.query("begin");
      const result = await body({ queryable: fromPg(client), execute: (sql) => client.query(sql) });
      await client.query("commit");
      return result;
    } finally {
      client.release(true);
      await pool.end();
    }
  },
  async autocommit(url) {
    const pool = new pg.Pool({ connectionString: url });
    try {
      return await select(fromPg(pool));
    } finally {
      await pool.end();
    }
  },
};

const overPostgres: Driver = {
  name: "postgres.js",
  async transaction(url, body) {
    const sql = postgres(url, { max: 1, transform: postgres.camel, onnotice: () => undefined });
    try {
      return (await sql.begin((tx) => body({ queryable: fromPostgres(tx), execute: (text) => tx.unsafe(text) }))) as never;
    } finally {
      await sql.end({ timeout: 0 });
    }
  },
  async autocommit(url) {
    const sql = postgres(url, { max: 1 });
    try {
      return await select(fromPostgres(sql));
    } finally {
      await sql.end();
    }
  },
};

const overKnex: Driver = {
  name: "Knex",
  async transaction(url, body) {
    const knex = Knex({ client: "pg", connection: url });
    try {
      return await knex.transaction((trx) =>
        body({ queryable: fromKnex(trx), execute: async (sql) => trx.raw(sql) }),
      );
    } finally {
      await knex.destroy();
    }
  },
  async autocommit(url) {
    const knex = Knex({ client: "pg", connection: url });
    try {
      return await select(fromKnex(knex));
    } finally {
      await knex.destroy();
    }
  },
};

const overDrizzlePg: Driver = {
  name: "Drizzle over pg",
  async transaction(url, body) {
    const client = new pg.Client(url);
    client.on("error", () => undefined);
    await client.connect();
    try {
      return await drizzlePg(client).transaction((tx) =>
        body({ queryable: fromDrizzle(tx, drizzleSql), execute: async (text) => tx.execute(drizzleSql.raw(text)) }),
      );
    } finally {
      await client.end();
    }
  },
  async autocommit(url) {
    const client = new pg.Client(url);
    await client.connect();
    try {
      return await select(fromDrizzle(drizzlePg(client) as never, drizzleSql));
    } finally {
      await client.end();
    }
  },
};

const overDrizzlePostgres: Driver = {
  name: "Drizzle over postgres.js",
  async transaction(url, body) {
    const sql = postgres(url, { max: 1 });
    try {
      return await drizzlePostgres(sql).transaction((tx) =>
        body({ queryable: fromDrizzle(tx, drizzleSql), execute: async (text) => tx.execute(drizzleSql.raw(text)) }),
      );
    } finally {
      await sql.end({ timeout: 0 });
    }
  },
  async autocommit(url) {
    const sql = postgres(url, { max: 1 });
    try {
      return await select(fromDrizzle(drizzlePostgres(sql) as never, drizzleSql));
    } finally {
      await sql.end();
    }
  },
};

export const DRIVERS = [overPg, overPool, overPostgres, overKnex, overDrizzlePg, overDrizzlePostgres];
