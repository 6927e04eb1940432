/** Payloads as JSON text that keeps every digit of an amount. */

import { InvalidArgumentError } from "./errors.js";

/** A payload that is JSON text already. It is sent as it is, so that you decide how each number is written. */
export class JsonText {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  toString(): string {
    return this.#text;
  }
}

/**
 * What JSON can hold. A number must be a whole one up to 2⁵³ − 1: write an amount as a string, or a large number as a
 * bigint. An object with `toJSON`, such as a Date or a decimal of a library, is written as what that returns.
 */
export type Payload = string | number | bigint | boolean | null | object | JsonText;

// PostgreSQL refuses far less deep ones: this ends a payload that contains itself.
const MAX_DEPTH = 500;

/** Returns the JSON text of a payload. Refuses what JSON does not have, and every number that JavaScript rounds. */
export function encode(path: string, value: unknown, depth = 0): string {
  if (value instanceof JsonText) return value.toString();
  if (depth > MAX_DEPTH) refuse("payload is nested too deeply, or contains itself");
  switch (typeof value) {
    case "string":
    case "boolean":
      return JSON.stringify(value);
    case "bigint":
      return value.toString();
    case "number":
      return encodeNumber(path, value);
    case "object":
      return value === null ? "null" : encodeObject(path, value, depth + 1);
    default:
      refuse(`${path} is ${value === undefined ? "undefined" : `a ${typeof value}`}, which JSON does not have`);
  }
}

function encodeNumber(path: string, value: number): string {
  if (Number.isSafeInteger(value)) return (value === 0 ? 0 : value).toString();
  const rounded = Number.isInteger(value) ? "a number beyond 2^53, which JavaScript rounds" : "a number with a fraction";
  refuse(
    `${path} is ${rounded}, which cannot hold every amount exactly: send a string;` +
      " or, if it is no amount, write the JSON yourself and send it as JsonText",
  );
}

function encodeObject(path: string, value: object, depth: number): string {
  if ("toJSON" in value && typeof value.toJSON === "function") return encode(path, value.toJSON(), depth);
  if (Array.isArray(value)) {
    return `[${value.map((item, place) => encode(`${path}[${place}]`, item, depth)).join()}]`;
  }
  if (value instanceof Map || value instanceof Set || ArrayBuffer.isView(value)) {
    refuse(`${path} is of type ${value.constructor.name}, which JSON does not have: send an object or an array`);
  }
  const members = Object.entries(value).filter(([, item]) => item !== undefined);
  return `{${members.map(([key, item]) => `${JSON.stringify(key)}:${encode(`${path}.${key}`, item, depth)}`).join()}}`;
}

function refuse(message: string): never {
  throw new InvalidArgumentError({ message });
}
