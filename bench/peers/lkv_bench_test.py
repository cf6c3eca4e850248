"""Checks what is read from `lkv bench speed`, and what it is asked."""

import json
import pathlib
import unittest

from lkv_bench import LkvBench, parse_probe
from rows import Work
from tool import MeasureError, RunOptions

OPTIONS = RunOptions(pathlib.Path("model.gguf"), 2, 64)


def rows(*entries):
    names = ("kind", "depth", "tokens_per_second", "stream_gb_s")
    return json.dumps({"rows": [dict(zip(names, e)) for e in entries]})


class LkvBenchTest(unittest.TestCase):
    def setUp(self):
        self.lkv = LkvBench(pathlib.Path("lkv"))
        self.full = LkvBench(pathlib.Path("lkv"), full_cache=True)

    def test_reads_speeds_by_kind(self):
        output = rows(("prefill", 64, 900.0, 9), ("decode", 64, 100.0, 9))
        work = Work(length=64, has_decode=True, has_prefill=True)
        self.assertEqual(
            self.lkv.parse(output, work), {"decode": 100, "prefill": 900}
        )

    def test_a_missing_row_is_an_error(self):
        work = Work(length=64, has_decode=True)
        for output in ("", "{}", rows(), rows(("prefill", 64, 9.0, 9))):
            with self.assertRaises(MeasureError):
                self.lkv.parse(output, work)

    def test_the_probe_is_the_median_of_its_reads(self):
        reads = [("decode", 0, 9.0, gb_s) for gb_s in (50, 3, 51)]
        self.assertEqual(parse_probe(rows(*reads)), 50)

    def test_measures_nothing_that_is_not_asked(self):
        prefill = Work(length=64, has_prefill=True)
        decode = Work(length=64, has_decode=True)
        self.assertIn("--gen=0", self.lkv.command(prefill, "", OPTIONS))
        self.assertIn("--prefill=0", self.lkv.command(decode, "", OPTIONS))

    def test_the_budget_is_the_works_or_full(self):
        work = Work(length=64, percent=25, has_decode=True)
        self.assertIn("--budget=25%", self.lkv.command(work, "", OPTIONS))
        self.assertIn("--budget=full", self.full.command(work, "", OPTIONS))
        whole = Work(length=64, has_decode=True)
        self.assertIn("--budget=full", self.lkv.command(whole, "", OPTIONS))

    def test_its_own_full_cache_is_a_peer_only_of_a_smaller_one(self):
        self.assertFalse(self.full.applies(Work(length=64)))
        self.assertTrue(self.full.applies(Work(length=64, percent=25)))


if __name__ == "__main__":
    unittest.main()
