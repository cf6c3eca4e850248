"""Checks how both sides are paired, and when they are said to agree."""

import argparse
import pathlib
import unittest

import kvpress_agreement as agreement
from kvpress_agreement import Interval, Row

ARGS = argparse.Namespace(
    lkv=pathlib.Path("lkv"),
    model=pathlib.Path("m.gguf"),
    threads=2,
    texts=["a.txt", "b at 1.txt"],
    windows=2,
    context=300,
    forced=50,
    budgets="25%",
    observe="all",
)


def evaluation():
    """What `lkv eval --json` says of two texts of 1,351 and 401 tokens."""
    return {
        "windows": [
            "a.txt at 0",
            "a.txt at 1000",
            "b at 1.txt at 0",
            "b at 1.txt at 50",
        ],
        "full_nll_by_window": [2.0, 2.1, 2.2, 2.3],
        "rows": [
            {
                "policy": policy,
                "budget": budget,
                "held_tokens_by_window": [held, held, held, held + 1],
                "kl_by_window": [0.1, 0.2, 0.3, 0.4],
                "top1_by_window": [0.9, 0.8, 0.7, 0.6],
            }
            for budget, held in ((0.5, 140), (0.25, 60))
            for policy in ("streaming", "tova")
        ],
    }


def peer():
    """The worker's answer to the job made of it."""
    presses = ["streaming", "tova", "tova, max"]
    return {
        "tokens": {"a.txt": 1351, "b at 1.txt": 401},
        "single_pass_kl": 1e-9,
        "windows": [
            {
                "full_nll": nll,
                "rows": [
                    {
                        "budget": budget,
                        "press": press,
                        "kl": window + 0.125 * budget + 0.25 * i,
                        "top1": 0.5,
                    }
                    for budget in (0, 1)
                    for i, press in enumerate(presses)
                ],
            }
            for window, nll in enumerate([2.001, 2.099, 2.2, 2.301])
        ],
    }


def row(ours, theirs):
    return Row("tova", 0.25, [60], ours, [1.0], theirs, [1.0])


class KvpressAgreementTest(unittest.TestCase):
    def test_windows_lie_evenly_from_the_first_token_to_the_last(self):
        self.assertEqual(
            agreement.window_begins(1000, 4, 100), [0, 300, 600, 900]
        )
        self.assertEqual(agreement.window_begins(1000, 1, 100), [0])

    def test_a_window_is_told_by_its_text_and_first_token(self):
        self.assertEqual(
            agreement.parse_window("b at 1.txt at 50"), ("b at 1.txt", 50)
        )

    def test_both_sides_protect_the_same_tokens(self):
        command = agreement.eval_command(ARGS)
        self.assertIn("sink_tokens=16", command)
        self.assertIn("recent_tokens=128", command)
        job = agreement.make_job(ARGS, evaluation())
        self.assertEqual((job["first_tokens"], job["last_tokens"]), (16, 128))

    def test_presses_keep_as_many_tokens_as_lkv_held(self):
        windows = agreement.make_job(ARGS, evaluation())["windows"]
        self.assertEqual(
            windows[3],
            {
                "text": "b at 1.txt",
                "begin": 50,
                "kept": {
                    "streaming": [61, 141],
                    "tova": [61, 141],
                    "tova, max": [61, 141],
                },
            },
        )

    def test_rows_hold_both_sides_of_the_same_windows(self):
        rows = agreement.rows_of(evaluation(), peer(), {"tova": "tova, max"})
        self.assertEqual([r.budget for r in rows], [0.25, 0.5])
        self.assertEqual(rows[1].policy, "tova, max")
        self.assertEqual(rows[1].lkv_kl, [0.1, 0.2, 0.3, 0.4])
        self.assertEqual(rows[1].peer_kl, [0.625, 1.625, 2.625, 3.625])
        self.assertAlmostEqual(rows[1].differences[2], 0.3 - 2.625)

    def test_the_same_tokens_and_predictions_pass(self):
        agreement.check_sides(ARGS, evaluation(), peer())

    def test_other_tokens_or_predictions_are_refused(self):
        other_tokens = peer()
        other_tokens["tokens"]["a.txt"] = 1352
        other_model = peer()
        other_model["windows"][1]["full_nll"] = 2.15
        other_passes = peer()
        other_passes["single_pass_kl"] = 1e-3
        for found, words in (
            (other_tokens, "tokenizer"),
            (other_model, "a.txt at 1000"),
            (other_passes, "single pass"),
        ):
            with self.assertRaisesRegex(agreement.DisagreementError, words):
                agreement.check_sides(ARGS, evaluation(), found)

    def test_an_interval_is_of_the_mean(self):
        self.assertEqual(agreement.bootstrap([3.0]), Interval(3, 3))
        interval = agreement.bootstrap([0.0, 1.0] * 50)
        # The mean's standard deviation is 0.05.
        self.assertAlmostEqual(interval.low, 0.4, delta=0.02)
        self.assertAlmostEqual(interval.high, 0.6, delta=0.02)

    def test_sides_agree_when_the_windows_leave_the_sign_open(self):
        # Windows differ by far more than the sides do in each.
        self.assertTrue(
            row([0.1, 1.0, 5.0, 9.0], [0.2, 0.9, 5.1, 8.9]).agrees(1e-4)
        )
        self.assertFalse(
            row([0.1, 1.0, 5.0, 9.0], [0.2, 1.1, 5.2, 9.1]).agrees(1e-4)
        )

    def test_a_difference_below_the_noise_floor_means_nothing(self):
        self.assertTrue(row([0.5, 0.7], [0.49995, 0.69995]).agrees(1e-4))
        self.assertFalse(row([0.5, 0.7], [0.4998, 0.6998]).agrees(1e-4))

    def test_the_table_shows_both_sides_and_the_verdict(self):
        text = agreement.table([row([0.5], [0.25])], 1e-4)
        self.assertIn(
            "| 60 | tova | 0.2500 (0.2500 to 0.2500) |"
            " 0.5000 (0.5000 to 0.5000) | 0.2500 (0.2500 to 0.2500) |"
            " no | 100.0 %, 100.0 % |",
            text,
        )


if __name__ == "__main__":
    unittest.main()
