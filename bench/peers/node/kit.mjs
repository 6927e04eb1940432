// Shared code of the drivers of the Node peers: arguments, load generators and output.
// It is independent of any queue. The protocol is in ../README.md.
import { parseArgs } from "node:util";

const WARM_UP_MS = 1000;
// A call that is later than this counts from its due time. Timers have a resolution of milliseconds.
const LATE_THRESHOLD_MS = 2;
const REPORT_EVERY_MS = 20;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    database: { type: "string" },
    settings: { type: "string", default: "best" },
    aim: { type: "string", default: "throughput" },
    clients: { type: "string", default: "1" },
    count: { type: "string", default: "0" },
    batch: { type: "string", default: "500" },
    for: { type: "string", default: "5" },
    rate: { type: "string" },
  },
});

export const args = {
  verb: positionals[0],
  database: values.database,
  best: values.settings === "best",
  lowLatency: values.settings === "best" && values.aim === "latency",
  clients: Number(values.clients),
  count: Number(values.count),
  batch: Number(values.batch),
  seconds: Number(values.for),
  rate: values.rate && Number(values.rate),
};

const printLine = (line, then) => process.stdout.write(`${JSON.stringify(line)}\n`, then);
// The last line may be longer than a pipe buffer: exit only after it is written.
const finish = (line) => printLine(line, () => process.exit(0));
const micros = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
const pad = "x".repeat(168);

// 200 bytes of JSON: the due time of the enqueue, and padding.
const payload = (lateMs = 0) => ({ at: micros() - Math.round(lateMs * 1000), pad });

// A peer has:
//   unfinished    a query that is true while the database has unfinished jobs; :count in it is the number enqueued
//   prepare()     installs the peer into an empty database
//   client()      { enqueueOne(payload), enqueueBatch(payloads) }, which all clients call concurrently
//   work(record)  starts a worker whose handler only calls record with the payload
//   sql           optional: a documented statement that enqueues one job, with :payload for its JSON
export async function run(peer) {
  switch (args.verb) {
    case "prepare":
      await peer.prepare();
      finish({ unfinished: peer.unfinished, sql: peer.sql });
      break;
    case "enqueue":
      finish(await enqueue(await peer.client()));
      break;
    case "batch":
      finish(await batch(await peer.client()));
      break;
    case "work":
      await work(peer);
      break;
    default:
      throw new Error(`unknown verb ${args.verb}: expected prepare, enqueue, batch or work`);
  }
}

async function enqueue(client) {
  if (args.rate) return enqueueAtRate(client);
  const begin = performance.now() + WARM_UP_MS;
  const end = begin + args.seconds * 1000;
  let count = 0;
  const one = async () => {
    for (;;) {
      await client.enqueueOne(payload());
      const now = performance.now();
      if (now >= end) return;
      if (now >= begin) count += 1;
    }
  };
  await Promise.all(Array.from({ length: args.clients }, one));
  return { per_second: count / args.seconds, count };
}

// Enqueues from one client at a fixed rate per second, and returns for each call its due time and its commit time.
// A call that a slow one delayed counts from its due time.
async function enqueueAtRate(client) {
  const begin = performance.now();
  let count = 0;
  const calls = [];
  for (;;) {
    const due = (count / args.rate) * 1000;
    if (due >= args.seconds * 1000) break;
    const wait = begin + due - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    const late = performance.now() - begin - due;
    const one = payload(late > LATE_THRESHOLD_MS ? late : 0);
    await client.enqueueOne(one);
    calls.push([one.at, micros()]);
    count += 1;
  }
  return { per_second: count / ((performance.now() - begin) / 1000), count, calls };
}

async function batch(client) {
  const begin = performance.now();
  let left = args.count;
  const many = async () => {
    while (left > 0) {
      const size = Math.min(args.batch, left);
      left -= size;
      await client.enqueueBatch(Array.from({ length: size }, () => payload()));
    }
  };
  await Promise.all(Array.from({ length: args.clients }, many));
  return { per_second: args.count / ((performance.now() - begin) / 1000), count: args.count };
}

async function work(peer) {
  let first = 0;
  let reported = 0;
  const handlerCalls = [];
  await peer.work(({ at }) => {
    const now = micros();
    if (!first) first = now;
    handlerCalls.push([at, now]);
  });
  printLine({ ready: true });
  setInterval(() => {
    if (handlerCalls.length === reported) return;
    reported = handlerCalls.length;
    printLine({ first, handled: reported });
  }, REPORT_EVERY_MS);
  process.stdin.resume();
  process.stdin.on("end", () => finish({ handled: handlerCalls.length, handler_calls: handlerCalls }));
}
