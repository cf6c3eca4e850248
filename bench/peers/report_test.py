"""Checks the rows, tables and page made of pairs."""

import dataclasses
import unittest

import report
from measure import Skip
from pairs import Pair, Run
from rows import parse_row


def pair(peer, ours, theirs, work="64 tokens", probe=10):
    return Pair(
        work,
        peer,
        Run("KV f16", {"decode": ours}, [10, 10]),
        [Run("best", {"decode": theirs}, [10, probe])],
    )


class ReportTest(unittest.TestCase):
    def row(self, *pairs, name="decode-64"):
        return report.summarize_row(parse_row(name), list(pairs), 0.15)

    def test_a_row_holds_the_pairs_of_its_own_work(self):
        row = self.row(
            pair("llama.cpp", 30, 10),
            pair("llama.cpp", 90, 10, work="64 tokens at 25 %"),
        )
        self.assertEqual(row["peers"]["llama.cpp"]["ratio_median"], 3)
        self.assertEqual(row["peers"]["llama.cpp"]["pairs"], 1)

    def test_the_faster_peer_is_the_smaller_ratio(self):
        row = self.row(pair("llama.cpp", 30, 10), pair("openvino", 30, 15))
        self.assertEqual(report.faster_peer_ratio(row), 2)

    def test_the_faster_peer_is_unknown_until_both_ran(self):
        row = self.row(pair("llama.cpp", 30, 10), pair("lkv-full", 30, 10))
        self.assertIsNone(report.faster_peer_ratio(row))

    def test_a_row_without_a_counted_pair_shows_no_figure(self):
        row = self.row(pair("llama.cpp", 30, 10, probe=20))
        self.assertIsNone(row["lkv_tokens_per_second"])
        for table in (report.ratio_table, report.speed_table):
            cells = table([row], ["llama.cpp"])[1]
            self.assertEqual(set(cells[1:]), {"–"})

    def test_tables_show_median_range_and_setting(self):
        row = self.row(
            pair("llama.cpp", 20, 10),
            pair("llama.cpp", 30, 10),
            pair("llama.cpp", 50, 10),
        )
        ratios = report.as_text(report.ratio_table([row], ["llama.cpp"]))
        self.assertIn("3.00x (2.00 to 5.00, n = 3)", ratios)
        speeds = report.as_markdown(report.speed_table([row], ["llama.cpp"]))
        self.assertIn("| decode-64 | 30.0 | 10.0 (best) |", speeds)

    def test_one_reason_of_one_peer_is_one_line(self):
        lines = report.skip_lines(
            [
                Skip("a", "64 tokens", "too small"),
                Skip("a", "96 tokens", "too small"),
                Skip("b", "", "not built"),
            ]
        )
        self.assertEqual(
            lines, ["a: too small (64 tokens, 96 tokens)", "b: not built"]
        )

    def test_what_left_out_pairs_showed_is_said_where_none_counts(self):
        pairs = [
            pair("llama.cpp", 30, 10, probe=20),
            pair("llama.cpp", 40, 10, probe=20),
            pair("openvino", 30, 15),
        ]
        lines = report.left_out_lines(
            {
                "rows": [self.row(*pairs)],
                "peers": ["llama.cpp", "openvino", "ik_llama.cpp"],
                "pairs": [dataclasses.asdict(one) for one in pairs],
            }
        )
        self.assertEqual(
            lines, ["decode-64: llama.cpp 3.50x (3.00 to 4.00, n = 2)"]
        )

    def test_the_page_keeps_what_authors_wrote(self):
        page = f"above\n{report.BEGIN}\nold\n{report.END}\nbelow\n"
        once = report.with_figures(page, "new")
        self.assertTrue(once.startswith("above\n"))
        self.assertTrue(once.endswith("\nbelow\n"))
        self.assertIn("new", once)
        self.assertNotIn("old", once)
        self.assertEqual(report.with_figures(once, "new"), once)

    def test_a_page_without_its_markers_is_left_alone(self):
        with self.assertRaises(ValueError):
            report.with_figures("a page", "new")


if __name__ == "__main__":
    unittest.main()
