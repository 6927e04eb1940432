"""Who takes part, and how each is called."""

from dataclasses import dataclass, field

SYMPHONY = "symphony"
RAW = "raw INSERT"


@dataclass
class Contestant:
    name: str
    # The driver's command line, up to the verb. Symphony and the raw INSERT need none: see scenarios.py.
    command: list = field(default_factory=list)
    # Whether a job wakes a worker that waits: what such a peer pays for it, it pays when it enqueues.
    wakes: bool = True
    # Whether the goals are measured by it; the others are there for information, and only in the first round.
    judged: bool = True
    # Whether it has defaults that differ from its best.
    defaults: bool = True
    # Whether its process has one thread for its own code: then those who enqueue are tried in two processes as well.
    one_thread: bool = False
    # Whether single jobs go by a statement of its own, from pgbench: see `sql` in its driver.
    by_sql: bool = False

    def processes(self, scenario):
        """In how many processes it is tried with its best settings; the better counts."""
        if not self.judged or scenario == "latency" or (self.by_sql and scenario.startswith("enqueue")):
            return (1,)
        return (1, 2) if scenario == "drain" or self.one_thread else (1,)


def contestants(tools=None):
    """All of them, with the commands that the installation has found; without any, for who only looks at what they did."""
    rust = lambda name: [str(tools.cargo / f"peer-{name}")] if tools else []
    node = lambda name: [str(tools.node), str(tools.npm / f"{name}.mjs")] if tools else []
    python = [str(tools.venv / "bin/python"), str(tools.here / "procrastinate/driver.py")] if tools else []
    return [
        Contestant(SYMPHONY),
        Contestant("graphile-worker", node("graphile-worker"), one_thread=True, by_sql=True),
        Contestant("pg-boss", node("pg-boss"), one_thread=True),
        Contestant("graphile_worker", rust("graphile-worker-rs")),
        Contestant("awa", rust("awa")),
        Contestant("riverqueue", rust("river")),
        Contestant("pgmq", rust("pgmq"), wakes=False, defaults=False),
        Contestant("procrastinate", python, judged=False),
        Contestant(RAW, wakes=False, defaults=False, by_sql=True),
    ]
