"""Tests of figures.py: python3 -m unittest discover -s scripts -p '*_test.py'"""

import unittest

import figures


class Fixed:
    """Two problems of one run."""

    ROWS = [
        {"run": "r", "problem": "bf16 kk 8192x8192x8192", "ratio": [1.0, 1.1, 1.2], "us": 1500},
        {"run": "r", "problem": "bf16 kk 64x128x256", "ratio": [0.9, 0.95, 1.0], "gb_per_s": {"4096": 33.8}},
    ]

    def select(self, newest=False, **filters):
        return [row for row in self.ROWS if all(figures.results.matches(row.get(name), value) for name, value in filters.items())]


KNOWN = figures.names(figures.Queries(Fixed()))

DEFINITIONS = figures.Definitions(
    """# A comment.
[names]
run = "r"

[table ratios]
spread = lambda p: only("ratio.max", problem=p)
    - only("ratio.min", problem=p)
| problem | ratio |
|---|---|
for p in problems("ratio", run=run): | {short(p)} | {only("ratio", problem=p):.2f} ({spread(p):.1f}) |

[figures least]
{least("ratio", run=run):.2f} or more

[figures twice]
{only("ratio"):.2f}

[figures missing]
{only("joules"):.2f}

[figures wrong]
{only("us") / 0:.2f}
""",
    KNOWN,
)

EMPTY = "Text.\n\n<!-- table ratios -->\n<!-- /table -->\n"


class Documents(unittest.TestCase):
    def test_tables_are_generated_and_then_right(self):
        self.assertEqual(len(figures.complaints(EMPTY, DEFINITIONS)), 1)
        text = figures.written(EMPTY, DEFINITIONS)
        self.assertIn("| 8192³ | 1.10 (0.2) |\n| 64×128×256 | 0.95 (0.1) |\n", text)
        self.assertEqual(figures.complaints(text, DEFINITIONS), [])
        self.assertEqual(figures.written(text, DEFINITIONS), text)
        ((line, _),) = figures.complaints(text.replace("1.10", "1.11"), DEFINITIONS)
        self.assertEqual(line, 3)

    def test_figures_must_stand_in_the_text_above(self):
        for text in ("It is 0.95 or more.", "It is 0.95\nor more: see below."):
            self.assertEqual(figures.complaints(f"{text}\n<!-- figures least -->\n", DEFINITIONS), [], text)
        for text in ("It is 0.96 or more.", "It is 10.95 or more.", "It is 0.95 or more.\n\n## Next\n"):
            self.assertEqual(len(figures.complaints(f"{text}\n<!-- figures least -->\n", DEFINITIONS)), 1, text)
        self.assertFalse(figures.stands_in("0.95", "It is 0.951."))

    def test_what_cannot_be_computed_is_said(self):
        for name in ("twice", "missing", "wrong", "nowhere"):
            text = f"1\n<!-- figures {name} -->\n<!-- table {name} -->\n<!-- /table -->\n"
            self.assertEqual([line for line, _ in figures.complaints(text, DEFINITIONS)], [2, 3], name)
            self.assertEqual(figures.written(text, DEFINITIONS), text)

    def test_queries(self):
        self.assertEqual(figures.filled('{least_of("ratio")} {only("gb_per_s.4096")} {only("us"):,}', KNOWN), "64×128×256 33.8 1,500")
        self.assertEqual(figures.filled('{below(1, "ratio")}', KNOWN), "['bf16 kk 64x128x256']")
        same = 'dict(problem="*8192x*")'
        self.assertEqual(figures.filled(f'{{quotients("ratio.max", {same}, {same})}}', KNOWN), "[1.0]")

    def test_significant_digits(self):
        self.assertEqual([figures.digits(value) for value in (0.1316, 2, 12.96, 113.66, 1630.67)], ["0.132", "2.00", "13.0", "114", "1631"])

    def test_kernels_in_words(self):
        self.assertEqual(figures.tile("bf16-kk-bf16-128x200x64-s5-p2-c2x1:whole:7:dependent"), "128×200, ping-pong, cluster 2×1")
        self.assertEqual(figures.tile("e4m3-kk-bf16-128x208x128-s4-w2-c1x1-p128"), "128×208")
        self.assertEqual(figures.tile("bf16-kkm-bf16-64x8x128-s8-w1-c1x1:split-14:4:serial"), "64×8, split-14")
        self.assertEqual(figures.tile("f64-kk-f64-128x64x16-s8-w4x2-k8:whole:4"), "128×64")


if __name__ == "__main__":
    unittest.main()
