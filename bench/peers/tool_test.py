"""Checks how programs are run, and what counts as a speed."""

import pathlib
import sys
import unittest

from tool import MeasureError, last_words, output_of, speed


class ToolTest(unittest.TestCase):
    def test_gives_what_a_program_prints(self):
        self.assertEqual(output_of([sys.executable, "-c", "print(7)"]), "7\n")

    def test_reads_stderr_of_a_program_that_prints_nothing_else(self):
        code = "import sys; print(7, file=sys.stderr)"
        self.assertEqual(output_of([sys.executable, "-c", code]), "7\n")

    def test_what_a_program_leaves_behind_goes_away(self):
        code = "import os; open('log', 'w'); print(os.getcwd())"
        folder = output_of([sys.executable, "-c", code]).strip()
        self.assertFalse(pathlib.Path(folder).exists())

    def test_a_failure_shows_the_programs_last_words_and_no_folder(self):
        with self.assertRaises(MeasureError) as caught:
            output_of([sys.executable, "-c", "exit('first\\nlast words')"])
        self.assertIn("ended with 1: last words", str(caught.exception))
        self.assertNotIn("/", str(caught.exception))

    def test_the_complaint_is_shown_and_not_the_debuggers_trace(self):
        output = "loading\nx.cpp:7: GGML_ASSERT(a < b) failed\n30\twait4.c: No"
        self.assertEqual(
            last_words(output), "x.cpp:7: GGML_ASSERT(a < b) failed"
        )
        self.assertEqual(last_words("one\ntwo  words"), "two words")
        self.assertEqual(last_words(""), "")

    def test_a_missing_program_is_an_error(self):
        with self.assertRaises(MeasureError):
            output_of(["/nonexistent/program"])

    def test_a_speed_is_positive_and_finite(self):
        self.assertEqual(speed(3, "x"), 3.0)
        for bad in (None, "3", 0, -1, float("nan"), float("inf")):
            with self.assertRaises(MeasureError, msg=bad):
                speed(bad, "x")


if __name__ == "__main__":
    unittest.main()
