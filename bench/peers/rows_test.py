"""Checks names of rows and the work they ask for."""

import unittest

import rows


class RowsTest(unittest.TestCase):
    def test_every_row_of_the_report_has_a_readable_name(self):
        for name in rows.ROW_NAMES:
            self.assertEqual(rows.parse_row(name).name, name)

    def test_a_name_says_kind_length_batch_and_budget(self):
        row = rows.parse_row("prefill-8192-25%")
        self.assertEqual(
            (row.kind, row.length, row.batch, row.percent),
            ("prefill", 8192, 1, 25),
        )
        row = rows.parse_row("decode-8192-25%-int8")
        self.assertEqual((row.percent, row.kv_type), (25, "int8"))
        row = rows.parse_row("batch8-2048")
        self.assertEqual(row.kv_type, "f16")
        self.assertEqual(
            (row.kind, row.length, row.batch, row.percent),
            ("decode", 2048, 8, 100),
        )

    def test_refuses_what_is_no_row(self):
        for name in (
            "",
            "decode",
            "decode-x",
            "batch0-1",
            "decode-1-0%",
            "decode-1-f32",
        ):
            with self.assertRaises(ValueError, msg=name):
                rows.parse_row(name)

    def test_patterns_choose_among_the_report_and_names_add_to_it(self):
        self.assertEqual(
            [row.name for row in rows.choose_rows("prefill-*,decode-96")],
            [n for n in rows.ROW_NAMES if n.startswith("prefill")]
            + ["decode-96"],
        )

    def test_a_row_named_twice_is_measured_once(self):
        self.assertEqual(len(rows.choose_rows("decode-0,decode-*")), 6)

    def test_decode_and_prefill_of_one_prompt_are_one_work(self):
        works = rows.works_of(
            rows.choose_rows(
                "decode-64,prefill-64,prefill-64-25%,batch2-64,decode-64-int8"
            )
        )
        self.assertEqual(
            [(w.batch, w.percent, w.kv_type, w.kinds) for w in works],
            [
                (1, 100, "f16", ["decode", "prefill"]),
                (1, 25, "f16", ["prefill"]),
                (2, 100, "f16", ["decode"]),
                (1, 100, "int8", ["decode"]),
            ],
        )

    def test_a_budget_is_a_share_of_prompt_and_new_tokens(self):
        work = rows.Work(length=100, percent=25, has_decode=True)
        self.assertEqual(work.budget_tokens(gen=22), 31)

    def test_a_prefill_needs_no_more_than_one_step(self):
        self.assertEqual(rows.Work(length=9, has_prefill=True).steps(64), 1)
        self.assertEqual(rows.Work(length=9, has_decode=True).steps(64), 64)


if __name__ == "__main__":
    unittest.main()
