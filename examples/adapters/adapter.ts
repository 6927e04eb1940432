// A payment adapter: takes payments from a Symphony relayer and makes each one once. Node 22.18 or later, no packages.
//
// ADAPTER_SECRET=whsec_… node adapter.ts 8080 payments.jsonl         (docs/adapters.md explains the protocol)
import { createHash, createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { existsSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type IncomingMessage } from "node:http";

type Stored = { key: string; content: string; status: "PENDING" | "EXECUTED" | "REFUSED"; detail?: string };
type Reply = { code: number; body: object; replay?: boolean };

const PATH = "/payments", LARGEST_BODY = 320 * 1024;
const [port, journalPath] = process.argv.slice(2);
const secrets = process.env.ADAPTER_SECRET!.split(/\s+/).map((text) => Buffer.from(text.replace("whsec_", ""), "base64"));

/** Make the payment at your bank here, under this key. */
async function makePayment(key: string, payload: Record<string, unknown>): Promise<Pick<Stored, "status" | "detail">> {
  if (typeof payload.amount !== "string" || payload.currency !== "EUR") return { status: "REFUSED", detail: "INVALID_AMOUNT" };
  return { status: "EXECUTED", detail: `REF-${randomUUID().slice(-12)}` };
}

// The journal: a line is durable when `store` returns. What was stored before is known again after a restart.
const payments = new Map<string, Stored>();
if (existsSync(journalPath)) {
  const whole = readFileSync(journalPath, "utf8").split("\n").slice(0, -1); // a line that a crash has cut was never answered
  for (const stored of whole.map((line): Stored => JSON.parse(line))) payments.set(stored.key, stored);
}
const journal = openSync(journalPath, "a");
function store(stored: Stored): void {
  writeSync(journal, JSON.stringify(stored) + "\n");
  fsyncSync(journal);
  payments.set(stored.key, stored);
}

/** Standard Webhooks: any of the signatures matches, and the time is at most five minutes off. */
function isSigned(headers: IncomingHttpHeaders, body: Buffer): boolean {
  const [key, stamp] = [headers["webhook-id"], headers["webhook-timestamp"]];
  if (!/^\d+$/.test(String(stamp)) || Math.abs(Date.now() / 1000 - Number(stamp)) > 300) return false;
  const sign = (secret: Buffer) => createHmac("sha256", secret).update(`${key}.${stamp}.`).update(body).digest();
  const given = String(headers["webhook-signature"]).split(" ").map((one) => Buffer.from(one.replace("v1,", ""), "base64"));
  return secrets.map(sign).some((ours) => given.some((one) => one.length === ours.length && timingSafeEqual(one, ours)));
}

async function pay(headers: IncomingHttpHeaders, body: Buffer): Promise<Reply> {
  const key = String(headers["webhook-id"]);
  let payment: any, content: string;
  try {
    payment = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
    if (payment.idempotency_key !== key || headers["idempotency-key"] !== key) throw new Error("not the signed key");
    if (Object(payment.payload) !== payment.payload) throw new Error("no payload");
    const compared = [payment.instruction_id, payment.participant_id, payment.payload];
    content = createHash("sha256").update(JSON.stringify(compared)).digest("hex");
  } catch {
    return { code: 400, body: { code: "MALFORMED" } };
  }
  const known = payments.get(key);
  if (known !== undefined && known.content !== content) return { code: 409, body: { code: "KEY_REUSED" } };
  if (known?.status === "PENDING") return { code: 409, body: { code: "IN_PROGRESS" } }; // after a crash: ask your bank about it
  if (known !== undefined) return outcome(200, known, true);
  store({ key, content, status: "PENDING" }); // claims the key, durably, before anything is paid: nothing is awaited in between
  const ended: Stored = { key, content, ...(await makePayment(key, payment.payload)) };
  store(ended);
  return outcome(201, ended, false);
}

function outcome(executed: number, { status, detail }: Stored, replay: boolean): Reply {
  const body = status === "EXECUTED" ? { status, reference: detail } : { status, code: detail };
  return { code: status === "EXECUTED" ? executed : 422, body, replay };
}

function inquire(key: string): Reply {
  const known = payments.get(key);
  return known === undefined ? { code: 404, body: { status: "UNKNOWN_KEY" } } : { ...outcome(200, known, false), code: 200 };
}

async function handle(request: IncomingMessage): Promise<Reply> {
  const { method, url = "", headers } = request;
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    if ((length += chunk.length) > LARGEST_BODY) return { code: 413, body: { code: "TOO_LARGE" } };
    chunks.push(chunk);
  }
  const body = Buffer.concat(chunks);
  if (!isSigned(headers, body)) return { code: 401, body: { code: "BAD_SIGNATURE" } }; // no outcome of the payment
  if (method === "POST" && url === PATH) return pay(headers, body);
  if (method !== "GET" || !url.startsWith(`${PATH}/`)) return { code: 404, body: { code: "NOT_FOUND" } };
  const key = decodeURIComponent(url.slice(PATH.length + 1));
  return key === headers["webhook-id"] ? inquire(key) : { code: 401, body: { code: "BAD_SIGNATURE" } };
}

const server = createServer((request, response) => {
  handle(request).catch((): Reply => ({ code: 500, body: { code: "INTERNAL" } })).then(({ code, body, replay = false }) => {
    response.writeHead(code, { "Content-Type": "application/json", "Idempotent-Replay": String(replay) });
    response.end(JSON.stringify(body));
  });
});
server.requestTimeout = 30_000;
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${(server.address() as { port: number }).port}${PATH}`));
