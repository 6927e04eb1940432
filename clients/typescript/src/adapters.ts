/**
 * The supported drivers, each as a Queryable.
 *
 * An adapter refuses what is no open transaction, as far as the driver tells. Its types describe the driver by shape, so
 * that this package depends on none.
 */

import { NotInTransactionError } from "./errors.js";
import type { Queryable, Row } from "./queryable.js";

interface PgClient {
  query(sql: string, values: string[]): Promise<{ rows: Row[] }>;
  getTransactionStatus?(): string | null;
}

/** A `Client` of pg, or one that a `Pool` has lent, after `begin`. */
export function fromPg(client: PgClient): Queryable {
  const begin = "await client.query('begin') on a client, not on a Pool";
  if ("totalCount" in client) throw new NotInTransactionError(begin);
  return {
    async query(sql, values) {
      // Before pg 8.17 the driver does not tell.
      if (client.getTransactionStatus?.() === "I") throw new NotInTransactionError(begin);
      return (await client.query(sql, [...values])).rows;
    },
  };
}

interface PostgresSql {
  unsafe(sql: string, values: string[]): PromiseLike<unknown>;
}

/** The `sql` that postgres.js passes to the function of `sql.begin`. */
export function fromPostgres(sql: PostgresSql): Queryable {
  if (!("savepoint" in sql)) throw new NotInTransactionError("sql.begin(async (sql) => …)");
  return { query: async (statement, values) => (await sql.unsafe(statement, [...values])) as Row[] };
}

interface KnexTransaction {
  raw(sql: string, values: string[]): PromiseLike<unknown>;
  isTransaction?: boolean;
}

/** The `trx` of `knex.transaction`, over pg. */
export function fromKnex(trx: KnexTransaction): Queryable {
  if (trx.isTransaction !== true) throw new NotInTransactionError("knex.transaction(async (trx) => …)");
  return {
    async query(sql, values) {
      try {
        const result = await trx.raw(sql.replace(/\$\d/g, "?") + KNEX_END, [...values]);
        return (result as { rows: Row[] }).rows;
      } catch (error) {
        throw withoutStatement(error);
      }
    },
  };
}

const KNEX_END = " /* end */";

/** Knex puts the statement with its values in front of the message. They may hold personal data. */
function withoutStatement(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const end = error.message.lastIndexOf(`${KNEX_END} - `);
  if (end < 0) return error;
  const message = error.message.slice(end + KNEX_END.length + 3);
  return Object.assign(new Error(message, { cause: error }), { ...error });
}

interface DrizzleTransaction<Statement> {
  execute(statement: Statement): PromiseLike<unknown>;
  rollback?(): never;
}

interface DrizzleSql<Statement> {
  (strings: TemplateStringsArray, ...values: unknown[]): Statement;
  param(value: string): unknown;
}

/** The `tx` of Drizzle's `db.transaction`, and the `sql` of drizzle-orm. */
export function fromDrizzle<Statement>(
  tx: DrizzleTransaction<Statement>,
  sql: DrizzleSql<Statement>,
): Queryable {
  if (typeof tx.rollback !== "function") throw new NotInTransactionError("db.transaction(async (tx) => …)");
  return {
    async query(statement, values) {
      const strings = statement.split(/\$\d/);
      const template = Object.assign(strings, { raw: strings });
      const result = await tx.execute(sql(template, ...values.map((value) => sql.param(value))));
      return Array.isArray(result) ? result : (result as { rows: Row[] }).rows;
    },
  };
}

interface PrismaTransaction {
  $queryRawUnsafe(sql: string, ...values: string[]): PromiseLike<unknown>;
}

/** The `tx` of an interactive transaction of Prisma 7: `prisma.$transaction(async (tx) => …)`. */
export function fromPrisma(tx: PrismaTransaction): Queryable {
  if (typeof (tx as { $connect?: unknown }).$connect === "function") {
    throw new NotInTransactionError("prisma.$transaction(async (tx) => …)");
  }
  return { query: async (sql, values) => (await tx.$queryRawUnsafe(sql, ...values)) as Row[] };
}
