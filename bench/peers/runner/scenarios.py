"""The scenarios, the same for all contestants."""

import json
import os
import subprocess
import time

from .contestants import RAW, SYMPHONY
from .latency import percentiles
from .worker import Worker, run, run_concurrently, wait_until

# The batch size, producers and rate, as in `symphony bench`.
BATCH = 1000
PRODUCERS = 2
RATE = 100
# 200 bytes, as in the drivers.
PAYLOAD = json.dumps({"at": 1763271418000000, "pad": "x" * 168}, separators=(",", ":"))
CREATE_PLAIN_TABLE = "create table plain (id bigint generated always as identity primary key, payload jsonb not null)"
INSERT = "insert into plain (payload) values (:payload)"
# The largest claims and completions: the maximum of slots, and of rows per claim.
SYMPHONY_BEST = ["--slots", 1024, "--batch-size", 1000]
# Seconds until a worker is idle, and until the last jobs have arrived.
SETTLE_SECONDS = 1
ARRIVE_TIMEOUT = 5


class Benchmark:
    """Measures contestants on one cluster."""

    def __init__(self, cluster, symphony, sizes):
        self.cluster = cluster
        self.symphony = symphony
        self.sizes = sizes
        self.templates = {}

    def prepare(self, contestant, settings):
        """Installs a contestant into a template database, which each measurement copies."""
        template = f"template_{len(self.templates)}"
        self.cluster.query(f"create database {template}")
        reply = {}
        if contestant.name == SYMPHONY:
            env = {**os.environ, "DATABASE_URL": self.cluster.url(template)}
            subprocess.run([self.symphony, "install"], env=env, check=True, stdout=subprocess.DEVNULL)
        elif contestant.name == RAW:
            self.cluster.query(CREATE_PLAIN_TABLE, template)
            reply = {"sql": INSERT}
        else:
            reply = run([*contestant.command, "prepare", "--database", self.cluster.url(template), "--settings", settings])
        self.templates[contestant.name, settings] = template, reply

    def measure(self, scenario, contestant, settings, processes):
        template, reply = self.templates[contestant.name, settings]
        url = self.cluster.new_database(template)
        if contestant.name == SYMPHONY:
            return self._symphony(scenario, url, settings, processes)
        command = lambda verb, *more: [
            *contestant.command, verb, "--database", url, "--settings", settings, *map(str, more)
        ]
        work = lambda aim: Worker(command("work", "--aim", aim))
        if scenario.startswith("enqueue"):
            return self._enqueue(scenario, contestant, settings, reply, command, work, processes)
        if scenario == "batch":
            count, clients = self.sizes.batch // processes, PRODUCERS // processes
            return run_concurrently([command("batch", "--count", count, "--batch", BATCH, "--clients", clients)] * processes)
        if scenario == "drain":
            return self._drain(contestant, settings, reply, command, work, processes)
        return self._latency(settings, command, work)

    def _enqueue(self, scenario, contestant, settings, reply, command, work, processes):
        """Enqueues single jobs from concurrent clients while a worker runs."""
        clients = int(scenario.split("-")[1])
        worker = work("throughput") if contestant.command else None
        try:
            if worker:
                worker.wait_until_ready()
                time.sleep(SETTLE_SECONDS)
            if settings == "best" and contestant.enqueues_by_sql:
                return self._pgbench(reply["sql"], clients)
            each = command("enqueue", "--clients", clients // processes, "--for", self.sizes.seconds)
            return run_concurrently([each] * processes)
        finally:
            if worker:
                worker.end()

    def _pgbench(self, sql, clients):
        """Enqueues single jobs with a SQL statement from pgbench, whose own CPU cost is small."""
        script = self.cluster.folder / "script.sql"
        script.write_text(sql.replace(":payload", f"'{PAYLOAD}'") + ";\n")
        def bench(seconds):
            done = subprocess.run(
                [self.cluster.bindir / "pgbench", "-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(seconds),
                 "-f", script, self.cluster.url("measured")],
                stdin=subprocess.DEVNULL, capture_output=True, text=True,
            )
            tps = [line for line in done.stdout.splitlines() if line.startswith("tps = ")]
            if done.returncode != 0 or not tps:
                raise SystemExit(f"pgbench failed: {done.stderr}")
            return float(tps[0].split()[2])
        bench(1)
        return {"per_second": bench(self.sizes.seconds)}

    def _drain(self, contestant, settings, reply, command, work, processes):
        """Drains a backlog: from the first handler call until the database has no unfinished job."""
        best = settings == "best" and contestant.counts_for_goals
        count = self.sizes.backlog if best else self.sizes.small_backlog
        limit = self.sizes.limit if best else self.sizes.short_limit
        run(command("batch", "--count", count, "--batch", BATCH, "--clients", PRODUCERS))
        # Every contestant gets planner statistics.
        self.cluster.query("vacuum analyze", "measured")
        self.cluster.query("checkpoint")
        session = self.cluster.session()
        unfinished = " ".join(reply["unfinished"].replace(":count", str(count)).split())
        session.query(unfinished)
        workers = [work("throughput") for _ in range(processes)]
        handled = lambda: sum(worker.handled for worker in workers)
        try:
            def finished():
                for worker in workers:
                    worker.check()
                return handled() >= count and session.query(unfinished) == "f"
            done = wait_until(finished, limit)
            end = time.time_ns() // 1000
            first = min((worker.first for worker in workers if worker.first), default=end)
            per_second = (count if done else handled()) / max((end - first) / 1e6, 1e-6)
            return {"per_second": per_second, "count": count, "timed_out": not done}
        finally:
            session.close()
            for worker in workers:
                worker.end()

    def _latency(self, settings, command, work):
        """Enqueues from one client at a fixed rate; measures from its call, and from its commit, to the handler."""
        worker = work("latency")
        try:
            worker.wait_until_ready()
            time.sleep(SETTLE_SECONDS)
            seconds = self.sizes.latency if settings == "best" else self.sizes.seconds
            sent = run(command("enqueue", "--aim", "latency", "--rate", RATE, "--for", seconds))
            arrived = wait_until(lambda: worker.handled >= sent["count"], ARRIVE_TIMEOUT)
        finally:
            summary = worker.end()
        return {**percentiles(sent["calls"], summary.get("handler_calls", [])), "timed_out": not arrived}

    def _symphony(self, scenario, url, settings, processes):
        name, *clients = scenario.split("-")
        best = settings == "best"
        sizes = {
            "enqueue": ["--clients", *clients, "--for", f"{self.sizes.seconds}s"],
            "batch": ["--clients", PRODUCERS, "--count", self.sizes.batch, "--batch", BATCH],
            "drain": ["--count", self.sizes.backlog if best else self.sizes.small_backlog, "--relayers", processes],
            "latency": ["--rate", RATE, "--for", f"{self.sizes.latency if best else self.sizes.seconds}s"],
            "deliver": ["--to", *clients, "--count", self.sizes.deliver],
        }[name]
        if best and name not in ("latency", "deliver"):
            sizes += SYMPHONY_BEST
        done = subprocess.run(
            [self.symphony, "bench", name, "--json", "--payload-bytes", "200", *map(str, sizes)],
            env={**os.environ, "DATABASE_URL": url}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"symphony bench {name} failed ({done.returncode}); run it by hand to see why")
        reply = json.loads(done.stdout)
        if reply["machine"]["build"] != "release" and not self.sizes.smoke_run:
            raise SystemExit(f"{self.symphony} is not a release build")
        measured = reply["measurements"][0]
        if name == "deliver":
            share = lambda seconds: 100 * seconds / measured["seconds"]
            return {
                "per_second": measured["per_second"], "p50_ms": measured["p50_ms"], "p99_ms": measured["p99_ms"],
                "postgres_cpu": share(measured["postgres"].get("cpu_seconds", 0.0)),
                "relayer_cpu": share(measured["relayer_cpu_seconds"]),
                "destination_cpu": share(measured["destination_cpu_seconds"]),
            }
        if name != "latency":
            return {"per_second": measured["per_second"]}
        call = measured["call_to_dispatch"]
        return {
            "p50_ms": call["p50_ms"], "p99_ms": call["p99_ms"],
            "commit_p50_ms": measured["p50_ms"], "commit_p99_ms": measured["p99_ms"],
        }
