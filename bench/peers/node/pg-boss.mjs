// pg-boss.
import { PgBoss } from "pg-boss";
import { args, run } from "./kit.mjs";

const QUEUE = "peer";

// https://pgboss.io/api/workers: large batches, fetched without a pause while they are full, by several workers. NOTIFY
// wakes an idle worker before its poll interval ends, which is at least half a second.
const THROUGHPUT = {
  batchSize: 500,
  burstWhenBatchFull: true,
  localConcurrency: 4,
  pollingIntervalSeconds: 0.5,
  notifyPollingIntervalSeconds: 0.5,
};
const LOW_LATENCY = { ...THROUGHPUT, batchSize: 10 };

async function boss(options) {
  const boss = new PgBoss({ connectionString: args.database, ...options });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

// Producers and short runs need no maintenance.
const QUIET = args.best ? { supervise: false, schedule: false } : {};

await run({
  unfinished: "select exists (select from pgboss.job where state < 'completed')",
  async prepare() {
    const installed = await boss({});
    await installed.createQueue(QUEUE, args.best ? { notify: true, partition: true } : {});
    await installed.stop();
  },
  async client() {
    const client = await boss({ ...QUIET, max: Math.max(args.clients, 2) });
    return {
      enqueueOne: (data) => client.send(QUEUE, data),
      enqueueBatch: (all) => client.insert(QUEUE, all.map((data) => ({ data }))),
    };
  },
  async work(record) {
    const settings = args.lowLatency ? LOW_LATENCY : args.best ? THROUGHPUT : {};
    const worker = await boss({ ...QUIET, ...(args.best && { useListenNotify: true }) });
    await worker.work(QUEUE, settings, async (jobs) => {
      for (const job of jobs) record(job.data);
    });
  },
});
