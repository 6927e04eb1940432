"""The report: tables of the measurements, and the goals. Independent of any queue."""

from statistics import median

from .contestants import RAW, SYMPHONY

TITLES = {
    "enqueue-8": "Single enqueue, 8 clients, jobs per second",
    "enqueue-32": "Single enqueue, 32 clients, jobs per second",
    "batch": "Batch enqueue, jobs per second",
    "drain": "Drain, jobs per second",
    "latency": "Latency until the handler is called, at 100 jobs per second, milliseconds",
}

# Symphony only, to a real destination: no peer has one. Measured only if --only names it.
DELIVERIES = {
    "deliver-http": "Delivery to the simulated bank over HTTP, payments per second, Symphony only",
    "deliver-nats": "Delivery to NATS JetStream, events per second, Symphony only",
}
TITLES |= DELIVERIES

# What uses the CPU in a delivery, in percent of one core.
SHARES = {"postgres_cpu": "PostgreSQL", "relayer_cpu": "relayer", "destination_cpu": "destination"}

# The figures of a scenario, with their column titles.
RATES = {"per_second": "median"}
TIMES = {
    "commit_p50_ms": "commit to handler, p50", "commit_p99_ms": "commit to handler, p99",
    "p50_ms": "call to handler, p50", "p99_ms": "call to handler, p99",
}


def keys(scenario):
    return TIMES if scenario == "latency" else RATES


# pgmq has no worker, so it has its own goals and is never the best peer.
PGMQ = "pgmq"


class Report:
    def __init__(self, measured, contestants):
        self.measured = measured
        self.contestants = contestants
        self.rounds = sorted({one["round"] for one in measured})

    def values(self, scenario, name, settings="best", key="per_second"):
        """One value per round: the better of 1 and 2 processes, if both were measured."""
        found = {}
        for one in self.measured:
            if (one["scenario"], one["contestant"], one["settings"]) == (scenario, name, settings) and one.get(key):
                found.setdefault(one["round"], []).append(one[key])
        better = min if key.endswith("_ms") else max
        return {number: better(values) for number, values in found.items()}

    def best_peer(self, scenario, key="per_second", notifies=False, but=(PGMQ,)):
        """The best peer of each round, with its name."""
        better = min if key.endswith("_ms") else max
        best = {}
        for peer in self.contestants:
            if peer.name in (SYMPHONY, RAW, *but) or not peer.counts_for_goals or (notifies and not peer.notifies):
                continue
            for number, value in self.values(scenario, peer.name, key=key).items():
                best[number] = better(best.get(number, (value, peer.name)), (value, peer.name))
        return best

    # ---- tables

    def tables(self):
        return "\n".join(self._table(scenario) for scenario in TITLES if self._has(scenario))

    def shares(self):
        """The CPU of each part in the deliveries, which says what limits them; nothing where there are none."""
        lines = []
        for scenario in DELIVERIES:
            values = {key: self.values(scenario, SYMPHONY, key=key) for key in SHARES}
            if any(values.values()):
                cells = [f"{median(found.values()):.0f}" if found else "" for found in values.values()]
                lines.append(f"| {scenario} | {' | '.join(cells)} |")
        head = ["### CPU in a delivery, percent of one core, medians", "", f"| | {' | '.join(SHARES.values())} |", "|" + " --- |" * 4]
        return "\n".join([*head, *lines, ""]) if lines else ""

    def _has(self, scenario):
        return any(one["scenario"] == scenario for one in self.measured)

    def _table(self, scenario):
        raw = self.values("enqueue-8", RAW)
        columns = [f"{name} | min–max | × best peer" for name in keys(scenario).values()]
        with_raw = scenario.startswith("enqueue") and raw
        head = f"| | {' | '.join(columns)} |" + (" × raw INSERT |" if with_raw else "")
        lines = [f"### {TITLES[scenario]}", "", head, "|" + " --- |" * head.count(" |")]
        for contestant in self.contestants:
            for settings in ("best", "default"):
                if not any(self.values(scenario, contestant.name, settings, key) for key in keys(scenario)):
                    continue
                cells = [self._label(scenario, contestant, settings)]
                for key in keys(scenario):
                    values = self.values(scenario, contestant.name, settings, key)
                    best = {number: value for number, (value, _) in self.best_peer(scenario, key).items()}
                    cells += [_number(median(values.values()), key), _spread(values, key), _ratio(values, best)]
                if with_raw:
                    cells.append(_ratio(self.values(scenario, contestant.name, settings), raw))
                lines.append(f"| {' | '.join(cells)} |")
        return "\n".join([*lines, ""])

    def _label(self, scenario, contestant, settings):
        timed_out = any(
            one.get("timed_out") for one in self.measured
            if (one["scenario"], one["contestant"], one["settings"]) == (scenario, contestant.name, settings)
        )
        label = contestant.name if settings == "best" else f"{contestant.name}, defaults"
        return f"{label} (timed out)" if timed_out else label

    # ---- goals

    def goals(self):
        """Each goal: its name, our values, the values to compare with, and the bound of the ratio."""
        ours = lambda scenario, key="per_second": self.values(scenario, SYMPHONY, key=key)
        raw = self.values("enqueue-8", RAW)
        peer = self.best_peer
        named = lambda values, name: {number: (value, name) for number, value in values.items()}
        raw = named(raw, RAW)
        this_peer = lambda scenario, name: named(self.values(scenario, name), name)
        return [
            ("drain ÷ best peer", ours("drain"), peer("drain"), "≥", 1.0),
            ("drain ÷ pgmq's read and archive", ours("drain"), this_peer("drain", PGMQ), "≥", 0.75),
            ("single enqueue, 8 clients ÷ best peer that notifies", ours("enqueue-8"), peer("enqueue-8", notifies=True), "≥", 1.5),
            ("single enqueue, 32 clients ÷ best peer that notifies", ours("enqueue-32"), peer("enqueue-32", notifies=True), "≥", 1.5),
            ("single enqueue, 8 clients ÷ raw INSERT, 8 clients", ours("enqueue-8"), raw, "≥", 0.4),
            ("single enqueue, 32 clients ÷ raw INSERT, 8 clients", ours("enqueue-32"), raw, "≥", 0.4),
            ("batch enqueue ÷ graphile-worker", ours("batch"), this_peer("batch", "graphile-worker"), "≥", 1.0),
            ("batch enqueue ÷ pg-boss", ours("batch"), this_peer("batch", "pg-boss"), "≥", 1.0),
            ("commit to handler, p50 ÷ best peer", ours("latency", "commit_p50_ms"), peer("latency", key="commit_p50_ms"), "≤", 1.2),
            ("commit to handler, p99 ÷ best peer", ours("latency", "commit_p99_ms"), peer("latency", key="commit_p99_ms"), "≤", 1.0),
        ]

    def goal_table(self):
        lines = ["### Goals", "", "| ratio | goal | median | min–max | | compared with |", "|" + " --- |" * 6]
        missed = 0
        for name, ours, theirs, sign, bound in self.goals():
            ratios = [ours[number] / theirs[number][0] for number in ours if number in theirs]
            if not ratios:
                lines.append(f"| {name} | {sign} {bound} | | | not measured | |")
                continue
            middle = median(ratios)
            met = middle >= bound if sign == "≥" else middle <= bound
            missed += not met
            compared = ", ".join(sorted({name for _, name in theirs.values()}))
            spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
            lines.append(f"| {name} | {sign} {bound} | {middle:.2f} | {spread} | {'PASS' if met else 'MISS'} | {compared} |")
        return "\n".join([*lines, ""]), missed


def _number(value, key):
    return f"{value:.2f}" if key.endswith("_ms") else f"{value:,.0f}"


def _spread(values, key):
    return f"{_number(min(values.values()), key)}–{_number(max(values.values()), key)}"


def _ratio(values, others):
    ratios = [value / others[number] for number, value in values.items() if number in others]
    if not ratios:
        return ""
    spread = f" ({min(ratios):.2f}–{max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{median(ratios):.2f}{spread}"
