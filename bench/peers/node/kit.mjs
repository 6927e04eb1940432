// What the drivers of the Node peers have in common: the arguments, the pace, and the lines they print.
// Knows no queue. The protocol is in ../README.md.
import { parseArgs } from "node:util";

const WARM_UP_MS = 1000;
// So many samples at the beginning, but no more than a quarter of all, are for warming up.
const WARMING_UP = 100;
// How much later than planned a call may be before it is counted from when it should have been: timers tick in milliseconds.
const LATE_MS = 2;
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
  soonest: values.settings === "best" && values.aim === "latency",
  clients: Number(values.clients),
  count: Number(values.count),
  batch: Number(values.batch),
  seconds: Number(values.for),
  rate: values.rate && Number(values.rate),
};

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const micros = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
const pad = "x".repeat(168);

// 200 bytes of JSON: when the call was made, and filling.
const payload = (lateMs = 0) => ({ at: micros() - Math.round(lateMs * 1000), pad });

// How a peer is driven:
//   unfinished  a query that is true while there are jobs that are not done in the database; :count in it is how many were enqueued
//   prepare()   installs the peer into an empty database
//   client()    { one(payload), many(payloads), end() }, for as many at a time as there are clients
//   work(saw)   starts a worker whose handler does nothing but call saw with a payload
//   sql         a statement that enqueues one job, with :payload for its JSON, where the peer documents one
export async function run(peer) {
  switch (args.verb) {
    case "prepare":
      await peer.prepare();
      say({ unfinished: peer.unfinished, sql: peer.sql });
      process.exit(0);
    case "enqueue":
      say(await enqueue(await peer.client()));
      process.exit(0);
    case "batch":
      say(await batch(await peer.client()));
      process.exit(0);
    case "work":
      await work(peer);
      break;
    default:
      throw new Error(`no verb ${args.verb}: prepare, enqueue, batch or work`);
  }
}

async function enqueue(client) {
  if (args.rate) return paced(client);
  const begin = performance.now() + WARM_UP_MS;
  const end = begin + args.seconds * 1000;
  let count = 0;
  const one = async () => {
    for (;;) {
      await client.one(payload());
      const now = performance.now();
      if (now >= end) return;
      if (now >= begin) count += 1;
    }
  };
  await Promise.all(Array.from({ length: args.clients }, one));
  return { per_second: count / args.seconds, count };
}

// One client, so many a second. What a slow call has held up was due, and waited.
async function paced(client) {
  const begin = performance.now();
  let count = 0;
  for (;;) {
    const due = (count / args.rate) * 1000;
    if (due >= args.seconds * 1000) break;
    const wait = begin + due - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    const late = performance.now() - begin - due;
    await client.one(payload(late > LATE_MS ? late : 0));
    count += 1;
  }
  return { per_second: count / ((performance.now() - begin) / 1000), count };
}

async function batch(client) {
  const begin = performance.now();
  let left = args.count;
  const many = async () => {
    while (left > 0) {
      const size = Math.min(args.batch, left);
      left -= size;
      await client.many(Array.from({ length: size }, () => payload()));
    }
  };
  await Promise.all(Array.from({ length: args.clients }, many));
  return { per_second: args.count / ((performance.now() - begin) / 1000), count: args.count };
}

async function work(peer) {
  let first = 0;
  let handled = 0;
  let told = 0;
  const delays = [];
  await peer.work(({ at }) => {
    const now = micros();
    if (!first) first = now;
    delays.push(now - at);
    handled += 1;
  });
  say({ ready: true });
  setInterval(() => {
    if (handled === told) return;
    told = handled;
    say({ first, handled });
  }, REPORT_EVERY_MS);
  process.stdin.resume();
  process.stdin.on("end", () => {
    const kept = delays.slice(Math.min(WARMING_UP, Math.floor(delays.length / 4))).sort((a, b) => a - b);
    const quantile = (percent) => kept[Math.max(Math.ceil((kept.length * percent) / 100), 1) - 1] / 1000;
    process.stdout.write(`${JSON.stringify({ handled, p50_ms: quantile(50), p99_ms: quantile(99) })}\n`, () =>
      process.exit(0),
    );
  });
}
