/** What a call needs of a driver. Implement it for one that has no adapter here. */

export type Row = Readonly<Record<string, unknown>>;

/** A connection whose transaction is open. */
export interface Queryable {
  /** Runs one statement with the parameters $1 to $n, all of them texts, and returns its rows as objects. */
  query(sql: string, values: readonly string[]): Promise<readonly Row[]>;
}
