"""Tests that latencies are computed as the README says."""

import unittest

from runner.latency import percentiles, quantile


class Latency(unittest.TestCase):
    def test_a_quantile_is_the_nearest_rank(self):
        hundred = [number * 1000 for number in range(1, 101)]
        self.assertEqual(quantile(hundred, 50), 50.0)
        self.assertEqual(quantile(hundred, 99), 99.0)
        self.assertEqual(quantile([7000], 99), 7.0)
        self.assertIsNone(quantile([], 99))

    def test_a_handler_is_matched_with_its_call(self):
        calls = [[10_000, 12_000], [20_000, 21_000], [30_000, 31_000]]
        handler_calls = [[30_000, 34_000], [10_000, 13_000], [20_000, 25_000]]
        times = percentiles(calls, handler_calls)
        self.assertEqual((times["p50_ms"], times["p99_ms"]), (4.0, 5.0))
        self.assertEqual((times["commit_p50_ms"], times["commit_p99_ms"]), (3.0, 4.0))

    def test_a_handler_call_before_the_commit_reply_counts_as_a_microsecond(self):
        self.assertEqual(percentiles([[10_000, 12_000]], [[10_000, 11_000]])["commit_p50_ms"], 0.001)

    def test_the_first_calls_are_a_warm_up(self):
        calls = [[number, number] for number in range(8)]
        handler_calls = [[number, number + (9_000 if number < 2 else 1_000)] for number in range(8)]
        self.assertEqual(percentiles(calls, handler_calls)["p99_ms"], 1.0)


if __name__ == "__main__":
    unittest.main()
