// pg-boss.
import { PgBoss } from "pg-boss";
import { args, run } from "./kit.mjs";

const QUEUE = "peer";

// https://pgboss.io/api/workers: large batches, fetched without a pause while they come back full, by several workers;
// NOTIFY so that an idle worker does not wait out its interval, which can be no shorter than half a second.
const FASTEST = {
  batchSize: 500,
  burstWhenBatchFull: true,
  localConcurrency: 4,
  pollingIntervalSeconds: 0.5,
  notifyPollingIntervalSeconds: 0.5,
};
const SOONEST = { ...FASTEST, batchSize: 10 };

async function boss(options) {
  const boss = new PgBoss({ connectionString: args.database, ...options });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

// A client is not there to maintain, and a worker of a short run need not.
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
      one: (data) => client.send(QUEUE, data),
      many: (all) => client.insert(QUEUE, all.map((data) => ({ data }))),
    };
  },
  async work(saw) {
    const settings = args.soonest ? SOONEST : args.best ? FASTEST : {};
    const worker = await boss({ ...QUIET, ...(args.best && { useListenNotify: true }) });
    await worker.work(QUEUE, settings, async (jobs) => {
      for (const job of jobs) saw(job.data);
    });
  },
});
