"""Checks what is read from llama-batched-bench, and what it is asked."""

import pathlib
import unittest

from batched_bench import LlamaCpp, parse_json_lines, parse_table
from rows import Work
from tool import MeasureError, RunOptions

BOTH = Work(length=128, has_decode=True, has_prefill=True)
JSON_LINE = (
    '{"n_kv_max": 256, "pp": 128, "tg": 8, "pl": 1, "t_pp": 1.3,'
    ' "speed_pp": 98.5, "t_tg": 0.2, "speed_tg": 48.25, "speed": 92.6}'
)
TABLE = """
main: n_kv_max = 256, n_batch = 2048, flash_attn = 1

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |\
      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|\
----------|----------|
|   128 |      8 |    1 |    136 |    1.300 |    98.50 |    0.166 |    48.25 |\
    1.466 |    92.77 |

llama_print_timings: load time = 1 ms
"""


class BatchedBenchTest(unittest.TestCase):
    def test_reads_speeds_from_the_json_line(self):
        self.assertEqual(
            parse_json_lines(f"warming up\n{JSON_LINE}\n", BOTH),
            {"decode": 48.25, "prefill": 98.5},
        )

    def test_reads_speeds_from_the_table(self):
        self.assertEqual(
            parse_table(TABLE, BOTH), {"decode": 48.25, "prefill": 98.5}
        )

    def test_gives_only_what_the_work_asks_for(self):
        decode = Work(length=128, has_decode=True)
        self.assertEqual(parse_table(TABLE, decode), {"decode": 48.25})

    def test_a_run_without_a_result_is_an_error(self):
        for parse in (parse_json_lines, parse_table):
            for output in ("", "{", "| PP | TG |\n|----|----|\n"):
                with self.assertRaises(MeasureError):
                    parse(output, BOTH)

    def test_a_speed_that_is_none_is_an_error(self):
        for bad in ("NaN", "0", "null", "Infinity"):
            with self.assertRaises(MeasureError, msg=bad):
                parse_json_lines(JSON_LINE.replace("48.25", bad), BOTH)

    def test_every_sequence_gets_a_whole_context(self):
        work = Work(length=2048, batch=8, has_decode=True)
        tool = LlamaCpp()
        command = tool.command(
            work, tool.settings(work)[0], RunOptions(pathlib.Path("m"), 2, 64)
        )
        context = int(command[command.index("-c") + 1])
        self.assertEqual(context, 8 * 2304)
        self.assertEqual(command[command.index("-npl") + 1], "8")

    def test_an_empty_prompt_becomes_one_token(self):
        work = Work(length=0, has_decode=True)
        tool = LlamaCpp()
        command = tool.command(
            work, tool.settings(work)[0], RunOptions(pathlib.Path("m"), 2, 64)
        )
        self.assertEqual(command[command.index("-npp") + 1], "1")


if __name__ == "__main__":
    unittest.main()
