"""Checks that the picture of a window shows what was measured."""

import unittest
import xml.etree.ElementTree as ElementTree

import plot_window

SVG = "{http://www.w3.org/2000/svg}"


def document(windows: dict, marks: list[int], trace: str = "a.trace") -> dict:
    n = len(next(iter(windows.values())))
    return {
        "rows": [{"trace": trace, "begin": mark} for mark in [0, *marks]],
        "texts": [
            {
                "trace": trace,
                "base_window_tokens": 256,
                "change_threshold": 0.06,
                "curve": [
                    {
                        "position": i,
                        "change": 0.01 * i,
                        "window_tokens": {
                            law: values[i] for law, values in windows.items()
                        },
                    }
                    for i in range(n)
                ],
            }
        ],
    }


def elements(svg: str, tag: str, css: str) -> list:
    return [
        element
        for element in ElementTree.fromstring(svg).iter(SVG + tag)
        if element.get("class") == css
    ]


class PlotWindowTest(unittest.TestCase):
    def test_every_law_has_a_line_that_steps_where_its_window_moves(self):
        svg = plot_window.draw(
            [document({"symmetric": [512, 512, 128], "source": [512] * 3}, [])],
            [],
        )
        symmetric = elements(svg, "path", "symmetric")
        self.assertEqual(len(symmetric), 1)
        self.assertEqual(symmetric[0].get("d").count("V"), 1)
        source = elements(svg, "path", "source")[0].get("d")
        self.assertNotIn("V", source)
        self.assertEqual(len(elements(svg, "path", "change")), 1)

    def test_marks_are_vertical_lines_at_their_position(self):
        svg = plot_window.draw(
            [document({"source": [512] * 100}, [25, 50])], []
        )
        marks = elements(svg, "line", "mark")
        inner = plot_window.WIDTH - plot_window.LEFT - plot_window.RIGHT
        self.assertEqual(
            [float(mark.get("x1")) for mark in marks],
            [plot_window.LEFT + inner / 4, plot_window.LEFT + inner / 2],
        )

    def test_every_text_has_a_panel_and_a_title_that_may_be_given(self):
        svg = plot_window.draw(
            [
                document({"source": [512] * 9}, [], "x/novel.trace"),
                document({"source": [512] * 9}, [], "x/code.trace"),
            ],
            ["A <novel>"],
        )
        titles = [e.text for e in elements(svg, "text", "title")]
        self.assertEqual(titles, ["A <novel>", "code"])

    def test_lines_of_a_scale_are_round_and_few(self):
        for most in (0.0035, 0.06, 0.52, 1, 9.9, 224, 1536, 100000):
            for most_lines in (2, 6):
                step = plot_window.nice_step(most, most_lines)
                self.assertLessEqual(most / step, most_lines)
                self.assertGreaterEqual(most / step, most_lines / 3)
        with self.assertRaises(ValueError):
            plot_window.nice_step(0, 2)

    def test_a_text_whose_pattern_never_changes_is_drawn_too(self):
        still = document({"source": [512] * 9}, [])
        still["texts"][0]["change_threshold"] = 0
        for row in still["texts"][0]["curve"]:
            row["change"] = 0
        svg = plot_window.draw([still], [])
        self.assertEqual(len(elements(svg, "path", "change")), 1)


if __name__ == "__main__":
    unittest.main()
