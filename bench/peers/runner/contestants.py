"""The contestants, and the command of each driver."""

from dataclasses import dataclass, field

SYMPHONY = "symphony"
RAW = "raw INSERT"


@dataclass
class Contestant:
    name: str
    # The driver's command line, up to the verb. Symphony and the raw INSERT need none: see scenarios.py.
    command: list = field(default_factory=list)
    # Whether an enqueue notifies an idle worker, which makes the enqueue more expensive.
    notifies: bool = True
    # Whether goals depend on it. The others are for information, and run in the first round only.
    counts_for_goals: bool = True
    # Whether it has defaults that differ from its best.
    defaults: bool = True
    # Whether its code runs on one thread: producers are then also measured in two processes.
    single_threaded: bool = False
    # Whether pgbench enqueues single jobs with the peer's own statement: see `sql` in its driver.
    enqueues_by_sql: bool = False

    def processes(self, scenario):
        """The numbers of processes to measure with the best settings; the better result counts."""
        if not self.counts_for_goals or scenario == "latency" or (self.enqueues_by_sql and scenario.startswith("enqueue")):
            return (1,)
        return (1, 2) if scenario == "drain" or self.single_threaded else (1,)


def contestants(tools=None):
    """All contestants, with the commands of the installed tools; without commands for a report on earlier measurements."""
    rust = lambda name: [str(tools.cargo / f"peer-{name}")] if tools else []
    node = lambda name: [str(tools.node), str(tools.npm / f"{name}.mjs")] if tools else []
    python = [str(tools.venv / "bin/python"), str(tools.here / "procrastinate/driver.py")] if tools else []
    return [
        Contestant(SYMPHONY),
        Contestant("graphile-worker", node("graphile-worker"), single_threaded=True, enqueues_by_sql=True),
        Contestant("pg-boss", node("pg-boss"), single_threaded=True),
        Contestant("graphile_worker", rust("graphile-worker-rs")),
        Contestant("awa", rust("awa")),
        Contestant("riverqueue", rust("river")),
        Contestant("pgmq", rust("pgmq"), notifies=False, defaults=False),
        Contestant("procrastinate", python, counts_for_goals=False),
        Contestant(RAW, notifies=False, defaults=False, enqueues_by_sql=True),
    ]
