// What the drivers of the Node peers have in common: the arguments, the pace, and the lines they print.
// Knows no queue. The protocol is in ../README.md.
import { parseArgs } from "node:util";

const WARM_UP_MS = 1000;
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

const say = (line, then) => process.stdout.write(`${JSON.stringify(line)}\n`, then);
// The last line may be longer than a pipe holds: it is to be written before the process goes.
const end = (line) => say(line, () => process.exit(0));
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
      end({ unfinished: peer.unfinished, sql: peer.sql });
      break;
    case "enqueue":
      end(await enqueue(await peer.client()));
      break;
    case "batch":
      end(await batch(await peer.client()));
      break;
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
  const over = begin + args.seconds * 1000;
  let count = 0;
  const one = async () => {
    for (;;) {
      await client.one(payload());
      const now = performance.now();
      if (now >= over) return;
      if (now >= begin) count += 1;
    }
  };
  await Promise.all(Array.from({ length: args.clients }, one));
  return { per_second: count / args.seconds, count };
}

// One client at a fixed rate per second. A call that a slow one delayed counts from when it was due. Says of each call when it was due and when it had committed.
async function paced(client) {
  const begin = performance.now();
  let count = 0;
  const calls = [];
  for (;;) {
    const due = (count / args.rate) * 1000;
    if (due >= args.seconds * 1000) break;
    const wait = begin + due - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    const late = performance.now() - begin - due;
    const one = payload(late > LATE_MS ? late : 0);
    await client.one(one);
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
      await client.many(Array.from({ length: size }, () => payload()));
    }
  };
  await Promise.all(Array.from({ length: args.clients }, many));
  return { per_second: args.count / ((performance.now() - begin) / 1000), count: args.count };
}

async function work(peer) {
  let first = 0;
  let reported = 0;
  const seen = [];
  await peer.work(({ at }) => {
    const now = micros();
    if (!first) first = now;
    seen.push([at, now]);
  });
  say({ ready: true });
  setInterval(() => {
    if (seen.length === reported) return;
    reported = seen.length;
    say({ first, handled: reported });
  }, REPORT_EVERY_MS);
  process.stdin.resume();
  process.stdin.on("end", () => end({ handled: seen.length, seen }));
}
