/**
 * Why a call failed, by what the caller can do next.
 *
 * The SQLSTATE decides the class, whatever the driver. Each error keeps PostgreSQL's message, detail and hint, and the
 * driver's error as `cause`. This package never retries: the caller decides. After an error the transaction has failed,
 * as after any PostgreSQL error. An error that has no class here is thrown as the driver's own.
 */

export interface ErrorFields {
  message: string;
  sqlstate?: string | undefined;
  detail?: string | undefined;
  hint?: string | undefined;
  cause?: unknown;
}

/** The base of all errors of this package. */
export class SymphonyError extends Error {
  /** PostgreSQL's SQLSTATE; undefined if no statement was sent or the connection was lost. */
  readonly sqlstate: string | undefined;
  readonly detail: string | undefined;
  /** What to do next, in PostgreSQL's words. */
  readonly hint: string | undefined;

  /** `nextStep` says what to do if PostgreSQL sent no hint. */
  constructor(fields: ErrorFields, nextStep?: string) {
    const parts = [fields.message, fields.detail, fields.hint ?? nextStep].filter((part) => part !== undefined);
    super(parts.map((part) => part.replace(/\.+$/, "")).join(". "), { cause: fields.cause });
    this.name = new.target.name;
    this.sqlstate = fields.sqlstate;
    this.detail = fields.detail;
    this.hint = fields.hint;
  }
}

/** P7001: the row already has its terminal state. */
export class AlreadyTerminalError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Drop the call: nothing more happens to this row");
  }
}

/** P7002: the lease expired, was taken over, or belongs to another token or worker. */
export class LeaseLostError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Drop the result: another worker has the row, or will have it");
  }
}

/** P7003: the state of the row does not allow the call. */
export class InvalidStateError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Read the row and decide again");
  }
}

/** P7004: the idempotency key belongs to another participant, rail or payload. */
export class IdempotencyConflictError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Send the first payload again, or use a new key for a new payment");
  }
}

/**
 * P7005, or class 22: an argument is blank, too long, out of range or not JSON that PostgreSQL can store.
 *
 * This package throws it too, without a SQLSTATE, for what it cannot send, such as a number with a fraction.
 */
export class InvalidArgumentError extends SymphonyError {}

/** P7006: the rail is not registered, or was retired. */
export class UnknownRailError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Check the spelling, or ask an operator to register the rail");
  }
}

/** P7007: a metadata entry may not change from its status to the requested one. */
export class IllegalTransitionError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Use the functions of the schema");
  }
}

/** 40001 or 40P01: a serialization failure or a deadlock. */
export class RetryTransactionError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Run the whole transaction again");
  }
}

/** 55P03: another session held a lock for longer than this call waits. */
export class LockHeldError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Run the whole transaction again when the other session has ended");
  }
}

/** 42501: the login lacks the role for this call. */
export class MissingRoleError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Ask a DBA to run: grant symphony_ingest to the login that you connect as");
  }
}

/** 3F000, 42P01 or 42883: Symphony is not installed in this database, or in an older version. */
export class NotInstalledError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(fields, "Check the address, then run: symphony install");
  }
}

/** The connection was lost, and with it the transaction. A lost COMMIT may have taken effect. */
export class ConnectionLostError extends SymphonyError {
  constructor(fields: ErrorFields) {
    super(
      fields,
      "Run the whole transaction again, with the same idempotency keys: if it was committed, an enqueue is a replay;" +
        " for events and metadata entries, check first whether your own rows are there",
    );
  }
}

/** The connection has no open transaction: the row would be committed without yours. No statement was sent. */
export class NotInTransactionError extends SymphonyError {
  constructor(begin: string) {
    super({
      message:
        "this is not an open transaction: the row would be committed without yours." +
        ` Open a transaction around both: ${begin}`,
    });
  }
}

const BY_SQLSTATE: Readonly<Record<string, new (fields: ErrorFields) => SymphonyError>> = {
  P7001: AlreadyTerminalError,
  P7002: LeaseLostError,
  P7003: InvalidStateError,
  P7004: IdempotencyConflictError,
  P7005: InvalidArgumentError,
  P7006: UnknownRailError,
  P7007: IllegalTransitionError,
  "40001": RetryTransactionError,
  "40P01": RetryTransactionError,
  "55P03": LockHeldError,
  "42501": MissingRoleError,
  "3F000": NotInstalledError,
  "42P01": NotInstalledError,
  "42883": NotInstalledError,
};

// The server ended the session, the system the socket, or the driver reports one of both.
const CONNECTION_LOST = /^(08...|57P0[1235]|25P0[34]|CONNECTION_(CLOSED|ENDED|DESTROYED)|ECONN(RESET|REFUSED|ABORTED)|EPIPE|ETIMEDOUT)$/;
// pg reports these without a code.
const CONNECTION_LOST_IN_PG = /^(Connection terminated|Client has encountered a connection error|Client was closed)/;

/**
 * Returns the error of this package for a driver's error, or undefined if it has no class here.
 *
 * The calls of this package do it for you. Use it around a COMMIT, or around another SQL function of Symphony:
 * `catch (error) { throw classify(error) ?? error; }`
 */
export function classify(error: unknown): SymphonyError | undefined {
  // Drizzle and others wrap the driver's error.
  for (let found = error, depth = 0; found instanceof Error && depth < 8; found = found.cause, depth += 1) {
    if (found instanceof SymphonyError) return found;
    const { code, message, detail, hint } = fieldsOf(found);
    const fields = { message, sqlstate: textOf(code), detail: textOf(detail), hint: textOf(hint), cause: error };
    if (CONNECTION_LOST.test(fields.sqlstate ?? "") || CONNECTION_LOST_IN_PG.test(message)) {
      return new ConnectionLostError({ message: `the connection was lost (${message})`, cause: error });
    }
    if (fields.sqlstate === undefined) continue;
    const known = fields.sqlstate.startsWith("22") ? InvalidArgumentError : BY_SQLSTATE[fields.sqlstate];
    return known && new known(fields);
  }
  return undefined;
}

type Fields = { message: string } & Record<"code" | "detail" | "hint", unknown>;

/** An error of Prisma has a code of Prisma, and PostgreSQL's fields beside it. */
function fieldsOf(error: Error): Fields {
  type OfPrisma = { meta?: { driverAdapterError?: { cause?: Record<string, unknown> } } };
  const cause = (error as OfPrisma).meta?.driverAdapterError?.cause;
  if (cause?.["originalCode"] === undefined) return error as unknown as Fields;
  return { code: cause["originalCode"], message: `${cause["originalMessage"]}`, detail: cause["detail"], hint: cause["hint"] };
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
