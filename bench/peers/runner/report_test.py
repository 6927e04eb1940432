"""Whether the judgement is just: python3 -m unittest discover -s bench/peers -t bench/peers -p '*_test.py'."""

import unittest

from xml.etree import ElementTree

from runner.contestants import RAW, SYMPHONY, Contestant
from runner.plot import picture
from runner.report import Report

EVERYBODY = [
    Contestant(SYMPHONY), Contestant("quick"), Contestant("slow"), Contestant("pgmq", wakes=False),
    Contestant("onlooker", judged=False), Contestant(RAW, wakes=False),
]


def said(number, scenario, contestant, value, key="per_second", processes=1, settings="best"):
    return {"round": number, "scenario": scenario, "contestant": contestant, "settings": settings, "processes": processes, key: value}


def goals(*measured):
    """The lines of the judgement by their first cell, and how many goals were missed."""
    text, missed = Report(list(measured), EVERYBODY).judgement()
    lines = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    return {cells[0]: cells for cells in lines}, missed


class Judgement(unittest.TestCase):
    def test_the_best_peer_is_looked_for_in_each_round(self):
        lines, missed = goals(
            said(1, "drain", SYMPHONY, 240.0), said(1, "drain", "quick", 200.0), said(1, "drain", "slow", 100.0),
            said(2, "drain", SYMPHONY, 130.0), said(2, "drain", "quick", 50.0), said(2, "drain", "slow", 100.0),
            said(3, "drain", SYMPHONY, 100.0), said(3, "drain", "quick", 100.0),
        )
        self.assertEqual(lines["drain ÷ best peer"], ["drain ÷ best peer", "≥ 1.2", "1.20", "1.00–1.30", "PASS", "quick, slow"])
        self.assertEqual(missed, 0)

    def test_a_goal_that_is_missed_counts(self):
        lines, missed = goals(said(1, "drain", SYMPHONY, 119.0), said(1, "drain", "quick", 100.0))
        self.assertEqual(lines["drain ÷ best peer"][4], "MISS")
        self.assertEqual(missed, 1)

    def test_what_was_left_out_is_neither_held_nor_missed(self):
        lines, missed = goals(said(1, "drain", SYMPHONY, 119.0))
        self.assertEqual(lines["drain ÷ best peer"][-1].strip(" |"), "not measured")
        self.assertEqual(missed, 0)

    def test_of_one_and_two_processes_the_better_counts(self):
        lines, _ = goals(
            said(1, "drain", SYMPHONY, 50.0), said(1, "drain", SYMPHONY, 150.0, processes=2),
            said(1, "drain", "quick", 100.0), said(1, "drain", "quick", 40.0, processes=2),
        )
        self.assertEqual(lines["drain ÷ best peer"][2], "1.50")

    def test_pgmq_onlookers_and_defaults_are_not_the_best_peer(self):
        lines, _ = goals(
            said(1, "enqueue-8", SYMPHONY, 300.0), said(1, "enqueue-8", "slow", 100.0),
            said(1, "enqueue-8", "pgmq", 1000.0), said(1, "enqueue-8", "onlooker", 1000.0),
            said(1, "enqueue-8", "quick", 1000.0, settings="default"), said(1, "enqueue-8", RAW, 500.0),
        )
        self.assertEqual(lines["single enqueue, 8 clients ÷ best peer that wakes"][2:], ["3.00", "3.00–3.00", "PASS", "slow"])
        self.assertEqual(lines["single enqueue, 8 clients ÷ raw INSERT, 8 clients"][2], "0.60")

    def test_less_is_better_where_it_is_time(self):
        lines, missed = goals(
            said(1, "latency", SYMPHONY, 3.0, "p50_ms"), said(1, "latency", "quick", 4.0, "p50_ms"),
            said(1, "latency", "slow", 9.0, "p50_ms"), said(1, "latency", "pgmq", 2.0, "p50_ms"),
            said(1, "latency", SYMPHONY, 1.0, "commit_p50_ms"), said(1, "latency", "slow", 2.0, "commit_p50_ms"),
        )
        self.assertEqual(lines["commit to handler, p50 ÷ best peer"][2:], ["0.50", "0.50–0.50", "PASS", "slow"])
        self.assertEqual(lines["call to handler, p50 ÷ best peer"][2:], ["0.75", "0.75–0.75", "PASS", "quick"])
        self.assertEqual(lines["call to handler, p50 ÷ pgmq with LISTEN"][2:], ["1.50", "1.50–1.50", "MISS", "pgmq"])
        self.assertEqual(missed, 1)


class Picture(unittest.TestCase):
    def test_every_measurement_has_a_bar_as_long_as_it_is_much(self):
        drawn = picture(Report([
            said(1, "drain", SYMPHONY, 100.0), said(2, "drain", SYMPHONY, 200.0), said(3, "drain", SYMPHONY, 150.0),
            said(1, "drain", "quick", 300.0), said(1, "latency", "slow", 2.0, key="p50_ms"),
        ], EVERYBODY))
        shapes = list(ElementTree.fromstring(drawn).iter())
        bars = {shape.get("class"): float(shape.get("width")) for shape in shapes if shape.tag.endswith("rect")}
        self.assertEqual(bars["own"] * 2, bars["bar"])
        self.assertEqual(len([shape for shape in shapes if shape.tag.endswith("rect")]), 3)
        self.assertEqual(len([shape for shape in shapes if shape.tag.endswith("line")]), 1)
        self.assertIn("2.00 ms", drawn)


if __name__ == "__main__":
    unittest.main()
