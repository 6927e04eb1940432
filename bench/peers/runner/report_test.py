"""Tests of the goals: python3 -m unittest discover -s bench/peers -t bench/peers -p '*_test.py'."""

import unittest

from xml.etree import ElementTree

from runner.contestants import RAW, SYMPHONY, Contestant
from runner.plot import svg
from runner.report import Report

CONTESTANTS = [
    Contestant(SYMPHONY), Contestant("quick"), Contestant("slow"), Contestant("pg-boss"), Contestant("pgmq", notifies=False),
    Contestant("unjudged", counts_for_goals=False), Contestant(RAW, notifies=False),
]


def measurement(number, scenario, contestant, value, key="per_second", processes=1, settings="best"):
    return {"round": number, "scenario": scenario, "contestant": contestant, "settings": settings, "processes": processes, key: value}


def goals(*measured):
    """The lines of the goal table by their first cell, and how many goals were missed."""
    text, missed = Report(list(measured), CONTESTANTS).goal_table()
    lines = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    return {cells[0]: cells for cells in lines}, missed


class Goals(unittest.TestCase):
    def test_the_best_peer_is_chosen_in_each_round(self):
        lines, missed = goals(
            measurement(1, "drain", SYMPHONY, 240.0), measurement(1, "drain", "quick", 200.0), measurement(1, "drain", "slow", 100.0),
            measurement(2, "drain", SYMPHONY, 130.0), measurement(2, "drain", "quick", 50.0), measurement(2, "drain", "slow", 100.0),
            measurement(3, "drain", SYMPHONY, 100.0), measurement(3, "drain", "quick", 100.0),
        )
        self.assertEqual(lines["drain ÷ best peer"], ["drain ÷ best peer", "≥ 1.0", "1.20", "1.00–1.30", "PASS", "quick, slow"])
        self.assertEqual(missed, 0)

    def test_a_goal_that_is_missed_counts(self):
        lines, missed = goals(measurement(1, "drain", SYMPHONY, 99.0), measurement(1, "drain", "quick", 100.0))
        self.assertEqual(lines["drain ÷ best peer"][4], "MISS")
        self.assertEqual(missed, 1)

    def test_a_goal_that_was_not_measured_is_neither_met_nor_missed(self):
        lines, missed = goals(measurement(1, "drain", SYMPHONY, 119.0))
        self.assertEqual(lines["drain ÷ best peer"][-1].strip(" |"), "not measured")
        self.assertEqual(missed, 0)

    def test_the_better_of_one_and_two_processes_counts(self):
        lines, _ = goals(
            measurement(1, "drain", SYMPHONY, 50.0), measurement(1, "drain", SYMPHONY, 150.0, processes=2),
            measurement(1, "drain", "quick", 100.0), measurement(1, "drain", "quick", 40.0, processes=2),
        )
        self.assertEqual(lines["drain ÷ best peer"][2], "1.50")

    def test_pgmq_unjudged_contestants_and_defaults_are_not_the_best_peer(self):
        lines, _ = goals(
            measurement(1, "enqueue-8", SYMPHONY, 300.0), measurement(1, "enqueue-8", "slow", 100.0),
            measurement(1, "enqueue-8", "pgmq", 1000.0), measurement(1, "enqueue-8", "unjudged", 1000.0),
            measurement(1, "enqueue-8", "quick", 1000.0, settings="default"), measurement(1, "enqueue-8", RAW, 500.0),
        )
        self.assertEqual(lines["single enqueue, 8 clients ÷ best peer that notifies"][2:], ["3.00", "3.00–3.00", "PASS", "slow"])
        self.assertEqual(lines["single enqueue, 8 clients ÷ raw INSERT, 8 clients"][2], "0.60")

    def test_lower_is_better_for_latency(self):
        lines, missed = goals(
            measurement(1, "latency", SYMPHONY, 1.0, "commit_p50_ms"), measurement(1, "latency", "slow", 2.0, "commit_p50_ms"),
            measurement(1, "latency", SYMPHONY, 3.0, "commit_p99_ms"), measurement(1, "latency", "quick", 2.0, "commit_p99_ms"),
        )
        self.assertEqual(lines["commit to handler, p50 ÷ best peer"][2:], ["0.50", "0.50–0.50", "PASS", "slow"])
        self.assertEqual(lines["commit to handler, p99 ÷ best peer"][2:], ["1.50", "1.50–1.50", "MISS", "quick"])
        self.assertEqual(missed, 1)

    def test_a_goal_may_name_its_peer(self):
        lines, missed = goals(
            measurement(1, "batch", SYMPHONY, 100.0), measurement(1, "batch", "quick", 300.0), measurement(1, "batch", "pg-boss", 50.0),
        )
        self.assertEqual(lines["batch enqueue ÷ pg-boss"][2:], ["2.00", "2.00–2.00", "PASS", "pg-boss"])
        self.assertEqual(lines["batch enqueue ÷ graphile-worker"][-1].strip(" |"), "not measured")
        self.assertEqual(missed, 0)


class Deliveries(unittest.TestCase):
    def test_a_delivery_has_a_table_and_the_cpu_of_each_part_and_no_goal(self):
        measured = [
            {**measurement(number, "deliver-http", SYMPHONY, 6000.0), "postgres_cpu": cpu, "relayer_cpu": 60.4, "destination_cpu": 40.0}
            for number, cpu in ((1, 80.0), (2, 90.0), (3, 70.0))
        ]
        report = Report(measured, CONTESTANTS)
        self.assertIn("Delivery to the simulated bank over HTTP", report.tables())
        self.assertIn("| symphony | 6,000 |", report.tables())
        self.assertIn("| deliver-http | 80 | 60 | 40 |", report.shares())
        self.assertNotIn("deliver-nats", report.shares())
        self.assertEqual(report.goal_table()[1], 0)

    def test_without_a_delivery_there_is_no_table_of_the_cpu(self):
        self.assertEqual(Report([measurement(1, "drain", SYMPHONY, 1.0)], CONTESTANTS).shares(), "")


class Chart(unittest.TestCase):
    def test_the_length_of_a_bar_is_proportional_to_the_value(self):
        drawn = svg(Report([
            measurement(1, "drain", SYMPHONY, 100.0), measurement(2, "drain", SYMPHONY, 200.0), measurement(3, "drain", SYMPHONY, 150.0),
            measurement(1, "drain", "quick", 300.0), measurement(1, "latency", "slow", 2.0, key="p50_ms"),
        ], CONTESTANTS))
        shapes = list(ElementTree.fromstring(drawn).iter())
        bars = {shape.get("class"): float(shape.get("width")) for shape in shapes if shape.tag.endswith("rect")}
        self.assertEqual(bars["own"] * 2, bars["bar"])
        self.assertEqual(len([shape for shape in shapes if shape.tag.endswith("rect")]), 3)
        self.assertEqual(len([shape for shape in shapes if shape.tag.endswith("line")]), 1)
        self.assertIn("2.00 ms", drawn)


if __name__ == "__main__":
    unittest.main()
