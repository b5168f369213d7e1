// graphile-worker empties a work list: payloads of BODY bytes, a task that does nothing, jobs taken 500 at a time and
// completed in batches. Prints jobs a second. Settings: DATABASE_URL, JOBS, BODY.
import pg from "pg";
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const { DATABASE_URL: connectionString, JOBS = "500000", BODY = "2048" } = process.env;
const jobs = Number(JOBS);
const utils = await makeWorkerUtils({ connectionString });
await utils.migrate();
const db = new pg.Client({ connectionString });
await db.connect();
const body = { id: "evt", pad: Array.from({ length: Number(BODY) / 8 }, (_, n) => `f${n % 50} v${(n * 7919) % 97}`).join(" ").slice(0, Number(BODY) - 40) };
for (let from = 0; from < jobs; from += 10000) {
  await db.query(
    `select count(*) from graphile_worker.add_jobs(array(
       select json_populate_record(null::graphile_worker.job_spec, json_build_object('identifier', 'nothing', 'payload', $1::json))
       from generate_series(1, $2::int)))`,
    [JSON.stringify(body), Math.min(10000, jobs - from)],
  );
}
await db.query("vacuum analyze");

let done = 0;
let finished;
const all = new Promise((resolve) => (finished = resolve));
const started = process.hrtime.bigint();
const runner = await run({
  preset: {
    worker: {
      connectionString,
      concurrentJobs: 24,
      maxPoolSize: 26,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      pollInterval: 1000,
      logger: new Logger(() => () => {}),
    },
  },
  taskList: {
    nothing: () => {
      done += 1;
      if (done === jobs) finished();
    },
  },
});
await all;
await runner.stop();
const seconds = Number(process.hrtime.bigint() - started) / 1e9;
const { rows } = await db.query("select count(*)::int as left from graphile_worker.jobs");
if (rows[0].left !== 0) throw new Error(`${rows[0].left} jobs are left`);
console.log(JSON.stringify({ jobs, seconds, rate: Math.round(jobs / seconds) }));
await db.end();
await utils.release();
