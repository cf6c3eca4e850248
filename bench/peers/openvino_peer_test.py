"""Checks what OpenVINO's worker is asked, and what is read from it."""

import pathlib
import unittest

from openvino_peer import OpenVino
from rows import Work
from tool import MeasureError, RunOptions

OPTIONS = RunOptions(pathlib.Path("model.gguf"), 2, 64)


class OpenVinoTest(unittest.TestCase):
    def test_reads_the_last_line(self):
        work = Work(length=64, has_decode=True)
        output = 'a warning\n{"prefill": 9.0, "decode": 4.5}\n'
        self.assertEqual(OpenVino().parse(output, work), {"decode": 4.5})

    def test_a_run_without_a_result_is_an_error(self):
        work = Work(length=64, has_decode=True)
        for output in ("", "a warning", '{"prefill": 9.0}', "[]", "3"):
            with self.assertRaises(MeasureError, msg=output):
                OpenVino().parse(output, work)

    def test_evicts_in_whole_blocks_within_the_budget(self):
        work = Work(length=8192, percent=25, has_decode=True)
        tool = OpenVino(evicts=True)
        command = tool.command(work, tool.settings(work)[0], OPTIONS)
        # 25 % of 8,256 tokens are 2,064.
        self.assertIn("--cache-tokens=2048", command)

    def test_never_evicts_with_a_full_cache(self):
        work = Work(length=8192, percent=25, has_decode=True)
        tool = OpenVino()
        for setting in tool.settings(work):
            command = " ".join(tool.command(work, setting, OPTIONS))
            self.assertNotIn("cache-tokens", command)

    def test_refuses_what_its_eviction_cannot_keep(self):
        work = Work(length=256, percent=25, has_decode=True)
        self.assertIn("192", OpenVino(evicts=True).refusal(work, OPTIONS))
        self.assertEqual(OpenVino().refusal(work, OPTIONS), "")

    def test_refuses_batches(self):
        work = Work(length=64, batch=8, has_decode=True)
        self.assertNotEqual(OpenVino().refusal(work, OPTIONS), "")


if __name__ == "__main__":
    unittest.main()
