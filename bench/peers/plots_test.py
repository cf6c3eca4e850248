"""Draws a small made-up result and reads the files back."""

import pathlib
import tempfile
import unittest
from xml.etree import ElementTree

import plots

SVG = "{http://www.w3.org/2000/svg}"


def figure(ratio, low, high, speed):
    return {
        "ratio_median": ratio,
        "ratio_min": low,
        "ratio_max": high,
        "peer_tokens_per_second": speed,
    }


RESULT = {
    "rows": [
        {
            "name": "decode-0",
            "kind": "decode",
            "lkv_tokens_per_second": 300,
            "peers": {
                "llama.cpp": figure(2, 1.5, 4, 150),
                "openvino": figure(3, 3, 3, 100),
            },
        },
        {
            "name": "prefill-8192-25%",
            "kind": "prefill",
            "lkv_tokens_per_second": 900,
            "peers": {"llama.cpp": figure(1, 1, 1, 900)},
        },
        {
            "name": "decode-512",
            "kind": "decode",
            "lkv_tokens_per_second": None,
            "peers": {},
        },
    ]
}


class PlotsTest(unittest.TestCase):
    def draw(self, result=RESULT):
        with tempfile.TemporaryDirectory() as folder:
            names = plots.draw_plots(result, pathlib.Path(folder))
            return {
                name: ElementTree.parse(pathlib.Path(folder, name)).getroot()
                for name in names
            }

    def heights(self, drawing, tool):
        """Of the tool's bars, in shares of the tallest possible one."""
        full = plots.BOTTOM - plots.TOP
        return [
            round(float(bar.get("height")) / full, 3)
            for bar in drawing.iter(SVG + "rect")
            if bar.get("fill") == plots.COLOURS[tool]
            and float(bar.get("y")) >= plots.TOP
        ]

    def texts(self, drawing):
        return [text.text for text in drawing.iter(SVG + "text")]

    def test_the_highest_ratio_measured_spans_the_ratios(self):
        ratios = self.draw()["ratios.svg"]
        self.assertEqual(self.heights(ratios, "llama.cpp"), [0.5, 0.25])
        self.assertEqual(self.heights(ratios, "openvino"), [0.75])

    def test_decode_and_prefill_have_scales_of_their_own(self):
        speeds = self.draw()["speeds.svg"]
        self.assertEqual(self.heights(speeds, "lkv"), [1, 1])
        self.assertEqual(self.heights(speeds, "llama.cpp"), [0.5, 1])
        texts = self.texts(speeds)
        self.assertIn("decode", texts)
        self.assertIn("prefill", texts)

    def test_names_and_tools_can_be_read_and_rows_without_figures_are_not_shown(
        self,
    ):
        for drawing in self.draw().values():
            texts = self.texts(drawing)
            self.assertIn("8192-25%", texts)
            self.assertIn("llama.cpp", texts)
            self.assertNotIn("512", texts)

    def test_bars_stay_inside(self):
        for drawing in self.draw().values():
            for bar in drawing.iter(SVG + "rect"):
                left = float(bar.get("x", 0))
                self.assertGreaterEqual(left, 0)
                self.assertLessEqual(
                    left + float(bar.get("width")), plots.WIDTH
                )

    def test_a_result_of_one_kind_has_one_panel(self):
        speeds = self.draw({"rows": RESULT["rows"][:1]})["speeds.svg"]
        self.assertNotIn("prefill", self.texts(speeds))

    def test_an_axis_has_few_round_numbers(self):
        for top, step in ((0.9, 0.2), (1, 0.2), (3, 0.5), (6, 1), (7.1, 2)):
            self.assertAlmostEqual(plots.axis_step(top), step)
        self.assertAlmostEqual(plots.axis_step(900), 200)
        self.assertAlmostEqual(plots.axis_step(310), 100)


if __name__ == "__main__":
    unittest.main()
