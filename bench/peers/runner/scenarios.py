"""The measurements, the same for everybody."""

import json
import os
import subprocess
import time

from .contestants import RAW, SYMPHONY
from .latency import percentiles
from .worker import Worker, run, together, until

# Of a batch run, and of the backlog that is drained: as `symphony bench` has it.
BATCH = 1000
SENDERS = 2
RATE = 100
# 200 bytes, as those of the drivers.
PAYLOAD = json.dumps({"at": 1763271418000000, "pad": "x" * 168}, separators=(",", ":"))
PLAIN = "create table plain (id bigint generated always as identity primary key, payload jsonb not null)"
INSERT = "insert into plain (payload) values (:payload)"
# What lets a relayer claim and record the most at a time: the most slots, and the largest claim.
SYMPHONY_BEST = ["--slots", 1024, "--batch-size", 1000]
# How long a listener may take to be at rest, and jobs to arrive that were enqueued last.
SETTLE = 1
ARRIVE = 5


class Range:
    """Where everybody is measured."""

    def __init__(self, cluster, symphony, sizes):
        self.cluster = cluster
        self.symphony = symphony
        self.sizes = sizes
        self.templates = {}

    def prepare(self, contestant, settings):
        """Installs a contestant into a database of which each measurement gets a copy."""
        template = f"template_{len(self.templates)}"
        self.cluster.ask(f"create database {template}")
        said = {}
        if contestant.name == SYMPHONY:
            env = {**os.environ, "DATABASE_URL": self.cluster.url(template)}
            subprocess.run([self.symphony, "install"], env=env, check=True, stdout=subprocess.DEVNULL)
        elif contestant.name == RAW:
            self.cluster.ask(PLAIN, template)
            said = {"sql": INSERT}
        else:
            said = run([*contestant.command, "prepare", "--database", self.cluster.url(template), "--settings", settings])
        self.templates[contestant.name, settings] = template, said

    def measure(self, scenario, contestant, settings, processes):
        template, said = self.templates[contestant.name, settings]
        url = self.cluster.fresh(template)
        if contestant.name == SYMPHONY:
            return self._symphony(scenario, url, settings, processes)
        command = lambda verb, *more: [
            *contestant.command, verb, "--database", url, "--settings", settings, *map(str, more)
        ]
        work = lambda aim: Worker(command("work", "--aim", aim))
        if scenario.startswith("enqueue"):
            return self._enqueue(scenario, contestant, settings, said, command, work, processes)
        if scenario == "batch":
            count, clients = self.sizes.batch // processes, SENDERS // processes
            return together([command("batch", "--count", count, "--batch", BATCH, "--clients", clients)] * processes)
        if scenario == "drain":
            return self._drain(contestant, settings, said, command, work, processes)
        return self._latency(settings, command, work)

    def _enqueue(self, scenario, contestant, settings, said, command, work, processes):
        """Single jobs by so many clients while a worker listens, and works."""
        clients = int(scenario.split("-")[1])
        worker = work("throughput") if contestant.command else None
        try:
            if worker:
                worker.wait_until_ready()
                time.sleep(SETTLE)
            if settings == "best" and contestant.by_sql:
                return self._pgbench(said["sql"], clients)
            each = command("enqueue", "--clients", clients // processes, "--for", self.sizes.seconds)
            return together([each] * processes)
        finally:
            if worker:
                worker.end()

    def _pgbench(self, sql, clients):
        """A statement that enqueues one job, from a client that costs next to nothing."""
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

    def _drain(self, contestant, settings, said, command, work, processes):
        """A backlog, from the first call of a handler until nothing is left in the database."""
        best = settings == "best" and contestant.judged
        count = self.sizes.backlog if best else self.sizes.small_backlog
        limit = self.sizes.limit if best else self.sizes.short_limit
        run(command("batch", "--count", count, "--batch", BATCH, "--clients", SENDERS))
        # All planners get statistics.
        self.cluster.ask("vacuum analyze", "measured")
        self.cluster.ask("checkpoint")
        session = self.cluster.session()
        unfinished = " ".join(said["unfinished"].replace(":count", str(count)).split())
        session.ask(unfinished)
        workers = [work("throughput") for _ in range(processes)]
        handled = lambda: sum(worker.handled for worker in workers)
        try:
            def over():
                for worker in workers:
                    worker.check()
                return handled() >= count and session.ask(unfinished) == "f"
            done = until(over, limit)
            end = time.time_ns() // 1000
            first = min((worker.first for worker in workers if worker.first), default=end)
            per_second = (count if done else handled()) / max((end - first) / 1e6, 1e-6)
            return {"per_second": per_second, "count": count, "cut": not done}
        finally:
            session.close()
            for worker in workers:
                worker.end()

    def _latency(self, settings, command, work):
        """One client at a steady rate; from its call, and from its commit, to the handler."""
        worker = work("latency")
        try:
            worker.wait_until_ready()
            time.sleep(SETTLE)
            seconds = self.sizes.latency if settings == "best" else self.sizes.seconds
            sent = run(command("enqueue", "--aim", "latency", "--rate", RATE, "--for", seconds))
            arrived = until(lambda: worker.handled >= sent["count"], ARRIVE)
        finally:
            summary = worker.end()
        return {**percentiles(sent["calls"], summary.get("seen", [])), "cut": not arrived}

    def _symphony(self, scenario, url, settings, processes):
        name, *clients = scenario.split("-")
        best = settings == "best"
        sizes = {
            "enqueue": ["--clients", *clients, "--for", f"{self.sizes.seconds}s"],
            "batch": ["--clients", SENDERS, "--count", self.sizes.batch, "--batch", BATCH],
            "drain": ["--count", self.sizes.backlog if best else self.sizes.small_backlog, "--relayers", processes],
            "latency": ["--rate", RATE, "--for", f"{self.sizes.latency if best else self.sizes.seconds}s"],
        }[name]
        if best and name != "latency":
            sizes += SYMPHONY_BEST
        done = subprocess.run(
            [self.symphony, "bench", name, "--json", "--payload-bytes", "200", *map(str, sizes)],
            env={**os.environ, "DATABASE_URL": url}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"symphony bench {name} failed ({done.returncode}); run it by hand to see why")
        said = json.loads(done.stdout)
        if said["machine"]["build"] != "release" and not self.sizes.worthless:
            raise SystemExit(f"{self.symphony} is no release build")
        measured = said["measurements"][0]
        if name != "latency":
            return {"per_second": measured["per_second"]}
        call = measured["call_to_dispatch"]
        return {
            "p50_ms": call["p50_ms"], "p99_ms": call["p99_ms"],
            "commit_p50_ms": measured["p50_ms"], "commit_p99_ms": measured["p99_ms"],
        }
