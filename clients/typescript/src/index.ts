/**
 * Enqueue payments, publish events and create metadata entries in Symphony, in your own transaction.
 *
 * - `calls`: the calls and their types
 * - `queryable`: what a call needs of a driver; `adapters`: the supported drivers
 * - `payload`: JSON that keeps every digit of an amount
 * - `errors`: why a call failed
 */
export { fromDrizzle, fromKnex, fromPg, fromPostgres, fromPrisma } from "./adapters.js";
export {
  createEntry,
  enqueue,
  enqueueBatch,
  publish,
  setTraceparent,
  type Enqueued,
  type Entry,
  type Instruction,
  type OutboxEvent,
} from "./calls.js";
export * from "./errors.js";
export { JsonText, type Payload } from "./payload.js";
export type { Queryable, Row } from "./queryable.js";
