// Graphile Worker.
import { Logger, makeWorkerUtils, run as runWorker, runMigrations } from "graphile-worker";
import { args, run } from "./kit.mjs";

const connectionString = args.database;
const TASK = "peer";
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

// https://worker.graphile.org/docs/performance: the configuration of its "quick stats".
const THROUGHPUT = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};
// The same page warns that a local queue may delay a job. With single jobs, 24 concurrent workers only compete for each.
const LOW_LATENCY = {};

const settings = args.lowLatency ? LOW_LATENCY : args.best ? THROUGHPUT : {};

await run({
  unfinished: "select exists (select from graphile_worker._private_jobs)",
  sql: `select graphile_worker.add_job('${TASK}', :payload)`,
  prepare: () => runMigrations({ preset: { worker: { connectionString, logger } } }),
  async client() {
    const utils = await makeWorkerUtils({
      preset: { worker: { connectionString, logger, maxPoolSize: Math.max(args.clients, 2) } },
    });
    return {
      enqueueOne: (payload) => utils.addJob(TASK, payload),
      enqueueBatch: (payloads) => utils.addJobs(payloads.map((payload) => ({ identifier: TASK, payload }))),
    };
  },
  work: (record) =>
    runWorker({
      preset: { worker: { connectionString, logger, ...settings } },
      taskList: { [TASK]: (payload) => record(payload) },
    }),
});
