"""Checks which pairs count, and what they say together."""

import unittest

from pairs import Pair, Run, contenders, summarize


def run(speed, setting="f16", probes=(10, 10)):
    return Run(setting, {"decode": speed}, list(probes))


def pair(ours, *theirs):
    return Pair("64 tokens", "peer", ours, list(theirs))


class PairsTest(unittest.TestCase):
    def test_the_fastest_setting_of_a_pair_counts(self):
        summary = summarize(
            [pair(run(30), run(5, "f16"), run(10, "q8_0"))], "decode", 0.15
        )
        self.assertEqual(summary.ratio_median, 3)
        self.assertEqual(summary.peer_setting, "q8_0")

    def test_ratios_are_taken_within_pairs(self):
        # The machine halves its speed for the third pair; lkv does not change
        # against the peer.
        summary = summarize(
            [
                pair(run(20), run(10)),
                pair(run(20), run(10)),
                pair(run(10), run(5)),
            ],
            "decode",
            0.15,
        )
        self.assertEqual(
            (summary.ratio_min, summary.ratio_median, summary.ratio_max),
            (2, 2, 2),
        )

    def test_median_minimum_and_maximum(self):
        summary = summarize(
            [pair(run(ours), run(10)) for ours in (50, 20, 30)],
            "decode",
            0.15,
        )
        self.assertEqual(
            (summary.ratio_min, summary.ratio_median, summary.ratio_max),
            (2, 3, 5),
        )
        self.assertEqual(summary.lkv_tokens_per_second, 30)
        self.assertEqual(summary.pairs, 3)

    def test_a_pair_whose_probe_moved_is_left_out(self):
        summary = summarize(
            [
                pair(run(20), run(10)),
                pair(run(90), run(10, probes=(10, 11.6))),
                pair(run(90, probes=(11.6, 10)), run(10)),
            ],
            "decode",
            0.15,
        )
        self.assertEqual((summary.pairs, summary.pairs_discarded), (1, 2))
        self.assertEqual(summary.ratio_max, 2)

    def test_probes_around_slower_settings_do_not_matter(self):
        one = pair(run(20), run(5, "slow", probes=(10, 99)), run(10, "fast"))
        self.assertEqual(one.drift("decode"), 0)

    def test_the_limit_itself_is_allowed(self):
        one = pair(run(20, probes=(8, 9)), run(10, probes=(9, 10)))
        self.assertEqual(one.drift("decode"), 0.25)
        self.assertIsNotNone(summarize([one], "decode", 0.25))

    def test_without_a_pair_there_is_no_summary(self):
        self.assertIsNone(summarize([], "decode", 0.15))
        drifted = pair(run(20), run(10, probes=(10, 20)))
        self.assertIsNone(summarize([drifted], "decode", 0.15))

    def test_contenders_are_near_the_best_in_one_kind_at_least(self):
        runs = [
            Run("a", {"decode": 100, "prefill": 10}, []),
            Run("b", {"decode": 86, "prefill": 10}, []),
            Run("c", {"decode": 84, "prefill": 50}, []),
            Run("d", {"decode": 84, "prefill": 10}, []),
        ]
        self.assertEqual(
            contenders(runs, ["decode", "prefill"]), ["a", "b", "c"]
        )
        self.assertEqual(contenders(runs, ["decode"]), ["a", "b"])


if __name__ == "__main__":
    unittest.main()
